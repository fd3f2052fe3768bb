"""Masks that captures need beside those that people write: measured ones, and one entry of a batch.

A model hands over its mask as booleans, or step by step while it generates. `Intervals` keeps any
such mask exactly, a few numbers a row; `simplify` finds the plain mask that says the same, so that
a capture prints `Causal()` and not a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import pick
from limelight.errors import ShapeError
from limelight.masks import Causal, Documents, Explicit, Lengths, Mask, Prefix, Window, as_mask
from limelight.masks import spans as sp
from limelight.masks.algebra import ONLY, Side
from limelight.masks.allowed import CHUNK, MOST_SLOTS, Allowed
from limelight.writing.numbers import counted


@dataclass(frozen=True, eq=False, repr=False)
class Intervals(Mask):
    """Each row's keys as half-open intervals: int32 [B|1, H|1, nq, R, 2], of nk keys."""

    spans: sp.Spans
    nk: int

    def dense(self, nq: int, nk: int) -> NDArray[np.bool_]:
        self._check(nq, nk)
        cells = sp.inside(self.spans, np.arange(nk))
        return cells[0, 0] if cells.shape[:2] == (1, 1) else cells

    def _allowed(self, nq: int, nk: int) -> Allowed:
        self._check(nq, nk)
        return Allowed(nq, nk, spans=self.spans)

    @property
    def expression(self) -> str:
        rows, slots = self.spans.shape[2], self.spans.shape[3]
        return f"Intervals({rows}×{self.nk}, {slots} a row)"

    def _sides(self) -> tuple[Side, Side]:
        return (ONLY, int(self.spans.shape[2])), (ONLY, self.nk)

    def _check(self, nq: int, nk: int) -> None:
        if (nq, nk) != self._size():
            rows, keys = self._size()
            raise ShapeError(
                f"the mask was measured on {counted(rows, 'query')} and {counted(keys, 'key')}, "
                f"and here are {nq} and {nk}: use it at its own size"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Entry(Mask):
    """What a mask of a batch says about one entry, and about one head where one is named."""

    mask: Mask
    batch: int
    head: int | None = None

    def dense(self, nq: int, nk: int) -> NDArray[np.bool_]:
        cells = np.asarray(self.mask.dense(nq, nk))
        cells = cells.reshape((1,) * (4 - cells.ndim) + cells.shape)
        cells = pick(cells, self.batch, self.head)[0]
        return np.asarray(cells[0] if cells.shape[0] == 1 else cells)

    def _allowed(self, nq: int, nk: int) -> Allowed:
        allowed = self.mask.allowed(nq, nk)
        return replace(
            allowed,
            spans=pick(allowed.spans, self.batch, self.head),
            dense=pick(allowed.dense, self.batch, self.head),
        )

    def _lasts(self) -> bool:
        return self.mask._lasts()

    @property
    def expression(self) -> str:
        head = "" if self.head is None else f", head {self.head}"
        return f"batch {self.batch}{head} of {self.mask.expression}"

    def _sides(self) -> tuple[Side, Side]:
        return self.mask._sides()


def measured(mask: Any, nq: int, nk: int) -> tuple[sp.Spans | None, Mask | None]:
    """What a model gave as a mask in rows, as measure() has them; itself where they are scattered.

    None hides nothing. What comes back is NumPy and a copy: a model may use its mask again.
    """
    if mask is None:
        return measure(Allowed(nq, nk)), None
    rule = as_mask(mask).numpy()
    spans = measure(rule.allowed(nq, nk))
    return spans, rule if spans is None else None


def measure(allowed: Allowed) -> sp.Spans | None:
    """What is allowed as intervals, [B|1, H|1, nq, R, 2]; None where that is too scattered."""
    if allowed.dense is None:
        return allowed.rows
    heads = int(np.prod(allowed.dense.shape[:2]))
    step = max(1, CHUNK // max(1, heads * allowed.nk))
    columns, parts = np.arange(allowed.nk), []
    for start in range(0, allowed.nq, step):
        rows = np.arange(start, min(start + step, allowed.nq))
        cells = allowed.tile(rows, columns)
        cells = np.ones((1, 1, len(rows), allowed.nk), np.bool_) if cells is None else cells
        parts.append(sp.runs(cells))
        if parts[-1].shape[3] > MOST_SLOTS:
            return None
    if not parts:
        return np.zeros((1, 1, 0, 1, 2), np.int32)
    return _join(parts, allowed.nk)


def compress(cells: NDArray[np.bool_]) -> Mask | None:
    """Booleans [B|1, H|1, nq, nk] as the plainest mask that says the same; None hides nothing."""
    nq, nk = cells.shape[2:]
    spans = measure(Allowed(nq, nk, dense=cells))
    return Explicit(cells) if spans is None else simplify(Intervals(spans, nk))


def stack(parts: list[sp.Spans], nk: int) -> Intervals:
    """Rows measured one after the other, as one mask of nk keys."""
    return Intervals(_join(parts, nk), nk)


def simplify(mask: Intervals) -> Mask | None:
    """The plain mask with the same cells: None for everything, or the intervals themselves."""
    nq, nk = mask._size()
    spans = _trim(mask.spans, nk)
    for plain in _candidates(spans, nq, nk):
        rows = Allowed(nq, nk).rows if plain is None else plain.allowed(nq, nk).rows
        if _equal(rows, spans):
            return plain
    return replace(mask, spans=spans)


def _candidates(spans: sp.Spans, nq: int, nk: int) -> Iterator[Mask | None]:
    """Masks that these rows may be, the plainest first."""
    yield None
    yield Causal()
    if not nq or spans.shape[1] != 1 or spans.shape[3] != 1:
        return
    low, high = spans[:, 0, :, 0, 0], spans[:, 0, :, 0, 1]  # [B|1, nq]
    used = low < high
    if not used.any():
        return
    first = np.where(used, low, nk).min(axis=1)  # [B|1]: keys before it are never looked at
    last = np.where(used, high, 0).max(axis=1)
    pads = _padding(first, last)
    diagonal = np.arange(nq) + nk - nq
    left = int(np.where(used, diagonal - low, -1).max(initial=-1))
    right = int(np.where(used, high - 1 - diagonal, -1).max(initial=-1))
    for band in (None, Causal(), _window(left, 0), _window(left, right)):
        for pad in pads:
            if band is not None or pad is not None:
                yield pad if band is None else band if pad is None else band & pad
    if nq == nk and used.all():  # the same keys, or the first of them, for neighbours
        same = Documents(low[0] if len(low) == 1 else low)
        yield same
        yield Causal() & same


def _padding(first: NDArray[Any], last: NDArray[Any]) -> list[Mask | None]:
    """No padding, padding on the left, on the right, on both sides."""
    starts = int(first[0]) if (first == first[0]).all() else first
    ends = int(last[0]) if (last == last[0]).all() else last
    left, right = ~Prefix(starts), Lengths(ends)
    return [None, left, right, left & right]


def _window(left: int, right: int) -> Mask | None:
    return Window(left, right) if left >= 0 and right >= 0 else None


def _join(parts: list[sp.Spans], nk: int) -> sp.Spans:
    """Rows of several tables under each other, with as many slots as the widest needs."""
    slots = max(part.shape[3] for part in parts)
    batch, heads = (max(part.shape[axis] for part in parts) for axis in (0, 1))
    wide = []
    for part in parts:
        table = np.full((batch, heads, part.shape[2], slots, 2), nk, np.int32)
        table[:, :, :, : part.shape[3]] = part
        wide.append(table)
    return np.concatenate(wide, axis=2)


def _trim(spans: sp.Spans, nk: int) -> sp.Spans:
    """Unused slots as (nk, nk), and axes of equal entries as one."""
    empty = spans[..., :1] >= spans[..., 1:]
    spans = np.where(empty, np.int32(nk), spans)
    for axis in (0, 1):
        if spans.shape[axis] > 1 and (spans == spans.take([0], axis)).all():
            spans = spans.take([0], axis)
    return spans


def _equal(a: sp.Spans, b: sp.Spans) -> bool:
    slots = max(a.shape[3], b.shape[3])
    both = []
    for spans in (a, b):
        empty = spans[..., :1] >= spans[..., 1:]
        table = np.zeros((*spans.shape[:3], slots, 2), np.int32)
        table[..., : spans.shape[3], :] = np.where(empty, 0, spans)
        both.append(table)
    try:
        return bool((both[0] == both[1]).all())
    except ValueError:
        return False
