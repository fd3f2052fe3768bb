"""The engine for H100 and H200: Gluon kernels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from limelight.call import Call
from limelight.reference import Gradients, State

if TYPE_CHECKING:
    from limelight.engines.gpu.launch import Back, Room, Run
    from limelight.engines.gpu.masks import MaskArguments

LOG2E = math.log2(math.e)
L2_SHARE = 16 << 20  # bytes of keys and values of the heads whose tiles run together
LARGEST = 256  # head size
OLDEST = (3, 6)  # Triton, whose Gluon has what the kernels use
PACKED_ROWS = 64  # up to so many rows a key head the keys are split, and heads packed
GENTLE = 64.0  # softcap
FILL = 1e30  # |logit| of a forbidden cell, in base 2


def missing() -> str | None:
    from limelight.engines.gpu import absent

    if lacking := absent(OLDEST):
        return lacking
    import torch

    if not torch.cuda.is_available():
        return "torch sees no GPU here"
    major, minor = torch.cuda.get_device_capability()
    if major != 9:
        return f"it needs a Hopper GPU (compute capability 9.0), and this one is {major}.{minor}"
    return None


def cannot(call: Call) -> str | None:
    size = max(call.head_size, call.value_size)
    if size > LARGEST:
        return f"it takes head sizes up to {LARGEST}, and this one is {size}"
    if call.value_size == 0:
        return "it needs values, and the call has none"
    if not 1e-30 < abs(call.scale) < 1e30:
        return f"it takes scales of 1e-30 to 1e30, either sign, and this one is {call.scale:g}"
    return None


@dataclass(frozen=True)
class Tile:
    """How a head size is tiled: consumer warpgroups of 64 rows, keys a block, buffers, registers.

    `query_in_registers` spares shared-memory bandwidth; `overlap` is the order of a warpgroup's
    work, see `gpu/hopper_forward.py`.
    """

    consumers: int
    keys: int
    stages: int
    registers: int
    query_in_registers: bool
    overlap: bool


def tile_for(
    size: int, value_size: int, queries: int, keys: int, band: bool, busy: bool, more: bool
) -> Tile:
    """The tile for padded sizes (64, 128 or 256), as measured on an H200 at 2k to 16k.

    `more`: dropout, a softcap or a bias take registers that three warpgroups do not have.
    """
    largest = max(size, value_size)
    if largest == 256:
        return Tile(2, 64, 2, 168, False, not busy)
    if busy:  # a softcap, a bias or a mask read cell by cell needs the registers
        return Tile(2, 128, 2, 168, False, False)
    if largest == 128:
        return Tile(2, 128, 2, 168, True, False)
    empty = -(-queries // 192) * 192 > 1.06 * queries  # of three warpgroups' last rows
    if empty or more or (keys < 8192 and band):
        return Tile(2, 128, 4, 168, True, False)
    return Tile(3, 128, 4, 128, False, False)


def padded(size: int) -> int:
    return 64 if size <= 64 else 128 if size <= 128 else 256


def forward(call: Call, *, health: bool) -> State:
    from limelight.engines.gpu import launch

    with launch.device_of(call):
        done = launch.trivial(call, health)
        return plan(call, health, launch.empty_state)(call) if done is None else done


def _plan(call: Call, health: bool, room: Room) -> Run:
    from limelight.engines.gpu import portable

    if portable.tiny(call) or (call.queries * call.group <= PACKED_ROWS and call.keys > 128):
        return portable.forward(call, health, room)
    return portable.fitting_run(tiles, call, health, room)


def plan(call: Call, health: bool, room: Room) -> Run:
    """How calls of this layout are run on the current device; the call is not empty."""
    from limelight.engines.gpu import launch

    run: Run = launch.planned(_plan, call, health, room)
    return run


def tiles(call: Call, health: bool, room: Room) -> Run:
    """How calls of this layout are run: the Gluon kernel, and with care what that one flagged."""
    from limelight.engines.gpu import blocks, hopper_forward, hopper_powers, kept, launch, portable
    from limelight.engines.gpu.masks import broadcast_strides, in_pairs, in_tiles, mask_arguments

    device = call.query.device
    batch, heads, nq, nk = call.batch, call.query_heads, call.queries, call.keys
    d, dv = padded(call.head_size), padded(call.value_size)
    mask = mask_arguments(call.allowed, device)
    quick = max(d, dv) <= 128 and not health and gentle(call)
    bends = gentle(call) and call.bias is None
    bent = call.softcap is not None and not quick
    tiled = max(d, dv) <= 128 and in_tiles(call)
    busy = bent or (call.bias is not None and not tiled) or mask.dense is not None
    drops = launch.drop_of(call)[0] is not None
    tile = tile_for(
        d, dv, nq, nk, mask.band, busy or mask.slots > 1, drops or tiled or call.softcap is not None
    )
    rows, keys = 64 * tile.consumers, tile.keys
    count = -(-nq // rows)
    mode = 2 if mask.dense is not None or mask.slots > 1 else mask.slots
    # Each tile's first block then has the diagonal from corner to corner.
    half = (
        mode == 0 and mask.band and rows == keys == 128
        and mask.high % 128 == 0 and 0 <= mask.high <= nk - nq
    )  # fmt: skip
    arrays = [array for array in (call.bias, mask.dense) if array is not None]
    c = LOG2E * unit(call, tiled)
    config = hopper_forward.Config(
        D=d, DV=dv, BN=keys, STAGES=tile.stages, CONSUMERS=tile.consumers, HEALTH=health,
        MODE=mode, MASKED=not mask.everything or nk % keys != 0 or call.bias is not None,
        PAIRS=nk % keys == 0 and bool(arrays) and all(map(in_pairs, arrays)),
        BAND=mask.band, LEFT=mask.band and mask.low > 1 - nq, SPANS=mask.slots,
        DENSE=mask.dense is not None, BIAS=call.bias is not None, TILED=tiled,
        SOFTCAP=call.softcap is not None, GENTLE=gentle(call), SINKS=call.sinks is not None,
        DROP=drops,
        QREG=tile.query_in_registers, EARLY=tile.query_in_registers and not mask.band and not tiled,
        OVERLAP=tile.overlap, HALF=half,
        ALIAS=d == dv == 256, BM=rows,
    )  # fmt: skip
    processors = blocks.chip(device).processors
    wished = max(4, call.group, L2_SHARE // (2 * nk * (d + dv)))
    section = blocks.together(batch * heads, wished, count, processors)
    total = batch * heads * count
    flags = batch * heads * -(-nq // 64)
    cap = call.softcap or 1.0
    bend = hopper_powers.bend_of(call.scale / cap, c, cap) if bends else None
    sizes = (
        heads, call.group, nq, nk, count, batch * heads, section, total,
        call.scale / cap, c, max(-FILL / c, -1e38), cap,
    )  # fmt: skip
    bias_strides = (0, 0, 0, 0) if call.bias is None else broadcast_strides(call.bias, 4)
    ending = None if mode else _mask_arguments(call, mask, rows, keys)
    programs = min(total, processors)
    kernel = launch.Launch(
        hopper_forward.forward_kernel, (config,), num_warps=4, maxnreg=tile.registers,
        launch_pdl=True,
    )  # fmt: skip
    again = portable.again(call, health, flags)
    read_query, read_key, read_value = (
        launch.reader(x) for x in (call.query, call.key, call.value)
    )
    read_bias = launch.reader(call.bias) if tiled else None
    described, empty = launch.Described, room(call, health)
    counters = kept.zeros(device, flags + 2)  # two, then a flag for 64 rows

    def run(call: Call) -> State:
        state, scratch = empty(call), counters()
        masks = ending
        if masks is None:
            mask = mask_arguments(call.allowed, device)
            masks = _mask_arguments(call, mask, rows, keys)
        kernel(
            programs,
            described(read_query(call.query), 64, d), described(read_key(call.key), keys, d),
            described(read_value(call.value), keys, dv), described(state.output, 64, dv),
            described(read_bias(call.bias), 64, keys) if read_bias else None,
            *launch.statistics(state, kernel.ready), scratch, *sizes, call.sinks, *masks,
            call.bias, *bias_strides, *launch.drop_of(call), bend,
        )  # fmt: skip
        again(call, state, scratch)
        return state

    return run


def unit(call: Call, tiled: bool) -> float:
    """What makes logits of the numbers that the kernels' exponents are of.

    Those are dot products, tanh of them under a softcap, and logits as they are with a bias, unless
    that comes in tiles, divided by the scale.
    """
    if tiled:
        return call.scale
    return 1.0 if call.bias is not None else call.softcap or call.scale


def gentle(call: Call) -> bool:
    """Whether a softcap is so low that a quick tanh is exact enough, and its powers numbers."""
    return (
        call.softcap is not None and call.softcap <= GENTLE
        and 1e-5 < abs(call.scale) / call.softcap < 1e5
    )  # fmt: skip


def _mask_arguments(call: Call, mask: MaskArguments, rows: int, keys: int) -> tuple[Any, ...]:
    """The mask and, where it has arrays, the plan of blocks, in the order of the kernel."""
    from limelight.engines.gpu import plan

    table = listed = None
    if mask.dense is not None or mask.slots > 1:
        table, listed = plan.lists(call, mask, mask.where, rows, keys)
    elif mask.slots == 1:
        table = plan.ranges(call, mask, rows)
    strides = (0, 0)
    if table is not None:
        count = -(-call.queries // rows)
        per_head = 0 if table.shape[1] == 1 else count
        strides = (0 if table.shape[0] == 1 else table.shape[1] * count, per_head)
    return (
        mask.low, mask.high, table, *strides, listed, 0 if listed is None else listed.shape[-1],
        mask.spans, *mask.spans_strides, mask.dense, *mask.dense_strides,
    )  # fmt: skip


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
    from limelight.engines.gpu import gradients, hopper_gradients, launch

    if not hopper_gradients.can(call):
        return gradients.backward
    back: Back = launch.planned(hopper_gradients.make, call)
    return back
