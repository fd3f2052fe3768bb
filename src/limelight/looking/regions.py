"""Regions: which rows and columns were meant, and the bins of a picture.

A picture of P bins over the cells [start, stop), n of them, has bin p over the cells

    start + ⌊p·n/P⌋  …  max(that + 1, start + ⌊(p+1)·n/P⌋)

For P ≤ n the bins share the cells out without a gap, their sizes within one of each other; for
P > n each bin is one cell, and cells repeat.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError

Index = NDArray[np.int64]
LARGEST_SIDE = 16_384  # bins a side: four times the widest screens, 1 GiB of float32 as a square


def span(which: Any, n: int, name: str, of: str) -> tuple[int, int]:
    """A range of rows or columns as (start, stop): from None (all), a slice, a range or a pair.

    Negative numbers count from the end. None is all of them, also where there are none. `name` is
    the argument's, `of` what there are n of.

    >>> span((2, -1), 10, "rows", "queries")
    (2, 9)
    """
    if which is None:
        return 0, n
    start, stop = _ends(which, n, name)
    if not 0 <= start <= n or not 0 <= stop <= n:
        raise ArgumentError(
            f"{name}={_show(which)} reaches outside the {n:,} {of}: they are "
            f"numbered 0 to {n - 1:,}, and a range ends at {n:,} at most"
        )
    if start >= stop:
        there = f"there are no {of}" if n == 0 else f"ask for at least one of the {n:,} {of}"
        raise ArgumentError(f"{name}={_show(which)} is an empty region: {there}")
    return start, stop


def _ends(which: Any, n: int, name: str) -> tuple[int, int]:
    if isinstance(which, (slice, range)):
        if which.step not in (None, 1):
            raise ArgumentError(
                f"{name} has step {which.step}: a region is without gaps; weights()"
                f" takes single {name} as a list of numbers"
            )
        pair = which.start, which.stop
    else:
        try:
            start, stop = which
            pair = operator.index(start), operator.index(stop)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"{name}={_show(which)} is not a region: give a slice or a pair "
                f"(start, stop) of whole numbers"
            ) from None
    start, stop = (0 if pair[0] is None else pair[0]), (n if pair[1] is None else pair[1])
    return (start + n if start < 0 else start), (stop + n if stop < 0 else stop)


def indices(which: Any, n: int, name: str, of: str) -> Index:
    """Single rows or columns as an int64 array, from a number, a list of them, or any region.

    None is all of them, also where there are none.
    """
    if which is None:
        return np.arange(n)
    if isinstance(which, slice) and which.step not in (None, 1):
        which = list(range(*which.indices(n)))
    if isinstance(which, (slice, range, tuple)):
        return np.arange(*span(which, n, name, of))
    chosen = np.atleast_1d(np.asarray(which))
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and chosen.size):
        raise ArgumentError(
            f"{name}={_show(which)}: give a slice, a pair (start, stop), or a list of whole numbers"
        )
    if not chosen.size:
        raise ArgumentError(f"{name} is an empty region: ask for at least one of the {n:,} {of}")
    outside = chosen[(chosen < -n) | (chosen >= n)]
    if outside.size:
        raise ArgumentError(
            f"{name} {int(outside[0]):,} is outside the {n:,} {of}: they are "
            f"numbered 0 to {n - 1:,}"
        )
    return np.where(chosen < 0, chosen + n, chosen).astype(np.int64)


def picture(shape: Any) -> tuple[int, int]:
    """The size of a picture in bins, checked."""
    try:
        height, width = (operator.index(side) for side in shape)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"shape={_show(shape)}: give the picture's rows and columns as a pair "
            f"of whole numbers, such as (256, 256)"
        ) from None
    for side in (height, width):
        if not 1 <= side <= LARGEST_SIDE:
            raise ArgumentError(
                f"a picture of {height:,} × {width:,}: each side must be from 1 to "
                f"{LARGEST_SIDE:,}. For more detail ask for a part with rows=… and columns=…"
            )
    return height, width


def edges(start: int, stop: int, bins: int) -> Index:
    """The bins' edges [bins + 1] over the cells start..stop, for at most as many bins as cells.

    >>> edges(0, 7, 3)
    array([0, 2, 4, 7])
    """
    return start + np.arange(bins + 1, dtype=np.int64) * (stop - start) // max(1, bins)


def repeats(cells: int, bins: int) -> Index | None:
    """Which of the cells each bin shows where there are more bins than cells, else None."""
    return None if bins <= cells or not cells else np.arange(bins, dtype=np.int64) * cells // bins


def chunks(row_edges: Index, column_edges: Index, most: int) -> Iterator[tuple[slice, slice]]:
    """A picture's bins in blocks of about `most` cells, whole rows of bins where they fit.

    >>> list(chunks(np.array([0, 4, 8, 12]), np.array([0, 5, 10]), 80))
    [(slice(0, 2, None), slice(0, 2, None)), (slice(2, 3, None), slice(0, 2, None))]
    """
    height, width = len(row_edges) - 1, len(column_edges) - 1
    tallest, widest = int(np.diff(row_edges).max()), int(np.diff(column_edges).max())
    columns = min(width, max(1, most // (tallest * widest)))
    rows = max(1, most // (tallest * widest * width)) if columns == width else 1
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            yield (slice(top, min(top + rows, height)), slice(left, min(left + columns, width)))


def _show(which: Any) -> str:
    if isinstance(which, slice):
        return ":".join("" if part is None else str(part) for part in (which.start, which.stop))
    text = repr(which)
    return text if len(text) <= 60 else text[:57] + "…"
