"""What a kernel reads and writes: tensors of this process, shared memory and its barriers, TMA."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from tests.ptx.arithmetic import UNSIGNED
from tests.ptx.pace import Work

FIRST = 1024  # where shared memory begins; tiles are swizzled by their address


class Fault(Exception):
    """An access outside of what the kernel was given."""


class Tensors:
    """The memory of a launch's tensors, by address."""

    def __init__(self, tensors: list[Any]) -> None:
        spans = {(x.untyped_storage().data_ptr(), x.untyped_storage().nbytes()) for x in tensors}
        self.spans = sorted(span for span in spans if span[1])
        self.starts = [start for start, _ in self.spans]
        self.bytes = [
            np.frombuffer((ctypes.c_uint8 * size).from_address(start), np.uint8)
            for start, size in self.spans
        ]

    def at(self, low: int, high: int) -> tuple[Any, int]:
        """The bytes that hold those from low to high, and the address of the first."""
        which = bisect_right(self.starts, low) - 1
        if which < 0 or high > self.starts[which] + self.spans[which][1]:
            raise Fault(f"{high - low} bytes at {low:#x}, in none of the tensors")
        return self.bytes[which], self.starts[which]

    def read(self, addresses: Any, size: int) -> Any:
        block, places = self._places(addresses, size)
        return np.ascontiguousarray(block[places]).view(UNSIGNED[size])[:, 0]

    def write(self, addresses: Any, numbers: Any) -> None:
        size = numbers.dtype.itemsize
        block, places = self._places(addresses, size)
        block[places] = numbers[:, None].view(np.uint8)

    def _places(self, addresses: Any, size: int) -> tuple[Any, Any]:
        if (addresses % np.uint64(size)).any():
            raise Fault(f"{size} bytes at an address that is no multiple of them")
        low, high = int(addresses.min()), int(addresses.max()) + size
        try:
            block, start = self.at(low, high)
        except Fault:  # lanes in several tensors
            for address in addresses.tolist():
                self.at(address, address + size)
            raise
        return block, (addresses - np.uint64(start)).astype(np.int64)[:, None] + np.arange(size)


@dataclass
class Barrier:
    """Phase number, arrivals and bytes that it still waits for."""

    count: int
    phase: int = 0
    arrivals: int = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        self.arrivals = self.count

    def arrive(self, times: int = 1, bytes: int = 0) -> None:
        self.bytes += bytes
        self.arrivals -= times
        if self.arrivals < 0:
            raise Fault("more arrivals at a barrier than it counts")
        self.advance()

    def arrived(self, bytes: int) -> None:
        self.bytes -= bytes
        self.advance()

    def advance(self) -> None:
        if self.arrivals == 0 and self.bytes == 0:
            self.phase += 1
            self.arrivals = self.count

    def ended(self, parity: int) -> bool:
        """Whether the phase of that parity is over."""
        return self.phase & 1 != parity


