"""From a Call to kernel arguments: groups of pointers and strides, block sizes, empty results."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch
import triton

from limelight.call import Call
from limelight.engines.gpu import interpreter
from limelight.engines.gpu.masks import broadcast_strides, mask_arguments
from limelight.reference import State

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    interpreter.adapt()


_compiled: dict[Any, Any] = {}


def _kind(argument: Any) -> Any:
    """What Triton compiles an argument for: its type, whether it is 1 or a multiple of 16."""
    if isinstance(argument, int):
        return 1 if argument == 1 else (argument % 16 == 0, -(1 << 31) <= argument < 1 << 31)
    if isinstance(argument, torch.Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, tuple):
        return tuple([_kind(part) for part in argument])
    if isinstance(argument, float) or argument is None:
        return type(argument)
    return argument.base.dtype, tuple(argument.block_shape)  # a TMA descriptor


def start(
    kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...],
    constants: tuple[Any, ...], **options: int,
) -> None:  # fmt: skip
    """Launch a kernel on the current stream.

    The first launch of a kind goes through Triton, which binds, specialises and compiles; later
    ones go to the compiled kernel directly and save most of the host's time. A profiler that hooks
    into launches sees them all through Triton.
    """
    hook = triton.knobs.runtime.launch_enter_hook
    if INTERPRETED or getattr(hook, "calls", hook):
        kernel[grid](*arguments, *constants, **options)
        return
    device = torch.cuda.current_device()
    key = (id(kernel), device, _kind(arguments), constants, tuple(options.values()))
    compiled = _compiled.get(key)
    if compiled is None:
        _compiled[key] = kernel[grid](*arguments, *constants, **options)
        return
    compiled.run(
        *grid, torch._C._cuda_getCurrentRawStream(device), compiled.function,
        compiled.packed_metadata, None, None, None, *arguments, *constants,
    )  # fmt: skip


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


def empty_state(call: Call, health: bool) -> State:
    """Room for the result."""
    output = like_query(call, call.value_size, call.query.dtype)
    shape = (3 if health else 1, call.batch, call.query_heads, call.queries)
    rows = torch.empty(shape, dtype=torch.float32, device=call.query.device).unbind(0)
    return State(output, *rows)


@cache
def _kept_zeros(device: torch.device, stream: int, size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int32, device=device)


def zeros(device: torch.device, size: int) -> torch.Tensor:
    """At least `size` flags or counters at zero, which kernels leave at zero: kept a stream.

    While a CUDA graph is captured they are its own, so that replays may run beside other work.
    """
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return torch.zeros(size, dtype=torch.int32, device=device)
    stream = torch.cuda.current_stream(device).cuda_stream
    return _kept_zeros(device, stream, 1 << max(size - 1, 1).bit_length())


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
