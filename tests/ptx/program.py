"""PTX made into Python: a function for each block of instructions, and one for each instruction.

Blocks are run by a whole warpgroup whose threads are all there; single instructions by a part of
one, with a mask of its threads. What they compute is in `arithmetic.py`, what they do besides in
`device.py`, which they are given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.ptx import arithmetic
from tests.ptx.arithmetic import THREADS, TYPES, UNSIGNED, line_of
from tests.ptx.text import Instruction, Kernel, Operand

Step = Callable[[Any, list[Any], Any], None]  # of a device, registers and a mask
SIZES = {"r": 4, "f": 4, "rd": 8, "fd": 8, "rs": 2, "h": 2, "rh": 2}
NOTHING = ("setmaxnreg", "griddepcontrol", "wgmma.fence", "prefetch", "membar", "nanosleep")
ENDS = ("bra", "brx", "ret", "exit", "bar.sync", "barrier.sync", "mbarrier.try_wait")
WAITS = re.compile(r"(wgmma|cp\.async\.bulk|cp\.async)\.(commit|wait)_group.*")
WARPS_PRODUCT = re.compile(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(bf16|f16)\.\1\.f32")
TELLS = ("mbarrier.arrive",)  # after these another warpgroup may go on
TOGETHER = ("mma", "shfl", "redux", "vote", "elect", "ldmatrix", "stmatrix", "bar.warp")


def named(opcode: str, names: tuple[str, ...]) -> bool:
    return any(opcode == name or opcode.startswith(name + ".") for name in names)


@dataclass
class Program:
    kernel: Kernel
    index: dict[str, int] = field(default_factory=dict)  # of registers, by name
    constants: list[Any] = field(default_factory=list)
    steps: list[Step | None] = field(default_factory=list)  # None where a block ends
    blocks: dict[int, tuple[Step, int]] = field(default_factory=dict)  # by place: it, and its end

    def __post_init__(self) -> None:
        code = [self._lines(x) for x in self.kernel.instructions]
        names = {name: getattr(arithmetic, name) for name in dir(arithmetic)}
        names |= {"np": np, "K": self.constants}
        count = len(code)
        source = []
        for i, lines in enumerate(code):
            if lines is not None:
                body = [x for line in lines for x in _under(line)] or ["pass"]
                source += [f"def step{i}(D, R, M):", *(f"    {x}" for x in body)]
        exec("\n".join(source), names)
        self.steps = [names.get(f"step{i}") for i in range(count)]
        begins = {0, *self.kernel.labels.values()}
        begins |= {i + 1 for i in range(count) if code[i] is None}
        begins |= {i + 1 for i, x in enumerate(self.kernel.instructions) if named(x.opcode, TELLS)}
        source, ends = [], {}
        for begin in sorted(x for x in begins if x < count):
            end = begin
            while end < count and code[end] is not None and (end == begin or end not in begins):
                end += 1
            ends[begin] = end
            lines = [x for one in code[begin:end] for line in one or () for x in _whole(line)]
            source += [f"def block{begin}(D, R, M):", *(f"    {x}" for x in lines or ["pass"])]
        exec("\n".join(source), names)
        self.blocks = {begin: (names[f"block{begin}"], end) for begin, end in ends.items()}

    def register(self, name: str) -> int:
        return self.index.setdefault(name, len(self.index))

    def size(self, name: str) -> int:
        """A register's bytes; 0 of a truth."""
        kind = self.kernel.kinds.get(name)
        if kind is None:
            found = re.fullmatch(r"%([a-z]+)\d+", name)
            kind = found[1] if found else name
            if kind == "p":
                return 0
            if kind in SIZES:
                return SIZES[kind]
            kind = dict(self.kernel.params).get(name, "u32")
            return 8 if kind == "b8" else np.dtype(TYPES[kind]).itemsize
        return 0 if kind == "pred" else np.dtype(TYPES[kind]).itemsize

    def read(self, operand: Operand, kind: Any) -> str:
        """Python for an operand that is read as that type."""
        assert isinstance(operand, str)
        if operand.startswith("!"):
            return f"~R[{self.register(operand[1:])}]"
        if re.match(r"[%A-Za-z_$]", operand):
            place = f"R[{self.register(operand)}]"
            size = self.size(operand)
            if kind is bool or size == 0 or kind is UNSIGNED.get(size):
                return place
            if (own := np.dtype(kind).itemsize) != size:  # its lower bits
                if own > size:
                    raise NotImplementedError(f"{operand} read as {kind}")
                place = f"{place}.astype('u{own}')"
            self.constants.append(kind)
            return f"{place}.view(K[{len(self.constants) - 1}])"
        if kind is int:
            return operand
        self.constants.append(_number(operand, kind))
        return f"K[{len(self.constants) - 1}]"

    def _lines(self, x: Instruction) -> list[tuple[str, ...]] | None:
        """(destination, value, guard) of an instruction; None where a block ends."""
        guard = ""
        if x.guard is not None:
            guard = f"{'~' if x.guard[0] else ''}R[{self.register(x.guard[1])}]"
        if named(x.opcode, ENDS):
            return None
        if named(x.opcode, NOTHING):
            return []
        special = self._special(x)
        if special is not None:
            return [(*one, guard) for one in special]
        to, *given = x.operands
        if x.opcode.startswith("mov") and (isinstance(to, tuple) or isinstance(given[0], tuple)):
            return [(*one, guard) for one in self._packed(to, given[0])]
        if x.opcode.endswith("f16x2") and x.opcode.startswith("setp"):
            return [(*one, guard) for one in self._pair_compared(x)]
        line, kinds = line_of(x.opcode)
        try:
            values = [self.read(g, k) for g, k in zip(given, kinds, strict=False)]
        except NotImplementedError as error:
            raise NotImplementedError(f"{x}: {error}") from None
        value = line.format(*values)
        assert isinstance(to, str)
        if not any("R[" in v for v in values):
            value = f"np.full({THREADS}, {value})"
        return [(*self._into(to, value), guard)]

    def _into(self, to: str, value: str) -> tuple[str, str]:
        size = self.size(to)
        value = value if size == 0 else f"({value}).view('u{size}')"
        return f"R[{self.register(to)}]", value

    def _packed(self, to: Operand, given: Operand) -> list[tuple[str, str]]:
        if isinstance(to, tuple):
            assert isinstance(given, str)
            size = self.size(given) // len(to)
            whole = self.read(given, UNSIGNED[self.size(given)])
            return [
                self._into(name, f"({whole} >> {8 * size * i}).astype('u{size}')")
                for i, name in enumerate(to) if isinstance(name, str) and name != "_"
            ]  # fmt: skip
        assert isinstance(given, tuple)
        size = self.size(to) // len(given)
        parts = [self.read(x, UNSIGNED[size]) for x in given]
        value = " | ".join(
            f"({part}).astype('u{self.size(to)}') << {8 * size * i}" for i, part in enumerate(parts)
        )
        return [self._into(to, f"np.broadcast_to({value}, {THREADS})")]

    def _pair_compared(self, x: Instruction) -> list[tuple[str, str]]:
        """Truths of the lower and the upper halves."""
        how = x.opcode.split(".")[1]
        names = str(x.operands[0]).split("|")
        line, _ = line_of(f"setp.{how}.f32")
        found = []
        for i, name in enumerate(names):
            pairs = [self.read(g, np.uint32) for g in x.operands[1:3]]
            halves = [f"({pair} >> {16 * i}).astype('u2')" for pair in pairs]
            brain = x.opcode.endswith("bf16x2")
            halves = [f"widened({y})" if brain else f"({y}).view('f2')" for y in halves]
            found.append((f"R[{self.register(name)}]", line.format(*halves)))
        return found

    def _address(self, operand: Operand) -> str:
        assert isinstance(operand, str)
        base, _, offset = operand.replace(" ", "").partition("+")
        steps = int(offset or "0", 0)
        place = f"R[{self.register(base)}]"
        return f"{place} {'-' if steps < 0 else '+'} {abs(steps)}" if steps else place

    def _special(self, x: Instruction) -> list[tuple[str, ...]] | None:
        """Calls of the device; ("", call) where it has no result."""
        parts = x.opcode.split(".")
        ops = x.operands
        if parts[0] == "ld" and parts[1] == "param":
            value = self.read(ops[1], TYPES[parts[-1]])
            return [self._into(ops[0], self._held(ops[0], parts[-1], value))]
        if parts[0] in ("ld", "st"):
            return self._moved(x, parts)
        if parts[0] == "atom":
            size = np.dtype(TYPES[parts[-1]]).itemsize
            value = self.read(ops[2], TYPES[parts[-1]])
            call = f"D.atomic({parts[-2]!r}, {self._address(ops[1])}, {value}, M)"
            return [self._into(ops[0], f"({call}).astype('u{size}')")]  # type: ignore[arg-type]
        if parts[0] == "fence":
            return [("", "D.fence()")] if "proxy" in parts else []
        if parts[0] == "mbarrier":
            return [("", self._barrier(parts[1], x))]
        if waits := WAITS.fullmatch(x.opcode):
            left = f"{int(str(ops[0]), 0)}" if waits[2] == "wait" else ""
            if waits[1] != "cp.async.bulk":
                work = "products" if waits[1] == "wgmma" else "copies"
                return [("", f"D.{work}.{waits[2]}({left})")]
            return [("", f"D.{waits[2]}_stores({', '.join(filter(None, (left, 'M')))})")]
        if x.opcode.startswith(("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")):
            bulk = [ops[0], ops[1]] if "::complete_tx" in x.opcode else [ops[1], ops[0]]
            descriptor, corner = bulk[1]
            at = ", ".join(self.read(c, np.int32) for c in corner)
            last = self._address(ops[2]) if "::complete_tx" in x.opcode else str("add" in parts)
            verb = "tma_load" if "::complete_tx" in x.opcode else "tma_store"
            place, tensor = self._address(bulk[0]), f"R[{self.register(descriptor)}]"
            return [("", f"D.{verb}({place}, {tensor}, [{at}], {last}, M)")]
        if x.opcode.startswith("cp.async."):
            size = int(str(ops[2]), 0)
            given = self.read(ops[3], np.uint32) if len(ops) > 3 else str(size)
            to, source = self._address(ops[0]), self._address(ops[1])
            return [("", f"D.copy({to}, {source}, {size}, {given}, M)")]
        if parts[0] == "wgmma":
            return [self._product(x)]
        if parts[0] == "mma":
            return self._warps_product(x)
        if named(x.opcode, TOGETHER):
            return self._together(x, parts)
        return None

    def _moved(self, x: Instruction, parts: list[str]) -> list[tuple[str, ...]]:
        """Loads and stores of one number or several that lie together."""
        size = np.dtype(TYPES[parts[-1]]).itemsize
        space = "shared" if any(p.startswith("shared") for p in parts) else "tensors"
        place, numbers = (x.operands[1], x.operands[0]) if parts[0] == "ld" else x.operands[:2]
        numbers = numbers if isinstance(numbers, tuple) else (numbers,)
        found = []
        for i, number in enumerate(numbers):
            at = f"{self._address(place)} + {i * size}" if i else self._address(place)
            if parts[0] == "ld":
                value = f"D.load(D.{space}, {at}, {size}, M)"
                value = self._held(number, parts[-1], value)
                found.append((f"R[{self.register(str(number))}]", value))
            else:
                is_register = isinstance(number, str) and not re.match(r"-?\d|0[xfd]", number)
                held = self.size(str(number)) if is_register else size
                value = self.read(number, UNSIGNED[held])
                value = value if held == size else f"({value}).astype('u{size}')"
                found.append(("", f"D.store(D.{space}, {at}, {value}, M)"))
        return found

    def _held(self, register: Operand, kind: str, value: str) -> str:
        """A number of that type as a register holds it, which may be wider."""
        size, held = np.dtype(TYPES[kind]).itemsize, self.size(str(register))
        if held == size:
            return value
        return f"{value}.view('{'i' if kind[0] == 's' else 'u'}{size}').astype('u{held}')"

    def _barrier(self, verb: str, x: Instruction) -> str:
        if verb == "init":
            return f"D.begin({self._address(x.operands[0])}, {self.read(x.operands[1], int)}, M)"
        _, place, *more = x.operands
        bytes = self.read(more[0], np.uint32) if "expect_tx" in x.opcode else "0"
        return f"D.arrive({self._address(place)}, {bytes}, M)"

    def _product(self, x: Instruction) -> tuple[str, str]:
        found = re.search(r"m64n(\d+)k16\.f32\.(bf16|f16)", x.opcode)
        if found is None:
            raise NotImplementedError(x.opcode)
        sums, left, right, more, _, _, *turned = x.operands
        assert isinstance(sums, tuple)
        places = [self.register(str(name)) for name in sums]
        if isinstance(left, tuple):
            given = str([self.register(str(name)) for name in left])
            turned = ["0", *turned]
        else:
            given = f"R[{self.register(left)}]"
        adds = self.read(more, bool) if str(more).startswith("%") else str(bool(int(str(more))))
        return "", (f"D.product(R, {places}, {given}, R[{self.register(str(right))}], {adds}, "
                    f"{int(turned[0])}, {int(turned[1])}, {found[2]!r}, M)")  # fmt: skip

    def _warps_product(self, x: Instruction) -> list[tuple[str, str]]:
        found = WARPS_PRODUCT.fullmatch(x.opcode)
        if found is None:
            raise NotImplementedError(x.opcode)
        to, left, right, sums = (
            [f"R[{self.register(str(name))}]" for name in group] for group in x.operands
        )
        given = ", ".join(f"[{', '.join(group)}]" for group in (left, right, sums))
        return [(", ".join(to), f"D.warps_product({given}, {found[1]!r})")]

    def _together(self, x: Instruction, parts: list[str]) -> list[tuple[str, ...]]:
        ops = x.operands
        if parts[0] == "bar":
            return []
        if parts[0] == "elect":
            return [(f"R[{self.register(str(ops[0]).split('|')[1])}]", "D.elected(M)")]
        if parts[0] == "shfl":
            given, by = self.read(ops[1], np.uint32), self.read(ops[2], np.uint32)
            return [self._into(str(ops[0]), f"D.shuffled({parts[2]!r}, {given}, {by})")]
        if parts[0] == "redux":
            given = self.read(ops[1], TYPES[parts[-1]])
            return [self._into(str(ops[0]), f"D.reduced({parts[2]!r}, {given})")]
        if parts[0] == "vote":
            given = self.read(ops[1], bool)
            return [(f"R[{self.register(str(ops[0]))}]", f"D.voted({parts[2]!r}, {given}, M)")]
        matrix, place = (ops[0], ops[1]) if parts[0] == "ldmatrix" else (ops[1], ops[0])
        names = [f"R[{self.register(str(name))}]" for name in matrix]
        turned = "trans" in parts
        if parts[0] == "ldmatrix":
            call = f"D.matrices({self._address(place)}, {len(names)}, {turned})"
            return [(", ".join(names), call)]
        return [("", f"D.keep_matrices({self._address(place)}, [{', '.join(names)}], {turned})")]


