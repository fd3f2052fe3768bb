"""Programs of a launch, one after the other: their warpgroups in turn, see `pace.py`.

The threads of a warpgroup go together for as long as they go the same way. Where they part, each
part goes on by itself, the one that is furthest back first, and parts that meet are one again.
What a warp does together waits until all of the warp is there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.ptx.arithmetic import THREADS, UNSIGNED
from tests.ptx.device import Device
from tests.ptx.memory import FIRST, Described, Fault, Shared, Tensors
from tests.ptx.pace import Pace
from tests.ptx.program import TOGETHER, Program, named

PARAMS = 0xD0 << 32  # where parameters that are described tensors are said to lie
UNWRITTEN = {0: np.ones(THREADS, bool), **{
    size: np.full(THREADS, -1, f"i{size}").view(f"u{size}") for size in UNSIGNED
}}  # fmt: skip
KEPT = 20  # turns that a drawn order lasts, in the mean


class Stuck(Exception):
    """Nothing can go on: every thread waits for another."""


@dataclass(eq=False)
class Part:
    """Threads of a warpgroup that go together; a mask of None is all of them."""

    group: Group
    mask: Any
    place: int = 0
    barrier: tuple[int, int] | None = None  # number, and how often it had opened

    @property
    def threads(self) -> int:
        return THREADS if self.mask is None else int(self.mask.sum())

    @property
    def whole_warps(self) -> bool:
        return self.mask is None or bool((self.mask.reshape(-1, 32).sum(1) % 32 == 0).all())


@dataclass(eq=False)
class Group:
    """A warpgroup."""

    device: Device
    registers: list[Any]
    parts: list[Part] = field(default_factory=list)


class Machine:
    """One program of a launch, its registers at first as `values` says."""

    def __init__(
        self, program: Program, tensors: Tensors, shared: Shared, described: dict[int, Described],
        warps: int, values: dict[str, Any], pace: Pace,
    ) -> None:  # fmt: skip
        self.program, self.shared, self.pace = program, shared, pace
        self.threads = 32 * warps
        self.opened: dict[int, int] = {}
        self.arrived: dict[int, int] = {}
        self.groups = []
        index = program.index
        for first in range(0, self.threads, THREADS):
            threads = np.arange(first, first + THREADS, dtype=np.uint32)
            own = {"%tid.x": threads, "%laneid": threads % 32, **values}
            registers: list[Any] = [UNWRITTEN[program.size(name)] for name in index]
            for name, value in own.items():
                if name in index:
                    registers[index[name]] = _filled(value, program.size(name))
            device = Device(1 + first // THREADS, tensors, shared, described, pace.late)
            group = Group(device, registers)
            here = threads < self.threads
            group.parts = [Part(group, None if here.all() else here)]
            self.groups.append(group)
        self.order = self.groups[::-1] if pace.turns == "backward" else list(self.groups)
        self.draws = random.Random(pace.turns) if isinstance(pace.turns, int) else None

    def run(self) -> None:
        while any(group.parts for group in self.groups):
            if self.draws is not None and self.draws.random() < 1 / KEPT:
                self.draws.shuffle(self.order)
            if any(self._turn(group) for group in self.order):
                continue
            if not self.shared.deliver(self._awaited()):
                parts = [part for group in self.groups for part in group.parts]
                raise Stuck("\n".join(map(self._said, parts)))
        if self.shared.coming:
            raise Fault("a load that nobody waited for")

    def _said(self, part: Part) -> str:
        instruction = self.program.kernel.instructions[part.place]
        first = 0 if part.mask is None else int(np.flatnonzero(part.mask)[0])
        base = THREADS * self.groups.index(part.group)
        return f"{part.threads} threads from {base + first} at {instruction}"

    def _turn(self, group: Group) -> bool:
        """Let a warpgroup go until it waits or has told something; whether it went at all."""
        went = self.shared.told = False
        while group.parts and not self.shared.told:
            self._meet(group)
            able = filter(self._may, group.parts)
            part = min(able, key=lambda part: part.place, default=None)
            if part is None:
                break
            went = True
            self._go(part)
        return went

    def _meet(self, group: Group) -> None:
        if len(group.parts) < 2:
            return
        by_place: dict[tuple[int, Any], list[Part]] = {}
        for part in group.parts:
            by_place.setdefault((part.place, part.barrier), []).append(part)
        for parts in by_place.values():
            for other in parts[1:]:
                mask = parts[0].mask | other.mask
                parts[0].mask = None if mask.all() else mask
                group.parts.remove(other)

    def _may(self, part: Part) -> bool:
        if part.barrier is not None:
            number, count = part.barrier
            if self.opened.get(number, 0) == count:
                return False
            part.barrier = None
            return True
        x = self.program.kernel.instructions[part.place]
        if x.opcode.startswith("mbarrier.try_wait"):
            return self._ready(part)
        if part.mask is not None:
            if x.opcode.startswith("wgmma"):
                return False
            if named(x.opcode, TOGETHER) and not part.whole_warps:
                return False
        return True

    def _ready(self, part: Part) -> bool:
        addresses, parities = self._asked(part)
        return part.group.device.ended(addresses, parities, part.mask)

    def _asked(self, part: Part) -> tuple[Any, Any]:
        """The barriers that threads wait for, and the phases by their parity."""
        _, at, parity = (str(o) for o in self.program.kernel.instructions[part.place].operands)
        index, registers = self.program.index, part.group.registers
        known = registers[index[parity]] if parity in index else np.full(THREADS, int(parity, 0))
        return registers[index[at]], known

    def _awaited(self) -> set[int]:
        """The barriers that anybody waits for."""
        found: set[int] = set()
        for part in (part for group in self.groups for part in group.parts):
            opcode = self.program.kernel.instructions[part.place].opcode
            if part.barrier is None and opcode.startswith("mbarrier.try_wait"):
                addresses = self._asked(part)[0]
                found |= set((addresses if part.mask is None else addresses[part.mask]).tolist())
        return found

    def _go(self, part: Part) -> None:
        """A block of instructions and what ends it, or as much of it as these threads may."""
        program, device, registers = self.program, part.group.device, part.group.registers
        place = part.place
        if part.mask is None and place in program.blocks:
            block, end = program.blocks[place]
            block(device, registers, None)
            part.place = end
            if end in program.blocks and program.steps[end] is not None:
                return
        else:
            while (step := program.steps[part.place]) is not None:
                if part.place != place and not self._may(part):
                    return
                step(device, registers, part.mask)
                part.place += 1
                if part.place in program.blocks:
                    return
        if self._may(part):
            self._end(part)

    def _end(self, part: Part) -> None:
        """The instruction that ends a block: a branch, a wait, or the end."""
        x = self.program.kernel.instructions[part.place]
        kernel, registers, index = self.program.kernel, part.group.registers, self.program.index
        base = x.opcode.split(".")[0]
        if base == "bra":
            self._branch(part, kernel.labels[str(x.operands[0])], x.guard)
        elif base == "brx":
            places = np.array([kernel.labels[to] for to in kernel.targets[str(x.operands[1])]])
            which = registers[index[str(x.operands[0])]]
            self._part(part, places[np.minimum(which, len(places) - 1)])
        elif base in ("ret", "exit"):
            part.group.device.end(part.mask)
            part.group.parts.remove(part)
        elif base == "mbarrier":
            done = index[str(x.operands[0])]
            truths = np.ones(THREADS, bool)
            registers[done] = Device.under(part.mask, truths, registers[done])
            part.place += 1
        else:
            self._arrive(part, x.operands)

    def _arrive(self, part: Part, operands: Any) -> None:
        registers, index = part.group.registers, self.program.index

        def number(operand: str) -> int:
            return int(registers[index[operand]][0]) if operand in index else int(operand, 0)

        which = number(operands[0])
        count = number(operands[1]) if len(operands) > 1 else self.threads
        self.arrived[which] = self.arrived.get(which, 0) + part.threads
        part.place += 1
        if self.arrived[which] >= count:
            self.arrived[which] = 0
            self.opened[which] = self.opened.get(which, 0) + 1
        else:
            part.barrier = which, self.opened.get(which, 0)

    def _branch(self, part: Part, to: int, guard: tuple[bool, str] | None) -> None:
        if guard is None:
            part.place = to
            return
        truths = np.broadcast_to(part.group.registers[self.program.index[guard[1]]], THREADS)
        self._part(part, np.where(truths != guard[0], to, part.place + 1))

    def _part(self, part: Part, places: Any) -> None:
        """Each thread to its place."""
        there = places if part.mask is None else places[part.mask]
        wanted = np.unique(there)
        part.place = int(wanted[0])
        mask = np.ones(THREADS, bool) if part.mask is None else part.mask
        for place in wanted[1:]:
            part.group.parts.append(Part(part.group, mask & (places == place), int(place)))
        if len(wanted) > 1:
            part.mask = mask & (places == wanted[0])


def _filled(value: Any, size: int) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(f"u{size}")
    if isinstance(value, float):
        return np.full(THREADS, np.float32(value)).view(np.uint32)
    return np.full(THREADS, int(value) % (1 << 8 * size), f"u{size}")


def launch(
    program: Program, programs: int, warps: int, shared: int, arguments: list[Any],
    tensors: list[Any], pace: Pace,
) -> None:  # fmt: skip
    """Run all programs; arguments are numbers, addresses and Described tensors, in PTX's order."""
    described: dict[int, Described] = {}
    values: dict[str, Any] = {
        "%nctaid.x": programs, "%ctaid.y": 0, "%ctaid.z": 0, "global_smem": FIRST,
    }  # fmt: skip
    for (name, _), argument in zip(program.kernel.params, arguments, strict=True):
        if isinstance(argument, Described):
            values[name] = PARAMS + 128 * len(described)
            described[values[name]] = argument
        else:
            values[name] = argument
    memory = Tensors(tensors)
    with np.errstate(all="ignore"):
        for where in range(programs):
            own = Shared(shared)
            Machine(
                program, memory, own, described, warps, {**values, "%ctaid.x": where}, pace
            ).run()
