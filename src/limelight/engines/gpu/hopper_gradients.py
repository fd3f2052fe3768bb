"""How the Hopper backward is run: what it needs of each row, the one pass, and care."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from limelight.call import Call
from limelight.engines import hopper
from limelight.engines.gpu import blocks, gradients, kept, launch, plan
from limelight.engines.gpu.again import gradients_again_kernel
from limelight.engines.gpu.backward import Numbers
from limelight.engines.gpu.edges import after_kernel, before_kernel
from limelight.engines.gpu.gradients import Figure
from limelight.engines.gpu.hopper_backward import KEYS, Config, backward_kernel
from limelight.engines.gpu.masks import (
    MaskArguments,
    broadcast_strides,
    in_tiles,
    mask_arguments,
)
from limelight.reference import Gradients, State

LOG2E = math.log2(math.e)
LARGEST = 128  # head size
L2_SHARE = 32 << 20  # bytes of rows and their gradients of the heads whose tiles run together
DRIFTING = 34 << 20  # the same of heads whose tiles run together and are of different length
Run = Callable[[Call, State, torch.Tensor, Figure, Figure, bool], Gradients]


@dataclass(frozen=True)
class Tile:
    """How a head size is tiled: rows of an item, buffers of queries, order of a consumer's work."""

    rows: int
    stages: int
    defer: bool


def tile_for(size: int, busy: bool, crowded: bool, short: bool) -> Tile:
    """The tile for a padded size (64 or 128), as measured on an H200 at 2k to 16k.

    `busy` where there is more to a cell than its weight and whether it falls, `crowded` where that
    leaves no registers to defer anything, `short` where it takes room in shared memory.
    """
    if size == 128:
        return Tile(64, 2 if short else 3, not crowded)
    if busy:
        return Tile(64, 3, True)
    return Tile(128, 2, False)


def heads_taken(call: Call, mask: MaskArguments, bytes_a_row: int, processors: int) -> int:
    """How many of the query heads that share a key head one program takes.

    Under a diagonal alone, tiles are of different length: of many heads they drift apart, until
    the rows that are in use no longer fit L2.
    """
    level = not mask.band or mask.low > 1 - call.queries or mask.dense is not None or mask.slots > 0
    if level or call.batch * call.query_heads * call.queries * bytes_a_row <= DRIFTING:
        return call.group
    return min(call.group, max(1, round(DRIFTING / (processors * KEYS * bytes_a_row))))


def can(call: Call) -> bool:
    """Whether the kernel takes a call: a program has 128 keys and all of a head's columns."""
    return not call.empty and max(call.head_size, call.value_size) <= LARGEST


def make(call: Call) -> launch.Back:
    """How gradients of calls of this layout are computed."""
    runs: dict[Any, Run] = {}

    def back(
        call: Call, state: State, grad_output: torch.Tensor, g: Figure, h: Figure, with_bias: bool
    ) -> Gradients:
        if torch.are_deterministic_algorithms_enabled():  # here dQ is summed in any order
            return gradients.backward(call, state, grad_output, g, h, with_bias)
        logsumexp, entropy = state.logsumexp, None
        if g is not None or h is not None:
            g, h = gradients.dense(g), gradients.dense(h)
            entropy = None if h is None else gradients.dense(state.entropy)
        if not logsumexp.is_contiguous():
            logsumexp = logsumexp.contiguous()
        output = state.output
        places = [
            None if x is None else x.data_ptr() % 16
            for x in (output, grad_output, logsumexp, entropy, g, h)
        ]
        kind = output.stride(), grad_output.stride(), *places
        run = runs.get(kind)
        if run is None:
            run = runs[kind] = _fitting(call, grad_output, h is not None)
        return run(call, State(output, logsumexp, None, entropy), grad_output, g, h, with_bias)

    return back


