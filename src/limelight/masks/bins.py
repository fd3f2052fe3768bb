"""How many cells of each bin of a picture are allowed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import crop
from limelight.masks.allowed import CHUNK, Allowed

Index = NDArray[np.int64]


def cells_in(allowed: Allowed, bias: Any, row_edges: Index, column_edges: Index) -> Index:
    """The allowed cells of each bin between ascending edges: int64 [B|1, Hq|1, P, Q].

    A row's allowed cells left of an edge c are Σ clip(c, low, high) − low over its intervals, so
    structured masks cost O(rows · Q); a dense mask, or −inf in a bias [B|1, Hq|1, Nq|1, Nk|1], is
    read cell by cell.
    """
    if allowed.everything and bias is None:
        return (np.diff(row_edges)[:, None] * np.diff(column_edges))[None, None]
    by_interval = allowed.dense is None and bias is None
    parts = [part.shape[:2] for part in (allowed.spans, allowed.dense, bias) if part is not None]
    lead = np.broadcast_shapes(*parts, (1, 1))
    width = len(column_edges) if by_interval else int(column_edges[-1] - column_edges[0])
    most = max(1, CHUNK // (lead[0] * lead[1] * width))  # rows looked at together
    bins, counts, first = len(row_edges) - 1, [], 0
    while first < bins:
        last = first + 1
        while last < bins and row_edges[last + 1] - row_edges[first] <= most:
            last += 1
        edges = row_edges[first : last + 1]
        if by_interval:
            counts.append(_by_interval(allowed, edges, column_edges))
        else:
            counts.append(_by_cell(allowed, bias, lead, edges, column_edges))
        first = last
    return np.concatenate(counts, axis=2)


def _by_interval(allowed: Allowed, row_edges: Index, column_edges: Index) -> Index:
    spans = allowed.rows[:, :, row_edges[0] : row_edges[-1]]
    left = np.zeros((*spans.shape[:3], len(column_edges)), np.int32)
    for slot in range(spans.shape[3]):
        low, high = spans[:, :, :, slot, 0, None], spans[:, :, :, slot, 1, None]
        left += np.clip(column_edges.astype(np.int32), low, high) - low
    starts = row_edges[:-1] - row_edges[0]
    return np.diff(np.add.reduceat(left, starts, axis=2, dtype=np.int64), axis=-1)


def _by_cell(
    allowed: Allowed, bias: Any, lead: tuple[int, ...], row_edges: Index, column_edges: Index
) -> Index:
    rows = np.arange(row_edges[0], row_edges[-1])
    columns = np.arange(column_edges[0], column_edges[-1])
    tile = allowed.tile(rows, columns)
    cells = np.ones((1, 1, 1, 1), np.bool_) if tile is None else tile
    if bias is not None:
        cells = cells & ~np.isneginf(crop(bias, rows, columns))
    cells = np.broadcast_to(cells, (*lead, len(rows), len(columns)))
    across = np.add.reduceat(cells, column_edges[:-1] - column_edges[0], axis=3, dtype=np.int64)
    return np.add.reduceat(across, row_edges[:-1] - row_edges[0], axis=2)
