"""A monitor's file: `limelight watch` and the studio read the same in it, and refuse the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limelight.cli.watch import Watched
from limelight.errors import FileError
from limelight.journal import FIGURES
from limelight.journal.reading import SiteLine, Tail, is_journal
from limelight.studio.runs import Run

RUN = {"kind": "run", "format": "limelight.monitor", "version": 1, "model": "GPT", "started": 0.0}
ALARM = {"kind": "alarm", "event": "raised", "step": 0, "time": 0.0, "alarm": "logit", "site": "a",
         "layer": 0, "head": 0, "figure": "max_logit", "value": 120.0, "bound": 100.0}  # fmt: skip


def record(step: int) -> dict[str, Any]:
    site = {"name": "a", "layer": 0, "heads": 2, **{figure: [0.5, None] for figure in FIGURES}}
    return {"kind": "record", "step": step, "time": 0.0, "sites": [site]}


def write(path: Path, *lines: dict[str, Any], mode: str = "w") -> None:
    with path.open(mode) as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


class Both:
    """Both readers of one file, which must agree on how many records and alarms it has."""

    def __init__(self, path: Path) -> None:
        self.watched, self.run = Watched(Tail(path)), Run(Tail(path))

    def counts(self) -> tuple[int, int]:
        self.watched.update()
        self.run.read_on()
        seen = len(self.watched.records), len(self.watched.alarms)
        assert seen == (self.run.records, len(self.run.events))
        return seen


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_the_figures_are_those_of_a_line() -> None:
    assert SiteLine.__struct_fields__[3:] == FIGURES


@pytest.mark.parametrize("lacks", ["alarm", "site", "head", "figure", "value", "event", "step"])
def test_an_alarm_that_lacks_something_costs_itself_alone(path: Path, lacks: str) -> None:
    short = {key: value for key, value in ALARM.items() if key != lacks}
    write(path, RUN, record(0), short, ALARM, record(1))
    assert Both(path).counts() == (2, 1)


def test_a_half_written_last_line_is_not_there_yet(path: Path) -> None:
    write(path, RUN, record(0))
    both, text = Both(path), json.dumps(record(1))
    with path.open("a") as file:
        file.write(text[:40])
    assert both.counts() == (1, 0)
    with path.open("a") as file:
        file.write(text[40:] + "\n")
    assert both.counts() == (2, 0)


@pytest.mark.parametrize("records", [1, 9], ids=["shorter", "longer"])
def test_a_log_begun_anew_is_read_anew(path: Path, records: int) -> None:
    write(path, RUN, record(0), ALARM, record(1), record(2))
    both = Both(path)
    assert both.counts() == (3, 1)
    write(path, {**RUN, "started": 9.0, "model": "T5"}, *map(record, range(records)))
    assert both.counts() == (records, 0)
    assert (both.watched.header["model"], both.run.model) == ("T5", "T5")
    assert not both.watched.active
    write(path, record(99), mode="a")
    assert both.counts() == (records + 1, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps({**RUN, "version": 99}), "version 99 of the format, and this limelight reads"),
        (json.dumps({**RUN, "format": "other"}), "not a monitor's file: its first line should say"),
        ('{"kind": "run"}', "not a monitor's file"),
        ("\x00\n\x01", "not a monitor's file"),
    ],
)
def test_files_that_are_refused(path: Path, text: str, said: str) -> None:
    path.write_text(text + "\n")
    readers: list[Callable[[], Any]] = [Watched(Tail(path)).update, Run(Tail(path)).read_on]
    for read in readers * 2:  # and again, at the next look
        with pytest.raises(FileError, match=f"run.jsonl (is|has) {said}"):
            read()
    assert is_journal(path) == ("99" in text)


def test_a_newer_limelight_that_resumes_a_run_is_said_too(path: Path) -> None:
    write(path, RUN, record(0), {**RUN, "version": 99})
    with pytest.raises(FileError, match="version 99"):
        Run(Tail(path)).read_on()


def test_a_file_that_cannot_be_read(path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read .*No such file"):
        Watched.open(path)
    assert not is_journal(path)
