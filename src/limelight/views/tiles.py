"""Tiles: a rectangle of one head's weights as the views are sent it, whoever asks.

A weight is from 0 to 1. Two bins have none, and each has a code of its own:

    −1    hidden: the mask allows no cell of the bin
    NaN   not a number: a cell that may be looked at has a weight that is NaN

In 16 bits a weight w is kept as √w · 65,533, so that small weights keep their digits; 65,535 is
hidden and 65,534 not a number. JSON has no NaN: there it is null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.capture import Site
from limelight.looking.heatmap import Heatmap
from limelight.looking.pyramid import SIDE, Pyramid

HIDDEN = -1.0
HIDDEN_16, NAN_16, LIT_16 = 65_535, 65_534, 65_533
HIDDEN_WORD, NAN_WORD = "hidden", "not a number"  # what every view calls the two

Values = NDArray[np.float32]
Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Tile:
    """Coded values [height, width], and the cells that their bins share out evenly."""

    values: Values
    rows: Span
    columns: Span

    def to_bytes(self) -> bytes:
        """Row by row, little-endian float32."""
        return np.ascontiguousarray(self.values, "<f4").tobytes()


def coded(seen: Heatmap) -> Values:
    """A map's values with the code of what is hidden."""
    return np.where(seen.empty, np.float32(HIDDEN), seen.values)


def tile(
    one: Site, rows: Span, columns: Span, shape: Span, pool: str = "max",
    progress: Callable[[int, int], None] | None = None,
) -> Tile:  # fmt: skip
    """Any rectangle of a head, in bins of any number."""
    seen = one.heatmap(shape, pool, rows, columns, head=0, progress=progress)
    return Tile(coded(seen), rows, columns)


def address(one: Site, rows: Span, columns: Span, shape: Span) -> tuple[int, int, int] | None:
    """The level, row and column of the pyramid's tile that is this rectangle, if one is."""
    spans = (rows, one.queries, shape[0]), (columns, one.keys, shape[1])
    longest = max(-(-(span[1] - span[0]) // bins) for span, _, bins in spans)
    level = (longest - 1).bit_length()
    step = SIDE << level
    for (start, stop), there, bins in spans:
        whole = start % step == 0 and stop == min(start + step, there)
        if not whole or bins != -(-(stop - start) >> level):
            return None
    return level, rows[0] // step, columns[0] // step


def of_pyramid(pyramid: Pyramid, at: tuple[int, int, int], cancel: Any = None) -> Tile:
    """A tile of the pyramid; its last bins may reach past the edge of the matrix."""
    values = pyramid.tile(*at, cancel)
    empty = pyramid.empty(*at, values)
    level, row, column = at
    step = SIDE << level
    reach = [(place * step, place * step + (bins << level))
             for place, bins in zip((row, column), values.shape, strict=True)]  # fmt: skip
    return Tile(np.where(empty, np.float32(HIDDEN), values), *reach)


def to_16(values: Values) -> NDArray[np.uint16]:
    """Coded values in 16 bits."""
    known = np.sqrt(np.clip(np.nan_to_num(values), 0.0, 1.0)) * LIT_16
    marked = np.where(np.isnan(values), NAN_16, np.rint(known))
    return np.where(values == HIDDEN, HIDDEN_16, marked).astype("<u2")
