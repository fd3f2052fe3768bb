"""Colours: quiet neutral surfaces, one warm light for attention, a cool tone for what is negative.

A ramp is a path through a few anchors in OKLab (Ottosson 2020), a space in which equal distances
look equal, walked at constant speed: equal steps of a number are equal steps to the eye. Lightness
changes in one direction all the way, so a ramp reads in grey, and with any colour blindness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError

Rgb = NDArray[np.uint8]
STEPS = 256
THEMES = ("light", "dark")
SCALES = ("linear", "log")
INKS = ("#14120f", "#ffffff", "#000000")
DECADES = 6  # the most that a logarithmic scale spans

_ANCHORS = {
    ("light", "warm"): ("#fbfaf7", "#fbe3ae", "#f3b03a", "#d67a10", "#8f3f05", "#4a1f08"),
    ("dark", "warm"): ("#191714", "#4d300d", "#a5650f", "#f0a62c", "#fff1c9"),
    ("light", "cool"): ("#fbfaf7", "#bcd3ea", "#6f9fce", "#3a70a8", "#123a66"),
    ("dark", "cool"): ("#191714", "#1c3f5e", "#3571a6", "#77b1e4", "#d9ecfd"),
}
_TO_LMS = np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                    [0.2119034982, 0.6806995451, 0.1073969566],
                    [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
_TO_LAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468],
                    [1.9779984951, -2.4285922050, 0.4505937099],
                    [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip


@dataclass(frozen=True)
class Theme:
    """The colours of everything that is not a number."""

    name: str
    surface: str
    ink: str
    soft: str  # labels, ticks
    line: str
    hidden: str  # where no cell is allowed: neither warm nor cool
    light: str  # attention, as a shape
    cool: str  # what is negative, as a shape
    alarm: str  # what is wrong: a weight that is not a number


THEME = {
    "light": Theme("light", "#faf9f6", "#23201b", "#5a554b", "#dedad1", "#dfdbd2", "#d67a10",
                   "#2f6aa3", "#a83026"),
    "dark": Theme("dark", "#151412", "#f1ede4", "#bdb6a8", "#36322b", "#2e2c29", "#f5b13c",
                  "#77b1e4", "#f08a7e"),
}  # fmt: skip


def theme_of(name: str) -> Theme:
    if name not in THEME:
        raise ArgumentError(f"theme={name!r}: choose {' or '.join(THEMES)}")
    return THEME[name]


@cache
def ramp(theme: str, tone: str = "warm") -> Rgb:
    """256 colours from the surface to the full tone: uint8 [256, 3]."""
    anchors = to_oklab(np.array([rgb(text) for text in _ANCHORS[theme, tone]]))
    at = np.linspace(0, len(anchors) - 1, 4001)
    path = np.stack([_smooth(anchors[:, axis], at) for axis in range(3)], axis=1)
    walked = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
    even = np.linspace(0, walked[-1], STEPS)
    colours = np.stack([np.interp(even, walked, path[:, axis]) for axis in range(3)], axis=1)
    table = from_oklab(colours)
    table.flags.writeable = False
    return table


def rgb(text: str) -> tuple[int, int, int]:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def css(colour: Any) -> str:
    """Three bytes as #rrggbb."""
    return "#" + "".join(f"{int(part):02x}" for part in colour)


def ink_on(colour: Any) -> str:
    """The first of the inks that can be read on that colour, else the last."""
    shade = _luminance(colour) + 0.05
    contrasts = ((ink, shade / (_luminance(rgb(ink)) + 0.05)) for ink in INKS)
    return next((ink for ink, ratio in contrasts if max(ratio, 1 / ratio) >= 4.5), INKS[-1])


