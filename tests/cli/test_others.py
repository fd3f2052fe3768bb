"""limelight saturate, mask and engines."""

import json

import pytest
from typer.testing import CliRunner

from limelight.cli import app
from limelight.engines import ENGINES
from limelight.learn import saturation


def run(*args):
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, list(args))


def data(*args):
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_compare_scores():
    found = data("saturate", "--scores", "15,12,9", "--d-k", "64")
    assert found["unscaled"]["weights"] == pytest.approx([0.950330, 0.047314, 0.002356], abs=5e-7)
    assert found["scaled"]["weights"] == pytest.approx([0.463037, 0.318240, 0.218723], abs=5e-7)
    text = run("saturate", "--scores", "15,12,9", "--d-k", "64").stdout
    for number in ("0.950330", "0.463037", "0.0472", "0.2486", "0.1884", "0.9588", "saturated"):
        assert number in text
    assert max(map(len, text.splitlines())) <= 80


def test_curve_and_single_size():
    found = data("saturate", "--d-k", "4,64", "--draws", "300")
    assert [mean["d_k"] for mean in found["unscaled"]] == [4, 64]
    found = data("saturate", "--d-k", "16", "--draws", "50", "--keys", "3", "--seed", "2")
    assert len(found["scaled"]["weights"]) == 3
    assert found["mean"]["scaled"]["draws"] == 50
    for args in (["--draws", "50"], ["--d-k", "16", "--draws", "50"]):
        text = run("saturate", *args).stdout
        assert "Means over 50 draws" in text
        assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--scores", "1,2"], "--scores needs one --d-k"),
        (["--scores", "1,2", "--d-k", "2,4"], "--scores needs one --d-k"),
        (["--scores", "1,2", "--d-k", "2", "--keys", "3"], "nothing is drawn: leave out --keys"),
        (["--d-k", "1000000000000"], "one draw has 9,000,000,000,000 numbers"),
        (["--d-k", f"1{'0' * 400}", "--scores", "1,2"], "is too large"),
        (["--d-k", "four"], "'four' is not a whole number"),
        (["--d-k", ""], "'' is not a whole number"),
        (["--d-k", "0"], "--d-k 0: give a whole number"),
        (["--draws", "0"], "--draws"),
        (["--draws", "1000000000"], "--draws 1,000,000,000 are too many: 1,000,000 are the most"),
    ],
)
def test_saturate_errors(args, message):
    result = run("saturate", *args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_one_of_each():
    text = run("saturate", "--d-k", "1", "--keys", "1", "--draws", "1").stdout
    assert "One query and 1 key with 1 standard normal number each" in text
    assert "Means over 1 draw of one query and 1 key\n" in text
    assert "0.0 %" not in text  # with a weight of 1 it would seem to be at odds
    assert "one key leaves no choice" in text
    assert "no choice" not in run("saturate", "--d-k", "4", "--draws", "5").stdout


def test_the_curve_tells_how_far_it_is():
    told = []
    saturation.curve((4, 7), keys=3, draws=5, progress=lambda *pair: told.append(pair))
    assert told == [(20, 110), (55, 110), (75, 110), (110, 110)]


def test_mask_picture():
    text = run("mask", "causal & window(2, 0)", "--size", "4").stdout
    assert text.startswith(
        "Causal() & Window(left=2, right=0), 4 queries × 4 keys\n■ · · ·\n■ ■ · ·"
    )
    assert "56.2 % of the cells are allowed" in text
    assert "Blocks" not in text
    big = run("mask", "--size", "1000").stdout
    assert "28 empty, 8 partial, 28 full" in big
    assert "▒" in big
    assert "1 query × 1 key\n" in run("mask", "--size", "1").stdout
    assert "0 queries" in run("mask", "--size", "0").stdout


def narrow(*args):
    text = CliRunner(env={"COLUMNS": "60"}).invoke(app, list(args)).stdout
    assert max(map(len, text.splitlines())) <= 60
    return text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["captures"], ["llama-paragraph", "12 × 50"]),
        (["saturate", "--draws", "50"], ["gradient", "saturated", "1024", "score"]),
        (
            ["saturate", "--d-k", "64", "--draws", "50"],
            ["−11.634237", "0.981818", "effective keys"],
        ),
        (["engines"], ["reference", "definition,"]),
    ],
)
def test_a_narrow_terminal_cuts_nothing(args, words):
    text = narrow(*args)
    assert "…" not in text
    for word in words:
        assert word in text


