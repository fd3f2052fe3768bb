"""limelight effects, on the model that comes along."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from limelight import live
from limelight.cli import app

TORCH = importlib.util.find_spec("torch") is not None
LINE = "It is the east, and Juliet is the su"


def run(*args: Any, columns: int = 80) -> Any:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, ["effects", *map(str, args)])


@pytest.mark.parametrize("columns", [80, 44])
def test_what_a_person_sees(columns: int) -> None:
    result = run("gpt", "--text", LINE, "--most", "2", columns=columns)
    assert result.exit_code == 0, result.stderr
    text, found = result.stdout, live.load("gpt").effects(LINE)
    assert "gpt  5 layers × 5 heads, 36 tokens" in text
    assert "log-probability of 'n' next: −0.692 with every head on" in " ".join(text.split())
    layer, head, change = found.strongest(1)[0]
    assert f"{change:+.2f}".replace("-", "−") in text
    assert [str(layer), str(head), f"{change:+.3f}".replace("-", "−")] in [
        line.split() for line in text.splitlines()
    ]
    assert max(map(len, text.splitlines())) <= columns


def test_json_holds_the_table() -> None:
    found = json.loads(
        run("gpt", "--text", LINE, "--answer", "n", "--against", "b", "--json").stdout
    )
    expected = live.load("gpt").effects(LINE, answer="n", against="b")
    assert np.abs(np.array(found["change"]) - expected.change).max() < 1e-4
    assert (found["measure"], found["answer"], found["against"]) == ("difference", "n", "b")
    assert json.loads(run("gpt", "--text", LINE, "--loss", "--json").stdout)["measure"] == "loss"


def test_a_table_for_other_programs(tmp_path: Path) -> None:
    target = tmp_path / "effects.csv"
    assert run("gpt", "--text", LINE, "--csv", target, "--json").exit_code == 0
    assert target.read_text(encoding="utf-8").startswith("layer,head,after,change,cost\n0,0,")
    refused = run("gpt", "--text", LINE, "--csv", target)
    assert "is there already: give --force" in " ".join(refused.stderr.split())
    assert run("gpt", "--text", LINE, "--csv", target, "--force").exit_code == 0
    assert "ends in .txt" in run("gpt", "--text", LINE, "--csv", tmp_path / "a.txt").stderr


def test_errors_are_one_line() -> None:
    for args, said in (
        (("gpt", "--text", LINE, "--answer", "th"), "'th' is 2 tokens for gpt"),
        (("gpt", "--text", ""), "the text is empty"),
        (("none", "--text", LINE), "there is no model 'none'" if TORCH else "a model needs torch"),
        (("none", "--text", LINE), "not built in (gpt, code, smollm2)" if TORCH else "needs torch"),
        (("gpt", "--text", LINE, "--loss", "--answer", "n"), "leave out --answer and --against"),
        (("gpt", "--text", LINE, "--against", "n"), "of a pair: give --answer too"),
    ):
        result = run(*args)
        assert result.exit_code == 2
        assert said in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
