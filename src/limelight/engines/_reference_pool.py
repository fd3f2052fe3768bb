"""Pooled weights and column sums by definition: every weight in float64, then pooled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight import reference
from limelight.call import Call

Array = NDArray[Any]


def pool(call: Call, logsumexp: Array, row_edges: Array, column_edges: Array, kind: str) -> Array:
    """The maximum or mean of each bin's allowed weights, NaN where it has none: [B, Hq, P, Q]."""
    done = reference.steps(call)
    shape = call.batch, call.query_heads, len(row_edges) - 1, len(column_edges) - 1
    pooled = np.full(shape, np.nan, np.float32)
    for at in np.ndindex(shape):
        rows, columns = (slice(edges[n], edges[n + 1])
                         for edges, n in zip((row_edges, column_edges), at[2:], strict=True))
        cells = done.weights[at[:2]][rows, columns][done.allowed[at[:2]][rows, columns]]
        if cells.size:
            pooled[at] = cells.max() if kind == "max" else cells.mean()
    return pooled


def received(call: Call, logsumexp: Array) -> Array:
    """The weights that each key gets, summed over the queries: [B, Hq, Nk]."""
    done = reference.steps(call)
    total = np.where(done.allowed, done.weights, 0.0).sum(axis=2)
    return total.astype(np.float64 if call.dtype == "float64" else np.float32)


def block(call: Call, logsumexp: Array, rows: Array, columns: Array) -> Array:
    """The weights of chosen rows × columns, 0 where not allowed: [B, Hq, R, C]."""
    done = reference.steps(call)
    weights = np.where(done.allowed, done.weights, 0.0)[:, :, rows[:, None], columns]
    return weights.astype(np.float64 if call.dtype == "float64" else np.float32)


def strongest(call: Call, logsumexp: Array, rows: Array, k: int) -> tuple[Array, Array]:
    """The k largest weights of each row and their columns; column −1 where a row has fewer."""
    done = reference.steps(call)
    logits = done.logits[:, :, rows]
    columns = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
    weights = np.take_along_axis(done.weights[:, :, rows], columns, axis=-1)
    none = ~np.take_along_axis(done.allowed[:, :, rows], columns, axis=-1)
    columns, weights = np.where(none, -1, columns), np.where(none, 0.0, weights)
    short = ((0, 0), (0, 0), (0, 0), (0, k - columns.shape[-1]))
    weights = weights.astype(np.float64 if call.dtype == "float64" else np.float32)
    return np.pad(columns, short, constant_values=-1), np.pad(weights, short)
