"""The edge: commands found lazily, errors in one line, JSON strict, numbers read from text."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from limelight.capture import Capture, Site
from limelight.cli import app, docs
from limelight.cli._edge import bar, column, json_safe, matrix, number, print_json, vector
from limelight.cli._lazy import LazyGroup, in_options, load, note
from limelight.engines import native
from limelight.errors import ArgumentError
from limelight.pictures import fonts, lettering


def run(*args, **others):
    return CliRunner().invoke(app, list(args), **others)


def fresh(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


@pytest.mark.parametrize("name", LazyGroup.table)
def test_the_table_says_what_the_command_says(name):
    assert load(name).help.splitlines()[0] == LazyGroup.table[name].summary


@pytest.mark.parametrize("name", LazyGroup.table)
def test_every_command_has_help_and_json(name):
    result = run(name, "--help")
    assert result.exit_code == 0
    command = load(name)
    commands = [*getattr(command, "commands", {}).values()] or [command]
    for each in commands:
        assert "--json" in {option for param in each.params for option in param.opts}


def test_help_imports_no_command_and_nothing_heavy():
    code = """
import sys
from typer.testing import CliRunner
from limelight.cli import app
result = CliRunner().invoke(app, ["--help"])
assert result.exit_code == 0 and "score" in result.output
heavy = {"torch", "triton", "transformers", "starlette", "uvicorn", "limelight.cli.score"}
print(sorted(heavy & set(sys.modules)))
"""
    assert fresh(code).stdout.strip() == "[]"


def test_without_a_command_a_few_to_begin_with():
    result = run()
    assert result.exit_code == 0
    lines = result.output.splitlines()
    named = [line.split()[1] for line in lines if line.startswith("  limelight")]
    assert len(named) == 5
    assert set(named) <= set(LazyGroup.table)
    assert max(map(len, lines)) <= 80


def test_the_demo_shows_the_worked_example_a_real_head_and_a_run():
    shown = run("demo").output
    assert "[bold]" not in shown
    assert "output = [8.829123, 0.858154]" in shown
    assert "cat       curious      0.93" in shown
    first, *_, last = json.loads(run("demo", "--json").output)["run"]
    assert first["entropy"] > 2.4
    assert last["entropy"] < 0.3
    assert last["loss"] < 0.01 < first["loss"]


def test_completion_knows_the_commands():
    env = {"_LIMELIGHT_COMPLETE": "complete_bash", "COMP_WORDS": "limelight he", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "limelight"], env={**os.environ, **env}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["heatmap", "heads"]


def test_the_command_without_its_extra_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None\nfrom limelight.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "limelight[studio]: in the checkout, pip install '.[studio]'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_version():
    import limelight

    assert run("--version").output.strip() == f"limelight {limelight.__version__}"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["paint"], "there is no command 'paint': choose demo, score"),
        (["studoi"], "there is no command 'studoi': did you mean studio?"),
        (["score", "--paint"], "No such option: --paint"),
        (["saturate", "--keys", "many"], "--keys many: give a whole number ≥ 1 (see limelight"),
        (["saturate", "--keys", "0"], "--keys 0: give a whole number ≥ 1 (see limelight"),
        (["saturate", "--keys", ""], "--keys '': give a whole number ≥ 1 (see limelight"),
        (["studio", "--port", "65536"], "--port 65536: give a whole number from 0 to 65535 (see"),
        (["report", "llama", "--budget", "1 MB"], "--budget 1 MB: give a number from 0.1 to 2000"),
        (
            ["heads", "llama", "--to", "0", "--at-least", "2"],
            "--at-least 2: give a number from 0 to",
        ),
        (["inspect", "llama", "--generate", "-1"], "--generate -1: give a whole number ≥ 0 (see"),
        (["score", "--query", "1,a", "--keys", "1,1", "--values", "1"], "'a' is not a number"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(args, message):
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("limelight: ")
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["report"], "Missing argument 'CAPTURE' (see limelight report --help)"),
        (
            ["heatmap", "llama", "--layer", "0", "--size", "0"],
            "For more detail ask for a part with --rows … and --columns …",
        ),
        (["heatmap", "llama", "--layer", "0", "--pool", ""], "--pool '': choose 'max'"),
        (["saturate", "--d-k", "0"], "--d-k 0: give a whole number ≥ 1"),
        (["survey", "smollm2", "none.txt"], "none.txt: there is no such file or folder"),
        (
            ["score", "--query", "1,2", "--keys", "1,2,3", "--values", "1"],
            "size 2 has no dot product with a key of size 3: give both as many numbers; ';' stands "
            "between keys",
        ),
        (
            ["score", "--query", "1,2", "--keys", "1,2;3,4", "--values", "1"],
            "2 keys but 1 value: each key goes with one value; ';' stands between values",
        ),
        (
            [
                "heatmap",
                "vit",
                "--layer",
                "0",
                "--head",
                "0",
                "--as",
                "patches",
                "--query",
                "99",
                "-o",
                "x.png",
            ],
            "there is no query 99: there are 50, numbered from 0",
        ),
        (["watch", "."], ". is a folder: name the file in it that the monitor writes"),
        (
            ["heatmap", "llama", "--layer", "0", "-o", "x"],
            "x has no ending: give a name that ends in .png, .svg or .pdf",
        ),
    ],
)
def test_errors_speak_of_the_command_s_own_options(args, message):
    result = run(*args)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"{message}\n") or message.startswith("--")
    assert message in result.stderr


def test_arguments_of_the_library_are_options():
    heatmap, report = load("heatmap"), load("report")
    assert in_options("layer=3 and d_k=4, head=5.", heatmap.params) == (
        "--layer 3 and d_k=4, --head 5."
    )
    assert in_options("--rows=9:3, kind='a b': no", heatmap.params) == "--rows=9:3, --as a b: no"
    assert in_options("capture=x, budget=1", report.params) == "capture=x, --budget 1"


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("as_json", [False, True])
def test_warnings_are_notes_of_one_line(tmp_path, monkeypatch, as_json):
    """No path, no line of code and no name of a class: a person asked for a picture."""
    draw = np.random.default_rng(0).standard_normal((2, 1, 1, 2, 4))
    Capture((Site("a", 0, *draw, tokens=(("a", "\uac00"),)),)).save(tmp_path / "a.safetensors")
    monkeypatch.setattr(fonts, "font_of", lambda text: None)
    lettering._parts.cache_clear()
    lettering.coverage.cache_clear()
    words = ["--layer", "0", "--head", "0", "--output", str(tmp_path / "a.png")]
    words += ["--json"] if as_json else []
    result = run("heatmap", str(tmp_path / "a.safetensors"), *words)
    lettering._parts.cache_clear()
    lettering.coverage.cache_clear()
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch("limelight: note: \uac00 are drawn as boxes: .*own fonts\n", result.stderr)


def test_a_note_is_one_line_whatever_it_says(capsys):
    note(UserWarning("a\n  b\x1b[31m"), UserWarning, "somewhere.py", 3)
    assert capsys.readouterr() == ("", "limelight: note: a b\\x1b[31m\n")


@pytest.mark.parametrize("words", ["score", "score --json", "inspect llama", "--help"])
def test_a_reader_that_stops_early_is_no_error(words):
    command = f"{{ {sys.executable} -m limelight {words}; echo $? >&2; }} | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.stdout.count("\n") == 1
    assert done.stderr == "0\n"


def shell(line, **environment):
    """A command line through a shell, `limelight` being this checkout's."""
    return subprocess.run(
        ["sh", "-c", line.replace("limelight", f"{sys.executable} -m limelight", 1)],
        capture_output=True, text=True, env={**os.environ, "COLUMNS": "80", **environment},
    )  # fmt: skip


