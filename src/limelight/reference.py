"""The definition of attention, in float64 and in full: compare, scale, normalise, mix.

    scores  = Q·Kᵀ                       compare   every query with every key
    logits  = scale · scores             scale     by 1/√D unless told otherwise
              → softcap → + bias → mask
    weights = softmax(logits)            normalise each row to a sum of 1 (sinks take their share)
    output  = weights · V                mix       the values by the weights

In training some weights may be dropped before the mixing, and the others scaled up for them; the
statistics of a row are those of its weights before that.

Everything here holds the whole n×n matrix and takes its time; every other engine is tested against
it. What is masked cannot leak: a cell that is not allowed takes no part in any sum, so NaN behind
a mask stays there, in the output and in the gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import is_torch, namespace
from limelight.call import Call
from limelight.dropout import kept
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.records import lean

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Steps:
    """Every intermediate table of one attention, each [B, Hq, Nq, Nk] unless said otherwise."""

    raw: Array
    scaled: Array
    capped: Array
    biased: Array
    allowed: NDArray[np.bool_]
    logits: Array  # −inf where not allowed
    weights: Array
    sink: Array  # the share that the sink takes, [B, Hq, Nq]
    output: Array  # [B, Hq, Nq, Dv]
    max_logit: Array  # [B, Hq, Nq], as the next two
    logsumexp: Array
    entropy: Array


@lean
@dataclass(frozen=True, eq=False)
class State:
    """The result of a pass over some of the keys. Two states over different keys merge into one.

    output [..., Nq, Dv]; logsumexp, max_logit and entropy [..., Nq], the last two None where the
    pass was not asked for health.
    """

    output: Any
    logsumexp: Any
    max_logit: Any = None
    entropy: Any = None


@dataclass(frozen=True, eq=False)
class Gradients:
    """A loss's gradient by each input, in that input's own shape; None for what was not given."""

    query: Any
    key: Any
    value: Any
    bias: Any = None
    sinks: Any = None


class Logits(NamedTuple):
    """From dot products to logits, step by step."""

    scaled: NDArray[Any]
    capped: NDArray[Any]
    biased: NDArray[Any]
    allowed: NDArray[np.bool_] | None  # None where every cell is
    logits: NDArray[Any]  # −inf where not allowed


def products(query: NDArray[Any], key: NDArray[Any]) -> NDArray[Any]:
    """query · keyᵀ, [..., Nq, Nk].

    A sum of finite products may pass the type's range on its way; what is multiplied and added at
    once goes on from that infinity, whatever its sign. Such cells are formed again, so that they
    are what their sum rounds to.
    """
    raw: NDArray[Any] = query @ key.swapaxes(-1, -2)
    sound = np.isfinite(raw)
    if sound.all():
        return raw
    (q, up), (k, across) = _near_one(query), _near_one(key)
    given = np.isfinite(query).all(-1)[..., :, None] & np.isfinite(key).all(-1)[..., None, :]
    again = np.ldexp(q @ k.swapaxes(-1, -2), up[..., :, None] + across[..., None, :])
    return np.where(given & ~sound, again, raw).astype(raw.dtype)


def _near_one(vectors: NDArray[Any]) -> tuple[Array, NDArray[np.int32]]:
    """In float64, each divided by the power of two that brings its largest number below 1."""
    wide = vectors.astype(np.float64)
    power = np.frexp(np.abs(wide).max(axis=-1, initial=0.0))[1]
    return np.ldexp(wide, -power[..., None]), power


def logits(call: Call, scores: NDArray[Any], bias: Any, allowed: Any) -> Logits:
    """s = scale · scores, c·tanh(s/c), + bias, mask: for any cells of a call, in the scores' type.

    `bias` and `allowed` are those of these cells, None where there are none; −inf in a bias hides.
    """
    biased = capped = scaled = call.scale * scores
    if call.softcap is not None:
        biased = capped = call.softcap * np.tanh(scaled / call.softcap)
    if bias is not None:
        bias = bias.astype(scaled.dtype, copy=False)
        biased, shown = capped + bias, ~np.isneginf(bias)
        if not shown.all():
            allowed = shown if allowed is None else allowed & shown
    masked = biased if allowed is None else np.where(allowed, biased, -np.inf)
    return Logits(scaled, capped, biased, allowed, masked)


def steps(call: Call) -> Steps:
    """Attention step by step, every table kept."""
    with np.errstate(all="ignore"):  # infinities in the input are the caller's, and stay visible
        query, key, value = (_double(x) for x in (call.query, call.key, call.value))
        key, value = _per_query_head(key, call), _per_query_head(value, call)

        raw = products(query, key)  # [B, Hq, Nq, Nk]
        tile = call.allowed.tile(np.arange(call.queries), np.arange(call.keys))
        cells = logits(call, raw, None if call.bias is None else _double(call.bias), tile)
        biased = cells.biased
        allowed = np.full(raw.shape, True if cells.allowed is None else cells.allowed)

        sinks = np.full(call.query_heads, -np.inf) if call.sinks is None else _double(call.sinks)
        sinks = sinks[:, None]  # [Hq, 1], one for every row
        max_logit = cells.logits.max(axis=-1, initial=-np.inf)
        top = np.maximum(max_logit, sinks)
        top = np.where(np.isneginf(top) & ~allowed.any(axis=-1), 0.0, top)  # a row without keys
        shifted = np.where(allowed, biased - top[..., None], -np.inf)
        power, sink_power = np.exp(shifted), np.exp(sinks - top)
        total = power.sum(axis=-1) + sink_power
        weights = power / np.where(total == 0, 1.0, total)[..., None]
        sink = sink_power / np.where(total == 0, 1.0, total)

        logsumexp = top + np.log(total)
        shift_mean = _times(power, shifted).sum(axis=-1) + _times(sink_power, sinks - top)
        entropy = np.where(total == 0, 0.0, np.log(total) - shift_mean / total)
        return Steps(
            raw, cells.scaled, cells.capped, biased, allowed, cells.logits, weights, sink,
            output=_product(_drop(weights, call), allowed, value),
            max_logit=max_logit, logsumexp=logsumexp, entropy=np.maximum(entropy, 0.0),
        )  # fmt: skip


def forward(call: Call) -> State:
    """Output and row statistics, in float64."""
    done = steps(call)
    return State(done.output, done.logsumexp, done.max_logit, done.entropy)


def gradients(
    call: Call, grad_output: Any, grad_logsumexp: Any = None, grad_entropy: Any = None
) -> Gradients:
    """The gradients of Σ grad_output·output + grad_logsumexp·logsumexp + grad_entropy·entropy.

    With P the weights, H the entropy, dP = dO·Vᵀ and D = Σⱼ P·dP (the row's mean of dP), a logit's
    gradient is, gL and gH being those of the row's two figures ([B, Hq, Nq], None for 0),

        dS = P·(dP − D + gL − gH·(ln P + H))

    From there dbias = dS, dQ = scale·dS'·K and dK = scale·dS'ᵀ·Q, where dS' = dS·(1 − tanh²) undoes
    a softcap; dV = Pᵀ·dO. A sink is one more outcome, with the same dS and dP = 0. Dropout Z makes
    dP = Z·(dO·Vᵀ) and dV = (Z·P)ᵀ·dO.
    """
    done = steps(call)
    with np.errstate(all="ignore"):
        query, grad = _double(call.query), _double(grad_output)
        key = _per_query_head(_double(call.key), call)
        value = _per_query_head(_double(call.value), call)
        transposed = done.allowed.swapaxes(-1, -2)
        mixed = _drop(done.weights, call)

        by_weight = np.where(done.allowed, grad @ value.swapaxes(-1, -2), 0.0)
        by_weight = _drop(by_weight, call)  # dP
        mean = _times(done.weights, by_weight).sum(axis=-1, keepdims=True)  # D
        slope, sink_slope = by_weight - mean, -mean[..., 0]
        if grad_logsumexp is not None:
            along = _double(grad_logsumexp)
            slope, sink_slope = slope + along[..., None], sink_slope + along
        by_logit = np.where(done.allowed, done.weights * slope, 0.0)  # dS
        by_sink = done.sink * sink_slope
        if grad_entropy is not None:
            along, entropy = _double(grad_entropy), done.entropy
            by_entropy = _surprise(done.weights) + done.weights * entropy[..., None]
            by_logit = by_logit - np.where(done.allowed, along[..., None] * by_entropy, 0.0)
            by_sink = by_sink - along * (_surprise(done.sink) + done.sink * entropy)
        by_score = by_logit
        if call.softcap is not None:
            slope = 1.0 - (done.capped / call.softcap) ** 2
            by_score = np.where(done.allowed, by_logit * slope, 0.0)
        by_score = call.scale * by_score
        return Gradients(
            query=_product(by_score, done.allowed, key),
            key=_per_key_head(_product(by_score.swapaxes(-1, -2), transposed, query), call),
            value=_per_key_head(_product(mixed.swapaxes(-1, -2), transposed, grad), call),
            bias=None if call.bias is None else reduce_to(by_logit, call.bias.shape),
            sinks=None if call.sinks is None else by_sink.sum(axis=(0, 2)),
        )


def merge(first: State, second: State) -> State:
    """The state over the keys of both, from the states over each. Exact and associative.

        logsumexp = ln(eᵃ + eᵇ)                       with a, b the two logsumexps
        output    = u·first + v·second                u = 1/(1 + e^(b − a)), v = 1/(1 + e^(a − b))
        entropy   = u·(H₁ − ln u) + v·(H₂ − ln v)

    A sink, if any, belongs to one of the two.
    """
    _check_states(first, second)
    xp = namespace(first.logsumexp)
    with np.errstate(all="ignore"):
        a, b = first.logsumexp, second.logsumexp
        logsumexp = xp.logaddexp(a, b)
        log_u, log_v = _log_share(xp, a, b), _log_share(xp, b, a)
        u, v = xp.exp(log_u), xp.exp(log_v)
        output = u[..., None] * first.output + v[..., None] * second.output
        if first.entropy is None or second.entropy is None:
            return State(output, logsumexp)
        entropy = u * first.entropy + v * second.entropy
        entropy = entropy - xp.where(u > 0, u * log_u, 0.0) - xp.where(v > 0, v * log_v, 0.0)
        return State(output, logsumexp, xp.maximum(first.max_logit, second.max_logit), entropy)


def _check_states(first: State, second: State) -> None:
    """Two states of the same rows, both of NumPy arrays or both of tensors."""
    for state in (first, second):
        if not isinstance(state, State) or not hasattr(state.logsumexp, "shape"):
            came = f"{type(state).__name__} of {type(getattr(state, 'logsumexp', None)).__name__}"
            raise ArgumentError(
                f"merge() takes two states, each State(output, logsumexp, max_logit, entropy) of "
                f"arrays as inspect() gives them, and got {came.removesuffix(' of NoneType')}"
            )
    if is_torch(first.logsumexp) != is_torch(second.logsumexp):
        raise DtypeError("one state is of tensors and the other is not: give both as tensors, or "
                         "both as NumPy arrays")  # fmt: skip
    for name in ("output", "logsumexp"):
        one, other = (tuple(getattr(state, name).shape) for state in (first, second))
        if one != other:
            raise ShapeError(
                f"{name}s of shape {one} and {other} do not merge: the two states are of the same "
                f"rows, each over some of their keys"
            )


def reduce_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum over the axes along which an array of that shape was broadcast."""
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and array.shape[i] != 1)
    return array.sum(axes, keepdims=True) if axes else array


