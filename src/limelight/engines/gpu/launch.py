"""From a Call to kernel arguments: groups of pointers and strides, empty results; launches."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton

from limelight.call import Call
from limelight.engines.gpu import direct, interpreter, kept
from limelight.engines.gpu.masks import broadcast_strides, mask_arguments
from limelight.reference import Gradients, State

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# Interpreted, or compiled for a chip that is not here by a torch that knows the CPU alone.
NOWHERE = INTERPRETED or not hasattr(torch._C, "_cuda_getDevice")
if INTERPRETED:
    interpreter.adapt()


KEPT = 4096  # layouts whose plan is remembered
Run = Callable[[Call], State]
Back = Callable[..., Gradients]  # of a call, its state and the gradients of its results
Room = Callable[[Call, bool], Run]  # what makes room for the results, with health or without
_plans: dict[Any, Any] = {}
_launches: dict[Any, Launch] = {}
_compiled: dict[Any, direct.Compiled] = {}
_knobs = triton.knobs.runtime


def device_of(call: Call) -> AbstractContextManager[Any]:
    """The context in which a call's kernels start: its own device, where there are several."""
    device = call.query.device
    if device.type != "cuda" or device.index == torch._C._cuda_getDevice():
        return nullcontext()
    return torch.cuda.device(device)


def layout(call: Call) -> tuple[Any, ...]:
    """All of a call except its numbers: what decides how it is run."""
    q, k, v, allowed = call.query, call.key, call.value, call.allowed
    share, seed = (0.0, None) if call.dropout is None else (call.dropout.p, call.dropout.seed)
    others = tuple([
        None if x is None else (x.shape, x.stride(), x.dtype, x.data_ptr() % 16 == 0)
        for x in (call.bias, call.sinks, allowed.dense, seed)
    ])  # fmt: skip
    return (
        q.shape, q.stride(), q.data_ptr() % 16 == 0, k.shape, k.stride(), k.data_ptr() % 16 == 0,
        v.shape, v.stride(), v.data_ptr() % 16 == 0, q.dtype, q.get_device(), call.scale,
        call.softcap, allowed.band, None if allowed.spans is None else allowed.spans.shape, share,
        others,
    )  # fmt: skip


def planned(make: Callable[..., Any], call: Call, *options: Any) -> Any:
    """How calls of this layout are run, as `make(call, *options)` says; it is asked once."""
    key = (make, options, layout(call))
    run = _plans.get(key)
    if run is None:
        run = make(call, *options)
        if len(_plans) >= KEPT:
            _plans.clear()
        _plans[key] = run
    return run


def _watched() -> bool:
    hook = _knobs.launch_enter_hook
    return bool(getattr(hook, "calls", hook))


class Described(NamedTuple):
    """A tensor [B, H, N, D] that TMA moves in blocks of so many rows and columns.

    In shared memory rows are swizzled by so many bytes.
    """

    tensor: torch.Tensor
    rows: int
    size: int
    swizzle: int = 128