def test_bars_take_the_room_there_is():
    def bars(text):
        return [line.count("█") for line in text.splitlines() if "█" in line]

    full = narrow("saturate", "--scores", "99,0", "--d-k", "1")
    half = narrow("saturate", "--scores", "99,99", "--d-k", "1")
    longest = max(map(len, full.splitlines()))
    assert bars(half) == [bars(full)[0] // 2] * 4
    assert any(line.endswith("█") and len(line) == longest for line in full.splitlines())
    assert "…" not in full
    worked = narrow("score", "--query", "99", "--keys", "1;0", "--values", "1;0")
    assert bars(worked) == [worked.count("█")]
    assert "…" not in worked
    sizes = bars(narrow("saturate", "--d-k", "4,4096", "--draws", "50"))
    assert sizes[0] < sizes[1]


def test_a_mask_fits_a_narrow_terminal():
    lines = narrow("mask", "causal", "--size", "2048").splitlines()
    assert lines[1] == " ".join("▒" + "·" * 29)
    assert lines[30] == " ".join("■" * 29 + "▒")
    assert "▒ partly allowed" in narrow("mask", "causal", "--size", "31")


def test_mask_json():
    found = data("mask", "causal", "--size", "2x3")
    assert found["dense"] == [[True, True, False], [True, True, True]]
    assert found["share"] == pytest.approx(5 / 6)
    assert data("mask", "--size", "100000", "--block", "50000")["dense"] is None
    per_batch = data("mask", "lengths([2, 5])")
    assert per_batch["share"] == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["foo"], "there is no mask 'foo'"),
        (["causal and prefix(2)"], "combine masks with &, | and ~"),
        (["--size", "4x4x4"], "write 8 for 8 × 8"),
        (["--size", "99999999999999999999999"], "too large a mask to draw"),
        (["prefix(1000000000000)"], "too large a mask to draw"),
        (["--size", "1000000", "--block", "8"], "give a larger --block"),
        (["--size", "-4"], "write 8 for 8 × 8"),
        (["documents([0, 1])", "--size", "3"], "Documents has 2 ids"),
    ],
)
def test_mask_errors(args, message):
    result = run("mask", *args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_engines():
    found = data("engines")
    assert [row["engine"] for row in found] == [engine.name for engine in ENGINES]
    usable = {row["engine"] for row in data("engines", "--usable")}
    assert {"reference", "numpy"} <= usable
    text = run("engines").stdout
    for row in found:
        assert row["engine"] in text
        if row["missing"]:
            assert f"{row['engine']} is missing here:" in text


@pytest.mark.parametrize("columns", [50, 79])
@pytest.mark.parametrize(
    "args",
    [
        ["engines"],
        ["captures"],
        ["demo"],
        ["inspect", "bert"],
        ["heads", "bert"],
        ["saturate", "--draws", "9"],
        ["compare", "bank-river", "bank-savings"],
    ],
    ids=lambda args: args[0],
)
def test_a_narrow_terminal_cuts_no_word_and_no_number(args, columns):
    text = CliRunner(env={"COLUMNS": str(columns)}).invoke(app, args).stdout
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= columns


def test_what_is_too_wide_for_a_table_stands_below_each_other():
    assert run("engines").stdout.split()[:3] == ["engine", "here", "on"]
    stacked = CliRunner(env={"COLUMNS": "50"}).invoke(app, ["engines"]).stdout
    assert stacked.startswith("   engine      reference\n   here        yes\n   on          cpu\n")
    assert "\n   types       float64, float32, bfloat16, float16\n" in stacked
    assert "\n\n   engine      numpy\n" in stacked
