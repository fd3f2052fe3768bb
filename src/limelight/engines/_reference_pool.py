"""Pooled weights and column sums by definition: every weight in float64, then pooled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight import reference
from limelight.call import Call

Array = NDArray[Any]


def pool(call: Call, logsumexp: Array, row_edges: Array, column_edges: Array, kind: str) -> Array:
    done = reference.steps(call)
    cells = done.allowed[:, :, row_edges[0] : row_edges[-1], column_edges[0] : column_edges[-1]]
    weights = done.weights[:, :, row_edges[0] : row_edges[-1], column_edges[0] : column_edges[-1]]

    def bins(how: np.ufunc, table: Array) -> Array:
        across = how.reduceat(table, column_edges[:-1] - column_edges[0], axis=3)
        return np.asarray(how.reduceat(across, row_edges[:-1] - row_edges[0], axis=2))

    count = bins(np.add, cells.astype(np.int64))
    if kind == "max":
        pooled = bins(np.maximum, np.where(cells, weights, -np.inf))
    else:
        pooled = bins(np.add, np.where(cells, weights, 0.0)) / np.maximum(count, 1)
    return np.asarray(np.where(count == 0, np.nan, pooled), np.float32)


def received(call: Call, logsumexp: Array) -> Array:
    done = reference.steps(call)
    total: Array = np.where(done.allowed, done.weights, 0.0).sum(axis=2)
    return total.astype(np.float64 if call.dtype == "float64" else np.float32)


def block(call: Call, logsumexp: Array, rows: Array, columns: Array) -> Array:
    done = reference.steps(call)
    weights = np.where(done.allowed, done.weights, 0.0)[:, :, rows[:, None], columns]
    return weights.astype(np.float64 if call.dtype == "float64" else np.float32)


def strongest(call: Call, logsumexp: Array, rows: Array, k: int) -> tuple[Array, Array]:
    done = reference.steps(call)
    hidden, weights = ~done.allowed[:, :, rows], done.weights[:, :, rows]
    logits = np.where(np.isnan(weights), 0.0, done.logits[:, :, rows])  # of no number: all alike
    columns = np.lexsort((-logits, hidden))[..., :k]  # what is hidden comes last
    weights = np.take_along_axis(weights, columns, axis=-1)
    none = np.take_along_axis(hidden, columns, axis=-1)
    columns, weights = np.where(none, -1, columns), np.where(none, 0.0, weights)
    short = ((0, 0), (0, 0), (0, 0), (0, k - columns.shape[-1]))
    weights = weights.astype(np.float64 if call.dtype == "float64" else np.float32)
    return np.pad(columns, short, constant_values=-1), np.pad(weights, short)
