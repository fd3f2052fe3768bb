"""limelight heatmap and limelight heads, on a capture of two small layers."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import limelight as ll
from limelight.capture import Capture, Grid, Site
from limelight.cli import app

WORDS = tuple(f"w{n % 7}" for n in range(23))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    sites = tuple(
        Site(f"layer.{n}", n, *rng.normal(size=(2, 1, 3, 23, 8)).astype(np.float32),
             mask=ll.Causal(), tokens=(WORDS,))
        for n in range(2)
    )  # fmt: skip
    image = rng.integers(0, 256, (1, 32, 32, 3)).astype(np.uint8)
    where: Path = tmp_path_factory.mktemp("capture") / "a.safetensors"
    Capture(sites, (WORDS,), image=image, grid=Grid(4, 4, 1), source={"model": "Tiny"}).save(where)
    return where


def run(*args: Any) -> Any:
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(arg) for arg in args])


def test_a_map_as_numbers(path: Path) -> None:
    result = run("heatmap", path, "--layer", 1, "--head", 2, "--rows", "3:9", "--json")
    data = json.loads(result.stdout)
    assert (data["layer"], data["head"], data["rows"], data["shape"]) == (1, 2, [3, 9], [6, 23])
    site = Capture.open(path)[1]
    exact = site.heatmap((6, 23), rows=(3, 9), head=2).values
    np.testing.assert_allclose(np.array(data["values"], float), exact)
    assert data["values"][0][22] is None
    pooled = run(
        "heatmap", path, "--layer", -1, "--head", 0, "--size", 5, "--pool", "mean", "--json"
    )
    assert np.array(json.loads(pooled.stdout)["values"]).shape == (5, 5)


@pytest.mark.parametrize(("args", "starts"), [
    (["--layer", 1, "--head", 2], "<svg"),
    (["--layer", "layer.0"], "<svg"),
    (["--layer", 0, "--head", 1, "--scale", "log", "--theme", "dark", "--title", "Mine"], "<svg"),
    (["--layer", 0, "--head", 1, "--as", "lines", "--rows", ":10"], "<svg"),
    (["--layer", 0, "--head", 1, "--as", "patches", "--query", 5], "<svg"),
    ([], "<svg"),
    (["--figure", "entropy", "--as", "grid"], "<svg"),
    (["--figure", "judged"], "<svg"),
])  # fmt: skip
def test_every_kind_of_picture(args: list[Any], starts: str, path: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.svg"
    result = run("heatmap", path, *args, "-o", out)
    assert result.exit_code == 0, result.output
    assert out.read_text().startswith(starts)
    assert f"{out}: " in result.stdout
    assert ("Mine" if "Mine" in args else "Tiny") in out.read_text()


def test_png(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.png"
    assert run("heatmap", path, "--layer", 0, "--head", 0, "-o", out).exit_code == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_in_the_terminal(path: Path) -> None:
    text = run("heatmap", path, "--layer", 0, "--head", 0).stdout
    assert text.startswith("Tiny · layer 0 · head 0\nqueries 0:23 down, keys 0:23 across\n  ██··")
    assert "the largest weight is 1; -o map.png draws it in full" in text
    assert max(map(len, text.splitlines())) <= 80
    assert run("heatmap", path, "--layer", 0).stdout.count("head ") == 3


def drawn(columns: int, *args: Any) -> list[str]:
    """What a colour terminal of that width shows, without the colours."""
    env = {"COLUMNS": str(columns), "FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": None}
    text = CliRunner(env=env).invoke(app, ["heatmap", *map(str, args)]).stdout
    return re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def test_a_colour_terminal_uses_its_width(path: Path) -> None:
    lines = drawn(25, path, "--layer", 0, "--head", 0)
    assert lines[1] == "queries 0:23 down, keys"  # and on the next line the rest
    assert [len(line.strip()) for line in lines if "▀" in line] == [23] * 12
    assert not any("bins" in line for line in lines)


@pytest.mark.parametrize("args", [[], ["--size", 23], ["--pool", "mean"]])
def test_bins_of_several_cells_are_said_to_be(path: Path, args: list[Any]) -> None:
    lines = drawn(20, path, "--layer", 0, "--head", 0, *args)
    pool = "mean" if "mean" in args else "max"
    assert f"18 × 18 bins, each the {pool} of up to 2 × 2 cells" in " ".join(lines)
    assert [len(line.strip()) for line in lines if "▀" in line] == [18] * 9
    plain = CliRunner(env={"COLUMNS": "40"}).invoke(
        app, ["heatmap", str(path), "--layer", "0", "--head", "0"]
    )
    assert "19 × 19 bins, each the max of up to 2 × 2 cells" in " ".join(plain.stdout.split())


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colour_gets_shades(path: Path, env: dict[str, str]) -> None:
    terminal = {"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": None}
    args = ["heatmap", str(path), "--layer", "0", "--head", "0"]
    text = CliRunner(env=terminal | env).invoke(app, args).stdout
    assert "▀" not in text
    assert run(*args).stdout.splitlines()[2:25] == text.splitlines()[2:25]


def test_a_colour_terminal_without_blocks_gets_shades(path: Path) -> None:
    terminal = {"COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm-256color", "NO_COLOR": None}
    args = ["heatmap", str(path), "--layer", "0", "--head", "0"]
    text = CliRunner(charset="ascii", env=terminal).invoke(app, args).stdout
    assert "?" not in text
    assert text.splitlines()[2] == "  ##" + "." * 44


def test_the_mean_of_a_bin_is_of_its_cells(path: Path) -> None:
    seen = Capture.open(path)[0].heatmap((8, 8), "mean", (12, 23), (0, 12), head=0).values
    text = " ".join(
        drawn(
            10,
            path,
            "--layer",
            0,
            "--head",
            0,
            "--pool",
            "mean",
            "--rows",
            "12:23",
            "--columns",
            ":12",
        )
    )
    assert f"the largest mean of a bin is {np.nanmax(seen):.4g};" in " ".join(text.split())


def test_all_heads_in_the_terminal(path: Path) -> None:
    text = run("heatmap", path).stdout
    assert text.startswith("Tiny\nlargest weight (mean), layers down, heads across")
    tables = Capture.open(path).health()
    data = json.loads(run("heatmap", path, "--figure", "entropy", "--json").stdout)
    assert (data["as"], data["figure"]) == ("grid", "entropy")
    np.testing.assert_allclose(data["values"], tables["entropy"])


def test_the_last_head_has_a_number(path: Path) -> None:
    text = run("heatmap", path, "--layer", -1, "--head", -1).stdout
    assert text.startswith("Tiny · layer 1 · head 2\n")
    assert (
        json.loads(run("heatmap", path, "--layer", 0, "--head", -3, "--json").stdout)["head"] == 0
    )


def test_a_picture_replaces_nothing_unasked(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.svg"
    out.write_text("mine")
    result = run("heatmap", path, "--layer", 0, "-o", out)
    assert result.exit_code == 2
    assert "is there already: give --force to replace it" in result.stderr
    assert out.read_text() == "mine"
    assert run("heatmap", path, "--layer", 0, "-o", out, "--force").exit_code == 0
    assert out.read_text().startswith("<svg")


def test_heads_as_a_table_and_as_json(path: Path) -> None:
    text = run("heads", path).stdout
    assert "6 heads in 2 layers" in text
    assert re.search(r"L\dH\d 0\.\d\d", text)
    assert not re.search(r"L\dH\d$", text, re.MULTILINE)  # no break between a head and its score
    assert "previous" in text
    assert max(map(len, text.splitlines())) <= 80
    data = json.loads(run("heads", path, "--json").stdout)
    assert len(data["heads"]) == 6
    assert data["heads"][0]["scores"]["next"] is None
    one = json.loads(run("heads", path, "--kind", "sink", "--json").stdout)
    assert [kind["kind"] for kind in one["kinds"]] == ["sink"]
    assert set(one["heads"][0]["scores"]) == {"sink"}
    assert "chance" in run("heads", path, "--kind", "sink").stdout
    assert "too weak: below 0.6" in run("heads", path, "--kind", "sink").stdout
    assert "no row of this text has such a key" in run("heads", path, "--kind", "bracket").stdout


def test_heads_as_a_table_for_other_programs(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "kinds.csv"
    data = json.loads(run("heads", path, "--csv", target, "--json").stdout)
    with target.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(data["heads"]) == 6
    for row, head in zip(rows, data["heads"], strict=True):
        assert (int(row["layer"]), int(row["head"])) == (head["layer"], head["head"])
        assert float(row["previous"]) == head["scores"]["previous"]["score"]
        assert row["next"] == ""
    assert "kinds.csv is there already" in run("heads", path, "--csv", target).stderr
    assert run("heads", path, "--csv", target, "--force").exit_code == 0


@pytest.mark.parametrize(("args", "message"), [
    (["heatmap", "--layer", 9], "there is no layer 9: the capture has 2 layers, 0 to 1"),
    (["heatmap", "--layer", 0, "--head", 3], "there is no head 3 at layer.0: there are 3, numbered from 0"),
    (["heatmap", "--layer", 0, "--rows", "5:99"], "--rows=5:99 reaches outside the 23 queries"),
    (["heatmap", "--layer", 0, "--columns", "5:5"], "--columns=5:5 is an empty region"),
    (["heatmap", "--layer", 0, "--rows", "a:b"], "--rows a:b: write a region as 100:356"),
    (["heatmap", "--layer", 0, "--size", 0], "a picture of 0 × 0: each side must be from 1"),
    (["heatmap", "--layer", 0, "--size", 1000000], "1,000,000 × 1,000,000: each side must be"),
    (["heatmap", "--layer", 0, "--pool", "sum"], "--pool sum: choose 'max'"),
    (["heatmap", "--as", "cake", "-o", "x.svg"], "--as cake: choose map, lines, patches, grid"),
    (["heatmap", "--as", "map"], "--as map needs --layer"),
    (["heatmap", "--as", "lines", "--layer", 0, "-o", "x.svg"], "--as lines draws one head: give --head"),
    (["heatmap", "--layer", "x"], "the capture has no site 'x'; it has: layer.0, layer.1"),
    (["heatmap", "--layer", 0, "--scale", "foo"], "--scale foo: choose linear or log"),
    (["heatmap", "--figure", "colour"], "there is no figure 'colour': choose rows"),
    (["heatmap", "--rows", "1:2", "-o", "x.svg"], "--as grid shows all: leave out --rows"),
    (["heatmap", "--pool", "max", "--size", 9, "--scale", "log"], "--as grid takes no --pool or --size or --scale: leave out"),
    (["heatmap", "--layer", 0, "--head", 0, "--as", "lines", "--scale", "log", "-o", "x.svg"], "--as lines takes no --scale: leave out"),
    (["heatmap", "--layer", 0, "--head", 0, "--as", "patches", "--pool", "mean", "--scale", "log", "-o", "x.svg"], "--as patches takes no --pool: leave out"),
    (["heatmap", "--layer", 0, "--pool", ""], "--pool '': choose 'max'"),
    (["heatmap", "--layer", 0, "--head", 0, "-o", "x.gif"], "x.gif ends in .gif"),
    (["heatmap", "--head", 1], "--head 1 is a head of one layer: give --layer too"),
    (["heatmap", "--as", "grid", "--layer", 1], "--as grid shows all layers: leave out --layer"),
    (["heatmap", "--layer", 0, "--query", 0], "--query 0 goes with --as patches"),
    (["heatmap", "--query", 5], "--query 5 goes with --as patches"),
    (["heatmap", "--layer", 0, "--figure", "entropy"], "--figure entropy colours the grid of all heads"),
    (["heatmap", "--batch", 7], "there is no batch entry 7: there is one, batch entry 0"),
    (["heatmap", "--layer", 0, "--batch", 7], "there is no batch entry 7 at layer.0: there is one, batch entry 0"),
    (["heatmap", "--layer", 0, "--head", 0, "--batch", -2], "there is no batch entry -2 at layer.0"),
    (["heatmap", "--theme", "dark"], "--theme dark: only for a picture; say where to with -o FILE"),
    (["heads", "--at-least", "0.5"], "--at-least is the weight of one look: give --from or --to too"),
    (["heads", "--kind", "copy"], "there is no kind 'copy': choose previous"),
    (["heads", "--csv", "x.txt"], "x.txt ends in .txt"),
    (["heads", "--csv", "x.csv", "--from", "a"], "--csv is of heads judged over the text"),
    (["heads", "--batch", 4], "there is no batch entry 4 at layer.0: there is one, batch entry 0"),
])  # fmt: skip
def test_errors_are_one_line(args: list[Any], message: str, path: Path) -> None:
    result = run(args[0], path, *args[1:])
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["heads", "inspect"])
def test_kinds_are_whole_in_a_narrow_terminal(path: Path, command: str) -> None:
    text = CliRunner(env={"COLUMNS": "60"}).invoke(app, [command, str(path)]).stdout
    assert re.search(r"^ +induction ", text, re.MULTILINE)
    assert "…" not in text
    assert not re.search(r"L\dH\d$", text, re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 60


def test_what_is_not_a_number_is_said_to_be(tmp_path: Path) -> None:
    query, key = np.ones((1, 3, 4, 2)), np.ones((1, 3, 4, 2))
    query[0, 1, 2:], query[0, 2] = np.nan, np.nan
    path = tmp_path / "nan.safetensors"
    Capture((Site("layer.0", 0, query, key, mask=ll.Causal()),)).save(path)
    told = [run("heatmap", path, "--layer", 0, "--head", head).stdout for head in range(3)]
    assert "the largest weight is 1; -o" in told[0]
    assert "the largest weight is 1, not a number in 7 bins; -o" in told[1]
    assert "??????··" in told[1]
    assert "what the mask allows here is not a number" in told[2]
    shut = run("heatmap", path, "--layer", 0, "--head", 2, "--rows", "0", "--columns", "2:").stdout
    assert "the mask allows nothing here" in shut


@pytest.mark.parametrize("args", [
    ["heatmap"], ["heatmap", "--layer", 0], ["heatmap", "--layer", "x"], ["heatmap", "--json"],
    ["heads"], ["inspect"],
])  # fmt: skip
def test_a_capture_without_sites(args: list[Any], tmp_path: Path) -> None:
    Capture(()).save(tmp_path / "none.safetensors")
    result = run(args[0], tmp_path / "none.safetensors", *args[1:])
    assert result.exit_code == 2, result.output
    assert (
        result.stderr == "limelight: the capture is empty: capture a run that has attention in it\n"
    )


def test_a_layer_without_queries(tmp_path: Path) -> None:
    path = tmp_path / "none.safetensors"
    Capture((Site("layer.0", 0, np.ones((1, 2, 0, 4)), np.ones((1, 2, 5, 4))),)).save(path)
    result = run("heatmap", path, "--layer", 0)
    assert result.exit_code == 2, result.output
    assert "layer.0 has 2 heads of 0 × 5 cells: there is nothing to show" in result.stderr


def test_the_grid_takes_no_entry() -> None:
    result = run("heatmap", "vit", "--batch", 1)
    assert result.exit_code == 2
    assert "--as grid shows all entries of the batch together: leave out --batch" in result.stderr


def test_a_file_with_the_name_of_one_that_comes_along(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llama").write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert len(json.loads(run("heads", "./llama", "--json").stdout)["heads"]) == 6
    assert run("heatmap", "./llama").stdout.startswith("Tiny\n")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for command in ("heatmap", "heads"):
        result = run(command, tmp_path / "none.safetensors")
        assert result.exit_code == 2
        assert "none.safetensors" in result.stderr
