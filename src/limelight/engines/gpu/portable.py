"""Launching the portable kernels: forward, decode, backward, pictures of the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import torch

from limelight.call import Call
from limelight.engines.gpu import kept, launch
from limelight.reference import Gradients, State


@dataclass(frozen=True)
class Blocks:
    """A tile of `rows` × `keys` cells, and how Triton runs it."""

    rows: int
    keys: int
    warps: int
    stages: int


def blocks_for(call: Call) -> Blocks:
    """Forward tiles that fit the shared memory of small GPUs."""
    if launch.INTERPRETED:
        return Blocks(64, 64, 4, 1)
    size = launch.power_of_two(max(call.head_size, call.value_size))
    wide = call.dtype == "float32"
    if size <= 64:
        return Blocks(64, 32, 4, 2) if wide else Blocks(128, 64, 4, 3)
    if size <= 128:
        return Blocks(32, 32, 4, 2) if wide else Blocks(128, 64, 8, 2)
    if size <= 256:
        return Blocks(32, 16, 4, 1) if wide else Blocks(64, 32, 4, 2)
    return Blocks(16, 16, 4, 1) if wide else Blocks(32, 16, 4, 1)


def backward_blocks_for(call: Call) -> Blocks:
    if launch.INTERPRETED:
        return Blocks(64, 64, 4, 1)
    size = launch.power_of_two(max(call.head_size, call.value_size))
    if call.dtype == "float32":
        return Blocks(32, 32, 4, 1) if size <= 64 else Blocks(16, 16, 4, 1)
    if size <= 64:
        return Blocks(64, 64, 4, 2)
    if size <= 128:
        return Blocks(64, 64, 8, 2)
    return Blocks(32, 32, 4, 1) if size <= 256 else Blocks(16, 16, 4, 1)


def fitting(size: int) -> int:
    """The head size that the kernels are given: a multiple of 16, at least 64.

    On an H200 (Triton 3.6) rows of 17 and 11 numbers came out wrong and aligned ones did not, so
    odd sizes are padded with zeros in a copy: O(n) memory, and only for them.
    """
    return size if launch.INTERPRETED else max(64, -(-size // 16) * 16)


def pad(tensor: torch.Tensor, size: int) -> torch.Tensor:
    if tensor.shape[-1] == size:
        return tensor
    return torch.nn.functional.pad(tensor, (0, size - tensor.shape[-1]))


def fitted(call: Call) -> Call:
    """The call with head sizes that fit; zeros change no dot product and give zeros as output."""
    d, dv = fitting(call.head_size), fitting(call.value_size)
    if (d, dv) == (call.head_size, call.value_size):
        return call
    return replace(
        call, query=pad(call.query, d), key=pad(call.key, d), value=pad(call.value, dv)
    )


def widths(call: Call) -> tuple[int, int]:
    """Head sizes as the kernels pad them."""
    return launch.power_of_two(call.head_size), launch.power_of_two(call.value_size)


def inputs(call: Call) -> tuple[Any, Any, Any]:
    return launch.plain(call.query), launch.plain(call.key), launch.plain(call.value)


def forward(call: Call, health: bool) -> launch.Run:
    """How calls of this layout are run: a program a tile of rows, or split over the keys."""
    if call.queries * call.group <= 64 and call.keys > 2 * blocks_for(call).keys:
        plan = decode
    else:
        plan = tiles
    return fitting_run(plan, call, health)


def fitting_run(plan: Callable[[Call, bool], launch.Run], call: Call, health: bool) -> launch.Run:
    """The plan's run, for sizes that do not fit by way of a copy that does."""
    wide = fitted(call)
    run = plan(wide, health)
    if wide is call:
        return run
    size = call.value_size

    def padded(call: Call) -> State:
        state = run(fitted(call))
        output = state.output[..., :size].contiguous()
        return State(output, state.logsumexp, state.max_logit, state.entropy)

    return padded


