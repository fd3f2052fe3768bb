"""weights(), heatmap(), received(), top(): any part of an attention matrix of any size.

A fused pass never holds the weights, but it leaves each row's logsumexp, and with that

    weight(i, j) = exp(scale · qᵢ·kⱼ → softcap → + bias  −  logsumexpᵢ)

so any weight is one dot product away. What is looked at costs what is looked at, in O(picture + n)
memory; a logsumexp that is at hand is reused, and without one a single pass over the keys finds it.

Torch tensors may come in, on any device; what comes out is NumPy, there to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight import regions
from limelight.arrays import as_numpy, index, is_integer, is_torch
from limelight.call import Call, prepare
from limelight.engines import Engine, choose, find
from limelight.errors import ArgumentError, ShapeError

Array = NDArray[Any]
POOLS = ("max", "mean")
MOST_CELLS = 1 << 28  # of an exact block: 1 GiB of float32
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
        """One head's map, by its index in the leading axes of `values`."""
        return replace(self, values=self.values[which], empty=self.empty[which])

    def svg(self, **how: Any) -> str:
        """As an SVG picture; see limelight.pictures.heatmap for what can be told."""
        from limelight.pictures import heatmap as draw

        return draw(self, **how).svg()

    def png(self, **how: Any) -> bytes:
        """As a PNG picture; see limelight.pictures.heatmap for what can be told."""
        from limelight.pictures import heatmap as draw

        return draw(self, **how).png()

    def __repr__(self) -> str:
        (r0, r1), (c0, c1) = self.rows, self.columns
        shape = " × ".join(str(n) for n in self.values.shape)
        return f"Heatmap({shape}, {self.pool} of rows {r0:,}:{r1:,}, columns {c0:,}:{c1:,})"

    def _repr_png_(self) -> bytes | None:
        return self.png() if self.values.size else None

    def _repr_html_(self) -> str | None:
        return self.svg() if self.values.size else None


@dataclass(frozen=True, eq=False)
class Top:
    """The strongest keys of some rows, strongest first.

    columns  int64 [..., Hq, R, k]; −1 where a row may attend to fewer than k keys
    weights  the weight of each, 0 there
    rows     int64 [R], the queries asked for
    """

    columns: Array
    weights: Array
    rows: Array

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows.tolist(), "columns": self.columns.tolist(),
                "weights": self.weights.tolist()}


def weights(
    query: Any,
    key: Any,
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
) -> Array:
    """An exact block of the weights, [..., Hq, rows, columns]; 0 where a cell is not allowed.

    rows, columns  None for all, a slice, a pair (start, stop), or a list of single numbers
    logsumexp      [..., Hq, Nq] from an earlier pass, such as inspect(…).health.logsumexp

    float32, and float64 for float64 arrays.

    >>> weights([[2, 1]], [[2, 1], [1, 0], [0, -1]], columns=(0, 2)).round(6)
    array([[0.881645, 0.105686]])
    """
    call = _call(query, key, mask, bias, scale, softcap, sinks)
    block = weights_of(call, rows=rows, columns=columns, engine=engine,
                       logsumexp=_check_logsumexp(call, logsumexp))
    return _array(call.restore(block))


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
    call = _call(query, key, mask, bias, scale, softcap, sinks)
    seen = heatmap_of(call, shape=shape, pool=pool, rows=rows, columns=columns, engine=engine,
                      logsumexp=_check_logsumexp(call, logsumexp))
    return replace(seen, values=call.restore(seen.values), empty=call.restore(seen.empty))


def received(
    query: Any,
    key: Any,
    *,
    logsumexp: Any = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    engine: str = "auto",
) -> Array:
    """The attention that each key gets, summed over the queries: [..., Hq, Nk].

    >>> received([[2, 1], [0, 0]], [[2, 1], [1, 0], [0, -1]]).round(3)
    array([1.215, 0.439, 0.346])
    """
    call = _call(query, key, mask, bias, scale, softcap, sinks)
    own = _check_logsumexp(call, logsumexp)
    return _array(call.restore(received_of(call, logsumexp=own, engine=engine)))


def top(
    query: Any,
    key: Any,
    rows: Any = None,
    k: int = 8,
    *,
    logsumexp: Any = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    engine: str = "auto",
) -> Top:
    """The k strongest keys of each asked row; the lower column first among equals.

    >>> best = top([[2, 1]], [[2, 1], [1, 0], [0, -1]], k=2)
    >>> best.columns, best.weights.round(6)
    (array([[0, 1]]), array([[0.881645, 0.105686]]))
    """
    call = _call(query, key, mask, bias, scale, softcap, sinks)
    seen = top_of(call, rows=rows, k=k, logsumexp=_check_logsumexp(call, logsumexp), engine=engine)
    return replace(seen, columns=call.restore(seen.columns), weights=call.restore(seen.weights))


