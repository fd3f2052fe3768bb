"""Attention in tiles over BLAS: O(n) memory, no compiler.

For each tile of rows the keys pass by in blocks, and three numbers a row are kept (Milakov and
Gimelshein 2018; Dao et al. 2022): the running maximum m, the sum l = Σ e^y and e = Σ e^y·y with
y = s − m. When the maximum moves from m to m', a = e^(m−m') brings the sums along:

    l ← a·l        e ← a·(e + (m − m')·l)        O ← a·O

At the end logsumexp = m + ln l and entropy = ln l − e/l. The backward pass rebuilds each tile's
weights from the saved logsumexp, or from m and ln l where their sum has too few digits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import crop
from limelight.call import Call, beyond_float32
from limelight.dropout import kept
from limelight.reference import Gradients, Logits, State, logits, products, reduce_to

ROWS, COLUMNS = 128, 512  # a tile's scores stay in the second-level cache
FAR = 1000.0  # a logsumexp beyond this tells weights to less than four digits in float32
Array = NDArray[Any]


def missing() -> str | None:
    return None


def cannot(call: Call) -> str | None:
    return None if call.dtype == "float64" else beyond_float32(call)


def forward(call: Call, *, health: bool) -> State:
    wide = np.float64 if call.dtype == "float64" else np.float32
    rows = (call.batch, call.query_heads, call.queries)
    output = np.zeros((*rows, call.value_size), call.query.dtype)
    logsumexp, max_logit = np.full(rows, -np.inf, wide), np.full(rows, -np.inf, wide)
    entropy = np.zeros(rows, wide)
    with np.errstate(all="ignore"):
        for head in _heads(call, wide):
            for start in range(0, call.queries, ROWS):
                at = head.batch, head.slice, slice(start, start + ROWS)
                output[at], logsumexp[at], max_logit[at], entropy[at] = _rows(call, head, start)
    return State(output, logsumexp, *((max_logit, entropy) if health else ()))


def backward(
    call: Call,
    state: State,
    grad_output: Array,
    *,
    grad_logsumexp: Array | None = None,
    grad_entropy: Array | None = None,
    with_bias: bool = True,
) -> Gradients:
    wide = np.float64 if call.dtype == "float64" else np.float32
    grads = {
        name: None if given is None else np.zeros(given.shape, wide)
        for name in ("query", "key", "value", "bias", "sinks")
        for given in [getattr(call, name)]
        if name != "bias" or with_bias
    }
    by_rows = grad_logsumexp, grad_entropy
    with np.errstate(all="ignore"):
        for head in _heads(call, wide):
            for start in range(0, call.queries, ROWS):
                _rows_backward(call, head, start, state, grad_output, by_rows, grads)
    return Gradients(**{
        name: None if grad is None else grad.astype(getattr(call, name).dtype)
        for name, grad in grads.items()
    })  # fmt: skip


def parts(call: Call) -> Array:
    """Each row's logsumexp as m and ln l, [B, Hq, 2, Nq]: what their sum rounds away they keep."""
    wide = np.float64 if call.dtype == "float64" else np.float32
    found = np.empty((call.batch, call.query_heads, 2, call.queries), wide)
    with np.errstate(all="ignore"):
        for head in _heads(call, wide):
            for start in range(0, call.queries, ROWS):
                at = head.batch, head.slice, slice(None), slice(start, start + ROWS)
                found[at] = np.stack(_parts(call, head, start), axis=1)
    return found


@dataclass(frozen=True)
class _Head:
    """One key head of one batch entry with the query heads that share it, widened once."""

    batch: int
    key_head: int
    slice: slice  # of the query heads
    query: Array  # [group, Nq, D]
    key: Array  # [Nk, D]
    value: Array  # [Nk, Dv]


@dataclass(frozen=True)
class _Tile:
    """Scores of some rows against some columns, after scale, cap, bias and mask."""

    columns: slice
    cells: Logits  # [group, rows, columns]
    factor: Array | None  # what dropout multiplies the weights with

    @property
    def logits(self) -> Array:
        return self.cells.logits

    @property
    def allowed(self) -> Array | None:
        """Of the shape of the logits; None where every cell is."""
        allowed = self.cells.allowed
        return None if allowed is None else np.broadcast_to(allowed, self.logits.shape)

    def slope(self, call: Call) -> Array | float:
        """d logit / d score."""
        if call.softcap is None:
            return call.scale
        bent = self.cells.capped / call.softcap
        return call.scale * (1.0 - bent * bent)


def _heads(call: Call, wide: Any) -> Iterator[_Head]:
    for b in range(call.batch):
        for h in range(call.key_heads):
            own = slice(h * call.group, (h + 1) * call.group)
            query = call.query[b, own].astype(wide, copy=False)
            key, value = (x[b, h].astype(wide, copy=False) for x in (call.key, call.value))
            yield _Head(b, h, own, query, key, value)