@pytest.mark.parametrize("command", ["score", "score --json", "score --help", "--version"])
@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        (">&-", "standard output is closed: there is nowhere to write to"),
        (">/dev/full", "cannot write: no space left on device"),
    ],
)
def test_an_output_that_takes_nothing_is_one_line(command, redirection, message):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    done = shell(f"limelight {command} {redirection}")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"limelight: {message}\n")


@pytest.mark.parametrize("command", ["score", "engines", "captures --json"])
def test_an_instruction_set_that_is_not_there_is_one_line(command):
    if native.missing():
        pytest.skip(native.missing())
    done = shell(f"limelight {command}", LIMELIGHT_ISA="zz")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("limelight: LIMELIGHT_ISA: there is no instruction set 'zz' here")
    assert done.stderr.count("\n") == 1


def test_help_needs_no_instruction_set():
    assert shell("limelight --help", LIMELIGHT_ISA="zz").returncode == 0


def test_what_ascii_lacks_is_replaced():
    done = shell("limelight score", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "2*0 + 1*(-1)" in done.stdout
    assert "[0, -1]" in done.stdout
    assert "?" not in done.stdout
    done = shell("limelight score --tokens é,b,가", PYTHONIOENCODING="ascii")
    assert "key 0 'e'" in done.stdout
    assert "key 2 '?'" in done.stdout


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("demo", "-> weight"),
        ("demo", "`-> output"),
        ("engines", "O(n^2)"),
        ("captures", "Copilot's"),
        ("saturate --draws 3", "draws with p >= 0.95"),
        ("watch gpt-qkclip --once", "\n! collapse"),
        ("exercise --level 1 --seed 2 --answers --language de", "groesste"),
        ("exercise --level 1 --seed 2 --answers --language es", "numeros"),
    ],
)
def test_every_sign_of_ours_has_an_ascii_form(command, words):
    done = shell(f"limelight {command}", PYTHONIOENCODING="ascii")
    assert words in done.stdout
    assert "?" not in done.stdout


