"""How large the tiles of the portable kernels are, for a call and a chip; sizes that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import torch

from limelight.call import Call
from limelight.engines.gpu import launch


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


@dataclass(frozen=True)
class Blocks:
    """A tile of `rows` × `keys` cells, and how Triton runs it."""

    rows: int
    keys: int
    warps: int
    stages: int


Table = dict[int, tuple[Blocks, ...]]  # by head size: the fastest on an H200 first

FORWARD: Table = {
    64: (Blocks(128, 64, 4, 3), Blocks(64, 64, 4, 2), Blocks(64, 32, 4, 1)),
    128: (Blocks(128, 64, 8, 3), Blocks(64, 64, 4, 2), Blocks(64, 32, 4, 1)),
    256: (Blocks(128, 64, 8, 2), Blocks(128, 32, 8, 3), Blocks(64, 32, 4, 2), Blocks(32, 32, 4, 1)),
    512: (Blocks(32, 16, 4, 1),),
}
SQUARE: Table = {
    64: (Blocks(64, 64, 4, 2), Blocks(32, 32, 4, 1)),
    128: (Blocks(64, 64, 8, 2), Blocks(64, 64, 8, 1), Blocks(32, 32, 4, 1)),
    256: (Blocks(32, 32, 4, 2), Blocks(32, 32, 4, 1), Blocks(16, 16, 4, 1)),
    512: (Blocks(16, 16, 4, 1),),
}
QUERY_GRADIENT: Table = {
    64: (Blocks(64, 64, 4, 3), *SQUARE[64]),
    128: (Blocks(64, 64, 4, 2), *SQUARE[128]),
    256: (Blocks(128, 32, 8, 2), *SQUARE[256]),
    512: SQUARE[512],
}
KEY_GRADIENT: Table = {
    64: SQUARE[64],
    128: (Blocks(64, 64, 4, 2), *SQUARE[128]),
    256: (Blocks(64, 64, 8, 2), *SQUARE[256]),
    512: SQUARE[512],
}
WIDE_FORWARD: Table = {
    64: (Blocks(64, 32, 4, 2),),
    128: (Blocks(32, 32, 4, 2),),
    256: (Blocks(32, 16, 4, 1),),
    512: (Blocks(16, 16, 4, 1),),
}
WIDE_SQUARE: Table = {
    64: (Blocks(32, 32, 4, 1),),
    128: (Blocks(16, 16, 4, 1),),
    256: (Blocks(16, 16, 4, 1),),
    512: (Blocks(16, 16, 4, 1),),
}


def forward(call: Call) -> Blocks:
    return _first(call, FORWARD, WIDE_FORWARD, lambda tile: (tile.rows, 2 * tile.keys))


def square(call: Call) -> Blocks:
    """Tiles for pictures, care and the bias's gradient."""
    return _first(call, SQUARE, WIDE_SQUARE, lambda tile: (2 * tile.rows, 2 * tile.keys))


def query_gradient(call: Call) -> Blocks:
    return _first(call, QUERY_GRADIENT, WIDE_SQUARE, lambda tile: (2 * tile.rows, 2 * tile.keys))


def key_gradient(call: Call) -> Blocks:
    return _first(call, KEY_GRADIENT, WIDE_SQUARE, lambda tile: (2 * tile.keys, 2 * tile.rows))


def _first(
    call: Call, table: Table, wide: Table, lines: Callable[[Blocks], tuple[int, int]]
) -> Blocks:
    """The first tile that fits the chip's shared memory, the last one in any case.

    `lines` are of how many rows of a head's size a program holds, and how many a stage brings. A
    bias and a boolean array come in stages too. Of dropout's cells up to two bytes each change
    threads by way of it.
    """
    if launch.INTERPRETED:
        return Blocks(64, 64, 4, 1)
    size = launch.power_of_two(max(call.head_size, call.value_size), 64)
    line = size * call.query.element_size()
    cell = _cell(call)
    room = chip(call.query.device).shared - (2 << 10)  # less what is small
    tiles = (wide if call.dtype == "float32" else table)[size]
    for tile in tiles:
        held, brought = lines(tile)
        cells = (tile.stages - 1) * tile.rows * tile.keys * cell
        if call.dropout is not None:
            cells += 2 * tile.rows * tile.keys
        if (held + tile.stages * brought) * line + cells <= room:
            return tile
    return tiles[-1]


def _cell(call: Call) -> int:
    """Bytes that a cell of the bias and of a boolean array take."""
    bias = 0 if call.bias is None else call.bias.element_size()
    return bias + (0 if call.allowed.dense is None else 1)


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


def cut(tensor: torch.Tensor, size: int) -> torch.Tensor:
    return tensor if tensor.shape[-1] == size else tensor[..., :size].contiguous()


def fitted(call: Call) -> Call:
    """The call with head sizes that fit; zeros change no dot product and give zeros as output."""
    d, dv = fitting(call.head_size), fitting(call.value_size)
    if (d, dv) == (call.head_size, call.value_size):
        return call
    return replace(call, query=pad(call.query, d), key=pad(call.key, d), value=pad(call.value, dv))


def widths(call: Call) -> tuple[int, int]:
    """Head sizes as the kernels pad them."""
    return launch.power_of_two(call.head_size), launch.power_of_two(call.value_size)


def together(heads: int, wished: int, tiles: int, processors: int) -> int:
    """How many heads run together, their heavy tiles first: as wished, or somewhat more.

    The light tiles of the last heads are what lets all processors end at the same time. Where few
    heads are left over at the end, their heavy tiles start when the others have nothing to do.
    """
    enough = -(-2 * processors // tiles)  # two tiles for each processor
    if wished >= heads:
        return heads
    for width in range(wished, 2 * wished + 1):
        rest = heads % width
        if rest == 0 or 4 * rest >= 3 * enough:
            return min(width, heads)
    return wished


PACKED = 32 << 10  # bytes of shared memory for the queries that are packed into one tile
START = 256  # keys that could be read in the time that a program takes to start and to merge


def packs(call: Call) -> bool:
    """Whether the rows of all query heads that share a key head fit into one tile."""
    height = launch.power_of_two(call.queries * call.group)
    return height <= 64 and height * max(widths(call)) * call.query.element_size() <= PACKED


def decode(call: Call) -> Blocks:
    """Three or four blocks of keys and values in flight, as large as shared memory allows."""
    height = launch.power_of_two(call.queries * call.group)
    room = chip(call.query.device).shared - PACKED
    row = sum(widths(call)) * call.query.element_size() + height * _cell(call)
    keys = 128
    while keys > 16 and 3 * keys * row > room:
        keys //= 2
    return Blocks(height, keys, 8 if keys == 128 else 4, min(4, max(1, room // (keys * row))))


def in_parts(call: Call, tile: Blocks) -> tuple[int, int]:
    """The keys of a part, whole tiles of them, and how many parts that makes."""
    processors = chip(call.query.device).processors
    wished = parts(call.batch * call.key_heads, call.keys, tile.keys, processors)
    keys = -(-call.keys // wished // tile.keys) * tile.keys
    return keys, -(-call.keys // keys)


@lru_cache(1024)
def parts(heads: int, keys: int, step: int, processors: int) -> int:
    """Into how many parts the keys are split: the least time for whole waves of programs."""
    most = -(-keys // step)

    def cost(count: int) -> float:
        return -(-heads * count // processors) * (keys / count + START)

    return min({min(most, max(1, wave * processors // heads)) for wave in range(1, 5)}, key=cost)
