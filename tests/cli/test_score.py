"""limelight score: the worked example to the digit, from the line and from files."""

import json

import pytest
from typer.testing import CliRunner

from limelight.cli import app

LINE = ["--query", "2,1", "--keys", "2,1;1,0;0,-1", "--values", "10,0;0,8;1,1"]


def run(*args, width=80):
    return CliRunner(env={"COLUMNS": str(width)}).invoke(app, ["score", *args])


def data(*args):
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_worked_example_as_json():
    found = data(*LINE)
    assert found["raw"] == [5, 2, -1]
    assert found["scaled"] == pytest.approx([3.535534, 1.414214, -0.707107], abs=5e-7)
    assert found["weights"] == pytest.approx([0.881645, 0.105686, 0.012669], abs=5e-7)
    assert found["output"] == pytest.approx([8.829123, 0.858154], abs=5e-7)
    assert found["health"]["verdict"] == "peaked"
    assert found["allowed"] == [True, True, True]


def test_worked_example_as_text_has_every_number_in_order():
    text = run(*LINE).stdout
    numbers = [
        "1  Compare", "2·0 + 1·(−1)", "2  Scale", "√2 = 1.414214", "3.535534", "1.414214",
        "−0.707107", "3  Normalise", "0.881645", "0.105686", "0.012669", "4  Mix", "[8.816454, 0]",
        "[8.829123, 0.858154]", "key 0 has the largest weight, 88.2 %",
    ]  # fmt: skip
    places, at = [], 0
    for number in numbers:
        at = text.index(number, at)
        places.append(at)
    assert places == sorted(places)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert all(line == line.rstrip() for line in text.splitlines())


def test_no_numbers_means_the_worked_example():
    assert run().stdout == run(*LINE).stdout


def test_by_hand_says_which_is_which():
    text = run("--by-hand").stdout
    assert "8.829123, 0.858154" in text
    assert "8.81, 0.89" in text
    assert "0.88, 0.11, 0.01" in text
    assert "The exact column is the answer" in text
    found = data("--by-hand")["by_hand"]
    assert (found["weights"], found["output"]) == ([0.88, 0.11, 0.01], [8.81, 0.89])
    assert data("--by-hand", "--digits", "3")["by_hand"]["output"] == [8.833, 0.861]


def test_several_queries_give_rows():
    found = data("--query", "1,2;3,4", "--keys", "1,1;2,0", "--values", "1,1;0,1", "--causal")
    assert found["raw"] == [[3, 2], [7, 6]]
    assert found["weights"][0] == [1, 0]
    assert found["logits"][0][1] is None
    text = run("--query", "1,2;3,4", "--keys", "1,1;2,0", "--values", "1,1;0,1", "--causal").stdout
    assert "query 1 = [3, 4]" in text
    assert "hidden by the mask" in text
    assert "only one in view" in text


def test_options_reach_the_calculation():
    assert data("--no-scale")["scaled"] == [5, 2, -1]
    assert data("--scale", "2")["scaled"] == [10, 4, -2]
    assert max(data("--softcap", "1")["capped"]) < 1
    assert data("--tokens", "a, b, c")["tokens"]["keys"] == ["a", "b", "c"]
    assert "left out" in run("--no-scale").stdout
    assert "key 1 'b'" in run("--tokens", "a,b,c").stdout
    assert "tanh(scaled / 3)" in run("--softcap", "3").stdout
    assert "multiply by 0.5\n" in run("--scale", "0.5").stdout


def test_numbers_as_typed_and_whole_products_where_there_is_room():
    text = run("--query", "-2,-1.5", *LINE[2:]).stdout
    assert "query 0 = [−2, −1.5], 3 keys" in text
    assert "(−2)·0 + (−1.5)·(−1)" in text
    assert "…" not in text
    long = run("--query", ",".join(["0.125"] * 9), "--keys", ",".join(["-0.125"] * 9),
               "--values", "1").stdout  # fmt: skip
    assert "1 key, d_k = 9" in long
    assert max(map(len, long.splitlines())) <= 80


