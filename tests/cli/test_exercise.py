"""limelight exercise: the dialogue, and the same for machines."""

import json

import pytest
from typer.testing import CliRunner

from limelight.cli import app
from limelight.learn.exercises import QUIZ, WORKED, generate, sheet


def run(*args, lines=()):
    typed = "".join(f"{line}\n" for line in lines)
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["exercise", *args], input=typed)


WHY = "abcd"[int(WORKED.expected("why")[0])]
RIGHT = ["5,2,-1", "3.54,1.41,-0.71", "0.88,0.11,0.01", "8.83,0.86", "0", "0", WHY]


def test_straight_through():
    result = run("--level", "0", lines=RIGHT)
    assert result.exit_code == 0
    assert result.stdout.count("✓") == 7
    assert "Done: 7 of 7 steps on your own, 7 at once." in result.stdout
    assert "--level 1" in result.stdout


def test_nothing_typed_loses_progress():
    lines = ["nonsense", "", "5,2", "5,2,-1", "[[[", "hint", "5,2,-1", "\x00", *RIGHT[1:]]
    result = run("--level", "0", lines=lines)
    assert result.exit_code == 0
    assert "Done: 6 of 7 steps on your own, 6 at once; 1 with a hint." in result.stdout
    assert result.stdout.count("1 of 7") == 1
    assert "The scores were not scaled" in result.stdout


def test_hint_and_show():
    result = run("--level", "0", lines=["hint", "hint", "hint", "show", *RIGHT[1:]])
    assert "add the products" in result.stdout
    assert result.stdout.count("The first one: key 0: 2·2 + 1·1 = 5") == 2
    assert "key 2: 2·0 + 1·(−1) = −1" in result.stdout
    assert "Done: 6 of 7 steps on your own" in result.stdout


@pytest.mark.parametrize("word", ["quit", "q", None])
def test_stopping_says_how_to_go_on(word):
    lines = [*RIGHT[:2], *([word] if word else [])]
    result = run("--level", "0", lines=lines)
    assert result.exit_code == 0
    assert "limelight exercise --level 0 --seed 0 --step weights" in result.stdout


def test_going_on_in_the_middle():
    result = run("--level", "0", "--step", "weights", lines=RIGHT[2:])
    assert "3 of 7" in result.stdout
    assert "Done: 5 of 5 steps on your own" in result.stdout


def test_shown_all_the_way_is_not_done():
    result = run("--level", "2", "--seed", "1", lines=["show"] * 7)
    assert "Seen through: every step was shown." in result.stdout
    assert "Done" not in result.stdout
    assert "on your own" not in result.stdout


def test_after_the_worked_example_comes_another_exercise():
    result = run("--level", "0", lines=["hint", *RIGHT])
    assert "limelight exercise --level 1" in result.stdout
    assert "--level 0" not in result.stdout


def test_reasons_are_chosen_by_letter():
    wrong = "a" if WHY != "a" else "b"
    result = run("--level", "0", "--step", "why", lines=[wrong, "one", WHY])
    for letter, reason in zip("abcd", WORKED.reasons, strict=True):
        assert f"   {letter}  {reason.text}" in result.stdout
    assert "✗ No: " in result.stdout
    assert "Choose from a to d." in result.stdout
    assert "✓ Yes: " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_new_exercise_says_its_number():
    first = run("--level", "2").stdout.splitlines()[0]
    seed = first.split("exercise ")[1].split(":")[0]
    assert run("--level", "2", "--seed", seed).stdout.splitlines()[0] == first


def test_causal_exercise_shows_what_is_hidden():
    assert "hidden: it comes after the query" in run("--level", "4", "--seed", "3").stdout


def test_json():
    result = run("--level", "3", "--seed", "5", "--json")
    assert json.loads(result.stdout) == generate(3, 5).to_dict()
    result = run("--level", "3", "--seed", "5", "--json", "--answers")
    assert json.loads(result.stdout) == generate(3, 5).to_dict(answers=True)


def test_check_for_machines():
    given = ["--check", "raw=5,2,-1", "--check", "output=10,0"]
    found = json.loads(run("--level", "0", *given, "--json").stdout)
    assert [item["kind"] for item in found["feedback"]] == ["", "top-value-only"]
    assert found["exercise"] == WORKED.to_dict()
    text = run("--level", "0", *given).stdout
    assert "✓ raw: Right." in text
    assert "✗ output: Only the value" in text
    assert "= 8.829123" not in text


def test_a_check_gives_the_solution_too_where_it_is_asked_for():
    given = ["--level", "0", "--check", "raw=5,2,1", "--answers"]
    text = run(*given).stdout
    assert text.index("A minus sign was lost") < text.index("+ 0.012669·1 = 8.829123")
    assert json.loads(run(*given, "--json").stdout)["exercise"] == WORKED.to_dict(answers=True)


def test_answers_as_text():
    text = run("--level", "0", "--answers").stdout
    assert "number 0: 0.881645·10 + 0.105686·0 + 0.012669·1 = 8.829123" in text