def _tiles(call: Call, head: _Head, start: int) -> Iterator[_Tile]:
    """The tiles of rows start.. against every block of keys that the mask does not rule out."""
    rows = np.arange(start, min(start + ROWS, call.queries))
    first, last = call.allowed.reach(rows[0], rows[-1] + 1)
    for left in range(first, last, COLUMNS):
        columns = np.arange(left, min(left + COLUMNS, last))
        allowed = call.allowed.tile(rows, columns)
        if allowed is not None:
            allowed = _part(allowed, head)
            if not allowed.any():
                continue
        key = head.key[left : columns[-1] + 1]
        scores = products(head.query[:, rows[0] : rows[-1] + 1], key)
        bias = None if call.bias is None else _part(crop(call.bias, rows, columns), head)
        cells = logits(call, scores, bias, allowed)
        factor = _dropout(call, head, rows, columns, cells.logits.dtype)
        yield _Tile(slice(left, int(columns[-1]) + 1), cells, factor)


def _rows(call: Call, head: _Head, start: int) -> tuple[Array, Array, Array, Array]:
    """Output, logsumexp, max logit and entropy of one tile of rows, [group, rows]."""
    rows = min(ROWS, call.queries - start)
    wide = head.query.dtype
    m = np.full((call.group, rows), -np.inf, wide)
    total, moment, seen = np.zeros_like(m), np.zeros_like(m), np.zeros(m.shape, np.bool_)
    out = np.zeros((call.group, rows, call.value_size), wide)
    for tile in _tiles(call, head, start):
        seen |= True if tile.allowed is None else tile.allowed.any(axis=-1)
        new = np.maximum(m, tile.logits.max(axis=-1))
        y = tile.logits - np.where(new == -np.inf, 0.0, new)[..., None]
        p = np.exp(y)
        total, moment, out = _rescale(m, new, total, moment, out)
        total += p.sum(axis=-1)
        moment += (p * np.where(p == 0, 0.0, y)).sum(axis=-1)
        out += _product(_drop(p, tile), tile.allowed, head.value[tile.columns])
        m = new
    max_logit = m
    if call.sinks is not None:
        sinks = call.sinks[head.slice].astype(wide)[:, None]
        new = np.maximum(m, sinks)
        total, moment, out = _rescale(m, new, total, moment, out)
        p = np.where(sinks == -np.inf, 0.0, np.exp(sinks - new))
        total, moment, m = total + p, moment + np.where(p == 0, 0.0, p * (sinks - new)), new
    total = _summed(total, seen)
    whole = np.where(total == 0, 1.0, total)
    entropy = np.maximum(np.where(total == 0, 0.0, np.log(whole) - moment / whole), 0.0)
    logsumexp = np.where(total == 0, -np.inf, m + np.log(whole))
    out /= whole[..., None]
    out[~seen] = 0.0
    return out, logsumexp, max_logit, entropy


def _parts(call: Call, head: _Head, start: int) -> tuple[Array, Array]:
    """m and ln l of one tile of rows, each [group, rows]; −inf and 0 for a row without keys."""
    rows = min(ROWS, call.queries - start)
    wide = head.query.dtype
    m = np.full((call.group, rows), -np.inf, wide)
    total, seen = np.zeros_like(m), np.zeros(m.shape, np.bool_)
    for tile in _tiles(call, head, start):
        seen |= True if tile.allowed is None else tile.allowed.any(axis=-1)
        new = np.maximum(m, tile.logits.max(axis=-1))
        total *= np.where(m == -np.inf, 0.0, np.exp(m - new))
        below = np.where(new == -np.inf, 0.0, new)
        total += np.exp(tile.logits - below[..., None]).sum(axis=-1)
        m = new
    if call.sinks is not None:
        sinks = call.sinks[head.slice].astype(wide)[:, None]
        new = np.maximum(m, sinks)
        total = np.where(m == -np.inf, 0.0, total * np.exp(m - new))
        total, m = total + np.where(sinks == -np.inf, 0.0, np.exp(sinks - new)), new
    total = _summed(total, seen)
    return m, np.log(np.where(total == 0, 1.0, total))


def _summed(total: Array, seen: Array) -> Array:
    """Where keys were seen and nothing came together, all their logits are −inf: no number."""
    return np.where(seen & (total == 0), np.nan, total)


def _rescale(
    old: Array, new: Array, total: Array, moment: Array, out: Array
) -> tuple[Array, Array, Array]:
    """Bring the sums from the old maximum to the new; nothing was summed where the old is −inf."""
    gap = np.where(old == -np.inf, 0.0, old - new)
    a = np.where(old == -np.inf, 0.0, np.exp(gap))
    moment = np.where(a == 0, 0.0, a * (moment + gap * total))
    return a * total, moment, a[..., None] * out


