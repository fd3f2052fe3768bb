"""The portable GPU engine: Triton kernels, which also run under Triton's interpreter on a CPU."""

from __future__ import annotations

import importlib.util
from typing import Any

from limelight.call import Call, beyond_float32
from limelight.reference import Gradients, State

LARGEST = 512  # head size


def missing() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed: pip install torch"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install triton"
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
    from limelight.engines.gpu import launch, portable

    done = launch.trivial(call, health)
    return launch.planned(portable.forward, call, health) if done is None else done


def backward(call: Call, state: State, grad_output: Any) -> Gradients:
    from limelight.engines.gpu import gradients, launch

    with launch.device_of(call):
        return gradients.backward(call, state, grad_output)


def pool(
    call: Call, logsumexp: Any, row_edges: Any, column_edges: Any, kind: str
) -> tuple[Any, Any]:
    """Weights pooled over rectangles between ascending edges: (values, allowed cells).

    kind "max" or "sum"; each [B, Hq, rows, columns], float32 and int64.
    """
    from limelight.engines.gpu import launch, looking

    with launch.device_of(call):
        return looking.pool(call, logsumexp, row_edges, column_edges, kind)


def received(call: Call, logsumexp: Any) -> Any:
    """What each key receives: column sums of the weights, float32 [B, Hq, Nk]."""
    from limelight.engines.gpu import launch, looking

    with launch.device_of(call):
        return looking.received(call, logsumexp)
