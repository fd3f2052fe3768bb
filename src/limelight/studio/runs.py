"""Runs: a training monitor's log, read as it grows (its lines are described in docs/torch.md).

A log has no bound, a screen has a few hundred columns. So records are kept as flat float32 rows,
one number a head, and a view pools them to the columns asked for, always by the worse: what
happened at one step among thousands must not average away.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError
from limelight.journal import FIGURES
from limelight.journal.reading import AlarmLine, EndLine, Line, RecordLine, RunLine, Tail

LOW_IS_WORSE = frozenset({"entropy", "spread"})
MOST_HEADS, MOST_EVENTS = 1 << 16, 4_096

Table = NDArray[np.float32]


class SiteOfRun(msgspec.Struct):
    name: str
    layer: int
    heads: int
    first: int  # where its heads begin among all heads of the run


@dataclass
class Run:
    """What has been read of one log so far."""

    tail: Tail
    model: str = ""
    started: float | None = None
    every: int | None = None
    bounds: list[dict[str, Any]] = field(default_factory=list)
    sites: dict[str, SiteOfRun] = field(default_factory=dict)
    events: list[AlarmLine] = field(default_factory=list)
    ended: str | None = None
    restarts: list[int] = field(default_factory=list)
    heads: int = 0
    _steps: list[int] = field(default_factory=list)
    _scalars: dict[str, list[float]] = field(default_factory=lambda: {"loss": [], "lr": []})
    _records: list[dict[str, Table]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def records(self) -> int:
        return len(self._steps)

    def read_on(self) -> None:
        """Take in the complete lines that were added; a log that was begun anew is read anew."""
        with self._lock:
            if self.tail.begun_anew():
                fresh = Run(self.tail)
                fresh._lock = self._lock
                self.__dict__.update(fresh.__dict__)
            for line, _ in self.tail.lines():
                self._take(line)

    def view(self, figure: str, bins: int, records: int | None = None) -> View:
        """One figure of every head over the steps, pooled to at most `bins` columns."""
        if figure not in FIGURES:
            raise ArgumentError(f"there is no figure {figure!r}: choose {', '.join(FIGURES)}")
        with self._lock:
            count = self.records if records is None else min(records, self.records)
            kept = [record[figure] for record in self._records[:count]]
            steps = np.array(self._steps[:count], np.int64)
            scalars = {name: np.array(values[:count]) for name, values in self._scalars.items()}
        table = np.full((count, self.heads), np.nan, np.float32)
        for row, values in enumerate(kept):
            table[row, : len(values)] = values
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

    def _take(self, line: Line) -> None:
        match line:
            case RunLine():
                if self.records:
                    self.restarts.append(self._steps[-1])
                self.model, self.every = line.model, line.every
                self.started, self.bounds, self.ended = line.started, line.alarms, None
            case RecordLine():
                self._record(line)
            case AlarmLine():
                if len(self.events) < MOST_EVENTS:
                    self.events.append(line)
            case EndLine():
                self.ended = line.reason

    def _record(self, line: RecordLine) -> None:
        for site in line.sites:
            if site.name not in self.sites and site.heads <= MOST_HEADS - self.heads:
                self.sites[site.name] = SiteOfRun(site.name, site.layer, site.heads, self.heads)
                self.heads += site.heads
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