def _fitting(call: Call, grad_output: torch.Tensor, by_entropy: bool) -> Run:
    """The run for tensors that lie like these; sizes that do not fit by way of a copy that does."""
    wide = blocks.fitted(call)
    if wide is call:
        return _make(call, grad_output, by_entropy)
    size = wide.value_size
    run = _make(wide, blocks.pad(grad_output, size), by_entropy)

    def padded(
        call: Call, state: State, grad_output: torch.Tensor, g: Figure, h: Figure, with_bias: bool
    ) -> Gradients:
        output, grad = blocks.pad(state.output, size), blocks.pad(grad_output, size)
        given = State(output, state.logsumexp, None, state.entropy)
        grads = run(blocks.fitted(call), given, grad, g, h, with_bias)
        return Gradients(
            query=blocks.cut(grads.query, call.head_size),
            key=blocks.cut(grads.key, call.head_size),
            value=blocks.cut(grads.value, call.value_size),
            bias=grads.bias,
            sinks=grads.sinks,
        )

    return padded


def _make(call: Call, grad_output: torch.Tensor, by_entropy: bool) -> Run:
    device = call.query.device
    batch, heads, nq, nk = call.batch, call.query_heads, call.queries, call.keys
    d, dv = (64 if size <= 64 else 128 for size in (call.head_size, call.value_size))
    mask = mask_arguments(call.allowed, device)
    drops = launch.drop_of(call)[0] is not None
    tiled = in_tiles(call) and not (drops and max(d, dv) > 64)
    read = call.bias is not None and not tiled  # cell by cell
    crowded, short = by_entropy or drops or read, by_entropy or drops or tiled
    more = call.softcap is not None or mask.dense is not None or mask.slots > 1
    busy = by_entropy or call.bias is not None or more
    tile = tile_for(max(d, dv), busy, crowded, short)
    rows, listed = tile.rows, mask.dense is not None or mask.slots > 0
    processors, bytes_a_row = blocks.chip(device).processors, 6 * d + 2 * dv
    taken = heads_taken(call, mask, bytes_a_row, processors)
    config = Config(
        D=d, DV=dv, ROWS=rows, STAGES=tile.stages, OSTAGES=2, LISTED=listed, BAND=mask.band,
        LEFT=mask.band and mask.low > 1 - nq, SPANS=mask.slots, DENSE=mask.dense is not None,
        BIAS=call.bias is not None, TILED=tiled, SOFTCAP=call.softcap is not None,
        GENTLE=hopper.gentle(call), ENTROPY=by_entropy, DROP=drops,
        DEFER=tile.defer, SHARED=taken < call.group,
    )  # fmt: skip
    padded, tiles = -(-nq // rows) * rows, -(-nk // KEYS)
    parts = -(-call.group // taken)
    key_heads = batch * call.key_heads * parts
    total = tiles * key_heads
    # The rows of a group are too many for L2 if many of its tiles run together.
    least = -(-2 * processors // tiles) if taken == 1 else max(1, round(processors / tiles))
    wished = max(least, L2_SHARE // (nq * taken * bytes_a_row))
    section = blocks.together(key_heads, wished, tiles, processors)
    unit = hopper.unit(call, tiled)
    row_flags = batch * heads * -(-nq // 64)
    flags = row_flags + batch * call.key_heads * -(-nk // 64)
    numbers = (
        heads, call.group, taken, nq, nk, tiles, key_heads, section, total, call.scale,
        LOG2E * unit, call.softcap or 1.0, call.scale / (call.softcap or 1.0), mask.low, mask.high,
    )  # fmt: skip
    bias_strides = (0, 0, 0, 0) if call.bias is None else broadcast_strides(call.bias, 4)
    fixed = _mask_arguments(call, mask, rows) if not listed else None
    before = launch.Launch(before_kernel, (64, d, launch.power_of_two(call.value_size)))
    main = launch.Launch(backward_kernel, (config,), num_warps=4, maxnreg=128)
    after, after_keys, after_values = (launch.Launch(after_kernel, (x,)) for x in (d, d, dv))
    again = launch.Launch(
        gradients_again_kernel,
        (64, 64, 32 if max(d, dv) > 64 else 64, *blocks.widths(call), mask.band, mask.slots,
         launch.precision_of(call)),
        num_stages=1, enable_fp_fusion=False,
    )  # fmt: skip
    where = None if listed else mask.where
    form = launch.lasting_form(call)
    read_query, read_key, read_value, read_grad = (
        launch.reader(x) for x in (call.query, call.key, call.value, grad_output)
    )
    read_bias = launch.reader(call.bias) if tiled else None
    sizes, described, count = launch.sizes_of(call), launch.Described, 4 if by_entropy else 2
    sums = launch.shape_of((batch, heads, padded * d // 256, 256), device)
    shared = [
        launch.shape_of((batch, call.key_heads, tiles * KEYS * size // 256, 256), device)
        for size in (d, dv)
    ]  # fmt: skip
    of_keys, of_values = (
        sizes._replace(nq=nk, heads=call.key_heads, d=size)
        for size in (call.head_size, call.value_size)
    )
    figures = launch.shape_of((batch, heads, count, padded), device)
    counters = kept.zeros(device, 2 + flags)  # two, then a flag for 64 rows or keys

    def run(
        call: Call, state: State, grad_output: torch.Tensor, g: Figure, h: Figure, with_bias: bool
    ) -> Gradients:
        query, key, value = read_query(call.query), read_key(call.key), read_value(call.value)
        grad_output = read_grad(grad_output)
        dq, stats = launch.empty(sums), launch.empty(figures)
        grads = [launch.empty(x) for x in (call.query, call.key, call.value)]
        scratch = counters()
        found = launch.plain(grads[0])
        ours = launch.plain(grad_output)
        entropy = None if h is None else state.entropy
        masks, place = fixed, where
        if masks is None:
            mask = mask_arguments(call.allowed, device)
            masks, place = _mask_arguments(call, mask, rows), mask.where
        before(
            batch * heads * -(-padded // 64),
            launch.plain(state.output), ours, state.logsumexp, g, entropy, h, stats, dq, sizes,
            padded,
        )  # fmt: skip
        added = [launch.empty(x).zero_() for x in shared] if parts > 1 else []
        main(
            min(total, processors),
            described(query, rows, d), described(grad_output, rows, dv),
            described(stats, count, rows, 0), described(key, KEYS, d), described(value, KEYS, dv),
            described(dq, 16, 256, 0),
            *[described(x, 8, 256, 0) for x in added] or [described(x, 64, 64) for x in grads[1:]],
            described(read_bias(call.bias), rows, 64) if read_bias else None,
            scratch, row_flags, *numbers, *masks, call.bias, *bias_strides,
            *launch.drop_of(call),
        )  # fmt: skip
        after(row_flags, dq, found, scratch, 0, call.scale, sizes, padded)
        if added:
            by_key, by_value = (launch.plain(x) for x in grads[1:])
            ending = scratch, row_flags, 1.0
            after_keys(flags - row_flags, added[0], by_key, *ending, of_keys, tiles * KEYS)
            after_values(flags - row_flags, added[1], by_value, *ending, of_values, tiles * KEYS)
        rest = Numbers(state.logsumexp, stats, padded, count * padded, h)
        again(
            -(-flags // 64), scratch, row_flags, flags, *launch.inputs(call), ours, rest,
            place, form or launch.form_of(call), found,
            launch.plain(grads[1]), launch.plain(grads[2]), sizes,
        )  # fmt: skip
        return Gradients(
            query=grads[0], key=grads[1], value=grads[2],
            bias=gradients.bias_gradient(call, grad_output, rest) if with_bias else None,
            sinks=None if call.sinks is None
            else gradients.sinks_gradient(call, state, stats[:, :, 1, :nq], h),
        )  # fmt: skip

    return run


def _mask_arguments(call: Call, mask: MaskArguments, rows: int) -> tuple[Any, ...]:
    """The mask and, where it has arrays, which rows see a tile of keys, in the kernel's order."""
    listed, strides, width = None, (0, 0), 0
    if mask.dense is not None or mask.slots > 0:
        listed = plan.keyed(call, mask, mask.where, rows, KEYS)
        batch, heads, tiles, width = listed.shape
        strides = (0 if batch == 1 else heads * tiles, 0 if heads == 1 else tiles)
    return (
        listed, *strides, width, mask.spans, *mask.spans_strides, mask.dense, *mask.dense_strides
    )  # fmt: skip
