"""What PTX instructions compute from registers alone, for all threads of a warpgroup at once.

A register is an array of 128 unsigned numbers of its size, or of truths. An instruction becomes a
line of Python in which its operands have the types that it reads them as.
"""

from __future__ import annotations

from typing import Any

import numpy as np

THREADS = 128
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
TYPES: dict[str, Any] = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16,
    **{f"{kind}{8 * size}": np.dtype(f"{letter}{size}").type
       for size in UNSIGNED for kind, letter in (("s", "i"), ("u", "u"), ("b", "u"))},
    "bf16": np.uint16, "bf16x2": np.uint32, "f16x2": np.uint32,
}  # fmt: skip
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
            "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip
OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


# By name without type, and by name with type where that decides: Python over operands 0, 1, 2, ….
LINES: dict[str, str] = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "mul.lo": "{0} * {1}",
    "mad.lo": "{0} * {1} + {2}", "neg": "-{0}", "abs": "np.abs({0})", "not": "~{0}",
    "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}",
    "min": "np.minimum({0}, {1})", "max": "np.maximum({0}, {1})",
    "min.f32": "np.fmin({0}, {1})", "max.f32": "np.fmax({0}, {1})",
    "max.NaN.f32": "np.maximum({0}, {1})", "min.NaN.f32": "np.minimum({0}, {1})",
    "min.relu": "np.maximum(np.minimum({0}, {1}), 0)",
    "max.relu": "np.maximum(np.maximum({0}, {1}), 0)",
    "mul.wide": "wide({0}) * wide({1})", "mad.wide": "wide({0}) * wide({1}) + {2}",
    "mul.hi.u32": "((wide({0}) * wide({1})) >> 32).astype(np.uint32)",
    "mul.hi.s32": "((wide({0}) * wide({1})) >> 32).astype(np.int32)",
    "fma": "fma({0}, {1}, {2})", "fma.ftz": "flushed(fma({0}, {1}, {2}))",
    "add.ftz": "flushed({0} + {1})", "sub.ftz": "flushed({0} - {1})",
    "mul.ftz": "flushed({0} * {1})", "abs.ftz": "np.abs(flushed({0}))",
    "div.full.f32": "{0} / {1}", "div.f32": "{0} / {1}", "div.full.ftz.f32": "flushed({0} / {1})",
    "div.s32": "toward_zero({0}, {1})", "div.u32": "{0} // {1}",
    "rem.s32": "{0} - {1} * toward_zero({0}, {1})", "rem.u32": "{0} % {1}",
    "ex2.approx.ftz": "flushed(np.exp2({0}))", "ex2.approx": "np.exp2({0})",
    "lg2.approx.ftz": "np.log2(flushed({0}))", "lg2.approx": "np.log2({0})",
    "rcp.approx.ftz": "flushed(np.float32(1) / {0})", "tanh.approx": "rough(np.tanh({0}))",
    "sqrt": "np.sqrt({0})", "sqrt.approx.ftz": "np.sqrt(flushed({0}))",
    "shl": "shifted(np.left_shift, {0}, {1})", "shr": "shifted(np.right_shift, {0}, {1})",
    "shf.l.wrap": "turned({0}, {1}, {2})", "shf.r.wrap": "turned({0}, {1}, 32 - {2})",
    "bfe": "field({0}, {1}, {2})", "prmt": "permuted({0}, {1}, {2})",
    "mov": "{0}", "popc": "popcount({0})", "cvta.param": "{0}", "cvta": "{0}", "cvta.to": "{0}",
    "add.bf16x2": "on_pairs(np.add, {0}, {1})", "sub.bf16x2": "on_pairs(np.subtract, {0}, {1})",
    "mul.bf16x2": "on_pairs(np.multiply, {0}, {1})",
    "max.NaN.bf16x2": "on_pairs(np.maximum, {0}, {1})",
    "fma.bf16x2": "on_pairs(fma, {0}, {1}, {2})",
    "add.f16x2": "on_halves(np.add, {0}, {1})", "sub.f16x2": "on_halves(np.subtract, {0}, {1})",
    "mul.f16x2": "on_halves(np.multiply, {0}, {1})",
    "max.NaN.f16x2": "on_halves(np.maximum, {0}, {1})",
    "fma.f16x2": "on_halves(fma, {0}, {1}, {2})",
    "cvt.bf16x2.f32": "pair(rounded({0}), rounded({1}))",
    "cvt.f16x2.f32": "pair(half({0}), half({1}))",
    "cvt.bf16.f32": "rounded({0})", "cvt.f32.bf16": "widened({0})",
}  # fmt: skip
PLAIN = {"rn", "rz", "rni", "rzi", "uni", "sat"}  # says nothing that a line depends on


