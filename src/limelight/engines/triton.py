"""The portable GPU engine: Triton kernels, which also run under Triton's interpreter on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from limelight.call import Call, beyond_float32
from limelight.reference import Gradients, State

if TYPE_CHECKING:
    from limelight.engines.gpu.launch import Back, Room, Run

LARGEST = 512  # head size
OLDEST = (3, 4)  # Triton


def missing() -> str | None:
    from limelight.engines.gpu import absent

    if lacking := absent(OLDEST):
        return lacking
    import torch

    from limelight.engines.gpu import launch

    if not launch.INTERPRETED and not torch.cuda.is_available():
        return "torch sees no GPU here"
    return None


def cannot(call: Call) -> str | None:
    from limelight.engines.gpu import launch

    size = max(call.head_size, call.value_size)
    if size > LARGEST:
        return f"it takes head sizes up to {LARGEST}, and this one is {size}"
    if launch.INTERPRETED and call.dtype == "bfloat16":
        return "Triton's interpreter has no bfloat16 products: use float16 or float32"
    return beyond_float32(call)


def forward(call: Call, *, health: bool) -> State:
    from limelight.engines.gpu import launch

    with launch.device_of(call):
        done = launch.trivial(call, health)
        return plan(call, health, launch.empty_state)(call) if done is None else done


def plan(call: Call, health: bool, room: Room) -> Run:
    """How calls of this layout are run on the current device; the call is not empty."""
    from limelight.engines.gpu import launch, portable

    run: Run = launch.planned(portable.forward, call, health, room)
    return run


def forward_paged(
    query: Any, key: Any, value: Any, table: Any, page: int, spans: Any, sinks: Any, scale: float,
    softcap: float | None, health: bool,
) -> State | None:  # fmt: skip
    """See protocol.RunsPages."""
    from limelight.engines.gpu import paged

    if not paged.fits(query, value, LARGEST):
        return None
    return paged.forward(query, key, value, table, page, spans, sinks, scale, softcap, health)


def backward(
    call: Call,
    state: State,
    grad_output: Any,
    *,
    grad_logsumexp: Any = None,
    grad_entropy: Any = None,
    with_bias: bool = True,
) -> Gradients:
    from limelight.engines.gpu import launch

    with launch.device_of(call):
        back = plan_back(call)
        return back(call, state, grad_output, grad_logsumexp, grad_entropy, with_bias)


def plan_back(call: Call) -> Back:
    """How gradients of calls of this layout are computed on the current device."""
    from limelight.engines.gpu import gradients

    return gradients.backward
