"""The definition as an engine: limelight.reference, rounded to the caller's dtype at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from limelight import reference
from limelight.call import Call
from limelight.reference import Gradients, State


def missing() -> str | None:
    return None


def cannot(call: Call) -> str | None:
    return None


def forward(call: Call, *, health: bool) -> State:
    state = reference.forward(call)
    output = state.output.astype(call.query.dtype)
    if not health:
        return State(output, _narrow(state.logsumexp, call))
    return State(
        output, *(_narrow(x, call) for x in (state.logsumexp, state.max_logit, state.entropy))
    )


def backward(
    call: Call,
    state: State,
    grad_output: Any,
    *,
    grad_logsumexp: Any = None,
    grad_entropy: Any = None,
    with_bias: bool = True,
) -> Gradients:
    grads = reference.gradients(call, grad_output, grad_logsumexp, grad_entropy)

    def like(gradient: Any, given: Any) -> Any:
        return None if given is None else gradient.astype(given.dtype)

    return Gradients(
        query=like(grads.query, call.query),
        key=like(grads.key, call.key),
        value=like(grads.value, call.value),
        bias=like(grads.bias, call.bias if with_bias else None),
        sinks=like(grads.sinks, call.sinks),
    )


def _narrow(statistic: Any, call: Call) -> Any:
    """Row statistics are float32 unless the arrays are float64."""
    with np.errstate(over="ignore"):  # a logit beyond float32 is an infinity there
        return statistic.astype(np.float64 if call.dtype == "float64" else np.float32)
