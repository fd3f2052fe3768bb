"""Runs: a training monitor's log, read as it grows (its lines are described in docs/torch.md).

A log has no bound, a screen has a few hundred columns. So records are kept as flat float32 rows,
one number a head, and a view pools them to the columns asked for, always by the worse: what
happened at one step among thousands must not average away.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError, FileError

FORMAT = "limelight.monitor"
FIGURES = ("max_logit", "max_prob", "entropy", "spread", "peaked", "saturated", "not_a_number")
LOW_IS_WORSE = frozenset({"entropy", "spread"})
LONGEST_LINE = 8 << 20
MOST_HEADS, MOST_EVENTS = 1 << 16, 4_096
CHUNK = 4 << 20

Table = NDArray[np.float32]


class SiteLine(msgspec.Struct):
    """One site of a record, as the monitor writes it; what is unknown is ignored."""

    name: str
    heads: int
    layer: int = 0
    max_logit: list[float | None] = []
    max_prob: list[float | None] = []
    entropy: list[float | None] = []
    spread: list[float | None] = []
    peaked: list[float | None] = []
    saturated: list[float | None] = []
    not_a_number: list[float | None] = []


class Line(msgspec.Struct):
    """Any line; `kind` says which of the fields it has."""

    kind: str
    step: int | None = None
    time: float | None = None
    format: str | None = None
    model: str | None = None
    every: int | None = None
    started: float | None = None
    alarms: list[dict[str, Any]] = []
    loss: float | None = None
    lr: float | None = None
    sites: list[SiteLine] = []
    event: str | None = None
    alarm: str | None = None
    site: str | None = None
    head: int | None = None
    figure: str | None = None
    value: float | None = None
    bound: float | None = None
    reason: str | None = None


class Event(msgspec.Struct):
    """An alarm that was raised or cleared."""

    event: str
    step: int
    alarm: str
    site: str
    head: int
    figure: str
    value: float | None
    bound: float | None


class SiteOfRun(msgspec.Struct):
    name: str
    layer: int
    heads: int
    first: int  # where its heads begin among all heads of the run


@dataclass
class Run:
    """What has been read of one log so far."""

    path: Path
    most_bytes: int
    model: str = ""
    started: float | None = None
    every: int | None = None
    bounds: list[dict[str, Any]] = field(default_factory=list)
    sites: dict[str, SiteOfRun] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    ended: str | None = None
    restarts: list[int] = field(default_factory=list)
    heads: int = 0
    _steps: list[int] = field(default_factory=list)
    _scalars: dict[str, list[float]] = field(default_factory=lambda: {"loss": [], "lr": []})
    _records: list[dict[str, Table]] = field(default_factory=list)
    _place: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def records(self) -> int:
        return len(self._steps)

    @property
    def place(self) -> int:
        """Bytes read so far."""
        return self._place

    def read_on(self) -> None:
        """Take in the complete lines that were added; a log that was begun anew is read anew."""
        with self._lock:
            if self.path.stat().st_size < self._place:
                fresh = Run(self.path, self.most_bytes)
                fresh._lock = self._lock
                self.__dict__.update(fresh.__dict__)
            for line in self._new_lines():
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

    def _new_lines(self) -> Iterator[Line]:
        decoder = msgspec.json.Decoder(Line)
        with self.path.open("rb") as file:
            file.seek(self._place)
            left = b""
            while chunk := file.read(CHUNK):
                if self._place + len(left) + len(chunk) > self.most_bytes:
                    raise FileError(f"{self.path.name} is longer than {self.most_bytes:,} bytes: "
                                    f"log every few more steps, or cut the file")  # fmt: skip
                *lines, left = (left + chunk).split(b"\n")
                if len(left) > LONGEST_LINE:
                    raise FileError(f"{self.path.name}: a line of more than {LONGEST_LINE:,} bytes")
                for text in lines:
                    self._place += len(text) + 1
                    try:
                        yield decoder.decode(text)
                    except (msgspec.MsgspecError, UnicodeDecodeError):
                        continue  # a damaged line costs itself alone

    def _take(self, line: Line) -> None:
        if line.kind == "run" and line.format == FORMAT:
            if self.records:
                self.restarts.append(self._steps[-1])
            self.model, self.every = line.model or "", line.every
            self.started, self.bounds, self.ended = line.started, line.alarms, None
        elif line.kind == "record" and line.step is not None:
            self._record(line, line.step)
        elif line.kind == "alarm" and line.event in ("raised", "cleared"):
            if len(self.events) < MOST_EVENTS:
                self.events.append(Event(
                    line.event, line.step or 0, line.alarm or "", line.site or "", line.head or 0,
                    line.figure or "", line.value, line.bound,
                ))  # fmt: skip
        elif line.kind == "end":
            self.ended = line.reason or "closed"

    def _record(self, line: Line, step: int) -> None:
        for site in line.sites:
            if site.name not in self.sites and 0 <= site.heads <= MOST_HEADS - self.heads:
                self.sites[site.name] = SiteOfRun(site.name, site.layer, site.heads, self.heads)
                self.heads += site.heads
        tables = {name: np.full(self.heads, np.nan, np.float32) for name in FIGURES}
        for site in line.sites:
            known = self.sites.get(site.name)
            if known is None or site.heads != known.heads:
                continue
            for name, table in tables.items():
                values = getattr(site, name)
                if len(values) == site.heads:
                    table[known.first : known.first + site.heads] = values
        self._steps.append(step)
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


def is_run(path: Path) -> bool:
    """Whether the first line says that a monitor wrote it."""
    try:
        with path.open("rb") as file:
            first = msgspec.json.decode(file.readline(CHUNK), type=Line)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return first.kind == "run" and first.format == FORMAT