class Shared:
    """A program's shared memory, its bytes not a number until they are written.

    `coming` are loads on their way, each with the address of its barrier; `told` is whether anybody
    has arrived at a barrier since it was last set back. `unfenced` are the warpgroups, from 1 on,
    whose stores the tensor cores and TMA may not see yet, by the two bytes that they stored.
    """

    def __init__(self, size: int) -> None:
        self.bytes = np.full(-(-size // 16) * 16, 0xFF, np.uint8)
        self.unfenced = np.zeros(self.bytes.size // 2, np.uint8)
        self.barriers: dict[int, Barrier] = {}
        self.coming: list[tuple[int, Work]] = []
        self.told = False

    def barrier(self, address: int) -> Barrier:
        if address not in self.barriers:
            raise Fault(f"a barrier at {address - FIRST} that nobody began")
        return self.barriers[address]

    def deliver(self, wanted: set[int]) -> bool:
        """Let the first load arrive that somebody waits for, else the first; whether there is one."""
        if not self.coming:
            return False
        chosen = next((x for x in self.coming if x[0] in wanted), self.coming[0])
        self.coming.remove(chosen)
        chosen[1]()
        return True

    def read(self, addresses: Any, size: int) -> Any:
        found = np.ascontiguousarray(self.bytes[self._places(addresses, size)])
        return found.view(UNSIGNED[size])[:, 0]

    def write(self, addresses: Any, numbers: Any, group: int) -> None:
        places = self._places(addresses, numbers.dtype.itemsize)
        self.bytes[places] = numbers[:, None].view(np.uint8)
        self.unfenced[places >> 1] = group

    def fence(self, group: int) -> None:
        self.unfenced[self.unfenced == group] = 0

    def _places(self, addresses: Any, size: int) -> Any:
        places = addresses.astype(np.int64) - FIRST
        if (places % size).any():
            raise Fault(f"{size} bytes of shared memory at an address that is no multiple of them")
        if places.min() < 0 or places.max() + size > self.bytes.size:
            raise Fault(f"shared memory from {places.min()} to {places.max() + size}")
        return places[:, None] + np.arange(size)

    def halves(self, places: Any) -> Any:
        """Numbers of 16 bits, of any shape, by their number from the first."""
        return self.bytes.view(np.uint16)[places]

    def keep_halves(self, places: Any, numbers: Any, group: int) -> None:
        self.bytes.view(np.uint16)[places] = numbers
        self.unfenced[places] = group

    def fenced(self, places: Any) -> Any:
        """The same places, where what was stored there may be read by tensor cores and TMA."""
        if self.unfenced[places].any():
            raise Fault("shared memory is read behind the back of a store without a fence")
        return places


def swizzled(addresses: Any, width: int) -> Any:
    """Where TMA and the tensor cores put what would lie there: rows of so many bytes."""
    if width == 0:
        return addresses
    return addresses ^ ((addresses >> 7) & (width // 16 - 1)) << 4


@dataclass(eq=False)
class Described:
    """A tensor as TMA moves it: a box of it, its last axis in rows that are swizzled."""

    tensor: Any
    box: list[int]
    swizzle: int
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        size = self.tensor.element_size()
        self.bytes = size * int(np.prod(self.box))
        strides = [size * s for s in self.tensor.stride()]
        if any(s % 16 for s, n in zip(strides[:-1], self.tensor.shape[:-1], strict=True) if n > 1):
            raise Fault("TMA takes strides of 16 bytes")
        if self.tensor.data_ptr() % 16:
            raise Fault("TMA takes tensors at a multiple of 16 bytes")

    def places(self, shared: int, corner: list[int]) -> list[tuple[int, Any]]:
        """By row of the box that lies in the tensor: its address there, and where it is in shared."""
        size = self.tensor.element_size()
        width = size * self.box[-1]
        if self.swizzle and width != self.swizzle:
            raise Fault(f"rows of {width} bytes, swizzled by {self.swizzle}")
        if shared % (128 if not self.swizzle else 8 * self.swizzle):
            raise Fault("TMA to an address that its swizzle does not take")
        found = []
        for row, at in enumerate(product(*(range(n) for n in self.box[:-1]))):
            place = [a + b for a, b in zip(corner, at, strict=False)]
            inside = all(0 <= p < n for p, n in zip(place, self.tensor.shape, strict=False))
            address = self.tensor.data_ptr() + sum(
                size * p * s for p, s in zip(place, self.tensor.stride(), strict=False)
            )
            here = swizzled(shared + row * width + np.arange(width), self.swizzle) - FIRST
            found.append((address if inside else -1, here))
        return found

    def load(self, memory: Tensors, shared: Shared, to: int, corner: list[int]) -> None:
        """Past the tensor's ends are zeros."""
        count, first = self._columns(corner[-1])
        for address, here in self.places(to, corner):
            row = np.zeros(here.size, np.uint8)
            if address >= 0 and count > 0:
                block, start = memory.at(address + first, address + first + count)
                row[:count] = block[address + first - start :][:count]
            shared.bytes[here] = row

    def store(
        self, memory: Tensors, shared: Shared, source: int, corner: list[int], add: bool
    ) -> None:
        count, first = self._columns(corner[-1])
        for address, here in self.places(source, corner):
            if address < 0 or count <= 0:
                continue
            block, start = memory.at(address + first, address + first + count)
            there = block[address + first - start :][:count]
            shared.fenced(here[:count:2] >> 1)
            row = shared.bytes[here[:count]]
            if add:
                there.view(np.float32)[:] += row.view(np.float32)
            else:
                there[:] = row

    def _columns(self, column: int) -> tuple[int, int]:
        """Bytes of a row of the box that the tensor has, and where they begin in its row."""
        size = self.tensor.element_size()
        return size * min(self.box[-1], self.tensor.shape[-1] - column), size * column