def _rows_backward(
    call: Call,
    head: _Head,
    start: int,
    state: State,
    grad_output: Array,
    by_rows: tuple[Array | None, Array | None],
    grads: dict[str, Any],
) -> None:
    """Add one tile of rows to all gradients."""
    at = head.batch, head.slice, slice(start, start + ROWS)
    wide = head.query.dtype
    logsumexp = state.logsumexp[at].astype(wide)[..., None]
    empty = logsumexp == -np.inf
    below = _below(call, head, start, logsumexp)
    grad = grad_output[at].astype(wide)
    query = head.query[:, start : start + ROWS]
    # Σⱼ Pⱼ·dPⱼ = dO·O: also right where the state is over more keys than this call's
    output = np.where(empty, 0.0, state.output[at].astype(wide))
    mean = (grad * output).sum(axis=-1, keepdims=True)
    # dS = P·(dP − mean − turn·ln P), the gradients of logsumexp and entropy in mean and turn
    by_logsumexp, by_entropy = (
        None if g is None else g[at].astype(wide)[..., None] for g in by_rows
    )
    turn = np.zeros_like(mean) if by_entropy is None else by_entropy
    if by_logsumexp is not None:
        mean = mean - by_logsumexp
    if by_entropy is not None:
        mean = mean + by_entropy * state.entropy[at].astype(wide)[..., None]
    for tile in _tiles(call, head, start):
        log_p = below(tile.logits)
        p = _where(tile.allowed, np.where(empty, 0.0, np.exp(log_p)))
        slope = _drop(grad @ head.value[tile.columns].T, tile) - mean
        if by_entropy is not None:
            slope = slope - turn * np.where(p == 0, 0.0, log_p)
        by_logit = _where(tile.allowed, p * slope)
        by_score = _where(tile.allowed, by_logit * tile.slope(call))
        across = None if tile.allowed is None else tile.allowed.swapaxes(-1, -2)
        columns = head.batch, head.key_head, tile.columns
        grads["query"][at] += _product(by_score, tile.allowed, head.key[tile.columns])
        grads["key"][columns] += _product(by_score.swapaxes(-1, -2), across, query).sum(axis=0)
        mixed = _drop(p, tile).swapaxes(-1, -2)
        grads["value"][columns] += _product(mixed, across, grad).sum(axis=0)
        if grads.get("bias") is not None:
            _add_bias(grads["bias"], by_logit, head, start, tile.columns)
    if grads["sinks"] is not None:
        log_share = below(call.sinks[head.slice].astype(wide)[:, None, None])
        share = np.where(empty, 0.0, np.exp(log_share))
        slope = mean + turn * np.where(share == 0, 0.0, log_share)
        grads["sinks"][head.slice] -= (share * slope).sum(axis=(1, 2))


def _below(call: Call, head: _Head, start: int, logsumexp: Array) -> Callable[[Array], Array]:
    """What takes the logsumexp [group, rows, 1] off the logits of one tile of rows.

    It may be over more keys than this call's (a part of a longer sequence): then it alone says
    what share they have, as far as it can.
    """
    size = np.abs(logsumexp)
    if not ((size > FAR) & (size < np.inf)).any():
        return lambda logits: logits - logsumexp
    top, rest = (part[..., None] for part in _parts(call, head, start))
    whole = top + rest >= logsumexp - 4 * np.finfo(logsumexp.dtype).eps * size
    top, rest = np.where(whole, top, logsumexp), np.where(whole, rest, 0.0)
    return lambda logits: (logits - top) - rest


def _add_bias(grad: Array, by_logit: Array, head: _Head, start: int, columns: slice) -> None:
    rows = slice(start, start + ROWS) if grad.shape[2] > 1 else slice(None)
    b = head.batch if grad.shape[0] > 1 else 0
    own = head.slice if grad.shape[1] > 1 else slice(None)
    view = grad[b, own, rows, columns if grad.shape[3] > 1 else slice(None)]
    view += reduce_to(by_logit, view.shape)


def _part(array: Array, head: _Head) -> Array:
    """This head's part of a broadcast array: [group|1, rows, columns]."""
    array = array[head.batch if array.shape[0] > 1 else 0]
    return array[head.slice] if array.shape[0] > 1 else array


def _dropout(call: Call, head: _Head, rows: Array, columns: Array, dtype: Any) -> Array | None:
    """0 for the cells that fall, for the others what makes up for them."""
    if call.dropout is None:
        return None
    heads = head.batch * call.query_heads + np.arange(head.slice.start, head.slice.stop)
    factor: Array = kept(call.dropout, heads, rows, columns) * dtype.type(call.dropout.scale)
    return factor


def _drop(cells: Array, tile: _Tile) -> Array:
    return cells if tile.factor is None else cells * tile.factor


def _where(allowed: Array | None, cells: Array) -> Array:
    return cells if allowed is None else np.where(allowed, cells, 0.0)


def _product(weights: Array, allowed: Array | None, matrix: Array) -> Array:
    """weights @ matrix; what is not allowed adds nothing, not even 0·NaN."""
    total: Array
    if allowed is None or (finite := np.isfinite(matrix)).all():
        total = weights @ matrix
        return total
    seen = allowed[..., None] & ~finite[..., None, :, :]  # [..., rows, columns, size]
    total = weights @ np.where(finite, matrix, 0.0)
    total += np.where(seen, weights[..., None] * matrix[..., None, :, :], 0.0).sum(axis=-2)
    return total