def line_of(opcode: str) -> tuple[str, list[Any]]:
    """An instruction as Python over its sources, and the types of those."""
    base, *between = opcode.split(".")
    kind = between.pop() if between else ""
    if base == "setp":
        return _comparison(between[0], kind)
    if base == "selp":
        read = UNSIGNED[np.dtype(TYPES[kind]).itemsize]
        return "np.where({2}, {0}, {1})", [read, read, bool]
    if base == "lop3":
        return "table({0}, {1}, {2}, {3})", [np.uint32] * 3 + [int]
    if base == "cvt":
        to = next(x for x in between if x not in PLAIN and x != "ftz")
        return _conversion(to, kind, between)
    if kind == "pred":
        return {"mov": "{0}", "not": "~{0}", "and": "{0} & {1}", "or": "{0} | {1}",
                "xor": "{0} ^ {1}"}[base], [bool, bool]  # fmt: skip
    stem = ".".join([base, *(x for x in between if x not in PLAIN)])
    for name in (f"{stem}.{kind}", stem):
        if name in LINES:
            line = LINES[name]
            break
    else:
        raise NotImplementedError(opcode)
    read = TYPES[kind]
    if base in ("shl", "shr"):
        return line, [read, np.uint32]
    if base == "shf" or base == "prmt":
        return line, [np.uint32] * 3
    if base == "bfe":
        return line, [read, int, int]
    if stem == "mad.wide":
        return line, [read, read, TYPES[f"{kind[0]}{2 * int(kind[1:])}"]]
    return line, [read] * 3


def _comparison(how: str, kind: str) -> tuple[str, list[Any]]:
    a, b = "{0}", "{1}"
    read = TYPES[kind]
    if kind == "bf16":
        a, b, read = "widened({0})", "widened({1})", np.uint16
    if how in ("nan", "num"):
        line = f"np.isnan({a}) | np.isnan({b})"
        return (line if how == "nan" else f"~({line})"), [read, read]
    real = kind in ("f16", "f32", "f64", "bf16")
    if real and how.endswith("u"):  # or unordered
        opposite = OPPOSITE[how[:-1]]
        if opposite in ("eq", "ne"):
            return f"({a} {COMPARED[how[:-1]]} {b}) | np.isnan({a}) | np.isnan({b})", [read, read]
        return f"~({a} {COMPARED[opposite]} {b})", [read, read]
    if real and how == "ne":
        return f"({a} != {b}) & ~np.isnan({a}) & ~np.isnan({b})", [read, read]
    return f"{a} {COMPARED[how]} {b}", [read, read]


def _conversion(to: str, kind: str, how: list[str]) -> tuple[str, list[Any]]:
    named = f"cvt.{to}.{kind}"
    if named in LINES:
        return LINES[named], [TYPES[kind]] * 2
    target = np.dtype(TYPES[to])
    inner = "np.rint({0})" if "rni" in how else "{0}"
    line = f"{inner}.astype('{target.str}')"
    if target.itemsize == 1:  # no register is as small
        line += f".astype('{target.kind}2')"
    return line, [TYPES[kind]]


# What the lines call.


def wide(x: Any) -> Any:
    return x.astype(np.dtype(f"{x.dtype.kind}{2 * x.dtype.itemsize}"))


