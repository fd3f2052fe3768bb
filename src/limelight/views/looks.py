"""Looks: what the views ask of one head's weights; studio and notebook answer alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from limelight import arrays
from limelight.capture import Site
from limelight.errors import ArgumentError
from limelight.views.schema import CellData, HeadRows, LinesData, StripData, Top
from limelight.views.tiles import HIDDEN, Values, tile

Array = NDArray[Any]
WHOLE, STRIP = 4096, 512  # a row up to so long is sent whole, a longer one in so many bins
PART = 8192  # cells of a line that are looked at together
LINES = 512  # rows of a line view
ROLLED = 1024  # positions up to which attention is followed through all layers
LEAST = 0.02  # of a weight, to be drawn as a line
READABLE = 256  # tokens up to which a head's vectors are sent


def head_rows(one: Site) -> HeadRows:
    """The vectors of one head, of sizes that people read."""
    if max(one.queries, one.keys) > READABLE:
        raise ArgumentError(
            f"{one.queries:,} × {one.keys:,} tokens: the vectors of a head are sent for up to "
            f"{READABLE}; longer ones are looked at by tile and cell"
        )
    allowed = None
    if one.shown is not None:
        shape = (1, 1, one.queries, one.keys)
        allowed = np.broadcast_to(one.shown.dense(*shape[2:]), shape)[0, 0]
    return HeadRows(
        query=arrays.jsonable(one.query[0, 0]),
        key=arrays.jsonable(one.key[0, 0]),
        value=None if one.value is None else arrays.jsonable(one.value[0, 0]),
        scale=one.scale,
        softcap=one.softcap,
        sink=None if one.sinks is None else float(one.sinks[0]),
        mask=None if allowed is None else allowed.tolist(),
        query_tokens=list(one.labels("query")),
        key_tokens=list(one.labels("key")),
    )


def cell(one: Site, row: int, column: int, head: int = 0, batch: int = 0) -> CellData:
    """One weight's whole computation; `head` and `batch` are where its site was taken from."""
    return CellData(**{**one.cell(row, column).to_dict(), "head": head, "batch": batch})


def strip(one: Site, side: Literal["row", "column"], index: int, top: int = 8) -> StripData:
    """One row or column of the weights, and the largest of them."""
    by_row = side == "row"
    there, length = (one.queries, one.keys) if by_row else (one.keys, one.queries)
    index = arrays.index(index, there, side)
    at, bins = (index, index + 1), length if length <= WHOLE else STRIP
    if by_row:
        pooled = tile(one, at, (0, length), (1, bins)).values
        weights = one.weights(rows=at, head=0)
    else:
        pooled = tile(one, (0, length), at, (bins, 1)).values
        weights = one.weights(columns=at, head=0)
    exact = np.asarray(weights, np.float64).reshape(-1)
    sides = ("query", "key") if by_row else ("key", "query")
    texts = one.labels(sides[1])
    best = np.argsort(-np.nan_to_num(exact, nan=-1.0), kind="stable")[:top]
    return StripData(
        side=side, index=index, token=one.labels(sides[0])[index], length=length,
        values=arrays.jsonable(pooled.reshape(-1).astype(np.float64)),
        top=[Top(int(i), texts[i], float(exact[i])) for i in best if exact[i] > 0],
        total=arrays.jsonable(exact.sum()),
    )  # fmt: skip


def light(sites: Iterable[Site], side: Literal["row", "column"], index: int) -> Values:
    """What a query looks at, or who looks at a key: the mean over all heads of the sites.

    One number a key (a query, for a column), coded as those of a tile. Each site is one entry of
    a batch; one that has other queries and keys than the first is left out. A row costs a dot
    product a key and head, and so does a column where the rows' statistics are at hand.
    """
    total, hidden, heads, shape = None, None, 0, (0, 0)
    for site in sites:
        if total is None:
            shape = (site.queries, site.keys)
            index = arrays.index(index, shape[0] if side == "row" else shape[1], side)
        elif (site.queries, site.keys) != shape:
            continue
        values, empty = _line(site, side, index)
        total = values.sum(axis=0) + (0 if total is None else total)
        hidden = empty if hidden is None else hidden & empty
        heads += site.heads
    if total is None or hidden is None:
        raise ArgumentError("there is no head to look at")
    return np.where(hidden, np.float32(HIDDEN), (total / heads).astype(np.float32))


def _line(site: Site, side: Literal["row", "column"], index: int) -> tuple[Array, Array]:
    """A row or column of every head, [heads, length], and where all of them hide it; in parts."""
    at, length = (index, index + 1), site.keys if side == "row" else site.queries
    values, hidden = [], []
    for start in range(0, max(1, length), PART):
        part = start, min(start + PART, length)
        size = part[1] - part[0]
        if side == "row":
            seen = site.heatmap((1, size), rows=at, columns=part)
        else:
            seen = site.heatmap((size, 1), rows=part, columns=at)
        values.append(np.where(seen.empty, 0.0, seen.values).reshape(site.heads, -1))
        hidden.append(seen.empty.reshape(site.heads, -1).all(axis=0))
    return np.concatenate(values, axis=1), np.concatenate(hidden)


def rollout(sites: Iterable[Site], index: int) -> Values:
    """What a position of the last layer holds of each position of the input, if attention is all.

    In each layer half of what stands at a position stays and half is mixed by the mean of the
    heads, r ← ½ r + ½ r·W, from the last layer back to the first (attention rollout, Abnar and
    Zuidema 2020). It adds up to 1. Values, norms and feed-forwards are left out, so it is a
    reading and not a measurement. Self-attention over up to 1,024 positions.
    """
    layers = [site for site in sites if site.kind == "self" and site.queries == site.keys]
    if not layers:
        raise ArgumentError("there is no self-attention whose layers could be followed")
    count = layers[-1].keys
    if count > ROLLED:
        raise ArgumentError(f"{count:,} positions: attention is followed through the layers for up "
                            f"to {ROLLED:,}")  # fmt: skip
    index = arrays.index(index, count, "row")
    held = np.zeros(count)
    held[index] = 1.0
    for site in reversed([site for site in layers if site.keys == count]):
        mixed = held @ np.asarray(site.weights(), np.float64).mean(axis=0)
        held = (held + mixed) / 2
    return held.astype(np.float32)


def lines(one: Site, start: int, stop: int, k: int = 4, least: float = LEAST) -> LinesData:
    """The k strongest keys of each row start..stop with at least `least`."""
    if stop - start > LINES:
        raise ArgumentError(f"lines are drawn for up to {LINES} rows at a time, not {stop - start}")
    found = one.top(range(start, stop), min(k, one.keys), head=0)
    rows = np.broadcast_to(np.arange(start, stop)[:, None], found.columns.shape)
    seen = (found.weights >= least) & (found.columns >= 0) & (found.weights > 0)
    return LinesData(
        rows=rows[seen].tolist(),
        columns=found.columns[seen].tolist(),
        weights=arrays.jsonable(found.weights[seen].astype(np.float64)),
    )
