"""weights(), received(), top(): exact weights of any part of an attention matrix of any size.

A fused pass never holds the weights, but it leaves each row's logsumexp, and with that

    weight(i, j) = exp(scale · qᵢ·kⱼ → softcap → + bias  −  logsumexpᵢ)

so any weight is one dot product away. What is looked at costs what is looked at, in O(picture + n)
memory; a logsumexp that is at hand is reused, and without one a single pass over the keys finds it.
Of logits beyond 1000 it has too few digits after the point: those are looked at in float64, with
the largest logit and the sum below it found again.

Torch tensors may come in, on any device; what comes out is NumPy, there to be looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import as_array, is_integer, is_torch
from limelight.call import Call, as_float, prepare
from limelight.engines import choose, find
from limelight.engines import numpy as numpy_engine
from limelight.engines.protocol import Looks
from limelight.errors import ArgumentError, ShapeError
from limelight.looking import regions

Array = NDArray[Any]
FAR = 1000.0  # a logsumexp beyond this tells weights to less than four digits in float32
MOST_CELLS = 1 << 28  # of an exact block: 1 GiB of float32


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
        return {
            "rows": self.rows.tolist(),
            "columns": self.columns.tolist(),
            "weights": self.weights.tolist(),
        }


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
    call = prepare(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks)
    block = weights_of(
        call, rows=rows, columns=columns, engine=engine, logsumexp=check_logsumexp(call, logsumexp)
    )
    return as_array(call.restore(block))


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
    call = prepare(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks)
    own = check_logsumexp(call, logsumexp)
    return as_array(call.restore(received_of(call, logsumexp=own, engine=engine)))


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
    call = prepare(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks)
    seen = top_of(call, rows=rows, k=k, logsumexp=check_logsumexp(call, logsumexp), engine=engine)
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
    look = Look.at(call, engine, *_ends(at), logsumexp)
    if call.empty:
        return look.nothing(len(at), len(across))
    return look.result(look.engine.block(look.call, look.logsumexp, at, across))


def received_of(call: Call, *, logsumexp: Array | None = None, engine: str = "auto") -> Array:
    """received() of a prepared call: [B, Hq, Nk]; logsumexp is [B, Hq, Nq]."""
    look = Look.at(call, engine, 0, call.queries, logsumexp)
    if call.empty:
        return look.nothing(call.keys)
    return look.result(look.engine.received(look.call, look.logsumexp))


def top_of(
    call: Call, *, rows: Any = None, k: int = 8, logsumexp: Array | None = None,
    engine: str = "auto",
) -> Top:  # fmt: skip
    """top() of a prepared call: columns and weights [B, Hq, R, k]; logsumexp is [B, Hq, Nq]."""
    at = regions.indices(rows, call.queries, "rows", "queries")
    if not is_integer(k) or k < 1:
        raise ArgumentError(f"k={k!r}: ask for a whole number of keys a row, at least one")
    cells = call.batch * call.query_heads * len(at) * k
    if cells > MOST_CELLS:
        raise ArgumentError(
            f"k={k:,} of {len(at):,} rows and {call.batch} × {call.query_heads} heads are "
            f"{cells:,} weights: ask for fewer keys a row, or for fewer rows"
        )
    look = Look.at(call, engine, *_ends(at), logsumexp)
    if call.empty:
        nothing = look.nothing(len(at), int(k))
        return Top(np.full(nothing.shape, -1, np.int64), nothing, at)
    best, their_weights = look.engine.strongest(look.call, look.logsumexp, at, int(k))
    return Top(as_array(best), look.result(their_weights), at)


def _ends(rows: Array) -> tuple[int, int]:
    """The smallest range that holds them."""
    return (int(rows.min()), int(rows.max()) + 1) if rows.size else (0, 0)


@dataclass(frozen=True, eq=False)
class Look:
    """A call made ready to be looked at, with the engine that looks and the rows' logsumexp.

    `logsumexp` is of the call's kind, on its device, [B, Hq, Nq], or in two parts [B, Hq, 2, Nq].
    """

    call: Call
    engine: Looks
    logsumexp: Any
    dtype: Any  # of exact weights

    @classmethod
    def at(
        cls, call: Call, engine: str, start: int, stop: int, logsumexp: Array | None = None
    ) -> Look:
        """At rows start..stop of a call, of which the logsumexp is found unless it is given.

        Tensors on a CPU become NumPy arrays. Weights need no values, but GPU engines want some to
        mix: the keys will do.
        """
        if is_torch(call.query):
            call = call.numpy() if call.device == "cpu" else _detached(call)
        if not is_torch(call.query) and call.value_size:
            call = replace(call, value=call.key[..., :0])
        chosen = choose(call, engine)
        if logsumexp is None and not call.empty:
            logsumexp = chosen.module.forward(call.some_rows(start, stop), health=False).logsumexp
            if (start, stop) != (0, call.queries):
                logsumexp = _among_all(call, start, stop, logsumexp)
        dtype = np.float64 if call.dtype == "float64" else np.float32
        if logsumexp is not None and chosen.name != "reference":  # which needs none
            logsumexp = sharp(call, logsumexp, start, stop)
            if logsumexp.ndim == 4:
                call = in_float64(call)
                return cls(call, find("numpy").looking, logsumexp, dtype)
        return cls(call, chosen.looking, _beside(call, logsumexp), dtype)

    def result(self, array: Any) -> Array:
        return as_array(array).astype(self.dtype, copy=False)

    def pool(self, row_edges: Array, column_edges: Array, kind: str) -> Array:
        """The "max" or "mean" of each bin's allowed weights: float32 [B, Hq, P, Q]."""
        call = self.call
        if call.empty:
            shape = call.batch, call.query_heads, len(row_edges) - 1, len(column_edges) - 1
            return np.empty(shape, np.float32)
        return as_array(self.engine.pool(call, self.logsumexp, row_edges, column_edges, kind))

    def empty(self, pooled: Array, row_edges: Array, column_edges: Array) -> NDArray[np.bool_]:
        """Which bins of what pool() gave have no allowed cell."""
        empty: NDArray[np.bool_] = np.isnan(pooled)
        rows = slice(int(row_edges[0]), int(row_edges[-1]))
        if empty.any() and not (as_array(self.logsumexp)[..., rows] < np.inf).all():
            # Some row is not a number. Elsewhere NaN is a bin without a cell, and counting takes
            # as long as the map.
            array = self.call.numpy()
            empty &= array.allowed.count_in(row_edges, column_edges, array.bias) == 0
        return empty

    def nothing(self, *shape: int) -> Array:
        """What there is to see of a call without a cell, in the type of its weights."""
        return np.zeros((self.call.batch, self.call.query_heads, *shape), self.dtype)


