"""Attention and its gradients with every step rounded to one precision: what errors are judged by."""

from __future__ import annotations

from typing import Any

import numpy as np

from limelight import reference
from limelight.call import Call
from limelight.reference import Gradients, State, reduce_to


def plainly(
    call: Call, grad: Any, wide: Any, by_logsumexp: Any = None, by_entropy: Any = None
) -> tuple[State, Gradients]:
    with np.errstate(all="ignore"):
        return _plainly(call, grad, wide, by_logsumexp, by_entropy)


def _plainly(
    call: Call, grad: Any, wide: Any, by_logsumexp: Any, by_entropy: Any
) -> tuple[State, Gradients]:
    def cast(x: Any) -> Any:
        return np.asarray(x).astype(wide)

    def product(a: Any, b: Any) -> Any:
        return cast(a @ b)

    query, key, value = (cast(x) for x in (call.query, call.key, call.value))
    key, value = (np.repeat(x, call.group, axis=1) for x in (key, value))
    scale, none = wide(call.scale), wide(0)
    s = product(query, key.swapaxes(-1, -2)) * scale
    slope = wide(1)
    if call.softcap is not None:
        bent = np.tanh(s / wide(call.softcap))
        s, slope = wide(call.softcap) * bent, wide(1) - bent * bent
    if call.bias is not None:
        s = s + cast(call.bias)
    allowed = reference.steps(call).allowed
    s = np.where(allowed, s, wide(-np.inf))
    sinks = cast(np.full(call.query_heads, -np.inf) if call.sinks is None else call.sinks)
    sinks = sinks[:, None, None]
    highest = s.max(axis=-1, keepdims=True, initial=wide(-np.inf))
    top = np.maximum(highest, sinks)
    top = np.where(np.isneginf(top), none, top)
    y = s - top
    p, extra = np.exp(y), np.exp(sinks - top)
    total = cast(p.sum(axis=-1, keepdims=True)) + extra
    safe = np.where(total == 0, wide(1), total)
    w = p / safe
    moment = np.where(p > 0, p * y, none).sum(axis=-1, keepdims=True)
    moment = moment + np.where(extra > 0, extra * (sinks - top), none)
    entropy = np.where(total == 0, none, np.maximum(np.log(safe) - moment / safe, none))
    logsumexp = np.where(total == 0, wide(-np.inf), top + np.log(safe))
    output = product(w, value)
    state = State(output, logsumexp[..., 0], highest[..., 0], cast(entropy)[..., 0])

    g = cast(grad)
    by_weight = np.where(allowed, product(g, value.swapaxes(-1, -2)), none)
    mean = cast((w * by_weight).sum(axis=-1, keepdims=True))
    sink = extra / safe
    by_logit, by_sink = w * (by_weight - mean), -sink * mean
    if by_logsumexp is not None:
        along = cast(by_logsumexp)[..., None]
        by_logit, by_sink = by_logit + w * along, by_sink + sink * along
    if by_entropy is not None:
        along, spare = cast(by_entropy)[..., None], cast(entropy)
        by_logit = by_logit - along * np.where(w > 0, w * (np.log(w) + spare), none)
        by_sink = by_sink - along * np.where(sink > 0, sink * (np.log(sink) + spare), none)
    by_score = by_logit * slope * scale
    groups = (call.batch, call.key_heads, call.group, call.keys, -1)

    def to_key_heads(x: Any) -> Any:
        return cast(x.reshape(groups).sum(axis=2)) if x.size else x[:, :: call.group]

    return state, Gradients(
        product(by_score, key),
        to_key_heads(product(by_score.swapaxes(-1, -2), query)),
        to_key_heads(product(w.swapaxes(-1, -2), g)),
        None if call.bias is None else cast(reduce_to(by_logit, call.bias.shape)),
        None if call.sinks is None else cast(by_sink[..., 0].sum(axis=(0, 2))),
    )
