"""limelight watch, and the reading of a monitor's file while it grows."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from limelight.cli import watch as command
from limelight.errors import ArgumentError, FileError
from limelight.journal.run import Run
from limelight.journal.writing import Journal
from limelight.torch.monitor.alarms import DEFAULTS

HEADER = {"kind": "run", "format": "limelight.monitor", "version": 1, "every": 50, "started": 0.0, "model": "GPT",
          "alarms": [rule.to_dict() for rule in DEFAULTS]}  # fmt: skip


def record(step: int, logit: float = 3.0, **more: Any) -> dict[str, Any]:
    site = {"heads": 2, "rows": 8, "judged": [8, 0], "not_a_number": [0, 0], "max_logit": [logit, 1.0],
            "max_prob": [0.3, None], "entropy": [1.5, None], "spread": [0.7, None], "peaked": [0.0, None],
            "saturated": [0.25, None]}  # fmt: skip
    sites = [{"name": f"blocks.{i}.attention", "layer": i, **site} for i in range(2)]
    return {
        "kind": "record",
        "step": step,
        "time": time.time(),
        "ranks": 1,
        "loss": 2.5,
        **more,
        "sites": sites,
    }


def alarm(step: int, event: str) -> dict[str, Any]:
    return {"kind": "alarm", "event": event, "step": step, "time": 0.0, "alarm": "logit", "site": "blocks.1.attention",
            "layer": 1, "head": 0, "figure": "max_logit", "value": 120.0, "bound": 100.0}  # fmt: skip


def write(path: Path, *lines: dict[str, Any]) -> Path:
    journal = Journal(path)
    for line in lines:
        journal.write(line)
    journal.close()
    return path


def shown(run: Run) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(command.view(run))
    console.file.close()
    return console.export_text()


def test_a_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", HEADER, record(0))
    run = Run.open(path)
    assert run.view("spread", 9).steps == [0]
    assert not run.read_on()
    with path.open("a") as file:
        file.write(json.dumps(record(50))[:40])
    assert not run.read_on()  # half a line is not there yet
    with path.open("a") as file:
        file.write(json.dumps(record(50))[40:] + "\n" + json.dumps(alarm(50, "raised")) + "\n")
    assert run.read_on()
    assert run.view("spread", 9).steps == [0, 50]
    assert [(a.alarm, a.site, a.head) for a in run.on] == [("logit", "blocks.1.attention", 0)]
    write(
        path,
        alarm(100, "cleared"),
        {"kind": "something new"},
        {"kind": "end", "step": 101, "time": 0.0, "reason": "closed"},
    )
    assert run.read_on()
    assert not run.on
    assert run.ended == "closed"


def test_what_is_shown(tmp_path: Path) -> None:
    path = write(
        tmp_path / "run.jsonl", HEADER, record(0), record(50, 99.0, lr=0.001), alarm(50, "raised")
    )
    run = Run.open(path)
    text = shown(run)
    assert "GPT  step 50  loss 2.5  lr 0.001" in text
    assert "⚠ logit: layer 1, head 0: max logit 120 at step 50, when it rang" in text
    assert "99.00" in text
    assert "25 %" in text
    assert "▆·" in text  # a head without judged rows is a dot
    assert "▁█" in text  # the logit went up
    write(path, record(100, 1955.0))
    run.read_on()
    assert "layer 1, head 0: max logit 1955 (120 when it rang, at step 50)" in shown(run)
    waiting = shown(Run.open(write(tmp_path / "empty.jsonl", HEADER)))
    assert "waiting for the first record" in waiting


def test_json_and_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "run.jsonl", HEADER, record(0), record(50), alarm(50, "raised"))
    command.watch(path, json=True)
    state = json.loads(capsys.readouterr().out)
    assert state["records"] == 2
    assert state["latest"]["step"] == 50
    assert state["alarms"][0]["alarm"] == "logit"
    command.watch(path, plot=tmp_path / "run.svg")
    drawn = (tmp_path / "run.svg").read_text()
    assert all(words in drawn for words in (*command.PANELS.values(), ">alarm<", ">step<"))
    capsys.readouterr()
    command.watch(path, plot=tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert "drew 2 records" in capsys.readouterr().out
    with pytest.raises(
        ArgumentError, match=r"run\.png is there already: give --force to replace it"
    ):
        command.watch(path, plot=tmp_path / "run.png")
    command.watch(path, plot=tmp_path / "run.png", force=True)
    with pytest.raises(
        FileError, match=r"run\.gif ends in \.gif: give a name that ends in \.png, \.svg"
    ):
        command.watch(path, plot=tmp_path / "run.gif")
    with pytest.raises(FileError, match=r"there is no folder .*nowhere"):
        command.watch(path, plot=tmp_path / "nowhere" / "run.png")
    with pytest.raises(ArgumentError, match="no records yet"):
        command.watch(write(tmp_path / "empty.jsonl", HEADER), plot=tmp_path / "empty.png")
    unseen = write(tmp_path / "unseen.jsonl", HEADER, {**record(0), "sites": []})
    with pytest.raises(ArgumentError, match="nothing to draw, as no attention was seen"):
        command.watch(unseen, plot=tmp_path / "unseen.png")


def test_a_plot_of_a_run_that_was_resumed_from_a_step_before(tmp_path: Path) -> None:
    lines = [record(0), record(50), record(100), HEADER, record(50), record(100)]
    drawn = []
    for name, part in (("resumed", lines), ("first", lines[:3])):
        command.watch(
            write(tmp_path / f"{name}.jsonl", HEADER, *part), plot=tmp_path / f"{name}.svg"
        )
        drawn.append((tmp_path / f"{name}.svg").read_text())
    resumed, first = (text.count("<polyline") + text.count("<path") for text in drawn)
    assert resumed == first + 4 * 2  # in each panel each layer's line breaks once
    assert "2 layers<" in drawn[0]  # which have colours of their own, and no shades


def test_it_follows_until_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "run.jsonl", HEADER, record(0))
    screen = Console(
        force_terminal=True, width=120, record=True, file=(tmp_path / "screen").open("w")
    )
    monkeypatch.setattr(command, "console", lambda: screen)

    def train() -> None:
        time.sleep(0.3)
        write(
            path,
            record(50, 77.0),
            {"kind": "end", "step": 51, "time": 0.0, "reason": "ValueError: out of data"},
        )

    writer = threading.Thread(target=train)
    writer.start()
    command.watch(path, interval=0.1)
    writer.join()
    text = screen.export_text()
    screen.file.close()
    assert "step 50" in text
    assert "ended: ValueError: out of data" in text
