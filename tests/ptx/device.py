"""What the instructions of a program do beside arithmetic: memory, barriers, TMA, tensor cores."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from tests.ptx.arithmetic import THREADS, UNSIGNED, halves, widened
from tests.ptx.memory import FIRST, Barrier, Described, Fault, Shared, Tensors, swizzled
from tests.ptx.pace import Groups

LANES = np.arange(THREADS) % 32
SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}  # by the two top bits of a matrix descriptor


class Device:
    """One warpgroup's; instructions have the mask of their threads, None where it is all."""

    def __init__(
        self, number: int, tensors: Tensors, shared: Shared, described: dict[int, Described],
        late: tuple[str, ...],
    ) -> None:  # fmt: skip
        self.number, self.late = number, late
        self.tensors, self.shared, self.described = tensors, shared, described
        self.products = Groups()
        self.copies = Groups()
        self.stores: dict[int, Groups] = {}  # by thread

    @staticmethod
    def under(mask: Any, value: Any, old: Any) -> Any:
        return value if mask is None else np.where(mask, value, old)

    def load(self, space: Any, addresses: Any, size: int, mask: Any) -> Any:
        if mask is None:
            return space.read(addresses, size)
        found = np.zeros(THREADS, UNSIGNED[size])
        found[mask] = space.read(addresses[mask], size)
        return found

    def store(self, space: Any, addresses: Any, numbers: Any, mask: Any) -> None:
        numbers = np.ascontiguousarray(np.broadcast_to(numbers, THREADS))
        if mask is not None:
            addresses, numbers = addresses[mask], numbers[mask]
        if space is self.shared:
            space.write(addresses, numbers, self.number)
        else:
            space.write(addresses, numbers)

    def copy(self, to: Any, source: Any, size: int, given: Any, mask: Any) -> None:
        """So many bytes from the tensors to shared memory, those that are not given as zeros.

        Compilers put no fence between these and the tensor cores.
        """
        threads = np.arange(THREADS) if mask is None else np.flatnonzero(mask)
        given = np.broadcast_to(given, THREADS)
        work = partial(self._copy, to[threads], source[threads], size, given[threads])
        if "loads" in self.late:
            self.copies.add(work)
        else:
            work()

    def _copy(self, to: Any, source: Any, size: int, given: Any) -> None:
        for first in range(0, size, 4):
            words = np.zeros(to.size, np.uint32)
            there = given > first
            if there.any():
                words[there] = self.tensors.read(source[there] + np.uint64(first), 4)
            self.shared.write(to + np.uint32(first), words, 0)

    def fence(self) -> None:
        """What this warpgroup has stored to shared memory TMA and the tensor cores see from here on."""
        self.shared.fence(self.number)

    def atomic(self, what: str, addresses: Any, numbers: Any, mask: Any) -> Any:
        numbers = np.broadcast_to(numbers, THREADS)
        size = numbers.dtype.itemsize
        found = np.zeros(THREADS, numbers.dtype)
        for i in range(THREADS) if mask is None else np.flatnonzero(mask):
            at = addresses[i : i + 1]
            found[i] = self.tensors.read(at, size).view(numbers.dtype)[0]
            if what != "add":
                raise NotImplementedError(what)
            self.tensors.write(at, (found[i : i + 1] + numbers[i]).view(UNSIGNED[size]))
        return found

    # Barriers

    def begin(self, addresses: Any, count: int, mask: Any) -> None:
        for address in self._each(addresses, mask):
            self.shared.barriers[address] = Barrier(count)

    def arrive(self, addresses: Any, bytes: Any, mask: Any) -> None:
        expected = np.broadcast_to(bytes, THREADS)
        for i in range(THREADS) if mask is None else np.flatnonzero(mask):
            self.shared.barrier(int(addresses[i])).arrive(1, int(expected[i]))
            self.shared.told = True

    def ended(self, addresses: Any, parities: Any, mask: Any) -> bool:
        waits = {
            (int(addresses[i]), int(parities[i]))
            for i in (range(THREADS) if mask is None else np.flatnonzero(mask))
        }
        return all(self.shared.barrier(address).ended(parity) for address, parity in waits)

    @staticmethod
    def _each(addresses: Any, mask: Any) -> list[int]:
        return [int(x) for x in (addresses if mask is None else addresses[mask])]

    # TMA, which one thread starts

    def tma_load(
        self, to: Any, descriptor: Any, corner: list[Any], barrier: Any, mask: Any
    ) -> None:
        for i in self._threads(mask):
            what = self.described[int(descriptor[i])]
            work = partial(self._load, what, int(to[i]), self._corner(corner, i), int(barrier[i]))
            if "loads" in self.late:
                self.shared.coming.append((int(barrier[i]), work))
            else:
                work()

    def _load(self, what: Described, to: int, corner: list[int], barrier: int) -> None:
        what.load(self.tensors, self.shared, to, corner)
        self.shared.barrier(barrier).arrived(what.bytes)

    def tma_store(
        self, source: Any, descriptor: Any, corner: list[Any], add: bool, mask: Any
    ) -> None:
        for i in self._threads(mask):
            what = self.described[int(descriptor[i])]
            at = self._corner(corner, i)
            work = partial(what.store, self.tensors, self.shared, int(source[i]), at, add)
            if "stores" in self.late:
                self.stores.setdefault(int(i), Groups()).add(work)
            else:
                work()

    def commit_stores(self, mask: Any) -> None:
        for i in self._storing(mask):
            self.stores[i].commit()

    def wait_stores(self, left: int, mask: Any) -> None:
        for i in self._storing(mask):
            self.stores[i].wait(left)

    def _storing(self, mask: Any) -> list[int]:
        return [i for i in self.stores if mask is None or mask[i]]

    def end(self, mask: Any) -> None:
        """What these threads have left in flight is done when they end."""
        self.products.end()
        self.copies.end()
        for i in self._storing(mask):
            self.stores[i].end()

    @staticmethod
    def _threads(mask: Any) -> Any:
        return range(THREADS) if mask is None else np.flatnonzero(mask)

    @staticmethod
    def _corner(corner: list[Any], i: int) -> list[int]:
        return [int(np.broadcast_to(x, THREADS)[i]) for x in reversed(corner)]

    # What a warp does together

    @staticmethod
    def elected(mask: Any) -> Any:
        there = np.ones(THREADS, bool) if mask is None else mask
        first = there.reshape(-1, 32).argmax(1)
        return there & (np.repeat(first, 32) == LANES)

    @staticmethod
    def shuffled(how: str, numbers: Any, by: Any) -> Any:
        by = np.broadcast_to(by, THREADS).astype(np.int64)
        base = np.arange(THREADS) - LANES
        if how == "bfly":
            return numbers[base + (LANES ^ by)]
        if how == "idx":
            return numbers[base + by]
        found = LANES + (by if how == "down" else -by)
        return numbers[base + np.where((found < 0) | (found > 31), LANES, found)]

    @staticmethod
    def reduced(how: str, numbers: Any) -> Any:
        rows = np.broadcast_to(numbers, THREADS).reshape(-1, 32)
        found = {"min": rows.min, "max": rows.max, "add": rows.sum}[how](axis=1)
        return np.repeat(found.astype(rows.dtype), 32)

    @staticmethod
    def voted(how: str, truths: Any, mask: Any) -> Any:
        there = np.ones(THREADS, bool) if mask is None else mask
        rows = np.broadcast_to(truths, THREADS).reshape(-1, 32)
        there = there.reshape(-1, 32)
        found = (rows | ~there).all(1) if how == "all" else (rows & there).any(1)
        return np.repeat(found, 32)

    def matrices(self, addresses: Any, count: int, turned: bool) -> list[Any]:
        """8 × 8 numbers of 16 bits each: rows at the addresses of eight lanes, two to a lane."""
        found = []
        for i in range(count):
            rows = self._rows(addresses, i)  # [warps, 8]
            cells = self.shared.halves(rows[:, :, None] + np.arange(8))
            cells = cells.transpose(0, 2, 1) if turned else cells
            found.append(np.ascontiguousarray(cells).view(np.uint32).reshape(-1))
        return found

    def keep_matrices(self, addresses: Any, given: list[Any], turned: bool) -> None:
        for i, numbers in enumerate(given):
            rows = self._rows(addresses, i)
            cells = np.ascontiguousarray(numbers).reshape(-1, 8, 4).view(np.uint16)
            cells = cells.transpose(0, 2, 1) if turned else cells
            self.shared.keep_halves(rows[:, :, None] + np.arange(8), cells, self.number)

    @staticmethod
    def _rows(addresses: Any, i: int) -> Any:
        """Where eight rows of a matrix begin, by their number of two bytes."""
        rows = addresses.astype(np.int64).reshape(-1, 32)[:, 8 * i : 8 * i + 8]
        if (rows % 16).any():
            raise Fault("a row of a matrix at an address that is no multiple of 16")
        return (rows - FIRST) >> 1

    # Tensor cores

    def product(
        self, registers: list[Any], sums: list[int], left: Any, right: Any, adds: Any,
        left_turned: int, right_turned: int, kind: str, mask: Any,
    ) -> None:  # fmt: skip
        """sums [64, N] of a warpgroup = left [64, 16] · right [16, N], and what they were.

        `left` is a list of registers or, as `right` is, the descriptor of a tile of shared memory.
        """
        if mask is not None:
            raise Fault("a product by part of a warpgroup")
        held = left if isinstance(left, list) else _places(int(left[0]), 64, left_turned)
        beside = _places(int(right[0]), 2 * len(sums), right_turned)
        more = bool(adds) if isinstance(adds, (bool, np.bool_)) else bool(adds[0])
        work = partial(self._multiply, registers, sums, held, beside, more, kind)
        if "products" in self.late:
            self.products.add(work)
        else:
            work()

    def _multiply(
        self, registers: list[Any], sums: list[int], left: Any, right: Any, more: bool, kind: str
    ) -> None:
        if isinstance(left, list):
            a = _left([registers[place] for place in left], kind)
        else:
            a = _real(self.shared.halves(self.shared.fenced(left)), kind)
        b = _real(self.shared.halves(self.shared.fenced(right)), kind)
        found = (a @ b.T).astype(np.float32)
        # Register r of lane t of warp w: row 16·w + t/4 + 8·(r/2 mod 2), column 8·(r/4) + 2·(t mod 4)
        # + r mod 2.
        cells = found.reshape(4, 2, 8, len(sums) // 4, 4, 2)
        laid = cells.transpose(3, 1, 5, 0, 2, 4).reshape(-1, THREADS)
        for place, numbers in zip(sums, laid, strict=True):
            if more:
                numbers = registers[place].view(np.float32) + numbers
            registers[place] = np.ascontiguousarray(numbers).view(np.uint32)

    @staticmethod
    def warps_product(left: list[Any], right: list[Any], sums: list[Any], kind: str) -> list[Any]:
        """sums [16, 8] of each warp and its left [16, 16] · right [16, 8]."""
        a = _left(left, kind).reshape(4, 16, 16)
        b = _real(np.stack([x.view(np.uint16).reshape(4, 8, 4, 2) for x in right], 2), kind)
        found = (a @ b.reshape(4, 8, 16).transpose(0, 2, 1)).astype(np.float32)
        laid = found.reshape(4, 2, 8, 4, 2).transpose(1, 4, 0, 2, 3).reshape(4, THREADS)
        both = zip(sums, laid, strict=True)
        return [(x.view(np.float32) + more).view(np.uint32) for x, more in both]


@lru_cache(1024)
def _places(descriptor: int, rows: int, turned: int) -> Any:
    """The [rows, 16] numbers of 16 bits of shared memory that a descriptor tells of."""
    start, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    width = SWIZZLES[descriptor >> 62]
    if descriptor >> 49 & 7:
        raise NotImplementedError("a descriptor's base offset")
    r, k = np.arange(rows)[:, None], np.arange(16)[None, :]
    if turned:
        line = width or 16
        each = line // 2
        places = start + r // each * leading + k // 8 * stride + k % 8 * line + r % each * 2
    elif width:
        places = start + r // 8 * stride + r % 8 * width + k * 2
    else:
        places = start + r // 8 * stride + r % 8 * 16 + k // 8 * leading + k % 8 * 2
    return (swizzled(places, width) - FIRST) >> 1


def _real(numbers: Any, kind: str) -> Any:
    return (widened(numbers) if kind == "bf16" else numbers.view(np.float16)).astype(np.float64)


def _left(registers: list[Any], kind: str) -> Any:
    """[64, 16] numbers that threads hold: row 16·w + t/4 + 8·(i mod 2), columns 2·(t mod 4) + 8·(i/2)."""
    high, low = zip(*(halves(x) for x in registers), strict=True)
    both = np.stack([np.stack(low), np.stack(high)], -1)  # [4, 128, 2]
    cells = both.reshape(2, 2, 4, 8, 4, 2).transpose(2, 1, 3, 0, 4, 5).reshape(64, 16)
    return _real(np.ascontiguousarray(cells), kind)
