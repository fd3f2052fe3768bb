"""Line charts: panels in a grid, each line with its seeds behind it, and one legend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.pictures import frame
from limelight.pictures.scene import Box, Label, Mark, Picture, Stroke, Trail
from limelight.views.palette import STEPS, Theme, css, nice, ramp, theme_of

WIDE, TALL = 250.0, 150.0  # CSS pixels of a panel's plot
LEFT, ABOVE, BELOW, GAP = 46.0, 30.0, 34.0, 14.0
DASHES: tuple[tuple[float, float] | None, ...] = (None, None, (6.0, 4.0))
MOST_NAMED = 12  # lines up to which the legend names each
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
    ticks: tuple[float, ...] = ()  # of the x axis; round numbers where empty
    marks: tuple[float, ...] = ()  # places of the x axis where an alarm rang


def chart(
    panels: list[list[Panel]], *, title: str, below: str = "", theme: str = "light"
) -> Picture:
    """Rows of panels with one legend. Thin lines or dots are seeds, the thick line their mean.

    Up to three lines have colours of their own; more are shades of one, in their order.
    """
    look = theme_of(theme)
    marks, top = frame.heading(title, below, look)
    every = [panel for row in panels for panel in row]
    names = list(dict.fromkeys(line.name for panel in every for line in panel.lines))
    styles = _styles(names, look)
    across = max(len(row) for row in panels)
    width = 2 * frame.MARGIN + across * (WIDE + LEFT + GAP) - GAP
    width = max(width, frame.heading_width(title, below))
    words = {name: styles[name] for name in names} if len(names) <= MOST_NAMED else {}
    words |= {"alarm": (look.alarm, None)} if any(panel.marks for panel in every) else {}
    x = frame.MARGIN
    for name, (colour, dash) in words.items():
        room = 34 + frame.widest([name]) + 26
        if x > frame.MARGIN and x + room - 26 > width - frame.MARGIN:
            x, top = frame.MARGIN, top + 18
        if name == "alarm":
            marks.append(_rung(x + 13, top + 8, colour))
        else:
            marks.append(Trail(((x, top + 8), (x + 26, top + 8)), colour, 2.4, 1.0, dash))
        marks.append(Label(x + 34, top + 8, name, look.ink, frame.BODY))
        x += room
    top += 26 if words else 0
    for r, row in enumerate(panels):
        for c, panel in enumerate(row):
            left = frame.MARGIN + LEFT + c * (WIDE + LEFT + GAP)
            y = top + ABOVE + r * (TALL + ABOVE + BELOW)
            marks += _panel(panel, left, y, styles, look)
    height = top + len(panels) * (TALL + ABOVE + BELOW) + frame.MARGIN - 8
    return Picture(width, height, tuple(marks), theme, title)


def _styles(names: list[str], look: Theme) -> dict[str, tuple[str, tuple[float, float] | None]]:
    """The colour and the dashes of each line."""
    own = (look.light, look.cool, look.soft)
    if len(names) <= len(own):
        return dict(zip(names, zip(own, DASHES, strict=True), strict=False))
    at = np.linspace(0.3, 1.0, len(names)) * (STEPS - 1)
    shades = ramp(look.name)[np.rint(at).astype(np.intp)]
    return {name: (css(shade), None) for name, shade in zip(names, shades, strict=True)}


def _rung(x: float, y: float, colour: str) -> Box:
    return Box(x - 2.5, y - 2.5, 5, 5, colour)


def _panel(
    panel: Panel, left: float, top: float, styles: dict[str, Any], look: Theme
) -> list[Mark]:
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

    def place(xs: Array, ys: Array) -> list[tuple[tuple[float, float], ...]]:
        """The points as stretches without a gap."""
        known = np.isfinite(ys)
        at = np.split(np.arange(len(ys)), np.flatnonzero(np.diff(known)) + 1)
        return [
            tuple((left + WIDE * horizontal.share(xs[n]), top + TALL * (1 - vertical.share(ys[n])))
                  for n in part)
            for part in at if len(part) and known[part[0]]
        ]  # fmt: skip

    means: list[Mark] = []
    for line in panel.lines:
        colour, dash = styles[line.name]
        for seed in line.y if panel.dots or len(line.y) > 1 else ():
            for points in place(line.x, seed):
                if panel.dots:
                    marks += [Box(x - 2, y - 2, 4, 4, colour) for x, y in points]
                else:
                    marks.append(Trail(points, colour, 0.8, 0.45))
        means += [Trail(points, colour, 2.2, 1.0, dash) for points in place(line.x, line.y.mean(0))]
    rung = [_rung(left + WIDE * horizontal.share(x), top + TALL, look.alarm) for x in panel.marks]
    return marks + means + rung


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