def reader(tensor: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """How TMA can read tensors of this layout (16-byte strides, last axis contiguous)."""
    strides = tensor.stride()
    fits = strides[3] == 1 and tensor.data_ptr() % 16 == 0
    for axis in range(3):
        if tensor.shape[axis] > 1 and (strides[axis] <= 0 or strides[axis] % 8):
            fits = False
    if not fits:
        return lambda tensor: tensor.contiguous()
    if any(stride % 8 for stride in strides[:3]):
        # An axis of one element may have any stride; give it one that TMA takes.
        taken = [s if s % 8 == 0 else 8 for s in strides[:3]] + [1]
        return lambda tensor: tensor.as_strided(tensor.shape, taken)
    return lambda tensor: tensor


class Launch:
    """A kernel with its constants, for arguments of one kind; Described ones first, of one layout.

    The first launch goes through Triton, which binds, specialises and compiles; later ones go to
    the compiled kernel directly, with TMA's descriptors kept by address, and save most of the
    host's time. A profiler that hooks into launches, and another Triton than the one this was
    checked with, see them all through Triton.
    """

    def __init__(self, kernel: Any, constants: tuple[Any, ...], **options: int) -> None:
        self.kernel, self.constants, self.options = kernel, constants, options
        self.compiled: direct.Compiled | None = None
        self.descriptors: dict[tuple[int, int], list[Any]] = {}

    @property
    def ready(self) -> bool:
        """Whether the next launch goes to the compiled kernel, which takes addresses too."""
        return self.compiled is not None and not _watched()

    def __call__(self, programs: int, *arguments: Any) -> None:
        compiled = self.compiled
        if compiled is None or _watched():
            compiled = self._first(programs, arguments)
            if compiled is None:
                return
        launch, before, layouts = compiled
        every = self._described(arguments, layouts) if layouts else arguments
        device = torch._C._cuda_getDevice()
        launch(*before, device, torch._C._cuda_getCurrentRawStream(device), programs, *every)

    def _first(self, programs: int, arguments: tuple[Any, ...]) -> direct.Compiled | None:
        """What other layouts compiled for such arguments, or None where Triton has launched it."""
        key = (id(self.kernel), _current(), _kind(arguments, self.kernel), self.constants,
               tuple(self.options.values()))  # fmt: skip
        self.compiled = _compiled.get(key)
        if self.compiled is None or _watched():
            made = self.kernel[(programs,)](*bound(arguments), *self.constants, **self.options)
            self.compiled = direct.compiled(made, len(arguments))
            if self.compiled is not None:
                _compiled[key] = self.compiled
            return None
        return self.compiled

    def _described(self, arguments: tuple[Any, ...], layouts: list[Any]) -> list[Any]:
        """The arguments with their descriptors."""
        found: list[Any] = []
        count = len(layouts)
        for i in range(count):
            tensor = arguments[i].tensor
            key = i, tensor.data_ptr()
            descriptor = self.descriptors.get(key)
            if descriptor is None:
                if len(self.descriptors) >= KEPT:
                    self.descriptors.clear()
                descriptor = self.descriptors[key] = direct.descriptor(tensor, layouts[i])
            found += descriptor
        return [*found, *arguments[count:]]


def _current() -> int:
    return -1 if NOWHERE else torch._C._cuda_getDevice()


def bound(arguments: tuple[Any, ...]) -> list[Any]:
    """Arguments as Triton binds them."""
    if not any(isinstance(argument, Described) for argument in arguments):
        return list(arguments)
    from limelight.engines.gpu.hopper_forward import describe

    return [describe(*x) if isinstance(x, Described) else x for x in arguments]


@lru_cache(KEPT)
def _unspecialised(kernel: Any) -> frozenset[int]:
    """The arguments whose numbers a kernel is not compiled for anew."""
    params = getattr(kernel, "params", ())  # an interpreted one has none
    return frozenset(param.num for param in params if param.do_not_specialize)


def _kind(arguments: tuple[Any, ...], kernel: Any = None) -> tuple[Any, ...]:
    """What Triton compiles arguments for: types, and whether a number is 1 or a multiple of 16."""
    loose = _unspecialised(kernel) if kernel is not None else ()
    found: list[Any] = []
    for i, argument in enumerate(arguments):
        kind = type(argument)
        if kind is int:
            small = -(1 << 31) <= argument < 1 << 31
            if i in loose:
                found.append(small)
            else:
                found.append(1 if argument == 1 else (argument % 16 == 0, small))
        elif kind is float or argument is None:
            found.append(kind)
        elif kind is Described:
            found.append((argument.tensor.dtype, *argument[1:]))
        elif isinstance(argument, torch.Tensor):
            found.append((argument.dtype, argument.data_ptr() % 16 == 0))
        elif isinstance(argument, tuple):
            found.append(_kind(argument))
        else:
            found.append(kind)
    return tuple(found)


def start(
    kernel: Any, programs: int, arguments: tuple[Any, ...],
    constants: tuple[Any, ...], **options: int,
) -> None:  # fmt: skip
    """Launch a kernel on the current stream, by the launch kept for arguments of this kind."""
    key = (id(kernel), _current(), _kind(arguments, kernel), constants, tuple(options.values()))
    kept = _launches.get(key)
    if kept is None:
        kept = _launches[key] = Launch(kernel, constants, **options)
    kept(programs, *arguments)


def power_of_two(size: int, least: int = 16) -> int:
    return max(least, 1 << max(size - 1, 0).bit_length())


def plain(tensor: torch.Tensor) -> Any:
    """A tensor of four axes as the kernels' Array."""
    from limelight.engines.gpu.cells import Array

    return Array(tensor, *tensor.stride())


def inputs(call: Call) -> tuple[Any, Any, Any]:
    return plain(call.query), plain(call.key), plain(call.value)


def where_of(call: Call) -> tuple[Any, bool, int]:
    """The mask as arguments: (Where, whether it has a band, spans a row)."""
    mask = mask_arguments(call.allowed, call.query.device)
    return mask.where, mask.band, mask.slots


def form_of(call: Call) -> Any:
    from limelight.engines.gpu.cells import Form

    strides = (0, 0, 0, 0) if call.bias is None else broadcast_strides(call.bias, 4)
    parts = (call.scale, call.softcap, call.bias, *strides, *drop_of(call))
    return Form(*parts)


def lasting_form(call: Call) -> Any:
    """The form that calls of this layout share; None where a bias or a seed is each call's own."""
    return None if call.bias is not None or call.dropout is not None else form_of(call)


def drop_of(call: Call) -> tuple[torch.Tensor | None, int | None, float | None]:
    """Seed, threshold and factor of dropout, None where nothing falls."""
    drop = call.dropout
    if drop is None or drop.p == 0.0:
        return None, None, None
    return drop.seed.contiguous(), drop.threshold, drop.scale


def sizes_of(call: Call) -> Any:
    from limelight.engines.gpu.forward import Sizes

    return Sizes(
        call.batch, call.queries, call.keys, call.head_size, call.value_size,
        call.query_heads, call.group,
    )  # fmt: skip


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


def output_strides(call: Call) -> tuple[int, ...]:
    """Of [B, Hq, Nq, Dv] with its axes in the query's order."""
    return _strides_like((*call.query.shape[:3], call.value_size), call.query.stride())


def output_room(call: Call) -> Callable[[torch.Tensor], torch.Tensor]:
    """From a query of this layout to an empty [B, Hq, Nq, Dv], its axes in the query's order."""
    shape, strides = (*call.query.shape[:3], call.value_size), output_strides(call)
    if shape == call.query.shape and call.query.is_contiguous():
        return torch.empty_like
    return lambda like: torch.empty_strided(shape, strides, dtype=like.dtype, device=like.device)


def shape_of(shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """A float32 tensor of that shape in one number's memory, for `empty`."""
    return kept.number(device).expand(shape)


def empty(like: torch.Tensor) -> torch.Tensor:
    """In a third of the time that torch.empty takes to read shape, type and device."""
    return torch.empty_like(like, memory_format=torch.contiguous_format)


def empty_state(call: Call, health: bool) -> Run:
    """What makes room for the results of calls of this layout."""
    output = output_room(call)
    rows = shape_of(call.query.shape[:3], call.query.device)
    if health:
        return lambda call: State(output(call.query), empty(rows), empty(rows), empty(rows))
    return lambda call: State(output(call.query), empty(rows))


class Together(State):
    """A state whose statistics lie one after the other: they become tensors when asked for."""

    numbers: torch.Tensor
    first: int  # of them
    count: int  # of rows

    def __init__(self, output: torch.Tensor, count: int, numbers: torch.Tensor, first: int) -> None:
        own = self.__dict__
        own["output"], own["count"], own["numbers"], own["first"] = output, count, numbers, first

    def _figure(self, place: int) -> torch.Tensor:
        start = self.first + place * self.count
        # As data: who writes into one figure has not changed the others, for autograd too.
        return self.numbers.data[start : start + self.count].view(self.output.shape[:3])

    logsumexp = property(lambda self: self._figure(0))
    max_logit = property(lambda self: self._figure(1))
    entropy = property(lambda self: self._figure(2))


def lean_state(call: Call, health: bool) -> Run:
    """The same, sooner made: without health for the output alone, with it all figures together.

    Where health is not asked for the logsumexp is lost.
    """
    output, device, shape = output_room(call), call.query.device, call.query.shape[:3]
    count = shape.numel()
    if not health:
        lost = kept.room(device, count, "logsumexp")
        return lambda call: State(output(call.query), lost())
    if count % 4:  # each of them starts at a multiple of 16 bytes, as kernels like it
        return empty_state(call, health)
    numbers = kept.piece(device, 3 * count)
    return lambda call: Together(output(call.query), count, *numbers())


def statistics(state: State, ready: bool) -> tuple[Any, Any, Any]:
    """Logsumexp, maximum and entropy as arguments of a kernel; by address where it is ready."""
    if ready and type(state) is Together:
        first, step = state.numbers.data_ptr() + 4 * state.first, 4 * state.count
        return first, first + step, first + 2 * step
    return state.logsumexp, state.max_logit, state.entropy


def trivial(call: Call, health: bool) -> State | None:
    """The answer where there is nothing to compute: no rows, or no keys at all."""
    if not call.empty:
        return None
    state = empty_state(call, health)(call)
    state.output.zero_()
    if call.sinks is None:
        state.logsumexp.fill_(float("-inf"))
    else:
        state.logsumexp.copy_(call.sinks.detach().float()[None, :, None].expand_as(state.logsumexp))
    if health:
        state.max_logit.fill_(float("-inf"))
        state.entropy.zero_()
    return state
