"""Pooled weights and column sums in NumPy: tiles over BLAS, O(picture + n) memory.

A weight is exp(s − logsumexp of its row). Pooling by the maximum needs no exponential a cell: exp
is monotone, so the largest logit of a bin's part of a row, less that row's logsumexp, decides, and
one exponential a bin is taken at the end. A logsumexp may come in two parts, [B, Hq, 2, Nq], which
are taken off one after the other (`engines.numpy.parts`).

Tiles stand on a fixed grid, whatever region is asked for, and are computed whole. A cell's logit
then has the same bits in every picture that shows it, so that pictures at different zoom agree
exactly. 256 × 1024 cells at head size 64: the product costs 1.3 to 1.8 ns a cell, the maximum 0.45.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import consecutive, crop
from limelight.call import Call
from limelight.masks.allowed import CHUNK
from limelight.reference import logits, products

ROWS, COLUMNS = 256, 1024
Array = NDArray[Any]


def pool(call: Call, logsumexp: Array, row_edges: Array, column_edges: Array, kind: str) -> Array:
    shape = call.batch, call.query_heads, len(row_edges) - 1, len(column_edges) - 1
    pooled = np.empty(shape, np.float32)
    one = _largest if kind == "max" else _total
    with np.errstate(all="ignore"):
        for b, h in np.ndindex(shape[:2]):
            own = call.one_head(h, b)
            cells = own.allowed.count_in(row_edges, column_edges, own.bias)[0, 0]
            values = one(own, _shift(logsumexp[b, h]), row_edges, column_edges)
            values = values if kind == "max" else values / cells
            pooled[b, h] = np.where(cells == 0, np.nan, values)
    return pooled


def received(call: Call, logsumexp: Array) -> Array:
    total = np.zeros((call.batch, call.query_heads, call.keys))
    with np.errstate(all="ignore"):
        for b, h in np.ndindex(total.shape[:2]):
            own, shift = call.one_head(h, b), _shift(logsumexp[b, h])
            for tile in _tiles(own, (0, call.queries), (0, call.keys)):
                weights = _weights(*tile.logits(own, shift))
                total[b, h, tile.columns] += weights.sum(axis=0, dtype=np.float64)
    return total.astype(_wide(call), copy=False)


def block(call: Call, logsumexp: Array, rows: Array, columns: Array) -> Array:
    cells = np.empty((call.batch, call.query_heads, len(rows), len(columns)), _wide(call))
    with np.errstate(all="ignore"):
        for b, h in np.ndindex(cells.shape[:2]):
            own, shift = call.one_head(h, b), _shift(logsumexp[b, h])
            if consecutive(rows) and consecutive(columns):
                cells[b, h] = 0.0
                region = (int(rows[0]), int(rows[-1]) + 1), (int(columns[0]), int(columns[-1]) + 1)
                for tile in _tiles(own, *region):
                    at = (
                        slice(tile.rows.start - rows[0], tile.rows.stop - rows[0]),
                        slice(tile.columns.start - columns[0], tile.columns.stop - columns[0]),
                    )
                    cells[b, h][at] = _weights(*tile.logits(own, shift))
            else:
                cells[b, h] = _weights(*_chosen(own, rows, columns, shift))
    return cells


def strongest(call: Call, logsumexp: Array, rows: Array, k: int) -> tuple[Array, Array]:
    shape = call.batch, call.query_heads, len(rows), k
    columns, weights = np.full(shape, -1, np.int64), np.zeros(shape, _wide(call))
    step, everyone = max(1, CHUNK // max(1, call.keys)), np.arange(call.keys)
    with np.errstate(all="ignore"):
        for b, h in np.ndindex(shape[:2]):
            own, shift = call.one_head(h, b), _shift(logsumexp[b, h])
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                logits, some = _chosen(own, part, everyone, shift)
                order = logits
                if np.isnan(some).any():  # rows whose cells are NaN, which come before hidden ones
                    order = np.where(np.isnan(logits), np.inf, logits)
                at = _first(order, min(k, call.keys))
                best = np.take_along_axis(logits, at, axis=1)
                own_weights = _weights(best, some)
                to = b, h, slice(start, start + step), slice(0, at.shape[1])
                columns[to] = np.where(best == -np.inf, -1, at)
                weights[to] = own_weights
    return columns, weights


def _first(logits: Array, k: int) -> Array:
    """The columns of each row's k largest logits, largest first, among equals the lower."""
    if k == logits.shape[1]:
        return np.argsort(-logits, axis=1, kind="stable")
    at = np.sort(np.argpartition(-logits, k - 1, axis=1)[:, :k], axis=1)
    least = np.take_along_axis(logits, at, axis=1).min(axis=1)
    # Where the last place is shared, which of the equals was taken is chance: sort those in full.
    shared = np.flatnonzero((logits >= least[:, None]).sum(axis=1) != k)
    at[shared] = np.argsort(-logits[shared], axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(logits, at, axis=1)
    return np.take_along_axis(at, np.argsort(-best, axis=1, kind="stable"), axis=1)


def _shift(logsumexp: Array) -> Array:
    """What is taken off a row's logits, [parts, rows]; a row without keys has nothing to take it
    off.
    """
    shift = np.array(logsumexp, ndmin=2)
    shift[shift == -np.inf] = 0.0
    return shift


def _below(logits: Array, shift: Array) -> Array:
    """logit − logsumexp; −inf where nothing is allowed, also in a row that is not a number."""
    power: Array = logits - shift[0][:, None]
    for part in shift[1:]:
        power -= part[:, None]
    if np.isnan(shift).any():
        power[logits == -np.inf] = -np.inf
    return power


def _weights(logits: Array, shift: Array) -> Array:
    """exp(logit − logsumexp), at most 1 where a foreign logsumexp was rounded the other way."""
    power = _below(logits, shift)
    np.exp(power, out=power)
    np.minimum(power, 1.0, out=power)
    return power


def _chosen(call: Call, rows: Array, columns: Array, shift: Array) -> tuple[Array, Array]:
    """Logits of one head's chosen rows × columns, and what is taken off them."""
    wide = _wide(call)
    query, key = call.query[0, 0][rows], call.key[0, 0][columns]
    scores = products(query.astype(wide, copy=False), key.astype(wide, copy=False))
    return _logits(call, scores, rows, columns, shift[:, rows])


@dataclass(frozen=True)
class _Tile:
    """One tile of the grid, cut to the region."""

    rows: slice
    columns: slice
    scores: Array  # q·k of each cell, neither scaled nor masked
    hidden: bool  # whether some cells may not be allowed

    def logits(self, call: Call, shift: Array) -> tuple[Array, Array]:
        """After scale, softcap, bias and mask, −inf where not allowed; and these rows' shift."""
        rows, columns = (np.arange(s.start, s.stop) for s in (self.rows, self.columns))
        return _logits(call, self.scores, rows, columns, shift[:, self.rows], self.hidden)


def _largest(call: Call, shift: Array, row_edges: Array, column_edges: Array) -> Array:
    """The largest weight of each bin, 0 where there is none."""
    plain = call.softcap is None and call.bias is None and call.scale > 0
    plain = plain and not np.isnan(shift).any()
    best = np.full((len(row_edges) - 1, len(column_edges) - 1), -np.inf, _wide(call))
    for tile in _tiles(call, (row_edges[0], row_edges[-1]), (column_edges[0], column_edges[-1])):
        if plain and not tile.hidden:  # scaling keeps the order: scale what is left afterwards
            across, at = _reduce(np.maximum, tile.scores, tile.columns, column_edges, 1)
            across, some = call.scale * across, shift[:, tile.rows]
        else:
            logits, some = tile.logits(call, shift)
            across, at = _reduce(np.maximum, logits, tile.columns, column_edges, 1)
        down, to = _reduce(np.maximum, _below(across, some), tile.rows, row_edges, 0)
        np.maximum(best[to, at], down, out=best[to, at])
    return np.minimum(np.exp(best.astype(np.float64)), 1.0)


def _total(call: Call, shift: Array, row_edges: Array, column_edges: Array) -> Array:
    """The sum of the weights of each bin."""
    total = np.zeros((len(row_edges) - 1, len(column_edges) - 1))
    for tile in _tiles(call, (row_edges[0], row_edges[-1]), (column_edges[0], column_edges[-1])):
        weights = _weights(*tile.logits(call, shift))
        across, at = _reduce(np.add, weights, tile.columns, column_edges, 1)
        down, to = _reduce(np.add, across.astype(np.float64), tile.rows, row_edges, 0)
        total[to, at] += down
    return total


def _reduce(
    how: np.ufunc, cells: Array, own: slice, edges: Array, axis: int
) -> tuple[Array, slice]:
    """Reduce cells along an axis to the bins they fall in; and which bins those are."""
    first = int(np.searchsorted(edges, own.start, side="right")) - 1
    last = int(np.searchsorted(edges, own.stop, side="left"))
    if last - first == cells.shape[axis]:  # one cell a bin
        return cells, slice(first, last)
    starts = np.maximum(edges[first:last], own.start) - own.start
    return how.reduceat(cells, starts, axis=axis), slice(first, last)


def _tiles(call: Call, rows: tuple[int, int], columns: tuple[int, int]) -> Iterator[_Tile]:
    """The grid's tiles that the region touches and the mask does not rule out, for one head."""
    query, key, allowed = call.query[0, 0], call.key[0, 0], call.allowed
    wide = _wide(call)
    for top in range(rows[0] // ROWS * ROWS, rows[1], ROWS):
        bottom = min(top + ROWS, call.queries)
        own = slice(max(top, rows[0]), min(bottom, rows[1]))
        q = query[top:bottom].astype(wide, copy=False)
        first, last = allowed.reach(own.start, own.stop)
        first, last = max(first, columns[0]), min(last, columns[1])
        if first >= last:
            continue  # no row of these sees a column of these
        for left in range(first // COLUMNS * COLUMNS, last, COLUMNS):
            right = min(left + COLUMNS, call.keys)
            across = slice(max(left, first), min(right, last))
            # The whole tile, whatever part of it is asked for: see the top of the file.
            scores = products(q, key[left:right].astype(wide, copy=False))
            scores = scores[own.start - top : own.stop - top,
                            across.start - left : across.stop - left]  # fmt: skip
            yield _Tile(own, across, scores, _hidden(call, own, across))


def _hidden(call: Call, rows: slice, columns: slice) -> bool:
    """False where every cell is surely allowed, from the intervals of its rows alone."""
    if call.bias is not None or call.allowed.dense is not None:
        return True
    if call.allowed.everything:
        return False
    spans = call.allowed.rows[0, 0, rows]  # [rows, R, 2]
    whole = (spans[..., 0] <= columns.start) & (spans[..., 1] >= columns.stop)
    return not bool(whole.any(axis=-1).all())


def _logits(
    call: Call, scores: Array, rows: Array, columns: Array, shift: Array, hidden: bool = True
) -> tuple[Array, Array]:
    """Of one head's rows × columns, with the shift of those rows as it came.

    Not `hidden` where every cell is surely allowed. In a row that is not a number no cell that is
    allowed may look like one that is not.
    """
    allowed = call.allowed.tile(rows, columns) if hidden else None
    bias = None if call.bias is None else crop(call.bias, rows, columns)[0, 0]
    cells = logits(call, scores, bias, None if allowed is None else allowed[0, 0])
    strange = np.isnan(shift)
    if not strange.any():
        return cells.logits, shift
    lost = np.broadcast_to(strange.any(axis=0, keepdims=True).T, cells.logits.shape)
    if cells.allowed is not None:
        lost = lost & cells.allowed
    return np.where(lost, np.nan, cells.logits), shift


def _wide(call: Call) -> Any:
    return np.float64 if call.dtype == "float64" else np.float32
