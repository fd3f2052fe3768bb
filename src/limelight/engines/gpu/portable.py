"""How the portable kernels run a forward pass: a program a tile of rows, or keys in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch

from limelight.call import Call
from limelight.engines.gpu import blocks, kept, launch
from limelight.engines.gpu.again import again_kernel
from limelight.engines.gpu.cells import Array
from limelight.engines.gpu.decode import decode_kernel
from limelight.engines.gpu.forward import Rows, forward_kernel
from limelight.reference import State

# A named tuple of its fields, in a third of the time that its own constructor takes.
_array, _rows = partial(tuple.__new__, Array), partial(tuple.__new__, Rows)
TINY = 1e-37  # a scale below it is 0
TINY_KEYS = 512  # half as many of wide rows


def forward(call: Call, health: bool, room: launch.Room) -> launch.Run:
    """How calls of this layout are run: a program a tile of rows, or split over the keys."""
    split = blocks.packs(call) and call.keys > 2 * blocks.forward(call).keys
    return fitting_run(decode if split else small if tiny(call) else tiles, call, health, room)


def tiny(call: Call) -> bool:
    """Whether launching a call takes longer than computing it."""
    programs = -(-call.queries // 64) * call.batch * call.query_heads
    wide = max(call.head_size, call.value_size) > 128 or call.query.element_size() > 2
    most = TINY_KEYS // 2 if wide else TINY_KEYS
    return call.keys <= most and programs <= blocks.chip(call.query.device).processors


def fitting_run(
    plan: Callable[[Call, bool, launch.Room], launch.Run], call: Call, health: bool,
    room: launch.Room,
) -> launch.Run:  # fmt: skip
    """The plan's run; sizes that do not fit and scales that are not positive by way of
    a copy that does."""
    wide = upright(blocks.fitted(call))
    run = plan(wide, health, room)
    if wide is call:
        return run
    size = call.value_size

    def padded(call: Call) -> State:
        state = run(upright(blocks.fitted(call)))
        output = blocks.cut(state.output, size)
        return State(output, state.logsumexp, state.max_logit, state.entropy)

    return padded


def upright(call: Call) -> Call:
    """The call with a positive scale: the queries take its sign, or its 0."""
    if call.scale > TINY:
        return call
    if call.scale < -TINY:
        return replace(call, query=-call.query, scale=-call.scale)
    return replace(call, query=call.query * 0.0, scale=1.0)


def tiles(call: Call, health: bool, room: launch.Room) -> launch.Run:
    """One program a tile of rows, and with care what something masked spoilt."""
    passes = [_tiles(call, health, care=False, again=False)]
    if call.hides:
        passes.append(_tiles(call, health, care=True, again=True))
    return _in_turn(call, health, room, passes)


def small(call: Call, health: bool, room: launch.Room) -> launch.Run:
    """The same in one launch, with care at once."""
    once = _tiles(call, health, care=call.hides, again=False)
    return _in_turn(call, health, room, [once])


def _in_turn(
    call: Call, health: bool, room: launch.Room, passes: list[tuple[int, launch.Launch]]
) -> launch.Run:
    numbers, empty = Numbers.of(call), room(call, health)

    def run(call: Call) -> State:
        state = empty(call)
        for programs, kernel in passes:
            kernel(programs, *numbers.around(call, state, kernel.ready))
        return state

    return run


def _tiles(call: Call, health: bool, care: bool, again: bool) -> tuple[int, launch.Launch]:
    _, band, spans = launch.where_of(call)
    programs, constants, options = tile_kernel(call, health, band, spans, care, again)
    return programs, launch.Launch(forward_kernel, constants, **options)


class Kernel(NamedTuple):
    """How a kernel is started for a call: programs, constants, what Triton is told."""

    programs: int
    constants: tuple[Any, ...]
    options: dict[str, int]


def tile_kernel(
    call: Call, health: bool, band: bool, spans: int, care: bool, again: bool
) -> Kernel:
    """The forward kernel, for a mask with a band or not and with so many spans a row."""
    tile = blocks.square(call) if care else blocks.forward(call)
    programs = -(-call.queries // tile.rows) * call.batch * call.query_heads
    constants = (tile.rows, tile.keys, *_form(call, health, band, spans), care, again)
    return Kernel(
        programs, constants,
        {"num_warps": tile.warps, "num_stages": 1 if care else tile.stages},
    )  # fmt: skip


def split_kernel(call: Call, health: bool, band: bool, spans: int) -> tuple[Kernel, int, int]:
    """The decode kernel, the keys of a part, and the numbers that lie between parts: 0 for one."""
    tile = blocks.decode(call)
    keys, parts = blocks.in_parts(call, tile)
    programs = call.batch * call.key_heads * parts
    constants = (tile.rows, tile.keys, *_form(call, health, band, spans), parts > 1)
    between = programs * tile.rows * (blocks.widths(call)[1] + 3) if parts > 1 else 0
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    return Kernel(programs, constants, options), keys, between


def between_parts(call: Call, numbers: int) -> Callable[[], tuple[Any, Any]]:
    """What gives room for what parts leave, and their counters; None of both where there is one."""
    if not numbers:
        return lambda: (None, None)
    device = call.query.device
    left = kept.room(device, numbers, "parts")
    counters = kept.zeros(device, call.batch * call.key_heads)
    return lambda: (left(), counters())


def _form(call: Call, health: bool, band: bool, spans: int) -> tuple[Any, ...]:
    sinks = call.sinks is not None
    return *blocks.widths(call), health, band, spans, sinks, launch.precision_of(call)


@dataclass(frozen=True)
class Numbers:
    """The arguments of a forward kernel that calls of one layout share.

    `where` is None where the mask has arrays, `form` where there is a bias or a seed: those differ
    from call to call.
    """

    query: tuple[Any, ...]  # of each array all but the pointer
    key: tuple[Any, ...]
    value: tuple[Any, ...]
    output: tuple[Any, ...]
    where: Any
    form: Any
    sizes: Any

    @staticmethod
    def of(call: Call) -> Numbers:
        arrays = call.allowed.spans is not None or call.allowed.dense is not None
        strides = (x.stride() for x in (call.query, call.key, call.value))
        query, key, value = (Array(None, *x)[1:] for x in strides)
        return Numbers(
            query=query, key=key, value=value,
            output=Array(None, *launch.output_strides(call))[1:],
            where=None if arrays else launch.where_of(call)[0],
            form=launch.lasting_form(call),
            sizes=launch.sizes_of(call),
        )  # fmt: skip

    def around(self, call: Call, state: State, ready: bool) -> tuple[Any, ...]:
        """The arguments for one call; `ready` where its kernel is, and takes addresses."""
        return (
            _array((call.query, *self.query)), _array((call.key, *self.key)),
            _array((call.value, *self.value)), self.where or launch.where_of(call)[0],
            self.form or launch.form_of(call), call.sinks, _array((state.output, *self.output)),
            _rows(launch.statistics(state, ready)), self.sizes,
        )  # fmt: skip


def decode(call: Call, health: bool, room: launch.Room) -> launch.Run:
    """Few queries against many keys: rows packed over the heads of a group, keys in parts."""
    _, band, spans = launch.where_of(call)
    (programs, constants, options), keys, between = split_kernel(call, health, band, spans)
    kernel = launch.Launch(decode_kernel, constants, **options)
    numbers, empty, parts = Numbers.of(call), room(call, health), between_parts(call, between)

    def run(call: Call) -> State:
        state = empty(call)
        kernel(programs, *numbers.around(call, state, kernel.ready), keys, *parts())
        return state

    return run


def again(call: Call, health: bool, count: int) -> Callable[[Call, State, torch.Tensor], None]:
    """Compute with care those of `count` tiles of 64 rows whose flag is raised."""
    _, band, spans = launch.where_of(call)
    size = launch.power_of_two(max(call.head_size, call.value_size))
    flags = 64  # that a program looks at
    kernel = launch.Launch(
        again_kernel,
        (flags, 64, 32 if size > 128 else 64, *blocks.widths(call), health, band, spans,
         call.sinks is not None, launch.precision_of(call)),
        num_warps=4, num_stages=1, launch_pdl=True,
    )  # fmt: skip
    numbers = Numbers.of(call)

    def run(call: Call, state: State, scratch: torch.Tensor) -> None:
        kernel(-(-count // flags), scratch, count, *numbers.around(call, state, kernel.ready))

    return run