def fma(x: Any, y: Any, z: Any) -> Any:
    if x.dtype == np.float16:
        return (x.astype(np.float64) * y + z).astype(np.float16)
    return (x.astype(np.float64) * y + z).astype(np.float32)


def flushed(x: Any) -> Any:
    return np.where(np.abs(x) < np.float32(2.0**-126), np.float32(0), x)


def rough(x: Any) -> Any:
    """To the 11 bits that an approximation has."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def toward_zero(x: Any, y: Any) -> Any:
    whole = np.abs(x.astype(np.int64)) // np.abs(y.astype(np.int64))
    return (np.sign(x) * np.sign(y) * whole).astype(x.dtype)


def shifted(shift: Any, x: Any, by: Any) -> Any:
    """Beyond a number's bits, 0 or its sign."""
    bits = 8 * x.dtype.itemsize
    most = np.minimum(by, bits - 1).astype(x.dtype)
    if shift is np.right_shift and x.dtype.kind == "i":
        return np.right_shift(x, most)
    return np.where(by < bits, shift(x, most), x.dtype.type(0))


def turned(low: Any, high: Any, by: Any) -> Any:
    """The upper half of two words turned left."""
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    return (both >> (np.uint64(32) - (by & np.uint32(31)).astype(np.uint64))).astype(np.uint32)


def field(x: Any, start: int, count: int) -> Any:
    bits = 8 * x.dtype.itemsize
    left = np.left_shift(x, x.dtype.type(max(0, bits - start - count)))
    return np.right_shift(left, x.dtype.type(bits - min(count, bits - start)))


def permuted(x: Any, y: Any, choice: Any) -> Any:
    """Bytes of two words by a number of four digits; the top bit of one asks for the sign."""
    both = (y.astype(np.uint64) << np.uint64(32)) | x
    found = np.zeros(np.broadcast(both, choice).shape, np.uint32)
    for i in range(4):
        digit = (choice >> np.uint32(4 * i)) & np.uint32(15)
        down = (8 * (digit & np.uint32(7))).astype(np.uint64)
        byte = (both >> down).astype(np.uint32) & np.uint32(255)
        sign = np.where(byte >> np.uint32(7) != 0, np.uint32(255), np.uint32(0))
        found |= np.where(digit >> np.uint32(3) != 0, sign, byte) << np.uint32(8 * i)
    return found


def table(x: Any, y: Any, z: Any, which: int) -> Any:
    found = np.uint32(0)
    for i in range(8):
        if which >> i & 1:
            found = found | (x if i & 4 else ~x) & (y if i & 2 else ~y) & (z if i & 1 else ~z)
    return found


def popcount(x: Any) -> Any:
    bits = np.unpackbits(x.view(np.uint8).reshape(-1, x.dtype.itemsize), axis=1)
    return bits.sum(1).astype(np.uint32)


def widened(x: Any) -> Any:
    """bfloat16 as float32."""
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)


def rounded(x: Any) -> Any:
    """float32 as bfloat16, to the nearest, ties to even."""
    bits = x.view(np.uint32)
    up = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint32(0x7FFF), up).astype(np.uint16)


def half(x: Any) -> Any:
    return x.astype(np.float16).view(np.uint16)


def pair(high: Any, low: Any) -> Any:
    return (high.astype(np.uint32) << np.uint32(16)) | low


def halves(x: Any) -> tuple[Any, Any]:
    return (x >> np.uint32(16)).astype(np.uint16), x.astype(np.uint16)


def on_pairs(step: Any, *pairs: Any) -> Any:
    """An operation on two bfloat16 numbers each, rounded once."""
    high, low = zip(*(halves(x) for x in pairs), strict=True)
    return pair(rounded(step(*map(widened, high))), rounded(step(*map(widened, low))))


def on_halves(step: Any, *pairs: Any) -> Any:
    high, low = zip(*(halves(x) for x in pairs), strict=True)
    results = (step(*(x.view(np.float16) for x in side)) for side in (high, low))
    return pair(*(x.view(np.uint16) for x in results))
