"""Run: a training monitor's file, folded as it grows (docs/torch.md describes its lines).

The terminal and the studio read this one fold. A file has no bound, a screen has a few hundred
columns. So records are kept as flat float32 rows, one number a head, and a view pools them to the
columns asked for, always by the worse: what happened at one step among thousands must not average
away.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError, FileError
from limelight.journal import FIGURES
from limelight.journal.reading import (
    AlarmLine,
    Bound,
    ClipLine,
    EndLine,
    Line,
    RecordLine,
    RunLine,
    Tail,
)

LOW_IS_WORSE = frozenset({"entropy", "spread"})
MOST_HEADS, MOST_EVENTS = 1 << 16, 4_096
MOST_CELLS = 1 << 23  # records × heads: no file of a monitor has as many in the bytes that are read
MOST_SHOWN = 1 << 21  # columns × heads of one view

Table = NDArray[np.float32]


class SiteOfRun(msgspec.Struct):
    name: str
    layer: int
    heads: int
    first: int  # where its heads begin among all heads of the run


class Alarm(msgspec.Struct):
    """A stretch of steps during which an alarm of one head was on; `cleared` is null while it is.

    `index` is the head's among all heads of the run, null for a site that no record has told of.
    """

    raised: AlarmLine
    index: int | None
    cleared: int | None = None


@dataclass
class Run:
    """What has been read of one file so far."""

    tail: Tail
    model: str = ""
    started: float | None = None
    every: int | None = None
    bounds: list[Bound] = field(default_factory=list)
    sites: dict[str, SiteOfRun] = field(default_factory=dict)
    events: list[AlarmLine] = field(default_factory=list)  # the latest
    clips: list[ClipLine] = field(default_factory=list)
    clipped: int = 0  # steps after which heads were scaled back; `clips` has the latest
    ended: str | None = None
    restarts: list[int] = field(default_factory=list)
    heads: int = 0
    latest: RecordLine | None = None
    said: bytes = b""  # the line of the latest record, with all that its writer put there
    _steps: list[int] = field(default_factory=list)
    _scalars: dict[str, list[float]] = field(default_factory=lambda: {"loss": [], "lr": []})
    _records: list[dict[str, Table]] = field(default_factory=list)
    _on: dict[tuple[str, str, int], Alarm] = field(default_factory=dict)
    _over: list[Alarm] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def open(cls, path: Path, most_bytes: int | None = None) -> Run:
        """The run as far as it has been written."""
        run = cls(Tail(path, most_bytes))
        run.read_on()
        return run

    @property
    def records(self) -> int:
        return len(self._steps)

    @property
    def on(self) -> list[AlarmLine]:
        """The alarms that are on now, as they were raised."""
        return [alarm.raised for alarm in self._on.values()]

    @property
    def alarms(self) -> list[Alarm]:
        """When alarms were on: the latest that are over, and those that are on now."""
        return [*self._over, *self._on.values()]

    def read_on(self) -> bool:
        """Take in the complete lines that were added; True if there were any.

        A file that was begun anew is read anew.
        """
        with self._lock:
            grown = self.tail.begun_anew()
            if grown:
                fresh = Run(self.tail)
                fresh._lock = self._lock
                self.__dict__.update(fresh.__dict__)
            for line, text in self.tail.lines():
                self._take(line, text)
                grown = True
            return grown

    def view(self, figure: str, bins: int, records: int | None = None) -> View:
        """One figure of every head over the steps, pooled to at most `bins` columns."""
        if figure not in FIGURES:
            raise ArgumentError(f"there is no figure {figure!r}: choose {', '.join(FIGURES)}")
        with self._lock:
            count = self.records if records is None else min(records, self.records)
            table = self._table(figure, 0, count)
            steps = np.array(self._steps[:count], np.int64)
            scalars = {name: np.array(values[:count]) for name, values in self._scalars.items()}
        bins = max(1, min(bins, MOST_SHOWN // max(1, self.heads)))
        if not count:
            return View([], [], table.T, {name: [] for name in scalars})
        starts = np.unique(np.arange(min(bins, count), dtype=np.int64) * count // min(bins, count))
        worse = np.fmin if figure in LOW_IS_WORSE else np.fmax
        ends = np.append(starts[1:], count) - 1
        return View(
            steps=steps[starts].tolist(),
            last_steps=steps[ends].tolist(),
            values=worse.reduceat(table, starts, axis=0).T,
            scalars={name: np.fmax.reduceat(values, starts) for name, values in scalars.items()},
        )

    def last(self, figure: str, records: int) -> Table:
        """One figure of every head over the last so many records: [records, heads]."""
        with self._lock:
            return self._table(figure, max(0, self.records - records), self.records)

    def _table(self, figure: str, start: int, stop: int) -> Table:
        table = np.full((stop - start, self.heads), np.nan, np.float32)
        for row, record in enumerate(self._records[start:stop]):
            table[row, : len(record[figure])] = record[figure]
        return table

    def _take(self, line: Line, text: bytes) -> None:
        match line:
            case RunLine():
                if self.records:
                    self.restarts.append(self._steps[-1])
                for at in list(self._on):  # training that begins anew ends all that are on
                    self._clear(at, self._steps[-1] if self.records else 0)
                self.model, self.every = line.model, line.every
                self.started, self.bounds, self.ended = line.started, line.bounds(), None
            case RecordLine():
                self._record(line)
                self.latest, self.said = line, text
            case AlarmLine():
                self._alarm(line)
            case ClipLine():
                self.clipped += 1
                self.clips.append(line)
                del self.clips[:-MOST_EVENTS]
            case EndLine():
                self.ended = line.reason

    def _alarm(self, line: AlarmLine) -> None:
        self.events.append(line)
        del self.events[:-MOST_EVENTS]
        at = (line.alarm, line.site, line.head)
        self._clear(at, line.step)
        if line.event == "raised" and len(self._on) < MOST_HEADS:
            site = self.sites.get(line.site)
            self._on[at] = Alarm(line, None if site is None else site.first + line.head)

    def _clear(self, at: tuple[str, str, int], step: int) -> None:
        alarm = self._on.pop(at, None)
        if alarm is not None:
            alarm.cleared = step
            self._over.append(alarm)
            del self._over[:-MOST_EVENTS]

    def _record(self, line: RecordLine) -> None:
        for site in line.sites:
            if site.name not in self.sites and site.heads <= MOST_HEADS - self.heads:
                self.sites[site.name] = SiteOfRun(site.name, site.layer, site.heads, self.heads)
                self.heads += site.heads
        if (self.records + 1) * self.heads > MOST_CELLS:
            raise FileError(f"{self.tail.path.name}: more than {MOST_CELLS:,} records × heads: log "
                            f"every few more steps, or cut the file")  # fmt: skip
        tables = {name: np.full(self.heads, np.nan, np.float32) for name in FIGURES}
        for site in line.sites:
            known = self.sites.get(site.name)
            if known is None or site.heads != known.heads:
                continue
            for name, table in tables.items():
                table[known.first : known.first + site.heads] = getattr(site, name)
        self._steps.append(line.step)
        self._records.append(tables)
        for name, values in self._scalars.items():
            number = getattr(line, name)
            values.append(np.nan if number is None else number)


@dataclass(frozen=True)
class View:
    """Columns of steps; values [heads, columns]."""

    steps: list[int]
    last_steps: list[int]
    values: Any
    scalars: dict[str, Any]