def _under(line: tuple[str, ...]) -> list[str]:
    """Code of an instruction that only the threads of the mask M carry out."""
    to, value, guard = line
    lines = []
    if guard:
        lines += [f"G = {guard}", "M = G if M is None else M & G", "if not M.any(): return"]
    if not to:
        return [*lines, value]
    places = to.split(", ")
    if len(places) > 1:
        each = [f"{place} = D.under(M, T[{i}], {place})" for i, place in enumerate(places)]
        return [*lines, f"T = {value}", *each]
    return [*lines, f"{to} = D.under(M, {value}, {to})"]


def _whole(line: tuple[str, ...]) -> list[str]:
    """The same where all threads are there."""
    to, value, guard = line
    if guard:
        call = value.replace(", M)", ", G)").replace("(M)", "(G)")
        if not to:
            return [f"G = {guard}", f"if G.any(): {call}"]
        return [f"G = {guard}", f"if G.any(): {to} = D.under(G, {call}, {to})"]
    if not to:
        return [value]
    return [f"{to} = {value}"]


def _number(text: str, kind: Any) -> Any:
    text = text.removesuffix("U")
    if kind is bool:
        return bool(int(text, 0))
    if text.startswith(("0f", "0F")):
        bits = np.uint32(int(text[2:], 16))
        return bits.view(kind) if np.dtype(kind).itemsize == 4 else bits
    if text.startswith(("0d", "0D")):
        return np.uint64(int(text[2:], 16)).view(kind)
    kind = np.dtype(kind)
    if kind.kind == "f":
        return kind.type(float(text))
    size = kind.itemsize
    return np.array(int(text, 0) % (1 << 8 * size), f"u{size}").view(kind)[()]
