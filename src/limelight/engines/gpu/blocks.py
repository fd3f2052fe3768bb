"""How large the tiles of the portable kernels are, for a call and a chip; sizes that do not fit."""

from __future__ import annotations

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


def forward(call: Call) -> Blocks:
    """Forward tiles that fit the shared memory of small GPUs."""
    if launch.INTERPRETED:
        return Blocks(64, 64, 4, 1)
    size = launch.power_of_two(max(call.head_size, call.value_size))
    wide = call.dtype == "float32"
    if size <= 64:
        return Blocks(64, 32, 4, 2) if wide else Blocks(128, 64, 4, 3)
    if size <= 128:
        if wide:
            return Blocks(32, 32, 4, 2)
        return Blocks(128, 64, 8, 3) if _roomy(call) else Blocks(64, 64, 4, 2)
    if size <= 256:
        return Blocks(32, 16, 4, 1) if wide else Blocks(64, 32, 4, 2)
    return Blocks(16, 16, 4, 1) if wide else Blocks(32, 16, 4, 1)


def square(call: Call) -> Blocks:
    """Tiles for pictures, care and gradients: they fit small GPUs with four arrays in hand."""
    if launch.INTERPRETED:
        return Blocks(64, 64, 4, 1)
    size = launch.power_of_two(max(call.head_size, call.value_size))
    if call.dtype == "float32":
        return Blocks(32, 32, 4, 1) if size <= 64 else Blocks(16, 16, 4, 1)
    if size <= 128:
        return Blocks(64, 64, 4 if size <= 64 else 8, 2)
    return Blocks(32, 32, 4, 1) if size <= 256 else Blocks(16, 16, 4, 1)


def query_gradient(call: Call) -> Blocks:
    if not _roomy(call):
        return square(call)
    return Blocks(64, 64, 4, 3 if max(widths(call)) <= 64 else 2)


def key_gradient(call: Call) -> Blocks:
    return Blocks(64, 64, 4, 2) if _roomy(call) else square(call)


def _roomy(call: Call) -> bool:
    """Whether the call's half types leave the chip room for several tiles in flight."""
    if launch.INTERPRETED or call.dtype == "float32" or max(widths(call)) > 128:
        return False
    return chip(call.query.device).shared >= 160 << 10


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


START = 256  # keys that could be read in the time that a program takes to start and to merge


def decode(call: Call) -> Blocks:
    """Three or four blocks of keys and values in flight, as large as shared memory allows."""
    height = launch.power_of_two(call.queries * call.group)
    room = chip(call.query.device).shared - (32 << 10)
    row = sum(widths(call)) * call.query.element_size()
    keys = 128
    while keys > 16 and 3 * keys * row > room:
        keys //= 2
    return Blocks(height, keys, 8 if keys == 128 else 4, min(4, max(1, room // (keys * row))))


@lru_cache(1024)
def parts(heads: int, keys: int, step: int, processors: int) -> int:
    """Into how many parts the keys are split: the least time for whole waves of programs."""
    most = -(-keys // step)

    def cost(count: int) -> float:
        return -(-heads * count // processors) * (keys / count + START)

    return min({min(most, max(1, wave * processors // heads)) for wave in range(1, 5)}, key=cost)
