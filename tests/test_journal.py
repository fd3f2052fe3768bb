"""A monitor's file, folded once for `limelight watch` and the studio."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from limelight.cli.watch import _clips
from limelight.errors import FileError
from limelight.journal import FIGURES
from limelight.journal.reading import SiteLine, Tail, is_journal
from limelight.journal.run import Run

RUN = {"kind": "run", "format": "limelight.monitor", "version": 1, "model": "GPT", "started": 0.0}
ALARM = {"kind": "alarm", "event": "raised", "step": 0, "time": 0.0, "alarm": "logit", "site": "a",
         "layer": 0, "head": 0, "figure": "max_logit", "value": 120.0, "bound": 100.0}  # fmt: skip


def record(step: int) -> dict[str, Any]:
    site = {"name": "a", "layer": 0, "heads": 2, **{figure: [0.5, None] for figure in FIGURES}}
    return {"kind": "record", "step": step, "time": 0.0, "sites": [site]}


def write(path: Path, *lines: dict[str, Any], mode: str = "w") -> None:
    with path.open(mode) as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def counts(run: Run) -> tuple[int, int]:
    """How many records and events there are at the next look."""
    run.read_on()
    return run.records, len(run.events)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_the_figures_are_those_of_a_line() -> None:
    assert SiteLine.__struct_fields__[3:] == FIGURES


@pytest.mark.parametrize("lacks", ["alarm", "site", "head", "figure", "value", "event", "step"])
def test_an_alarm_that_lacks_something_costs_itself_alone(path: Path, lacks: str) -> None:
    short = {key: value for key, value in ALARM.items() if key != lacks}
    write(path, RUN, record(0), short, ALARM, record(1))
    assert counts(Run(Tail(path))) == (2, 1)


def test_a_half_written_last_line_is_not_there_yet(path: Path) -> None:
    write(path, RUN, record(0))
    run, text = Run(Tail(path)), json.dumps(record(1))
    with path.open("a") as file:
        file.write(text[:40])
    assert counts(run) == (1, 0)
    with path.open("a") as file:
        file.write(text[40:] + "\n")
    assert counts(run) == (2, 0)


@pytest.mark.parametrize("records", [1, 9], ids=["shorter", "longer"])
def test_a_log_begun_anew_is_read_anew(path: Path, records: int) -> None:
    write(path, RUN, record(0), ALARM, record(1), record(2))
    run = Run(Tail(path))
    assert counts(run) == (3, 1)
    write(path, {**RUN, "started": 9.0, "model": "T5"}, *map(record, range(records)))
    assert counts(run) == (records, 0)
    assert (run.model, run.alarms, run.on) == ("T5", [], [])
    write(path, record(99), mode="a")
    assert counts(run) == (records + 1, 0)


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
    run = Run(Tail(path))
    for _ in range(2):  # and again, at the next look
        with pytest.raises(FileError, match=f"run.jsonl (is|has) {said}"):
            run.read_on()
    assert is_journal(path) == ("99" in text)


def test_a_newer_limelight_that_resumes_a_run_is_said_too(path: Path) -> None:
    write(path, RUN, record(0), {**RUN, "version": 99})
    with pytest.raises(FileError, match="version 99"):
        Run(Tail(path)).read_on()


def test_a_file_that_cannot_be_read(path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot be read: No such file"):
        Run.open(path)
    assert not is_journal(path)


def test_alarms_are_stretches_of_steps(path: Path) -> None:
    cleared, other = {**ALARM, "event": "cleared", "step": 2}, {**ALARM, "step": 3, "head": 1}
    write(path, RUN, record(0), ALARM, record(1), record(2), cleared, record(3), other)
    run = Run.open(path)
    assert [(a.index, a.raised.step, a.cleared) for a in run.alarms] == [(0, 0, 2), (1, 3, None)]
    assert [alarm.head for alarm in run.on] == [1]
    write(path, record(4), RUN, record(5), {**ALARM, "step": 5}, mode="a")  # resumed: all are off
    assert run.read_on()
    assert not run.read_on()
    assert [(a.index, a.cleared) for a in run.alarms] == [(0, 2), (1, 4), (0, None)]
    assert [alarm.head for alarm in run.on] == [0]


def test_of_many_events_the_latest_count(path: Path) -> None:
    most, cleared = 5_000, {**ALARM, "event": "cleared", "head": 1}
    clip = {"kind": "clip", "limit": 9.0, "heads": []}
    write(path, RUN, record(0), ALARM)
    for step in range(most):
        rang = ({**line, "step": step} for line in ({**ALARM, "head": 1}, cleared, clip))
        write(path, *rang, mode="a")
    write(path, {**ALARM, "step": most, "head": 1}, mode="a")
    run = Run.open(path)
    assert [(alarm.head, alarm.step) for alarm in run.on] == [(0, 0), (1, most)]
    assert (run.events[-1].step, run.clips[-1].step, run.clipped) == (most, most - 1, most)
    assert len(run.clips) == len(run.events) == len(run.alarms) - 2 < most
    assert [alarm.cleared for alarm in run.alarms[-3:]] == [most - 1, None, None]
    assert "5,000 steps with heads scaled back, last step 4,999" in str(_clips(run)[0])


def test_bounds_that_cannot_be_read_cost_themselves_alone(path: Path) -> None:
    good = {"name": "logit", "figure": "max_logit", "above": True, "raise_at": 100.0, "more": 1}
    write(path, {**RUN, "alarms": [{"name": "logit"}, good, {}]})
    assert [(bound.name, bound.raise_at) for bound in Run.open(path).bounds] == [("logit", 100.0)]


def test_the_latest_record_keeps_what_its_writer_added(path: Path) -> None:
    write(path, RUN, record(0), {**record(1), "mood": 0.25})
    run = Run.open(path)
    assert run.latest is not None
    assert (run.latest.step, json.loads(run.said)["mood"]) == (1, 0.25)
    assert run.last("spread", 1).tolist()[0][0] == 0.5
