"""heatmap(): any part of an attention matrix of any size, pooled to a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import index
from limelight.call import Call, prepare
from limelight.errors import ArgumentError
from limelight.looking import regions
from limelight.looking.weights import Look, check_logsumexp
from limelight.offers import offered

Array = NDArray[Any]
POOLS = ("max", "mean")
STEP = 1 << 24  # cells between two words of progress


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A pooled view of the weights.

    values   float32 [..., Hq, P, Q]: the largest (pool="max") or mean weight of the allowed cells
             of each bin; NaN where a bin has no allowed cell, which is not the same as 0
    rows     (start, stop) of the queries shown, columns of the keys
    empty    bool [..., Hq, P, Q]: the bins without an allowed cell; where NaN stands in another,
             a weight is not a number
    """

    values: Array
    rows: tuple[int, int]
    columns: tuple[int, int]
    pool: str
    empty: NDArray[np.bool_]

    @property
    def shape(self) -> tuple[int, int]:
        """The picture's size in bins."""
        return self.values.shape[-2], self.values.shape[-1]

    def cells(self, row: int, column: int) -> tuple[range, range]:
        """The rows and columns of the matrix that one bin of the picture covers."""
        height, width = self.shape
        return _bin(row, *self.rows, height), _bin(column, *self.columns, width)

    def head(self, *which: int) -> Heatmap:
        """One head's map, by its index in the leading axes of `values`; negative from the end."""
        lead = self.values.shape[:-2]
        if len(which) > len(lead):
            raise ArgumentError(
                f"head{which} names {len(which)} axes, and the map has {len(lead)} before its bins"
            )
        names = ("head", "batch entry")  # the last axis is that of heads
        which = tuple(index(at, lead[axis], names[axis + 1 < len(lead)])
                      for axis, at in enumerate(which))  # fmt: skip
        return replace(self, values=self.values[which], empty=self.empty[which])

    def svg(self, **how: Any) -> str:
        """As an SVG picture; see limelight.pictures.heatmap for what can be told."""
        drawn: str = offered("pictures").heatmap(self, **how).svg()
        return drawn

    def png(self, **how: Any) -> bytes:
        """As a PNG picture; see limelight.pictures.heatmap for what can be told."""
        drawn: bytes = offered("pictures").heatmap(self, **how).png()
        return drawn

    def pdf(self, **how: Any) -> bytes:
        """As a PDF picture; see limelight.pictures.heatmap for what can be told."""
        drawn: bytes = offered("pictures").heatmap(self, **how).pdf()
        return drawn

    def __repr__(self) -> str:
        (r0, r1), (c0, c1) = self.rows, self.columns
        shape = " × ".join(str(n) for n in self.values.shape)
        return f"Heatmap({shape}, {self.pool} of rows {r0:,}:{r1:,}, columns {c0:,}:{c1:,})"

    def _repr_png_(self) -> bytes | None:
        return self.png() if self.values.size else None

    def _repr_html_(self) -> str | None:
        return self.svg(theme="auto") if self.values.size else None


def heatmap(
    query: Any,
    key: Any,
    shape: tuple[int, int] = (256, 256),
    pool: str = "max",
    rows: Any = None,
    columns: Any = None,
    *,
    logsumexp: Any = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    engine: str = "auto",
) -> Heatmap:
    """A rectangle of the weights, pooled to a picture of any size.

    Bin p of P over n rows covers rows ⌊p·n/P⌋ up to ⌊(p+1)·n/P⌋, and at least one: a picture
    larger than the matrix repeats cells. A bin holds the largest (pool="max") or the mean
    (pool="mean") weight of the cells that the mask allows, and NaN where it allows none. Without
    queries or keys the picture has no rows or no columns.

    shape          rows and columns of the picture
    rows, columns  None for all, a slice, or a pair (start, stop)
    logsumexp      [..., Hq, Nq] from an earlier pass, such as inspect(…).health.logsumexp

    >>> from limelight import Causal
    >>> heatmap([[2, 1], [0, 0]], [[2, 1], [0, 0]], shape=(2, 2), mask=Causal()).values
    array([[1. , nan],
           [0.5, 0.5]], dtype=float32)
    """
    call = prepare(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks)
    seen = heatmap_of(
        call,
        shape=shape,
        pool=pool,
        rows=rows,
        columns=columns,
        engine=engine,
        logsumexp=check_logsumexp(call, logsumexp),
    )
    return replace(seen, values=call.restore(seen.values), empty=call.restore(seen.empty))


def heatmap_of(
    call: Call, *, shape: tuple[int, int] = (256, 256), pool: str = "max", rows: Any = None,
    columns: Any = None, logsumexp: Array | None = None, engine: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Heatmap:  # fmt: skip
    """heatmap() of a prepared call: values [B, Hq, P, Q]; logsumexp is [B, Hq, Nq].

    With `progress` the work is done in steps, and progress(done, all) is told of each.
    """
    check_pool(pool)
    shape = regions.picture(shape)
    spans = (
        regions.span(rows, call.queries, "rows", "queries"),
        regions.span(columns, call.keys, "columns", "keys"),
    )
    sizes = [stop - start for start, stop in spans]
    row_edges, column_edges = (
        regions.edges(*span, min(bins, size))
        for span, bins, size in zip(spans, shape, sizes, strict=True)
    )
    look = Look.at(call, engine, *spans[0], logsumexp)
    if progress is None or call.empty:
        values = look.pool(row_edges, column_edges, pool)
    else:
        values = _in_steps(look, row_edges, column_edges, pool, progress)
    empty = look.empty(values, row_edges, column_edges)
    for axis, (size, bins) in enumerate(zip(sizes, shape, strict=True)):
        repeated = regions.repeats(size, bins)
        if repeated is not None:
            values, empty = (array.take(repeated, axis=2 + axis) for array in (values, empty))
    return Heatmap(values, *spans, pool, empty)


def pooled(
    call: Call, row_edges: Array, column_edges: Array, pool: str, *,
    logsumexp: Array | None = None, engine: str = "auto",
) -> Array:  # fmt: skip
    """Bins with edges of one's own, strictly ascending: float32 [B, Hq, P, Q]."""
    check_pool(pool)
    look = Look.at(call, engine, int(row_edges[0]), int(row_edges[-1]), logsumexp)
    return look.pool(row_edges, column_edges, pool)


def check_pool(pool: str) -> None:
    if pool not in POOLS:
        raise ArgumentError(f"pool={pool!r}: choose 'max', a bin's largest weight, or 'mean'")


def _in_steps(
    look: Look, row_edges: Array, column_edges: Array, pool: str,
    progress: Callable[[int, int], None],
) -> Array:  # fmt: skip
    """The same picture, some of its bins at a time."""
    call = look.call
    shape = call.batch, call.query_heads, len(row_edges) - 1, len(column_edges) - 1
    values = np.empty(shape, np.float32)
    steps = list(regions.chunks(row_edges, column_edges, STEP))
    for done, (down, across) in enumerate(steps, start=1):
        edges = row_edges[down.start : down.stop + 1], column_edges[across.start : across.stop + 1]
        values[:, :, down, across] = look.pool(*edges, pool)
        progress(done, len(steps))
    return values


def _bin(at: int, start: int, stop: int, bins: int) -> range:
    n, at = stop - start, index(at, bins, "bin", " in the picture")
    low = at * n // bins
    return range(start + low, start + max(low + 1, (at + 1) * n // bins))