def tiles(call: Call, health: bool) -> launch.Run:
    """One program a tile of rows."""
    from limelight.engines.gpu.forward import forward_kernel

    tile = blocks_for(call)
    _, band, spans = launch.where_of(call)
    grid = (-(-call.queries // tile.rows), call.batch * call.query_heads, 1)
    kernel = launch.Launch(
        forward_kernel,
        (tile.rows, tile.keys, *widths(call), health, band, spans, call.sinks is not None,
         launch.precision_of(call)),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    numbers = Numbers.of(call)

    def run(call: Call) -> State:
        state = launch.empty_state(call, health)
        kernel(grid, *numbers.around(call, state))
        return state

    return run


@dataclass(frozen=True)
class Numbers:
    """The arguments of a forward kernel that calls of one layout share.

    `where` is None where the mask has arrays, which differ from call to call.
    """

    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    output: tuple[int, ...]
    where: Any
    form: Any
    sizes: Any

    @staticmethod
    def of(call: Call) -> Numbers:
        arrays = call.allowed.spans is not None or call.allowed.dense is not None
        return Numbers(
            query=call.query.stride(), key=call.key.stride(), value=call.value.stride(),
            output=launch.like_query(call, call.value_size).stride(),
            where=None if arrays else launch.where_of(call)[0],
            form=None if call.bias is not None else launch.form_of(call),
            sizes=launch.sizes_of(call),
        )  # fmt: skip

    def around(self, call: Call, state: State) -> tuple[Any, ...]:
        """The arguments for one call."""
        from limelight.engines.gpu.cells import Array
        from limelight.engines.gpu.forward import Rows

        return (
            Array(call.query, *self.query), Array(call.key, *self.key),
            Array(call.value, *self.value), self.where or launch.where_of(call)[0],
            self.form or launch.form_of(call), call.sinks, Array(state.output, *self.output),
            Rows(state.logsumexp, state.max_logit, state.entropy), self.sizes,
        )  # fmt: skip


@dataclass(frozen=True)
class Chip:
    """What a device offers: multiprocessors, and bytes of shared memory for one program."""

    processors: int
    shared: int


@cache
def chip(device: torch.device) -> Chip:
    if device.type != "cuda":
        return Chip(2, 1 << 20)
    found = torch.cuda.get_device_properties(device)
    shared = getattr(found, "shared_memory_per_block_optin", found.shared_memory_per_block)
    return Chip(int(found.multi_processor_count), int(shared))


START = 256  # keys that could be read in the time that a program takes to start and to merge


def decode_blocks_for(call: Call) -> Blocks:
    """Three or four blocks of keys and values in flight, as large as shared memory allows."""
    height = launch.power_of_two(call.queries * call.group)
    room = chip(call.query.device).shared - (32 << 10)
    row = sum(widths(call)) * call.query.element_size()
    keys = 128
    while keys > 16 and 3 * keys * row > room:
        keys //= 2
    return Blocks(height, keys, 8 if keys == 128 else 4, min(4, max(1, room // (keys * row))))


@lru_cache(1024)
def parts_for(heads: int, keys: int, step: int, processors: int) -> int:
    """Into how many parts the keys are split: the least time for whole waves of programs."""
    most = -(-keys // step)

    def cost(parts: int) -> float:
        return -(-heads * parts // processors) * (keys / parts + START)

    return min({min(most, max(1, wave * processors // heads)) for wave in range(1, 5)}, key=cost)


def decode(call: Call, health: bool) -> launch.Run:
    """Few queries against many keys: rows packed over the heads of a group, keys in parts."""
    from limelight.engines.gpu.decode import decode_kernel

    device = call.query.device
    tile = decode_blocks_for(call)
    heads = call.batch * call.key_heads
    parts = parts_for(heads, call.keys, tile.keys, chip(device).processors)
    keys = -(-call.keys // parts // tile.keys) * tile.keys
    parts = -(-call.keys // keys)
    grid = (parts, heads, 1)
    _, band, spans = launch.where_of(call)
    d, dv = widths(call)
    kernel = launch.Launch(
        decode_kernel,
        (tile.rows, tile.keys, d, dv, health, band, spans, call.sinks is not None,
         launch.precision_of(call), parts > 1),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    numbers = Numbers.of(call)
    room = heads * parts * tile.rows * (dv + 3)

    def run(call: Call) -> State:
        state = launch.empty_state(call, health)
        partial = counters = None
        if parts > 1:
            partial = torch.empty(room, dtype=torch.float32, device=device)
            counters = kept.zeros(device, heads)
        kernel(grid, *numbers.around(call, state), keys, partial, counters)
        return state

    return run


def again(call: Call, health: bool, count: int) -> Callable[[Call, State, torch.Tensor], None]:
    """Compute with care those of `count` tiles of 64 rows whose flag is raised."""
    from limelight.engines.gpu.again import again_kernel

    _, band, spans = launch.where_of(call)
    size = launch.power_of_two(max(call.head_size, call.value_size))
    flags = 64  # that a program looks at
    kernel = launch.Launch(
        again_kernel,
        (flags, 64, 32 if size > 128 else 64, *widths(call), health, band, spans,
         call.sinks is not None, launch.precision_of(call)),
        num_warps=4, num_stages=1, launch_pdl=True,
    )  # fmt: skip
    grid = (-(-count // flags), 1, 1)
    numbers = Numbers.of(call)

    def run(call: Call, state: State, scratch: torch.Tensor) -> None:
        kernel(grid, scratch, count, *numbers.around(call, state))

    return run


def delta_of(call: Call, state: State, grad_output: torch.Tensor) -> torch.Tensor:
    """Σ grad_output·output of each row, [B, Hq, Nq]."""
    from limelight.engines.gpu import backward as kernels

    delta = torch.empty_like(state.logsumexp)
    rows = 64 if call.value_size <= 128 else 16
    kernels.delta_kernel[(-(-call.queries // rows), call.batch * call.query_heads)](
        launch.plain(state.output), launch.plain(grad_output), delta, launch.sizes_of(call), rows,
        launch.power_of_two(call.value_size),
    )  # fmt: skip
    return delta


def sinks_gradient(call: Call, state: State, delta: torch.Tensor) -> torch.Tensor | None:
    """-Σ p(sink)·delta over batch and rows: the sink takes weight and gives no value."""
    if call.sinks is None:
        return None
    weight = (call.sinks.float()[None, :, None] - state.logsumexp).exp()
    weight = torch.where(state.logsumexp == float("-inf"), 0.0, weight)
    gradient: torch.Tensor = -(weight * delta).sum(dim=(0, 2)).to(call.sinks.dtype)
    return gradient


def query_again(
    call: Call, state: State, grad_output: torch.Tensor, grad_query: torch.Tensor
) -> None:
    """Compute with care the tiles of grad_query that hold an infinity or NaN."""
    state = State(state.output, state.logsumexp.contiguous())
    _query(call, state, grad_output, state.logsumexp, grad_query, again=True)


def _query(
    call: Call, state: State, grad_output: torch.Tensor, delta: torch.Tensor,
    grad_query: torch.Tensor, again: bool,
) -> None:  # fmt: skip
    from limelight.engines.gpu import backward as kernels

    tile = backward_blocks_for(call)
    where, band, spans = launch.where_of(call)
    launch.start(
        kernels.query_kernel,
        (-(-call.queries // tile.rows), call.batch * call.query_heads, 1),
        (*inputs(call), launch.plain(state.output), launch.plain(grad_output), state.logsumexp,
         delta, where, launch.form_of(call), launch.plain(grad_query), launch.sizes_of(call)),
        (tile.rows, tile.keys, *widths(call), band, spans, launch.precision_of(call), again),
        num_warps=tile.warps, num_stages=1 if again else tile.stages,
    )  # fmt: skip


def backward(call: Call, state: State, grad_output: torch.Tensor) -> Gradients:
    """All gradients, each summed in a fixed order."""
    state = State(state.output, state.logsumexp.contiguous())
    wide = fitted(call)
    if wide is call:
        return _backward(call, state, grad_output)
    size = wide.value_size
    padded = State(pad(state.output, size), state.logsumexp)
    grads = _backward(wide, padded, pad(grad_output, size))
    return Gradients(
        query=grads.query[..., : call.head_size].contiguous(),
        key=grads.key[..., : call.head_size].contiguous(),
        value=grads.value[..., : call.value_size].contiguous(),
        bias=grads.bias,
        sinks=grads.sinks,
    )


def _backward(call: Call, state: State, grad_output: torch.Tensor) -> Gradients:
    from limelight.engines.gpu import backward as kernels

    device = call.query.device
    grad_query = torch.zeros(call.query.shape, dtype=call.query.dtype, device=device)
    grad_key = torch.zeros(call.key.shape, dtype=call.key.dtype, device=device)
    grad_value = torch.zeros(call.value.shape, dtype=call.value.dtype, device=device)
    grad_bias = None if call.bias is None else torch.zeros(
        call.bias.shape, dtype=torch.float32, device=device)  # fmt: skip
    empty = not (call.keys and call.batch and call.query_heads and call.queries)
    if empty:
        delta = torch.zeros_like(state.logsumexp)
    else:
        delta = delta_of(call, state, grad_output)
        _query(call, state, grad_output, delta, grad_query, again=False)
        tile = backward_blocks_for(call)
        where, band, spans = launch.where_of(call)
        shared = (
            *inputs(call), launch.plain(grad_output), state.logsumexp, delta, where,
            launch.form_of(call),
        )  # fmt: skip
        sizes = (tile.rows, tile.keys, launch.power_of_two(call.head_size),
                 launch.power_of_two(call.value_size), band, spans,
                 launch.precision_of(call))  # fmt: skip
        options = {"num_warps": tile.warps, "num_stages": tile.stages}
        kernels.key_kernel[(-(-call.keys // tile.keys), call.batch * call.key_heads)](
            *shared, launch.plain(grad_key), launch.plain(grad_value), launch.sizes_of(call),
            *sizes, **options,
        )  # fmt: skip
        if grad_bias is not None:
            b, h, nq, nk = grad_bias.shape
            all_rows, all_columns = nq < call.queries, nk < call.keys
            down = 1 if all_rows else -(-nq // tile.rows)
            across = 1 if all_columns else -(-nk // tile.keys)
            grid = (down, across, b * h)
            kernels.bias_kernel[grid](
                *shared, launch.plain(grad_bias), launch.sizes_of(call), call.batch // b,
                call.query_heads // h, *sizes, all_rows, all_columns, **options,
            )  # fmt: skip
    return Gradients(
        query=grad_query,
        key=grad_key,
        value=grad_value,
        bias=None if grad_bias is None else grad_bias.to(call.bias.dtype),
        sinks=sinks_gradient(call, state, delta),
    )


def pool(
    call: Call, logsumexp: torch.Tensor, row_edges: Any, column_edges: Any, kind: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights pooled over rectangles: (values, allowed cells), each [B, Hq, rows, columns].

    The rectangle (y, x) holds rows row_edges[y] to row_edges[y + 1] and keys column_edges[x] to
    column_edges[x + 1]; `kind` is "max" or "sum". Values are float32, counts int64.
    """
    from limelight.engines.gpu import pool as kernels

    call = fitted(call)
    device = call.query.device
    row_edges = torch.as_tensor(row_edges, dtype=torch.int32, device=device)
    column_edges = torch.as_tensor(column_edges, dtype=torch.int32, device=device)
    height, width = max(0, row_edges.numel() - 1), max(0, column_edges.numel() - 1)
    shape = (call.batch, call.query_heads, height, width)
    picture = torch.zeros(shape, dtype=torch.float32, device=device)
    counts = torch.zeros(shape, dtype=torch.int64, device=device)
    if picture.numel() == 0:
        return picture, counts
    tile = backward_blocks_for(call)
    where, band, spans = launch.where_of(call)
    kernels.pool_kernel[(width, height, call.batch * call.query_heads)](
        launch.plain(call.query), launch.plain(call.key), where, launch.form_of(call), logsumexp,
        row_edges, column_edges, picture, counts, launch.sizes_of(call), height, width,
        tile.rows, tile.keys, launch.power_of_two(call.head_size), kind == "max", band, spans,
        launch.precision_of(call), num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return picture, counts


def received(call: Call, logsumexp: torch.Tensor) -> torch.Tensor:
    """What each key receives, Σ of its weights over all queries: float32 [B, Hq, Nk]."""
    from limelight.engines.gpu import pool as kernels

    call = fitted(call)
    shape = (call.batch, call.query_heads, call.keys)
    sums = torch.zeros(shape, dtype=torch.float32, device=call.query.device)
    if sums.numel() == 0 or call.queries == 0:
        return sums
    tile = backward_blocks_for(call)
    where, band, spans = launch.where_of(call)
    kernels.received_kernel[(-(-call.keys // tile.keys), call.batch * call.query_heads)](
        launch.plain(call.query), launch.plain(call.key), where, launch.form_of(call), logsumexp,
        sums, launch.sizes_of(call), tile.rows, tile.keys, launch.power_of_two(call.head_size),
        band, spans, launch.precision_of(call), num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return sums