def weights_of(
    call: Call, *, rows: Any = None, columns: Any = None, logsumexp: Array | None = None,
    engine: str = "auto",
) -> Array:  # fmt: skip
    """weights() of a prepared call: [B, Hq, R, C]; logsumexp is [B, Hq, Nq]."""
    at = regions.indices(rows, call.queries, "rows", "queries")
    across = regions.indices(columns, call.keys, "columns", "keys")
    cells = call.batch * call.query_heads * len(at) * len(across)
    if cells > MOST_CELLS:
        raise ArgumentError(
            f"{call.batch} × {call.query_heads} heads of {len(at):,} × {len(across):,} weights are "
            f"{cells * 4 / 2**30:,.1f} GiB: ask for fewer rows and columns, or for a pooled view "
            f"with heatmap(…, shape=(512, 512))"
        )
    call, chosen = _on_engine(call, engine)
    if call.empty:
        return _zeros(call, len(at), len(across))
    statistics = _statistics(call, chosen, int(at.min()), int(at.max()) + 1, logsumexp)
    region = regions.contiguous(at) and regions.contiguous(across)
    if region and not is_torch(call.query) and not hasattr(chosen.module, "block"):
        return _single_bins(call, chosen, statistics, at, across)
    return _array(_kernel(chosen, call, "block")(call, statistics, at, across))


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
    spans = (regions.span(rows, call.queries, "rows", "queries"),
             regions.span(columns, call.keys, "columns", "keys"))
    sizes = [stop - start for start, stop in spans]
    row_edges, column_edges = (regions.edges(*span, min(bins, size))
                               for span, bins, size in zip(spans, shape, sizes, strict=True))
    call, chosen = _on_engine(call, engine)
    statistics = _statistics(call, chosen, *spans[0], logsumexp)
    if progress is None or call.empty:
        values = _pool(chosen, call, statistics, row_edges, column_edges, pool)
    else:
        values = _in_steps(chosen, call, statistics, row_edges, column_edges, pool, progress)
    empty = np.isnan(values)
    if empty.any() and not (_array(statistics)[:, :, slice(*spans[0])] < np.inf).all():
        # Some row is not a number. Elsewhere NaN is a bin without a cell, and counting takes as
        # long as the map.
        empty &= regions.count(call.numpy(), row_edges, column_edges) == 0
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
    call, chosen = _on_engine(call, engine)
    statistics = _statistics(call, chosen, int(row_edges[0]), int(row_edges[-1]), logsumexp)
    return _pool(chosen, call, statistics, row_edges, column_edges, pool)


def check_pool(pool: str) -> None:
    if pool not in POOLS:
        raise ArgumentError(f"pool={pool!r}: choose 'max', a bin's largest weight, or 'mean'")


def _in_steps(
    engine: Engine, call: Call, statistics: Any, row_edges: Array, column_edges: Array, pool: str,
    progress: Callable[[int, int], None],
) -> Array:  # fmt: skip
    """The same picture, some of its bins at a time."""
    shape = call.batch, call.query_heads, len(row_edges) - 1, len(column_edges) - 1
    values = np.empty(shape, np.float32)
    steps = list(regions.chunks(row_edges, column_edges, STEP))
    for done, (down, across) in enumerate(steps, start=1):
        edges = row_edges[down.start : down.stop + 1], column_edges[across.start : across.stop + 1]
        values[:, :, down, across] = _pool(engine, call, statistics, *edges, pool)
        progress(done, len(steps))
    return values


def received_of(call: Call, *, logsumexp: Array | None = None, engine: str = "auto") -> Array:
    """received() of a prepared call: [B, Hq, Nk]; logsumexp is [B, Hq, Nq]."""
    call, chosen = _on_engine(call, engine)
    if call.empty:
        return _zeros(call, call.keys)
    statistics = _statistics(call, chosen, 0, call.queries, logsumexp)
    return _array(_kernel(chosen, call, "received")(call, statistics))


def top_of(
    call: Call, *, rows: Any = None, k: int = 8, logsumexp: Array | None = None,
    engine: str = "auto",
) -> Top:  # fmt: skip
    """top() of a prepared call: columns and weights [B, Hq, R, k]; logsumexp is [B, Hq, Nq]."""
    at = regions.indices(rows, call.queries, "rows", "queries")
    if not is_integer(k) or k < 1:
        raise ArgumentError(f"k={k!r}: ask for a whole number of keys a row, at least one")
    call, chosen = _on_engine(call, engine)
    if call.empty:
        nothing = _zeros(call, len(at), int(k))
        return Top(np.full(nothing.shape, -1, np.int64), nothing, at)
    statistics = _statistics(call, chosen, int(at.min()), int(at.max()) + 1, logsumexp)
    best, their_weights = _kernel(chosen, call, "strongest")(call, statistics, at, int(k))
    return Top(_array(best), _array(their_weights), at)


def logsumexp_of(call: Call, *, engine: str = "auto") -> Array:
    """Each row's logsumexp, [B, Hq, Nq]: what everything here can reuse."""
    call, chosen = _on_engine(call, engine)
    return _array(_statistics(call, chosen, 0, call.queries, None))