def test_a_query_is_cut_only_where_it_has_no_room():
    for width in (34, 36, 38, 40, 60):
        first = run(width=width).stdout.splitlines()[0]
        assert first == "query 0 = [2, 1], 3 keys, d_k = 2"
    long = run("--query", ",".join(["0.125"] * 9), "--keys", ",".join(["1"] * 9), "--values", "1",
               width=60).stdout.splitlines()[0]  # fmt: skip
    assert long == "query 0 = [0.125, 0.125, 0.125, 0.125, …], 1 key, d_k = 9"


@pytest.mark.parametrize(("keys", "words"), [
    ("1,1;1,1;0,0", "key 0 and key 1 each have the largest weight, 44.6 %"),
    ("1,1;1,1;0,2;2,0", "4 keys each have the largest weight, 25.0 %"),
    ("1,1;0,0", "key 0 has the largest weight, 80.4 %"),
])  # fmt: skip
def test_a_tie_has_no_winner(keys, words):
    values = ";".join("1" for _ in keys.split(";"))
    assert words in run("--query", "1,1", "--keys", keys, "--values", values).stdout


@pytest.mark.parametrize(("values", "words"), [
    ("1,1;9,9", "key 0 has the largest weight, 80.4 %, and value 1 contributes most to"),
    ("9,0;1,1", "key 0 has the largest weight, 80.4 %, and value 0 contributes most to"),
    ("0,0;0,0", "key 0 has the largest weight, 80.4 %. The row"),
    ("1e308,1e308;0,0", "key 0 has the largest weight, 80.4 %. The row"),
])  # fmt: skip
def test_the_largest_weight_need_not_be_the_largest_contribution(values, words):
    text = run("--query", "1,1", "--keys", "1,1;0,0", "--values", values).stdout
    assert words in " ".join(text.split())


def test_what_overflows_says_so():
    result = run("--query", "1e200,1", "--keys", "1e200,1", "--values", "1")
    assert "not a number: finite inputs gave a score too large for 64 bits." in result.stdout
    assert result.stderr == ""


def test_a_query_that_sees_nothing():
    found = data("--query", "1;1;1", "--keys", "1;1", "--values", "1;1", "--causal")
    assert found["output"][0] == [0]
    text = run("--query", "1;1;1", "--keys", "1;1", "--values", "1;1", "--causal").stdout
    assert "There is no key to look at" in text


def test_markup_in_tokens_is_text():
    assert "'[bold]'" in run("--tokens", "[bold],b,c").stdout


def test_from_json(tmp_path):
    file = tmp_path / "x.json"
    file.write_text(json.dumps({
        "query": [2, 1], "keys": [[2, 1], [1, 0], [0, -1]], "values": [[10, 0], [0, 8], [1, 1]],
        "tokens": ["a", "b", "c"], "scale": 1.0,
    }))  # fmt: skip
    found = data("--file", str(file))
    assert found["scaled"] == [5, 2, -1]
    assert found["tokens"]["keys"] == ["a", "b", "c"]
    file.write_text('{"query": [[2, 1]], "keys": [[2, 1]], "values": [[1]]}')
    assert data("--file", str(file))["raw"] == [[5]]