@dataclass(frozen=True)
class Scale:
    """From numbers to colours: linear over [low, high], or logarithmic where low > 0.

    A linear scale with low < 0 is signed: it runs over ±max(|low|, high), cool below zero.
    """

    low: float
    high: float
    kind: str = "linear"

    @classmethod
    def of(
        cls, values: Any, kind: str = "linear", low: float | None = None, high: float | None = None
    ) -> Scale:
        """A scale that fits the finite numbers there are; for weights from 0 unless told."""
        if kind not in SCALES:
            raise ArgumentError(f"scale={kind!r}: choose {' or '.join(SCALES)}")
        finite = np.asarray(values)[np.isfinite(values)]
        top = float(finite.max(initial=0.0)) if high is None else high
        if kind == "linear":
            least = min(0.0, float(finite.min(initial=0.0))) if low is None else low
            bound = max(top, -least) if least < 0 else top
            top, least = (bound, -bound) if least < 0 else (top, least)
            return cls(least, top if top - least > 1e-300 else least + 1.0, kind)
        if finite.min(initial=0.0) < 0:
            raise ArgumentError("a logarithmic scale has no place for negative numbers: use linear")
        top = top if top > 0 else 1.0
        if low is None:
            positive = finite[finite > 0]
            least = max(float(positive.min()) if positive.size else top, top * 10.0**-DECADES)
            low = 10.0 ** math.floor(math.log10(least) + 1e-9)
            low = low if low < top else top / 10
        if not 0 < low < top:
            raise ArgumentError(f"a logarithmic scale from {low:g} to {top:g}: it must rise from a "
                                f"number above 0")  # fmt: skip
        return cls(low, top, kind)

    def share(self, values: Any) -> Any:
        """Where each number stands: 0 to 1, or −1 to 1 on a signed scale; NaN stays."""
        values = np.clip(np.asarray(values, np.float64), self.low, self.high)
        if self.kind == "log":
            return np.log(values / self.low) / math.log(self.high / self.low)
        if self.low < 0:
            return values / self.high
        return (values - self.low) / (self.high - self.low)

    def paint(self, values: Any, theme: str, empty: Any = True) -> Rgb:
        """The colour of each number, uint8 [..., 3]; NaN is hidden where empty, else an alarm."""
        at = self.share(values)
        index = np.rint(np.abs(np.nan_to_num(at)) * (STEPS - 1)).astype(np.intp)
        colours = ramp(theme)[index]
        if self.low < 0:
            colours = np.where((at < 0)[..., None], ramp(theme, "cool")[index], colours)
        look = theme_of(theme)
        hidden, alarm = (np.array(rgb(text), np.uint8) for text in (look.hidden, look.alarm))
        without = np.where(np.asarray(empty)[..., None], hidden, alarm)
        return np.where(np.isnan(at)[..., None], without, colours)

    def ticks(self) -> list[float]:
        """Round numbers to write beside a legend, from low to high."""
        if self.kind == "log":
            first = math.ceil(math.log10(self.low) - 1e-9)
            last = math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        return nice(self.low, self.high, 5)


def nice(low: float, high: float, most: int) -> list[float]:
    """At most `most` round numbers from low to high, evenly spaced.

    >>> nice(0, 0.93, 5)
    [0.0, 0.2, 0.4, 0.6, 0.8]
    """
    rough = (high - low) / max(1, most)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [round((first + n) * step, 12) for n in range(count)]


def to_oklab(colours: Any) -> NDArray[np.float64]:
    """sRGB bytes [..., 3] to OKLab."""
    linear = _linear(np.asarray(colours, np.float64) / 255)
    return np.asarray(np.cbrt(linear @ _TO_LMS.T) @ _TO_LAB.T)


def from_oklab(colours: NDArray[np.float64]) -> Rgb:
    linear = np.clip((colours @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_LMS).T, 0.0, 1.0)
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.asarray(np.rint(255 * curved), np.uint8)


def _luminance(colour: Any) -> float:
    return float(_linear(np.asarray(colour, np.float64) / 255) @ (0.2126, 0.7152, 0.0722))


def _linear(srgb: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def _smooth(anchors: NDArray[np.float64], at: NDArray[np.float64]) -> NDArray[np.float64]:
    """A curve through the anchors without overshoot: cubic Hermite with limited slopes."""
    rise = np.diff(anchors)
    both = rise[:-1] * rise[1:] > 0
    inner = np.where(both, 2 * rise[:-1] * rise[1:] / np.where(both, rise[:-1] + rise[1:], 1), 0.0)
    slope = np.concatenate([rise[:1], inner, rise[-1:]])
    i = np.minimum(at.astype(np.intp), len(anchors) - 2)
    t = at - i
    a, b, m, n = anchors[i], anchors[i + 1], slope[i], slope[i + 1]
    bend: NDArray[np.float64] = t * t * (3 * (b - a) - 2 * m - n) + t**3 * (2 * (a - b) + m + n)
    return np.asarray(a + t * m + bend)