@pytest.mark.parametrize("command", ["experiment", "engines", "saturate --d-k 4 --draws 3"])
def test_tables_stay_straight_without_unicode(command):
    done = shell(f"limelight {command}", PYTHONIOENCODING="ascii")
    tables = [part.splitlines() for part in done.stdout.split("\n\n") if "-+-" in part]
    assert tables
    for lines in tables:
        rows = [line.replace("-+-", "-|-") for line in lines if "|" in line or "-+-" in line]
        edges = {tuple(at for at, sign in enumerate(row) if sign == "|") for row in rows}
        assert len(edges) == 1


def test_what_is_hidden_is_light_without_unicode():
    done = shell("limelight mask --size 3", PYTHONIOENCODING="ascii")
    assert "# . .\n# # .\n# # #\n# allowed  . hidden" in done.stdout
    done = shell("limelight heatmap llama --layer 3 --head 1", PYTHONIOENCODING="ascii")
    assert "  ##..........\n  ##  ........\n" in done.stdout


def test_json_in_ascii_loses_nothing():
    done = shell("limelight score --json --tokens é,b,c", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["tokens"]["keys"] == ["é", "b", "c"]


@pytest.mark.parametrize("name", [None, *LazyGroup.table])
def test_flags_are_shown_as_flags(name):
    result = run(*([] if name is None else [name]), "--help", env={"COLUMNS": "100"})
    assert "--help" in result.output
    assert "bool" not in result.output.lower()


def test_module_entry_point():
    code = [sys.executable, "-m", "limelight", "mask", "causal", "--size", "2"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(code, capture_output=True, text=True, check=True, env=environment)
    assert "■ ·\n■ ■\n" in done.stdout


def test_json_is_strict_and_short_lists_stay_on_a_line(capsys):
    print_json(
        {"a": [1.5, math.nan, -math.inf], "b": np.eye(2), "c": {}, "d": [], "é": np.float32(2)}
    )
    text = capsys.readouterr().out
    assert json.loads(text) == {
        "a": [1.5, None, None], "b": [[1, 0], [0, 1]], "c": {}, "d": [], "é": 2
    }  # fmt: skip
    assert '"a": [1.5, null, null]' in text


def test_plain_keeps_what_json_knows():
    assert json_safe((1, True, None, "x", np.int64(3), np.array([True]))) == [
        1,
        True,
        None,
        "x",
        3,
        [True],
    ]


@pytest.mark.parametrize(
    ("text", "value"), [("2", 2.0), (" -1.5 ", -1.5), ("−3", -3.0), ("1/4", 0.25), ("1e3", 1000.0)]
)
def test_number(text, value):
    assert number(text, "x") == value


@pytest.mark.parametrize("text", ["", "a", "1/0", "nan", "-inf", "1/2/3"])
def test_not_a_number(text):
    with pytest.raises(ArgumentError, match="is not a number"):
        number(text, "--x")


@pytest.mark.parametrize("text", ["1e999", "−1e400", "1e308/1e-9"])
def test_a_number_that_is_too_large(text):
    with pytest.raises(ArgumentError, match="is too large: numbers here have 64 bits"):
        number(text, "--x")


def test_vectors_and_matrices():
    assert vector("2,1", "x") == vector(" 2 1 ", "x") == vector("[2, 1]", "x") == [2.0, 1.0]
    assert matrix("2,1; 1,0", "x") == matrix("[[2, 1], [1, 0]]", "x") == [[2.0, 1.0], [1.0, 0.0]]
    assert matrix("1;2;", "x") == [[1.0], [2.0]]
    with pytest.raises(ArgumentError, match="no numbers in ''"):
        vector("", "--query")
    with pytest.raises(ArgumentError, match=r"--keys: the rows have 2, 1 numbers"):
        matrix("1,2;3", "--keys")


def test_bars_and_columns():
    assert (bar(1, 4), bar(0.5, 4), bar(0, 4), bar(math.nan, 4)) == ("████", "██", "", "")
    assert bar(1e-9, 4) == "▏"
    assert column([5, -1]) == ["5", "−1"]
    assert column([0.5, 1]) == ["0.500000", "1.000000"]


def test_docs_are_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "cli.md"
    advice = "run: python -m limelight.cli.docs > docs/cli.md"
    assert page.read_text(encoding="utf-8") == docs.markdown(), advice
