"""Looks: what the views ask of one head, as plain data; studio and notebook answer alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from limelight import arrays
from limelight.capture import Site
from limelight.errors import ArgumentError

WHOLE, STRIP = 4096, 512  # a row up to so long is sent whole, a longer one in so many bins
LINES = 512  # rows of a line view
EXACT = 1 << 18  # keys up to which a cell's row is summed anew, in float64


def cell(one: Site, row: int, column: int) -> dict[str, Any]:
    """One weight's whole computation, in float64 throughout where the row is not too long.

    A site may know its rows' sums from a pass in float32; a cell that people check by hand is
    summed anew, which costs one row.
    """
    fresh = replace(one, rows=None) if one.keys <= EXACT else one
    return fresh.cell(row, column).to_dict()


def strip(one: Site, side: str, index: int, top: int = 8) -> dict[str, Any]:
    """One row (a query over its keys) or one column (a key under its queries) of the weights.

    values  pooled by the maximum where the line is long; None where nothing is allowed
    top     the largest weights of the line, with their places and tokens
    total   1 for a row, less what a sink takes; for a column what the key is given in all
    """
    by_row = side == "row"
    there, length = (one.queries, one.keys) if by_row else (one.keys, one.queries)
    index = arrays.index(index, there, side)
    at, bins = (index, index + 1), length if length <= WHOLE else STRIP
    if by_row:
        pooled = one.heatmap((1, bins), "max", rows=at).values.reshape(-1)
        weights = np.asarray(one.weights(rows=at), np.float64).reshape(-1)
    else:
        pooled = one.heatmap((bins, 1), "max", columns=at).values.reshape(-1)
        weights = np.asarray(one.weights(columns=at), np.float64).reshape(-1)
    sides = ("query", "key") if by_row else ("key", "query")
    texts = one.labels(sides[1])
    best = np.argsort(-np.nan_to_num(weights, nan=-1.0), kind="stable")[:top]
    return {
        "side": side,
        "index": index,
        "token": one.labels(sides[0])[index],
        "length": length,
        "values": arrays.jsonable(pooled.astype(np.float64)),
        "top": [{"index": int(i), "token": texts[i], "weight": float(weights[i])}
                for i in best if weights[i] > 0],
        "total": arrays.jsonable(weights.sum()),
    }  # fmt: skip


def lines(one: Site, start: int, stop: int, k: int = 4, least: float = 0.02) -> dict[str, Any]:
    """The k strongest keys of each row start..stop with at least `least`: three equal lists."""
    if stop - start > LINES:
        raise ArgumentError(f"lines are drawn for up to {LINES} rows at a time, not {stop - start}")
    found = one.top(range(start, stop), min(k, one.keys))
    rows = np.broadcast_to(np.arange(start, stop)[:, None], found.columns.shape)
    seen = (found.weights >= least) & (found.columns >= 0) & (found.weights > 0)
    return {
        "rows": rows[seen].tolist(),
        "columns": found.columns[seen].tolist(),
        "weights": arrays.jsonable(found.weights[seen].astype(np.float64)),
    }