def _log_share(xp: Any, part: Any, other: Any) -> Any:
    """ln of a part's share beside the other: −ln(1 + e^(other − part)), by their difference alone,
    so that shares add up to 1 at any size. An empty part has none, whatever the other is.
    """
    apart = other - part
    return xp.where(part == -np.inf, -np.inf, -xp.logaddexp(xp.zeros_like(apart), apart))


def _double(array: Any) -> Array:
    return np.asarray(array).astype(np.float64, copy=False)


def _per_query_head(array: Array, call: Call) -> Array:
    """Key heads repeated so that each query head has its own."""
    return array if call.group == 1 else np.repeat(array, call.group, axis=1)


def _per_key_head(array: Array, call: Call) -> Array:
    """Gradients of repeated heads, summed back."""
    if call.group == 1:
        return array
    batch, _, length, size = array.shape
    total: Array = array.reshape(batch, call.key_heads, call.group, length, size).sum(axis=2)
    return total


def _drop(cells: Array, call: Call) -> Array:
    """Cells [B, Hq, Nq, Nk] after dropout: 0 where they fall, the others scaled up."""
    if call.dropout is None:
        return cells
    heads = np.arange(call.batch * call.query_heads).reshape(cells.shape[:2])
    stay = kept(call.dropout, heads, np.arange(call.queries), np.arange(call.keys))
    return np.where(stay, cells * call.dropout.scale, 0.0 * cells)


def _times(a: Array, b: Array) -> Array:
    """a·b where 0·∞ counts as 0, as in p·ln p at p = 0; NaN stays NaN."""
    return np.where((a == 0) & ~np.isnan(b), 0.0, a * b)


def _surprise(p: Array) -> Array:
    """p·ln p, 0 at p = 0."""
    return _times(p, np.log(p))


def _product(weights: Array, allowed: NDArray[np.bool_], matrix: Array) -> Array:
    """weights @ matrix with no contribution from cells that are not allowed, not even 0·NaN."""
    finite = np.isfinite(matrix)
    if finite.all():
        return np.where(allowed, weights, 0.0) @ matrix
    total = np.where(allowed, weights, 0.0) @ np.where(finite, matrix, 0.0)
    for *lead, j in zip(*np.nonzero(~finite.all(axis=-1)), strict=True):
        at = tuple(lead)
        rows = np.nonzero(allowed[at][:, j])[0]
        bad = ~finite[at][j]
        total[at][np.ix_(rows, bad)] += weights[at][rows, j, None] * matrix[at][j][bad]
    return total
