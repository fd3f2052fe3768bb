"""Line charts on pictures' marks: panels in a grid, each line with its seeds behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from limelight.pictures import frame
from limelight.pictures.colour import nice, theme_of
from limelight.pictures.scene import Box, Label, Mark, Picture, Stroke, Trail

WIDE, TALL = 250.0, 150.0  # CSS pixels of a panel's plot
LEFT, ABOVE, BELOW, GAP = 46.0, 30.0, 34.0, 14.0
COLOURS = {"light": ("#d67a10", "#2f6aa3", "#6b6558"), "dark": ("#f5b13c", "#77b1e4", "#c3bcae")}
DASHES: tuple[tuple[float, float] | None, ...] = (None, None, (6.0, 4.0))
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Line:
    """One line: x [points], and y [seeds, points]."""

    name: str
    x: Array
    y: Array


@dataclass(frozen=True)
class Panel:
    """Lines on axes of their own; `log` says which are logarithmic ("", "x", "y", "xy")."""

    title: str
    lines: tuple[Line, ...]
    across: str = ""
    log: str = ""
    low: float | None = None
    high: float | None = None
    dots: bool = False
    ticks: tuple[float, ...] = field(default=())  # of the x axis; round numbers where empty


def chart(
    panels: list[list[Panel]], *, title: str, below: str = "", theme: str = "light"
) -> Picture:
    """Rows of panels with one legend. Thin lines or dots are seeds, the thick line their mean."""
    look = theme_of(theme)
    marks, top = frame.heading(title, below, look)
    names = list(dict.fromkeys(line.name for row in panels for p in row for line in p.lines))
    colours = dict(zip(names, COLOURS[theme], strict=False))
    x = frame.MARGIN
    for n, name in enumerate(names):
        swatch = ((x, top + 8), (x + 26, top + 8))
        marks.append(Trail(swatch, colours[name], 2.4, 1.0, DASHES[n % 3]))
        marks.append(Label(x + 34, top + 8, name, look.ink, frame.BODY))
        x += 34 + frame.widest([name]) + 26
    top += 26
    across = max(len(row) for row in panels)
    for r, row in enumerate(panels):
        for c, panel in enumerate(row):
            left = frame.MARGIN + LEFT + c * (WIDE + LEFT + GAP)
            y = top + ABOVE + r * (TALL + ABOVE + BELOW)
            marks += _panel(panel, left, y, colours, names, theme)
    width = 2 * frame.MARGIN + across * (WIDE + LEFT + GAP) - GAP
    width = max(width, frame.heading_width(title, below))
    height = top + len(panels) * (TALL + ABOVE + BELOW) + frame.MARGIN - 8
    return Picture(width, height, tuple(marks), theme, title)


def _panel(
    panel: Panel, left: float, top: float, colours: dict[str, str], names: list[str], theme: str
) -> list[Mark]:
    look = theme_of(theme)
    every_x = np.concatenate([line.x for line in panel.lines])
    every_y = np.concatenate([line.y.ravel() for line in panel.lines])
    horizontal = _Axis.of(every_x, "x" in panel.log, None, None)
    vertical = _Axis.of(every_y, "y" in panel.log, panel.low, panel.high)
    marks: list[Mark] = [Label(left, top - 14, panel.title, look.ink, frame.BODY)]
    for tick in vertical.ticks(TALL / 36):
        y = top + TALL * (1 - vertical.share(tick))
        marks += [
            Stroke(left, y, left + WIDE, y, look.line, 1.0),
            Label(left - 6, y, frame.number(tick), look.soft, frame.SMALL, "end"),
        ]
    for tick in panel.ticks or horizontal.ticks(WIDE / 60):
        x = left + WIDE * horizontal.share(tick)
        marks += [
            Stroke(x, top + TALL, x, top + TALL + 4, look.soft, 1.0),
            Label(x, top + TALL + 12, frame.number(tick), look.soft, frame.SMALL, "middle"),
        ]
    if panel.across:
        at = left + WIDE / 2
        marks.append(Label(at, top + TALL + 26, panel.across, look.soft, frame.SMALL, "middle"))

    def place(xs: Array, ys: Array) -> tuple[tuple[float, float], ...]:
        return tuple(
            (left + WIDE * horizontal.share(x), top + TALL * (1 - vertical.share(y)))
            for x, y in zip(xs, ys, strict=True)
            if np.isfinite(y)
        )

    means: list[Mark] = []
    for line in panel.lines:
        colour, dash = colours[line.name], DASHES[names.index(line.name) % 3]
        for seed in line.y:
            points = place(line.x, seed)
            if panel.dots:
                marks += [Box(x - 2, y - 2, 4, 4, colour) for x, y in points]
            else:
                marks.append(Trail(points, colour, 0.8, 0.45))
        means.append(Trail(place(line.x, line.y.mean(0)), colour, 2.2, 1.0, dash))
    return marks + means


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, values: Array, log: bool, low: float | None, high: float | None) -> _Axis:
        values = values[np.isfinite(values) & ((values > 0) | (not log))]
        first, last = (float(values.min()), float(values.max())) if values.size else (0.1, 1.0)
        first, last = first if low is None else low, last if high is None else high
        if first == last:
            first, last = (first / 2, last * 2) if log else (first - 0.5, last + 0.5)
        return cls(first, last, log)

    def share(self, value: float) -> float:
        """Where a value lies between the ends, kept within them."""
        if self.log:
            value = max(value, self.low)
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))

    def ticks(self, most: float) -> list[float]:
        if not self.log:
            return [tick for tick in nice(self.low, self.high, max(2, int(most)))
                    if self.low <= tick <= self.high]  # fmt: skip
        first, last = math.log10(self.low), math.log10(self.high)
        powers = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
        step = max(1, math.ceil(len(powers) / max(2, most)))
        return [10.0**power for power in powers[::step]] or [self.low, self.high]
