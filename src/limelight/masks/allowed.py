"""Allowed: what a mask allows, in the form that engines read.

A cell (row i, key j) is allowed where every part that is present agrees:

    band    low ≤ j − i ≤ high, the same for all rows (causal, window)
    spans   j in one of the row's intervals (lengths, documents, prefix, and what `|` and `~` make)
    dense   a boolean array, where the caller gave one

Band and spans cost O(1) numbers a row. `dense` is n×n only where the caller's array was, or where
`|` or `~` joins an array to other parts and intervals cannot say it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import as_numpy, crop, expand, is_torch
from limelight.errors import ArgumentError, ShapeError
from limelight.masks import spans as sp
from limelight.masks.memory import Remembers
from limelight.writing.numbers import counted

EMPTY, PARTIAL, FULL = 0, 1, 2
CHUNK = 1 << 24  # cells looked at together where a dense part must be read
MOST_SLOTS = 16  # intervals a row; beyond that a boolean array is the smaller form
LONGEST = 2**31 - 1  # positions are counted in 32 bits

Index = NDArray[np.int64]


def check_sides(nq: int, nk: int) -> None:
    for name, length in (("queries", nq), ("keys", nk)):
        if not hasattr(length, "__index__") or length < 0:
            raise ArgumentError(
                f"{name}={length!r}: a mask is for a whole number of queries and of keys, 0 or more"
            )
        if length > LONGEST:
            raise ShapeError(f"{length:,} {name}: a call has up to {LONGEST:,} of them")


@dataclass(frozen=True, eq=False)
class Allowed(Remembers):
    """The allowed cells of an nq × nk matrix; batch and head axes broadcast.

    `spans` is int32 [B|1, H|1, nq|1, R, 2], `dense` is bool [B|1, H|1, nq|1, nk|1].
    """

    nq: int
    nk: int
    band: tuple[int, int] | None = None
    spans: sp.Spans | None = None
    dense: Any = None

    def __post_init__(self) -> None:
        for name, axes in (("spans", 5), ("dense", 4)):
            part = getattr(self, name)
            if part is not None and part.ndim < axes:
                part = part.reshape((1,) * (axes - part.ndim) + tuple(part.shape))
                object.__setattr__(self, name, part)

    @cached_property
    def everything(self) -> bool:
        return self.band is None and self.spans is None and self.dense is None

    @cached_property
    def rows(self) -> sp.Spans:
        """Band and spans as one set of intervals a row: int32 [B|1, H|1, nq, R, 2]."""
        row = np.arange(self.nq)
        low, high = self.band or (-self.nq, self.nk)
        rows = sp.make(row + low, row + high + 1, self.nk)[None, None]  # [1, 1, nq, 1, 2]
        return rows if self.spans is None else sp.intersect(rows, self.spans, self.nk)

    def conjunction(self, other: Allowed) -> Allowed:
        """The cells allowed by both, part by part."""
        band = self.band or other.band
        if self.band and other.band:
            band = max(self.band[0], other.band[0]), min(self.band[1], other.band[1])
        spans = other.spans if self.spans is None else self.spans
        if self.spans is not None and other.spans is not None:
            spans = sp.intersect(self.spans, other.spans, self.nk)
        dense = other.dense if self.dense is None else self.dense
        if self.dense is not None and other.dense is not None:
            first, second = same_kind(self.dense, other.dense)
            dense = first & second
        return Allowed(self.nq, self.nk, band, spans, dense)

    def union(self, other: Allowed) -> Allowed:
        """The cells allowed by at least one."""
        if not (self._array and other._array):
            first, second = self._intervals(), other._intervals()
            if first is not None and second is not None:
                return Allowed(self.nq, self.nk, spans=sp.union(first, second, self.nk))
        first, second = same_kind(self._whole(), other._whole())
        return Allowed(self.nq, self.nk, dense=first | second)

    def complement(self) -> Allowed:
        """The cells that are not allowed."""
        rows = None if self._array else self._intervals()
        if rows is None:
            return Allowed(self.nq, self.nk, dense=~self._whole())
        return Allowed(self.nq, self.nk, spans=sp.complement(rows, self.nk))

    @property
    def _array(self) -> bool:
        """Whether it is a boolean array and nothing else."""
        return self.dense is not None and self.band is None and self.spans is None

    def _intervals(self) -> sp.Spans | None:
        """All parts as intervals a row, [B|1, H|1, nq, R, 2]; None where that is the larger form.

        Only an array that is the same for all rows is looked at. What a tensor holds is not: it
        may be on another device, or stand for many in torch.func.
        """
        if self.dense is None:
            return self.rows
        if is_torch(self.dense) or self.dense.shape[-2] > 1:
            return None
        runs = sp.runs(expand(self.dense, (*self.dense.shape[:-1], self.nk)))
        return None if runs.shape[-2] > MOST_SLOTS else sp.intersect(self.rows, runs, self.nk)

    def _whole(self) -> Any:
        """All parts as one boolean array, [B|1, H|1, nq|1, nk|1]."""
        if self._array:
            return self.dense
        cells = np.empty((*self.rows.shape[:-2], self.nk), np.bool_)
        for rows in self._row_chunks():
            cells[..., rows, :] = sp.inside(self.rows[..., rows, :, :], np.arange(self.nk))
        if self.dense is None:
            return cells
        first, second = same_kind(cells, self.dense)
        return first & second

    def crop(self, rows: slice, columns: slice) -> Allowed:
        """The cells of a rectangle of the matrix, as the whole of a smaller one.

        Band and spans keep their form, so that a part of a long sequence costs what it holds.
        """
        (top, bottom, _), (left, right, _) = rows.indices(self.nq), columns.indices(self.nk)
        nq, nk = max(0, bottom - top), max(0, right - left)
        band, spans, dense = self.band, self.spans, self.dense
        if band is not None:
            low, high = band[0] - (left - top), band[1] - (left - top)
            inside = low <= 1 - nq and high >= nk - 1  # all cells: no need to look at the band
            band = None if inside else (max(low, -nq), min(high, nk))
        if spans is not None:
            spans = spans if spans.shape[2] == 1 else spans[:, :, top : top + nq]
            spans = sp.move(spans, left, nk)
        if dense is not None:
            dense = crop(dense, slice(top, top + nq), slice(left, left + nk))
        return Allowed(nq, nk, band, spans, dense)

    def tile(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.bool_] | None:
        """Some rows × columns, bool [B|1, H|1, rows, columns]; None where all are allowed."""
        if self.everything:
            return None
        cells = None
        if self.band is not None or self.spans is not None:
            cells = sp.inside(self.rows[:, :, rows], columns)
        if self.dense is not None:
            dense = crop(as_numpy(self.dense), rows, columns)
            cells = dense if cells is None else cells & dense
        assert cells is not None
        if cells.all():
            return None
        return np.broadcast_to(cells, (*cells.shape[:2], len(rows), len(columns)))

    def reach(self, start: int, stop: int) -> tuple[int, int]:
        """The smallest range of keys that rows start..stop may look at, over batch and heads."""
        if self.band is None and self.spans is None:
            return 0, self.nk
        if self.spans is None and self.band is not None:  # at any length, no row need be looked at
            low, high = self.band
            first, last = max(start, -high), min(stop, self.nq, self.nk - low) - 1
            if first > last or low > high:
                return 0, 0
            return max(0, first + low), min(self.nk, last + high + 1)
        rows = self.rows[:, :, start:stop]
        used = rows[..., 0] < rows[..., 1]
        if not used.any():
            return 0, 0
        return int(rows[..., 0][used].min()), int(rows[..., 1][used].max())

    def count(self, bias: NDArray[Any] | None = None) -> NDArray[np.int64]:
        """How many keys each row may attend to, [B|1, H|1, nq]; −inf in the bias forbids."""
        widths: Index
        if self.dense is self.spans is bias is None:  # a band: no row's interval need be made
            row, (low, high) = np.arange(self.nq), self.band or (-self.nq, self.nk)
            ends = np.clip(row + (high + 1), 0, self.nk) - np.clip(row + low, 0, self.nk)
            widths = np.maximum(ends, 0)[None, None]
            return widths
        if self.dense is None and bias is None:
            widths = (self.rows[..., 1] - self.rows[..., 0]).sum(-1, np.int64)
            return widths
        columns = np.arange(self.nk)
        parts = []
        for rows in self._row_chunks(bias):
            tile = self.tile(rows, columns)
            cells = np.ones((1, 1, len(rows), self.nk), np.bool_) if tile is None else tile
            if bias is not None:
                cells = cells & ~np.isneginf(bias if bias.shape[2] == 1 else bias[:, :, rows])
            parts.append(cells.sum(axis=-1, dtype=np.int64))
        return np.concatenate(parts, axis=2) if parts else np.zeros((1, 1, 0), np.int64)

    def _row_chunks(self, bias: NDArray[Any] | None = None) -> list[NDArray[np.intp]]:
        heads = max(
            int(np.prod(part.shape[:2]))
            for part in (self.rows, self.dense, bias)
            if part is not None
        )
        step = max(1, CHUNK // max(1, heads * self.nk))
        return [np.arange(i, min(i + step, self.nq)) for i in range(0, self.nq, step)]

    def blocks(self, height: int, width: int) -> NDArray[np.uint8]:
        """Each block of height × width cells as EMPTY, PARTIAL or FULL.

        Returns uint8 [B|1, H|1, ceil(nq / height), ceil(nk / width)].
        """
        down = np.append(np.arange(0, self.nq, height), self.nq)
        across = np.append(np.arange(0, self.nk, width), self.nk)
        counts = self.count_in(down, across)
        full = np.diff(down)[:, None] * np.diff(across)
        return np.where(counts == 0, EMPTY, np.where(counts == full, FULL, PARTIAL)).astype(
            np.uint8
        )

    def count_in(self, row_edges: Index, column_edges: Index, bias: Any = None) -> Index:
        """How many cells of each bin between ascending edges are allowed: [B|1, H|1, P, Q].

        A row's allowed cells left of an edge c are Σ clip(c, low, high) − low over its intervals:
        O(rows · Q). A dense part, or −inf in a bias [B|1, Hq|1, Nq|1, Nk|1], is read cell by cell.
        """
        heights, widths = np.diff(row_edges), np.diff(column_edges)
        if self.everything and bias is None:
            return (heights[:, None] * widths)[None, None]
        by_interval = self.dense is None and bias is None
        parts = [
            tuple(part.shape[:2]) for part in (self.spans, self.dense, bias) if part is not None
        ]
        lead = np.broadcast_shapes(*parts, (1, 1))
        if not (heights.size and widths.size):
            return np.zeros((*lead, heights.size, widths.size), np.int64)
        width = len(column_edges) if by_interval else int(column_edges[-1] - column_edges[0])
        most = max(1, CHUNK // max(1, lead[0] * lead[1] * width))  # rows looked at together
        counts, first = [], 0
        while first < heights.size:
            last = first + 1
            while last < heights.size and row_edges[last + 1] - row_edges[first] <= most:
                last += 1
            edges = row_edges[first : last + 1]
            if by_interval:
                counts.append(self._by_interval(edges, column_edges))
            else:
                counts.append(self._by_cell(edges, column_edges, bias, lead))
            first = last
        return np.concatenate(counts, axis=2)

    def _by_interval(self, row_edges: Index, column_edges: Index) -> Index:
        spans = self.rows[:, :, row_edges[0] : row_edges[-1]]
        left = np.zeros((*spans.shape[:3], len(column_edges)), np.int32)
        for slot in range(spans.shape[3]):
            low, high = spans[:, :, :, slot, 0, None], spans[:, :, :, slot, 1, None]
            left += np.clip(column_edges.astype(np.int32), low, high) - low
        starts = row_edges[:-1] - row_edges[0]
        return np.diff(np.add.reduceat(left, starts, axis=2, dtype=np.int64), axis=-1)

    def _by_cell(
        self, row_edges: Index, column_edges: Index, bias: Any, lead: tuple[int, ...]
    ) -> Index:
        rows = np.arange(row_edges[0], row_edges[-1])
        columns = np.arange(column_edges[0], column_edges[-1])
        tile = self.tile(rows, columns)
        cells = np.ones((1, 1, 1, 1), np.bool_) if tile is None else tile
        if bias is not None:
            cells = cells & ~np.isneginf(crop(bias, rows, columns))
        cells = np.broadcast_to(cells, (*lead, len(rows), len(columns)))
        across = np.add.reduceat(cells, column_edges[:-1] - column_edges[0], axis=3, dtype=np.int64)
        return np.add.reduceat(across, row_edges[:-1] - row_edges[0], axis=2)

    def flatten(self, batch: tuple[int, ...], heads: int) -> Allowed:
        """The same with all batch axes in one, checked against the call's: [B|1, H|1, ...]."""
        if self.spans is None and self.dense is None:
            return self
        spans, dense = self.spans, self.dense
        known: Allowed | None = None if dense is not None else self.memory.get((batch, heads))
        if known is not None:
            return known
        flat = replace(
            self,
            spans=None if spans is None else flatten(spans, batch, heads, "mask", tail=3),
            dense=None if dense is None else flatten(dense, batch, heads, "mask"),
        )
        return flat if dense is not None else self.memory.keep((batch, heads), flat)


