"""From a Call to kernel arguments: groups of pointers and strides, block sizes, empty results."""

from __future__ import annotations

import os
from functools import cache, lru_cache
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


def device_of(call: Call) -> torch.cuda.device:
    """The context in which a call's kernels start: its own device, where there are several."""
    device = call.query.device
    return torch.cuda.device(device.index if device.type == "cuda" else -1)


KEPT = 4096  # layouts whose kernel is remembered
_by_kind: dict[Any, Any] = {}
_by_layout: dict[Any, Any] = {}


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


def layout(call: Call) -> tuple[Any, ...]:
    """All of a call that decides what kinds a launch's arguments are, quicker than asking each."""
    tensors = (call.query, call.key, call.value)
    places = tuple([(x.shape, x.stride(), x.data_ptr() % 16 == 0) for x in tensors])
    allowed = call.allowed
    more = tuple([
        (_kind(x), x.shape, x.stride())
        for x in (call.bias, call.sinks, allowed.dense) if x is not None
    ])  # fmt: skip
    spans = None if allowed.spans is None else allowed.spans.shape
    forms = (call.softcap is None, call.bias is None, call.sinks is None)
    return places, call.query.dtype, allowed.band, spans, forms, more


def start(
    kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...],
    constants: tuple[Any, ...], layout: Any = None, **options: int,
) -> None:  # fmt: skip
    """Launch a kernel on the current stream.

    The first launch of a kind goes through Triton, which binds, specialises and compiles; later
    ones go to the compiled kernel directly and save most of the host's time. A `layout` that was
    seen before saves the look at the arguments too. A profiler that hooks into launches sees them
    all through Triton.
    """
    hook = triton.knobs.runtime.launch_enter_hook
    if INTERPRETED or getattr(hook, "calls", hook):
        kernel[grid](*arguments, *constants, **options)
        return
    device = torch.cuda.current_device()
    place = (id(kernel), device, layout, constants)
    compiled = None if layout is None else _by_layout.get(place)
    if compiled is None:
        key = (id(kernel), device, _kind(arguments), constants, tuple(options.values()))
        compiled = _by_kind.get(key)
        if compiled is None:
            _by_kind[key] = kernel[grid](*arguments, *constants, **options)
            return
        if len(_by_layout) >= KEPT:
            _by_layout.clear()
        _by_layout[place] = compiled
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


@lru_cache(KEPT)
def _strides_like(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense array whose axes lie in memory in the order of the given strides'."""
    order = sorted(range(3), key=lambda axis: (-abs(strides[axis]), axis))
    found, step = [0, 0, 0, 1], shape[3]
    for axis in reversed(order):
        found[axis] = step
        step *= max(1, shape[axis])
    return tuple(found)


def like_query(call: Call, size: int) -> torch.Tensor:
    """An empty [B, Hq, Nq, size] whose axes lie in memory in the order of the query's."""
    query = call.query
    shape = (*query.shape[:3], size)
    strides = _strides_like(shape, query.stride())
    return torch.empty_strided(shape, strides, dtype=query.dtype, device=query.device)


def empty_state(call: Call, health: bool) -> State:
    """Room for the result."""
    output = like_query(call, call.value_size)
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
