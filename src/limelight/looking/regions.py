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

from limelight.arrays import of_lists
from limelight.errors import ArgumentError

Index = NDArray[np.int64]
LARGEST_SIDE = 16_384  # bins a side: four times the widest screens, 1 GiB of float32 as a square


def span(which: Any, n: int, name: str, of: str) -> tuple[int, int]:
    """A range of rows or columns as (start, stop): from None (all), a slice, a range or a pair.

    Negative numbers count from the end, and a slice that begins before the first begins there, as
    in Python. None is all of them, and where there are none so is any empty region. `name` is the
    argument's, `of` what there are n of.

    >>> span((2, -1), 10, "rows", "queries"), span(slice(-20, None), 10, "rows", "queries")
    ((2, 9), (0, 10))
    """
    if which is None:
        return 0, n
    start, stop = _ends(which, n, name)
    if not 0 <= start <= n or not 0 <= stop <= n:
        raise ArgumentError(
            f"{name}={_show(which)} reaches outside the {n:,} {of}: {_numbered(n)}, and a range "
            f"ends at {n:,} at most"
        )
    if start >= stop and n:
        raise _nothing(f"{name}={_show(which)}", n, of)
    return start, max(start, stop)


def _ends(which: Any, n: int, name: str) -> tuple[int, int]:
    """Where a region begins and ends, counted from the first; it may lie outside."""
    if isinstance(which, slice):
        part = _without_gaps(_taken(which, n, name), name)
        # As Python has it, but for an end after the last: that names what is not there.
        far = max((operator.index(end) for end in (which.start, which.stop) if end), default=0)
        return part.start, part.stop if far <= n else far
    if isinstance(which, range):
        part = _without_gaps(which, name)
        return (_placed(part[0], n), _placed(part[-1], n) + 1) if part else (0, 0)
    try:
        start, stop = (operator.index(end) for end in which)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name}={_show(which)} is not a region: give a slice or a pair "
            f"(start, stop) of whole numbers"
        ) from None
    return _placed(start, n), _placed(stop, n)


def _taken(which: slice, n: int, name: str) -> range:
    """What a slice takes of n, as in Python."""
    try:
        return range(*which.indices(n))
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name}={_show(which)} is not a region: a slice has whole numbers, or none, and its "
            f"step is not 0"
        ) from None


def _without_gaps(part: range, name: str) -> range:
    if part.step == 1:
        return part
    raise ArgumentError(
        f"{name} has step {part.step}: a region is without gaps; weights() takes single {name} as "
        f"a list of numbers, or as a range"
    )


def _placed(at: int, n: int) -> int:
    return at + n if at < 0 else at


def indices(which: Any, n: int, name: str, of: str) -> Index:
    """Single rows or columns as an int64 array, from a number, a list or a range, or any region.

    None is all of them, and where there are none so is any empty region.
    """
    if which is None:
        return np.arange(n)
    if isinstance(which, slice) and which.step not in (None, 1):
        which = _taken(which, n, name)
    if isinstance(which, (slice, tuple)):
        return np.arange(*span(which, n, name, of))
    if isinstance(which, range) and which:
        _check_inside(np.array([which[0], which[-1]], object), n, name, of)  # however long it is
    chosen = np.atleast_1d(of_lists(which, name))
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and chosen.size):
        raise ArgumentError(
            f"{name}={_show(which)}: give a slice, a pair (start, stop), or a list of whole numbers"
        )
    if not chosen.size and n:
        raise _nothing(name, n, of)
    _check_inside(chosen, n, name, of)
    return np.where(chosen < 0, chosen + n, chosen).astype(np.int64)


def _check_inside(chosen: NDArray[Any], n: int, name: str, of: str) -> None:
    outside = chosen[(chosen < -n) | (chosen >= n)]
    if outside.size:
        raise ArgumentError(f"{name} {int(outside[0]):,} is outside the {n:,} {of}: {_numbered(n)}")


def _numbered(n: int) -> str:
    return f"they are numbered 0 to {n - 1:,}" if n else "there are none"


def _nothing(asked: str, n: int, of: str) -> ArgumentError:
    return ArgumentError(f"{asked} is an empty region: ask for at least one of the {n:,} {of}")


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
        parts = (which.start, which.stop, *(() if which.step is None else (which.step,)))
        return ":".join("" if part is None else str(part) for part in parts)
    text = repr(which)
    return text if len(text) <= 60 else text[:57] + "…"
