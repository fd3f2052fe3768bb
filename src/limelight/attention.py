"""attention() and inspect(): check what was meant, pick an engine, return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from limelight.arrays import is_torch
from limelight.call import Call, check_value, prepare
from limelight.engines import choose, quick_path
from limelight.health import Health
from limelight.offers import offered
from limelight.records import lean
from limelight.reference import State

_quick = quick_path()


@lean
@dataclass(frozen=True, eq=False)
class Inspection:
    """What one pass gives: the output, and what it says about every row."""

    output: Any
    health: Health

    def __repr__(self) -> str:
        shape, dtype = tuple(self.output.shape), self.output.dtype
        return f"Inspection(output {dtype} {shape})\n{self.health!r}"

    def _repr_html_(self) -> str:
        return self.health._repr_html_()


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    engine: str = "auto",
) -> Any:
    """Scaled dot-product attention: softmax(scale · Q·Kᵀ → softcap → + bias → mask) · V.

    Shapes: query [..., Hq, Nq, D], key [..., Hk, Nk, D], value [..., Hk, Nk, Dv]; Hq a multiple of
    Hk; one head may leave the head axis out. Returns [..., Hq, Nq, Dv], as NumPy for lists and
    NumPy arrays, as a torch tensor with autograd for torch tensors.

    mask     a mask such as Causal(), or booleans that broadcast to [..., Hq, Nq, Nk]; True attends
    bias     numbers added to the logits, broadcast the same way; −inf masks
    scale    multiplies the dot products; None means 1/√D, 1.0 means none
    softcap  c bends the scaled scores s to c·tanh(s/c)
    sinks    [Hq] extra logits that take probability and give no value
    engine   "auto" for the fastest that can, or a name from engines()

    >>> attention([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]]).round(6)
    array([[8.829123, 0.858154]])
    """
    if is_torch(query):
        return offered("tensors").attention(
            query, key, value, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks,
            engine=engine,
        )  # fmt: skip
    if engine == "auto" and mask is bias is scale is softcap is sinks is None:
        done = _quick(query, key, value, False)
        if done is not None:
            return done.output
    check_value(value)
    call = prepare(
        query, key, value, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks
    )
    return call.restore(choose(call, engine).module.forward(call, health=False).output)


def inspect(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    engine: str = "auto",
) -> Inspection:
    """The same attention in the same single pass, with the health of every row beside the output.

    >>> seen = inspect([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]])
    >>> seen.health.max_prob.round(6), seen.health.verdict
    (array([0.881645]), array(['peaked'], dtype='<U9'))
    """
    if is_torch(query):
        seen: Inspection = offered("tensors").inspect(
            query, key, value, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks,
            engine=engine,
        )  # fmt: skip
        return seen
    if engine == "auto" and mask is bias is scale is softcap is sinks is None:
        done = _quick(query, key, value, True)
        if done is not None:
            keys = np.empty(query.shape[:3], np.int64)  # and filled: a third of np.full's time
            keys.fill(key.shape[2])
            health = Health(done.max_logit, done.logsumexp, done.entropy, keys)
            return Inspection(done.output, health)
    check_value(value)
    call = prepare(
        query, key, value, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks
    )
    return inspection(call, choose(call, engine).module.forward(call, health=True))


def inspection(call: Call, state: State) -> Inspection:
    """An engine's state in the caller's shapes."""
    return Inspection(call.restore(state.output), Health.of(call, state))