def test_from_csv(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("# the worked example\nquery,2,1\n\nkey,2,1\nkey,1,0\nkey,0,-1\n"
                    "value,10,0\nvalue,0,8\nvalue,1,1\n")  # fmt: skip
    assert data("--file", str(file))["output"] == pytest.approx([8.829123, 0.858154], abs=5e-7)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", "{", "is not JSON: expecting property name"),
        ("x.json", "[1]", "holds a list"),
        ("x.json", '{"query": [1]}', "has no keys and no values"),
        ("x.json", '{"query": ["a"], "keys": [], "values": []}', "query must be a list of numbers"),
        ("x.json", '{"query": [], "keys": [[1]], "values": [[1]]}', "query must be a list"),
        ("x.json", '{"query": [1], "keys": [[1], [1, 2]], "values": [[1]]}', "keys must be a list"),
        ("x.json", '{"q": [1]}', "has 'q', which means nothing here"),
        ("x.json", '{"query": [1], "keys": [[1]], "values": [[1]], "tokens": "a"}',
         "tokens must be a list of strings"),
        ("x.json", '{"query": [1], "keys": [[1]], "values": [[1]], "scale": "big"}',
         'scale must be a number, and is "big"'),
        ("x.json", '{"query": [1], "keys": [[1]], "values": [[1]], "scale": true}',
         "scale must be a number, and is true"),
        ("x.json", '{"query": [1], "keys": [[1]], "values": [[1]], "causal": "no"}',
         'causal must be true or false, and is "no"'),
        ("x.json", '{"query": [NaN], "keys": [[1]], "values": [[1]]}', "'NaN' is not a number"),
        ("x.json", '{"query": [1e400], "keys": [[1]], "values": [[1]]}', "'1e400' is too large"),
        ("x.csv", "quary,1\n", "line 1: starts with 'quary'"),
        ("x.csv", "query,1\nkey,a\n", "line 2: 'a' is not a number"),
        ("x.csv", "key,1\nkey,1,2\n", "line 2: 2 numbers, where the other keys have 1"),
        ("x.csv", "", "has no query and no keys and no values"),
        ("x.txt", "", "is neither .json nor .csv"),
    ],
)  # fmt: skip
def test_bad_files(tmp_path, name, content, message):
    file = tmp_path / name
    file.write_text(content)
    result = run("--file", str(file))
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_file_nested_too_deeply(tmp_path):
    file = tmp_path / "deep.json"
    file.write_text(f'{{"query": {"[" * 100_000}{"]" * 100_000}}}')
    result = run("--file", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "deep.json is nested too deeply: query, keys and values are lists" in result.stderr


@pytest.mark.parametrize(("args", "scale", "normalise"), [
    ([], "√d_k = √1 = 1, so the scores stay as they are", "each score over"),
    (["--softcap", "5"], "√d_k = √1 = 1", "each capped score over"),
    (["--scale", "1/2"], "multiply by 0.5", "each score over"),
])  # fmt: skip
def test_one_number_a_key(args, scale, normalise):
    text = run("--query", "1", "--keys", "1;2", "--values", "1;2", *args).stdout
    assert f"2  Scale: {scale}\n" in text
    assert normalise in text


def test_a_cap_without_scaling():
    text = run("--no-scale", "--softcap", "5").stdout
    assert "2  Scale: left out\n   and cap: 5 · tanh(scaled / 5)" in text


def test_unreadable_files(tmp_path):
    assert "cannot be read" in run("--file", str(tmp_path / "none.json")).stderr
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in run("--file", str(tmp_path / "x.csv")).stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--query", "1"], "--keys and --values are missing"),
        (["--query", "1", "--keys", "1"], "--values is missing"),
        ([*LINE, "--file", "x.json"], "from --file or from the line, not from both"),
        (["--query", "1", "--keys", "1,2", "--values", "1"], "no dot product"),
        (["--no-scale", "--scale", "2"], "say different things"),
        (["--scale", "abc"], "--scale: 'abc' is not a number"),
        (["--softcap", "-1"], "a softcap of -1: give a number above 0"),
        (["--digits", "3"], "--digits is what --by-hand rounds to"),
        (
            ["--tokens", "a,b"],
            "2 tokens for 3 keys: give one name for each key, separated by commas",
        ),
        (
            ["--query", "1;2", "--keys", "1", "--values", "1", "--tokens", "a"],
            "fewer keys than queries: leave the tokens out",
        ),
        (["--by-hand", "--digits", "99"], "--digits 99: give a whole number from 0 to 12"),
    ],
)
def test_errors(args, message):
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
