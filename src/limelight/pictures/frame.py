"""What every picture has around it: a title, a legend, and labels along the sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import as_array
from limelight.errors import DtypeError
from limelight.pictures import lettering
from limelight.pictures.scene import Box, Label, Mark, Pixels, Stroke
from limelight.pictures.tokens import visible
from limelight.views.palette import STEPS, Scale, Theme, nice

MARGIN, TITLE, SMALL, BODY = 20.0, 15.0, 10.5, 11.5
BAR = 14.0  # the legend's width
SWATCH = 20.0  # from one to the next under the legend
SMALLEST_LABEL = 11.0  # CSS pixels a row must have to carry a name
NONE: Mapping[str, str] = MappingProxyType({})


def number(value: float) -> str:
    """A tick or a tip: three digits that matter, powers of ten where those are shorter.

    >>> number(0.25), number(0.0001), number(-3.0), number(12345.0)
    ('0.25', '1e−4', '−3', '12,345')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e3:
        text = f"{value:.3g}"
    elif abs(value) < 1e6 and abs(value) >= 1e3:
        text = f"{value:,.0f}"
    else:
        mantissa, _, power = f"{value:.2e}".partition("e")
        text = f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    return text.replace("-", "−")


def table(weights: Any) -> NDArray[np.float64]:
    """Weights of any framework in float64; of a masked array the mask stays."""
    masked = isinstance(weights, np.ma.MaskedArray)
    given = weights if masked else as_array(weights, "the table of weights")
    if given.dtype.kind not in "fiub":
        raise DtypeError(f"weights are numbers, and these are {given.dtype}")
    return given.astype(np.float64)


def heading(title: str, below: str, theme: Theme) -> tuple[list[Mark], float]:
    """Title and a softer line under it, and how high they are together."""
    marks: list[Mark] = []
    y = MARGIN
    if title:
        marks.append(Label(MARGIN, y + TITLE / 2, title, theme.ink, TITLE, bold=True))
        y += TITLE + 8
    if below:
        marks.append(Label(MARGIN, y + BODY / 2, below, theme.soft, BODY))
        y += BODY + 10
    return marks, (y + 6 if y > MARGIN else y)


def heading_width(title: str, below: str) -> float:
    """With room for readers' fonts, which are wider than our letters, bold ones most."""
    wide = 1.3 * lettering.width(title, TITLE), 1.15 * lettering.width(below, BODY)
    return 2 * MARGIN + max(wide)


def legend(
    scale: Scale, x: float, y: float, height: float, theme: Theme, title: str,
    swatches: Mapping[str, str] = NONE,
) -> list[Mark]:  # fmt: skip
    """A bar of colours with numbers beside it, and under it swatches: their words and colours."""
    bar = bar_height(height - (14.0 + SWATCH * len(swatches) if swatches else 0.0))
    steps = np.linspace(scale.high, scale.low, STEPS if scale.low >= 0 else 2 * STEPS - 1)
    if scale.kind == "log":
        steps = np.geomspace(scale.high, scale.low, STEPS)
    marks: list[Mark] = [
        Label(x, y - 15, title, theme.soft, SMALL),
        Pixels(x, y, BAR, bar, scale.paint(steps, theme.name)[:, None], smooth=True),
    ]
    span = -1.0 if scale.low < 0 and scale.kind == "linear" else 0.0
    for tick in scale.ticks():
        at = (float(scale.share(tick)) - span) / (1.0 - span)
        ty = y + bar * (1 - at)
        marks += [
            Stroke(x + BAR, ty, x + BAR + 4, ty, theme.soft, 1.0),
            Label(x + BAR + 7, ty, number(tick), theme.soft, SMALL),
        ]
    for n, (words, colour) in enumerate(swatches.items()):
        top = y + bar + 18 + n * SWATCH
        marks += [
            Box(x, top, BAR, BAR, colour, edge=theme.line),
            Label(x + BAR + 7, top + BAR / 2, words, theme.soft, SMALL),
        ]
    return marks


def bar_height(room: float) -> float:
    """Of a legend: what there is room for, within reason."""
    return min(max(60.0, room), 340.0)


def legend_width(scale: Scale, title: str, swatches: Mapping[str, str] = NONE) -> float:
    """Room for the bar, its numbers and its words."""
    texts = [*(number(tick) for tick in scale.ticks()), *swatches]
    return max(
        BAR + 7 + max(lettering.width(text, SMALL) for text in texts), lettering.width(title, SMALL)
    )


def names(tokens: Sequence[str] | None, start: int, stop: int, most: int = 14) -> list[str] | None:
    """The tokens of a range as signs for an axis."""
    return None if tokens is None else [visible(str(t), most) for t in tokens[start:stop]]


def widest(texts: Sequence[str], size: float = BODY) -> float:
    return max((lettering.width(text, size) for text in texts), default=0.0)


def positions(span: tuple[int, int], room: float) -> list[int]:
    """Round positions to number an axis by, given its length in CSS pixels."""
    start, stop = span
    if stop - start <= 1:
        return [start]
    ticks = nice(start, stop - 1, max(2, int(room / 64)))
    return sorted({int(tick) for tick in ticks if float(tick).is_integer()})