def same_kind(first: Any, second: Any) -> tuple[Any, Any]:
    """Both as torch tensors on one device, if one of them is."""
    if is_torch(second) and not is_torch(first):
        return second.new_tensor(first), second
    if is_torch(first) and not is_torch(second):
        return first, first.new_tensor(second)
    return first, second


def flatten(array: Any, batch: tuple[int, ...], heads: int, name: str, tail: int = 2) -> Any:
    """[..., H|1, *tail] with any leading axes to one batch axis: [B|1, H|1, *tail]."""
    if array.ndim <= tail:
        array = array.reshape((1,) * (tail + 1 - array.ndim) + tuple(array.shape))
    *lead, head = array.shape[:-tail]
    rest = tuple(array.shape[-tail:])
    while len(lead) > len(batch) and lead[0] == 1:
        del lead[0]
    try:
        fits = np.broadcast_shapes((*lead, head), (*batch, heads)) == (*batch, heads)
    except ValueError:
        fits = False
    if not fits and any(n != 1 for n in (*lead, head)):
        raise ShapeError(
            f"the {name} is made for batch {tuple(lead)} and {counted(head, 'head')}, which does "
            f"not broadcast to batch {batch} and {counted(heads, 'query head')}: give it "
            f"[..., {heads}, queries, keys], or 1 where it is the same for all"
        )
    if all(n == 1 for n in lead):
        return array.reshape((1, head, *rest))
    if len(batch) == 1 and tuple(lead) == batch:
        return array
    return expand(array, (*batch, head, *rest)).reshape((int(np.prod(batch)), head, *rest))