def _zeros(call: Call, *shape: int) -> Array:
    """What there is to see of a call without a cell, in the type of its weights."""
    dtype = np.float64 if call.dtype == "float64" else np.float32
    return np.zeros((call.batch, call.query_heads, *shape), dtype)


def _array(array: Any) -> Array:
    return np.asarray(as_numpy(array))


def _call(
    query: Any, key: Any, mask: Any, bias: Any, scale: float | None, softcap: float | None,
    sinks: Any,
) -> Call:  # fmt: skip
    return prepare(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks)


def _on_engine(call: Call, engine: str) -> tuple[Call, Engine]:
    """The engine asked for, and the call as it takes it; tensors on a CPU become NumPy arrays.

    Weights need no values, but GPU engines want some to mix: the keys will do.
    """
    if is_torch(call.query):
        call = call.numpy() if call.device == "cpu" else _detached(call)
    if not is_torch(call.query) and call.value_size:
        call = replace(call, value=call.key[..., :0])
    return call, choose(call, engine)


def _detached(call: Call) -> Call:
    given = (call.query, call.key, call.bias, call.sinks)
    query, key, bias, sinks = (None if tensor is None else tensor.detach() for tensor in given)
    return replace(call, query=query, key=key, value=key, bias=bias, sinks=sinks)


def _kernel(engine: Engine, call: Call, name: str) -> Any:
    """The engine's own way to do it, or the tiled one of its kind of array."""
    own = getattr(engine.module, name, None)
    if own is not None:
        return own
    if is_torch(call.query):
        from limelight.engines import _torch_pool

        portable = getattr(find("triton").module, name, None)
        fits = portable is not None and find("triton").cannot(call) is None
        return portable if fits else getattr(_torch_pool, name)
    from limelight.engines import _numpy_pool

    return getattr(_numpy_pool, name)


def _statistics(call: Call, engine: Engine, start: int, stop: int, given: Any) -> Any:
    """The logsumexp of rows start..stop at least, as [B, Hq, Nq]: the one at hand, or one pass.

    An array of the call's kind, on its device.
    """
    if given is not None:
        return _beside(call, given)
    own = regions.some_rows(call, start, stop)
    found = engine.module.forward(own, health=False).logsumexp
    if (start, stop) == (0, call.queries):
        return found
    whole = np.full((call.batch, call.query_heads, call.queries), np.nan, _array(found).dtype)
    whole[:, :, start:stop] = _array(found)
    return _beside(call, whole)


def _beside(call: Call, array: Any) -> Any:
    if not is_torch(call.query):
        return array
    import torch

    return torch.as_tensor(array, device=call.query.device).contiguous()


def _pool(
    engine: Engine, call: Call, statistics: Any, row_edges: Array, column_edges: Array, kind: str
) -> Array:
    """An engine's picture, NaN where a bin has no allowed cell: float32 [B, Hq, P, Q].

    On arrays `pool` returns just that. On tensors it returns the largest or summed weights and the
    numbers of allowed cells, for kinds "max" and "sum".
    """
    if call.empty:
        shape = call.batch, call.query_heads, len(row_edges) - 1, len(column_edges) - 1
        return np.empty(shape, np.float32)
    kernel = _kernel(engine, call, "pool")
    if not is_torch(call.query):
        return _array(kernel(call, statistics, row_edges, column_edges, kind))
    how = "max" if kind == "max" else "sum"
    found, cells = kernel(call, statistics, row_edges, column_edges, how)
    values, counts = _array(found), _array(cells)
    values = values if kind == "max" else values / np.maximum(counts, 1)
    return np.where(counts == 0, np.nan, values).astype(np.float32)


def _single_bins(
    call: Call, engine: Engine, statistics: Array, rows: Array, columns: Array
) -> Array:
    """A block as a picture whose bins are single cells; those not allowed weigh nothing."""
    edges = [np.append(at, at[-1] + 1) for at in (rows, columns)]
    values = _pool(engine, call, statistics, edges[0], edges[1], "max")
    values[np.broadcast_to(regions.count(call, *edges) == 0, values.shape)] = 0.0
    return values


def _check_logsumexp(call: Call, logsumexp: Any) -> Array | None:
    if logsumexp is None:
        return None
    array = _array(logsumexp)
    lead = call.batch_shape if call.headless else (*call.batch_shape, call.query_heads)
    if array.shape != (*lead, call.queries):
        raise ShapeError(f"the logsumexp has shape {array.shape}, but one number a row is "
                         f"{(*lead, call.queries)}: pass that of the same queries and keys, of all "
                         f"rows")
    return array.reshape(call.batch, call.query_heads, call.queries)


def _bin(at: int, start: int, stop: int, bins: int) -> range:
    n, at = stop - start, index(at, bins, "bin", " in the picture")
    low = at * n // bins
    return range(start + low, start + max(low + 1, (at + 1) * n // bins))
