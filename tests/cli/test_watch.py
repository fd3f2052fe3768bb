"""limelight watch in a narrow terminal: sites told apart, the newest bars kept, ages in words."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from limelight.cli import app
from limelight.cli.watch import _age, _shortened

HEADER = {
    "kind": "run",
    "format": "limelight.monitor",
    "version": 1,
    "every": 50,
    "started": 0.0,
    "model": "GPT",
    "alarms": [],
}
PLAIN = [f"blocks.{layer}.attention" for layer in range(5)]
LONG = [
    f"model.decoder.layers.{layer}.{kind}"
    for layer in range(3)
    for kind in ("self_attn", "encoder_attn")
]
T5 = ["encoder.block.0.layer.0.SelfAttention", "encoder.block.1.layer.0.SelfAttention"] + [
    f"decoder.block.{block}.layer.{layer}.{kind}"
    for block in range(2)
    for layer, kind in enumerate(("SelfAttention", "EncDecAttention"))
]


def write(path: Path, names: list[str], heads: int, age: float = 0.0) -> Path:
    """A run of twenty records whose largest logit stays, and rises in the last one."""
    lines: list[dict[str, Any]] = [HEADER]
    for n in range(20):
        figures = {
            name: [0.5] * heads for name in ("max_prob", "entropy", "spread", "peaked", "saturated")
        }
        sites = [{"name": name, "layer": i, "heads": heads, "rows": 8, "judged": [8] * heads, "not_a_number": [0] * heads,
                  "max_logit": [9.0 if n == 19 else 1.0] * heads, **figures} for i, name in enumerate(names)]  # fmt: skip
        lines.append(
            {"kind": "record", "step": n, "time": time.time() - age, "ranks": 1, "sites": sites}
        )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize(("names", "heads"), [(PLAIN, 5), (PLAIN, 12), (LONG, 32), (LONG[:1], 4)])
def test_a_terminal_of_80_columns(names: list[str], heads: int, tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", names, heads)
    text = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["watch", str(path), "--once"]).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "saturated" in text
    rows = [line.split() for line in text.splitlines() if "9.00" in line]
    assert len({row[1] for row in rows}) == len(names)
    assert all(row[-1].endswith("▁▁▁▁▁▁▁█") for row in rows)  # the newest record is in view
    assert text.count("▅") == heads * len(names)  # every head is in view


def test_a_wide_terminal_shows_it_all(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", LONG, 32)
    text = CliRunner(env={"COLUMNS": "160"}).invoke(app, ["watch", str(path), "--once"]).stdout
    assert all(name in text for name in LONG)
    assert "max logit so far" in text


@pytest.mark.parametrize("columns", [30, 40, 50, 60, 80])
@pytest.mark.parametrize(
    ("names", "heads"), [(T5, 4), (T5, 16), (LONG, 32), (["attention" * 9], 2)]
)
def test_no_number_is_ever_cut(names: list[str], heads: int, columns: int, tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", names, heads)
    env = {"COLUMNS": str(columns)}
    text = CliRunner(env=env).invoke(app, ["watch", str(path), "--once"]).stdout
    assert max(map(len, text.splitlines())) <= columns
    rows = [line for line in text.splitlines() if " 9.00 " in line]
    assert all(" 50 %" in row for row in rows)
    assert len(rows) == len(names)
    told = [row.split()[0 if columns < 50 else 1] for row in rows]
    assert len(set(told)) == len(names)
    assert re.findall(r"[^ ]…(?= |$)", text) == []  # neither in a heading nor in a number
    assert "max" in text
    assert "saturated" in text
    assert ("▅" in text) == (columns >= 40 or heads < 4)


def test_a_record_without_sites_says_what_is_seen(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", [], 4)
    result = CliRunner(env={"COLUMNS": "40"}).invoke(app, ["watch", str(path), "--once"])
    assert result.exit_code == 0, result.stderr
    assert "no attention was seen" in result.stdout
    assert "sdpa=True" in result.stdout


def test_numbers_below_zero_have_a_minus(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", PLAIN[:1], 1)
    *_, last = path.read_text().splitlines()
    record = json.loads(last) | {"loss": -0.5, "lr": 2e-05}
    record["sites"][0]["max_logit"] = [-1.25]
    path.write_text(json.dumps(HEADER) + "\n" + json.dumps(record) + "\n")
    text = CliRunner().invoke(app, ["watch", str(path), "--once"]).stdout
    assert "loss −0.5  lr 2e−05" in text
    assert "−1.25" in text


def test_names_keep_what_tells_them_apart() -> None:
    assert _shortened(PLAIN, 18) == PLAIN
    assert _shortened(PLAIN, 17)[3] == "…3.attention"
    assert _shortened(PLAIN, 11)[3] == "…3…"
    assert _shortened(LONG, 15)[:2] == ["…0.self_attn", "…0.encoder_attn"]
    assert _shortened(LONG, 5)[:2] == ["…0.sel_att", "…0.enc_att"]
    assert _shortened(["head.abcd", "tail.abce"], 7) == ["hea.abc", "tai.abc"]
    assert _shortened(["part.abcd", "part.abce"], 4) == ["…abcd", "…abce"]  # and never alike
    assert _shortened([], 3) == []
    assert _shortened(["a.b", "c"], 1) == ["a.b", "c"]


def test_ages(tmp_path: Path) -> None:
    assert [_age(x) for x in (0, 59.9, 60, 3599, 3600, 86400, 90000, 200000)] == [
        "0 s", "59 s", "1 min", "59 min", "1 h 0 min", "1 day 0 h", "1 day 1 h", "2 days 7 h",
    ]  # fmt: skip
    path = write(tmp_path / "run.jsonl", PLAIN, 2, age=31_578_117)
    assert "365 days 11 h ago" in CliRunner().invoke(app, ["watch", str(path), "--once"]).stdout