def sharp(call: Call, logsumexp: Any, start: int, stop: int) -> Any:
    """A logsumexp that tells the weights of the rows start..stop.

    As it is where it does, also where it has two parts already; else in two parts, in float64.
    """
    if logsumexp.ndim == 4:
        return logsumexp
    rows = as_array(logsumexp)[:, :, start:stop]
    if not ((np.abs(rows) > FAR) & np.isfinite(rows)).any():
        return logsumexp
    call = in_float64(call)
    parts = np.full((call.batch, call.query_heads, 2, call.queries), np.nan)
    found = numpy_engine.parts(call.some_rows(start, stop))
    parts[..., start:stop] = np.where(np.isnan(rows)[:, :, None], np.nan, found)
    return parts


def in_float64(call: Call) -> Call:
    """The same call on NumPy arrays of float64."""
    call = call.numpy()
    given = (call.query, call.key, call.value, call.bias, call.sinks)
    query, key, value, bias, sinks = (
        None if array is None else array.astype(np.float64, copy=False) for array in given
    )
    return replace(call, query=query, key=key, value=value, bias=bias, sinks=sinks)


def _detached(call: Call) -> Call:
    given = (call.query, call.key, call.bias, call.sinks)
    query, key, bias, sinks = (None if tensor is None else tensor.detach() for tensor in given)
    return replace(call, query=query, key=key, value=key, bias=bias, sinks=sinks)


def _among_all(call: Call, start: int, stop: int, found: Any) -> Array:
    """The logsumexp of some rows in its place among those of all."""
    part = as_array(found)
    whole = np.full((call.batch, call.query_heads, call.queries), np.nan, part.dtype)
    whole[:, :, start:stop] = part
    return whole


def _beside(call: Call, array: Any) -> Any:
    if array is None or not is_torch(call.query):
        return array
    import torch

    return torch.as_tensor(array, device=call.query.device).contiguous()


def check_logsumexp(call: Call, logsumexp: Any) -> Array | None:
    """One that the caller has from an earlier pass, as [B, Hq, Nq]."""
    if logsumexp is None:
        return None
    array: Array = as_float(as_array(logsumexp, "the logsumexp"), "the logsumexp")
    lead = call.batch_shape if call.headless else (*call.batch_shape, call.query_heads)
    if array.shape != (*lead, call.queries):
        raise ShapeError(
            f"the logsumexp has shape {array.shape}, but one number a row is "
            f"{(*lead, call.queries)}: pass that of the same queries and keys, of all "
            f"rows"
        )
    return array.reshape(call.batch, call.query_heads, call.queries)
