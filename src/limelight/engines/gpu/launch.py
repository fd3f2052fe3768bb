"""From a Call to kernel arguments: groups of pointers and strides, block sizes, empty results."""

from __future__ import annotations

import os
from typing import Any

import torch

from limelight.call import Call
from limelight.engines.gpu import interpreter
from limelight.engines.gpu.masks import broadcast_strides, mask_arguments
from limelight.reference import State

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    interpreter.adapt()


def start(
    kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...],
    constants: tuple[Any, ...], **options: int,
) -> None:  # fmt: skip
    """Launch a kernel on the current stream."""
    kernel[grid](*arguments, *constants, **options)


def power_of_two(size: int, least: int = 16) -> int:
    return max(least, 1 << max(size - 1, 0).bit_length())


def plain(tensor: torch.Tensor) -> Any:
    """A tensor of four axes as the kernels' Array."""
    from limelight.engines.gpu.cells import Array

    return Array(tensor, *tensor.stride())


def where_of(call: Call) -> tuple[Any, bool, int]:
    """The mask as arguments: (Where, whether it has a band, spans a row)."""
    from limelight.engines.gpu.cells import Where

    mask = mask_arguments(call.allowed, call.query.device)
    where = Where(
        mask.low, mask.high, mask.spans, *mask.spans_strides, mask.dense, *mask.dense_strides
    )
    return where, mask.band, mask.slots


def form_of(call: Call) -> Any:
    from limelight.engines.gpu.cells import Form

    strides = (0, 0, 0, 0) if call.bias is None else broadcast_strides(call.bias, 4)
    return Form(call.scale, call.softcap, call.bias, *strides)


def sizes_of(call: Call) -> Any:
    from limelight.engines.gpu.forward import Sizes

    return Sizes(
        call.batch, call.queries, call.keys, call.head_size, call.value_size,
        call.query_heads, call.group,
    )  # fmt: skip


def result_of(state: State) -> tuple[Any, Any]:
    """Output and statistics."""
    from limelight.engines.gpu.forward import Rows

    return plain(state.output), Rows(state.logsumexp, state.max_logit, state.entropy)


def precision_of(call: Call) -> str:
    """float32 products are exact float32, not tf32."""
    return "ieee" if call.dtype == "float32" else "tf32"


def like_query(call: Call, size: int, dtype: torch.dtype) -> torch.Tensor:
    """An empty [B, Hq, Nq, size] whose axes lie in memory in the order of the query's."""
    query = call.query
    shape = (call.batch, call.query_heads, call.queries, size)
    order = sorted(range(3), key=lambda axis: (-abs(query.stride(axis)), axis))
    laid = torch.empty([shape[axis] for axis in order] + [size], dtype=dtype, device=query.device)
    return laid.permute(*(order.index(axis) for axis in range(3)), 3)


def empty_state(call: Call, health: bool, parts: int | None = None) -> State:
    """Room for the result; with parts, for that many partial ones in float32, in a row."""
    lead = call.batch * (parts or 1)
    shape = (lead, call.query_heads, call.queries)
    device = call.query.device
    if parts is None:
        output = like_query(call, call.value_size, call.query.dtype)
    else:
        output = torch.empty((*shape, call.value_size), dtype=torch.float32, device=device)
    rows = torch.empty((3 if health else 1, *shape), dtype=torch.float32, device=device)
    return State(output, rows[0], rows[1] if health else None, rows[2] if health else None)


def trivial(call: Call, health: bool) -> State | None:
    """The answer where there is nothing to compute: no rows, or no keys at all."""
    if call.keys and call.batch and call.query_heads and call.queries:
        return None
    state = empty_state(call, health)
    state.output.zero_()
    if call.sinks is None:
        state.logsumexp.fill_(float("-inf"))
    else:
        state.logsumexp.copy_(call.sinks.detach().float()[None, :, None].expand_as(state.logsumexp))
    if health:
        state.max_logit.fill_(float("-inf"))
        state.entropy.zero_()
    return state