def test_sheet(tmp_path):
    target = tmp_path / "sheet.html"
    given = ["--sheet", "--seed", "7", "--count", "4", "--level", "2", "--level", "4"]
    said = run(*given, "-o", str(target))
    assert said.exit_code == 0
    assert "4 exercises, seed 7, level 2, 4" in said.stdout.replace("\n", " ")
    assert target.read_text() == sheet(7, 4, [2, 4]).to_html()
    assert "give --force" in run(*given, "-o", str(target)).stderr
    assert run(*given, "--force", "-o", str(target)).exit_code == 0
    assert json.loads(run(*given, "--json").stdout) == sheet(7, 4, [2, 4]).to_dict()


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("de", ["Stufe 0, Aufgabe 0: das Rechenbeispiel", "Query = [2, 1]", "1 von 7  Vergleichen:",
                "Multipliziere Query und Key Zahl für Zahl", "✗ Die Scores wurden nicht skaliert",
                "Key 0: 5 / √2 = 3.535534", "✓ Richtig: Key 0 passt am besten",
                "Geschafft: 5 von 7 Schritten allein, 5 auf Anhieb; 1 mit einem Tipp.",
                "limelight exercise --level 1 --language de (zwei Keys, d_k = 2)"]),
        ("es", ["Nivel 0, ejercicio 0: el ejemplo resuelto", "consulta = [2, 1]",
                "1 de 7  Comparar:", "✗ Las puntuaciones no se escalaron",
                "clave 0: 5 / √2 = 3.535534", "Hecho: 5 de 7 pasos por tu cuenta"]),
    ],
)  # fmt: skip
def test_in_another_language(language, said):
    lines = ["hint", RIGHT[0], "5,2,-1", "show", *RIGHT[2:]]
    result = run("--level", "0", "--language", language, lines=lines)
    assert result.exit_code == 0
    told = " ".join(result.stdout.split())
    for text in said:
        assert " ".join(text.split()) in told
    assert not {"the", "and", "each", "weight"} & set(result.stdout.split())


def test_json_in_another_language():
    given = ["--level", "0", "--language", "de", "--check", "scaled=5,2,-1", "--json"]
    found = json.loads(run(*given).stdout)
    assert found["feedback"][0]["kind"] == "not-scaled"
    assert found["feedback"][0]["instead"].startswith("Teile jedes Skalarprodukt durch √d_k")
    assert found["exercise"]["steps"][4]["step"] == "key"
    assert found["exercise"]["steps"][4]["options"][0] == "Key 0 = [2, 1]"
    questions = json.loads(run("--quiz", "--json", "--language", "es").stdout)
    assert questions[1]["text"] == "¿Sobre qué actúa la softmax?"


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", "1 exercise, seed 7"), ("de", "1 Aufgabe, Startwert 7"), ("es", "1 ejercicio, ")],
)
def test_a_sheet_of_one(tmp_path, language, words):
    given = ["--sheet", "--seed", "7", "--count", "1", "--language", language]
    said = run(*given, "-o", str(tmp_path / "one.html")).stdout
    assert f"one.html: {words}" in said.replace("\n", " ")


def test_sheet_and_quiz_in_another_language(tmp_path):
    target = tmp_path / "hoja.html"
    given = ["--sheet", "--seed", "7", "--count", "2", "--language", "es", "-o", str(target)]
    assert "2 ejercicios, semilla 7" in run(*given).stdout.replace("\n", " ")
    assert target.read_text() == sheet(7, 2, language="es").to_html()
    assert "Angehalten nach 0 von" in run("--quiz", "--language", "de", lines=["quit"]).stdout


def test_quiz():
    letters = ["abc"[question.right] for question in QUIZ]
    result = run("--quiz", lines=letters)
    assert f"Done: {len(QUIZ)} of {len(QUIZ)} right at once." in result.stdout
    wrong_first = ["z", "", "c" if letters[0] != "c" else "a", *letters]
    assert f"Done: {len(QUIZ) - 1} of {len(QUIZ)}" in run("--quiz", lines=wrong_first).stdout
    assert "Stopped after 1" in run("--quiz", lines=[letters[0], "quit"]).stdout
    questions = json.loads(run("--quiz", "--json").stdout)
    assert questions == [question.to_dict() for question in QUIZ]
    assert "right" in json.loads(run("--quiz", "--json", "--answers").stdout)[0]
    assert run("--quiz", "--answers").stdout.count("Yes:") == len(QUIZ)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--level", "9"], "there is no level 9"),
        (["--step", "sum"], "there is no step 'sum'"),
        (["--seed", "1", "--check", "5,2,-1"], "write the step and the answer"),
        (["--seed", "1", "--check", "sum=5"], "there is no step 'sum'"),
        (["--check", "raw=5,2"], "--check needs --seed"),
        (["--seed", "1", "--step", "raw", "--check", "raw=5,2"], "leave out --step"),
        (["--quiz", "--check", "raw=5,2", "--level", "2"], "leave out --level, --check"),
        (["--count", "3"], "not on a --sheet: leave out --count"),
        (["--count", "3", "--force"], "not on a --sheet: leave out --count, --force"),
        (["--step", "scaled", "--answers"], "all steps are given at once: leave out --step"),
        (["--step", "scaled", "--json"], "all steps are given at once: leave out --step"),
        (["--level", "1", "--level", "2"], "several --level are for --sheet"),
        (["--sheet", "--step", "raw", "--answers"], "leave out --step, --answers"),
        (["--sheet", "--quiz"], "leave out --sheet"),
        (["--sheet", "--level", "0"], "there is no level 0 for a sheet: choose from 1 to 5"),
        (["--sheet", "--count", "0"], "--count 0: give a whole number from 1 to 200"),
        (["--sheet", "-o", "sheet.pdf"], "give a name that ends in .html or .htm"),
        (["--language", "fr"], "no texts in 'fr': choose en, de, es"),
        (["--seed", "-1"], "--seed -1: give a whole number ≥ 0"),
    ],
)
def test_errors(args, message):
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_command_that_goes_on_stays_on_its_line():
    words = ["exercise", "--level", "2", "--seed", "5", "--language", "de"]
    told = CliRunner(env={"COLUMNS": "40"}).invoke(app, words, input="quit\n").stdout
    assert "\n  limelight exercise --level 2 --seed 5 --step raw --language de\n" in told
