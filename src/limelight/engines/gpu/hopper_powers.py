"""Powers of 2 and tanh for the Hopper kernels, and what a softcap makes of a block's dot products.

A row's weights are 2^(c·tanh(a·x) - top), x its dot products. They count from the row's maximum,
which is needed anyway and decides how tanh is made: `bent`, in one stretch of code with the powers.
"""

# mypy: ignore-errors
from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def exp2(x):
    return gl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def tanh(x):
    """tanh to float32 rounding: an odd polynomial near 0, (1-u)/(1+u) with u = e^(-2|x|) beyond."""
    a = gl.abs(x)
    z = x * x
    near = x * (1.0 + z * (-0.33333333 + z * (0.13333333 + z * (-0.05396825 + z * 0.021869488))))
    u = exp2(a * -2.8853900817779268)
    far = (1.0 - u) / (1.0 + u)
    far = gl.where(x < 0.0, -far, far)
    return gl.where(a < 0.25, near, far)


# tanh as x·P(x²) where |x| is below 1/2: SHORT to an error of 2e-7, LONG to 1e-7 of the value.
SHORT = (1.0, -0.333264619, 0.131858617, -0.0442292877)
LONG = (0.99999999, -0.33333069, 0.13324779, -0.05298604, 0.01713494)


@gluon.constexpr_function
def _quick_tanh_asm(count, exact):
    """PTX of tanh(a·x) for a thread's numbers: a polynomial where all of a warp's are below 1/2.

    SHORT takes x and has a in its coefficients; LONG takes a·x, as its last coefficient would have
    a⁹. Beyond, 1 - 2/(1 + e^2ax). Operands: results, numbers in the same registers, a.
    """
    poly = LONG if exact else SHORT
    given = [f"${i}" for i in range(count)]
    a = f"${2 * count}"
    factors = ", ".join(f"c{i}" for i in range(len(poly)))
    lines = [".reg .pred near;", f".reg .f32 y, z, p, q, r, s, {factors};"]
    for i, x in enumerate(given):
        top = "pqrs"[i % 4]
        if i < 4:
            lines.append(f"abs.f32 {top}, {x};")
        else:
            lines += [f"abs.f32 y, {x};", f"max.f32 {top}, {top}, y;"]
    lines += ["max.f32 p, p, q;", "max.f32 r, r, s;", "max.f32 p, p, r;", f"mul.f32 p, p, {a};",
              "abs.f32 p, p;", "setp.lt.f32 near, p, 0.5;",
              "vote.sync.all.pred near, near, 0xffffffff;", "@!near bra FAR;",
              f"mul.f32 z, {a}, {a};", f"mov.f32 q, {1.0 if exact else a};"]  # fmt: skip
    for i, factor in enumerate(poly):
        lines += ["mul.f32 q, q, z;"] if i and not exact else []
        lines.append(f"mul.f32 c{i}, q, {factor};")
    for x in given:
        lines += [f"mul.f32 {x}, {x}, {a};"] if exact else []
        lines += [f"mul.f32 z, {x}, {x};", f"mov.f32 y, c{len(poly) - 1};"]
        lines += [f"fma.rn.f32 y, y, z, c{i};" for i in reversed(range(len(poly) - 1))]
        lines.append(f"mul.f32 {x}, y, {x};")
    lines += ["bra END;", "FAR:", f"mul.f32 q, {a}, 2.8853900817779268;"]
    for x in given:
        lines += [f"mul.f32 y, {x}, q;", "ex2.approx.ftz.f32 y, y;", "add.f32 y, y, 1.0;",
                  "rcp.approx.ftz.f32 y, y;",
                  f"fma.rn.f32 {x}, y, -2.0, 1.0;"]  # fmt: skip
    return "{ " + " ".join([*lines, "END:"]) + " }"


@gluon.constexpr_function
def _quick_tanh_constraints(count):
    return ",".join(["=f"] * count + [str(i) for i in range(count)] + ["f"] * count)


@gluon.jit
def quick_tanh(x, a, EXACT: gl.constexpr):
    """tanh(a·x) to 3e-7 of 1: enough for what a softcap of at most 64 makes of it.

    EXACT, where a largest logit is told: below 1/2, to float32 rounding.
    """
    COUNT: gl.constexpr = x.shape[1] // 2
    return gl.inline_asm_elementwise(
        _quick_tanh_asm(COUNT, EXACT), _quick_tanh_constraints(COUNT), [x, gl.full_like(x, a)],
        dtype=gl.float32, is_pure=True, pack=COUNT,
    )  # fmt: skip


# tanh as x·P(x²) to 3e-7 where |x| is below a bound, and falling where x falls: coefficients; and
# the distance from a row's maximum, in logits, at which what is below the bound weighs nothing.
NEAR, NEAR_DEPTH = gl.constexpr(0.25), 5.0
NEAR_TANH = (0.99999863, -0.33315702, 0.12762232)
WIDE, WIDE_DEPTH = gl.constexpr(0.75), 10.0
WIDE_TANH = (0.99999723, -0.33323076, 0.13226092, -0.04928045, 0.01231883)


def squares(poly: tuple[float, ...]) -> tuple[float, ...]:
    """A polynomial in z by completed squares, which have few numbers at a time.

    With t = z + shift it is k·(t² + rest), or k·((t² + square)² + slope·t + rest).
    """
    *lower, k = poly
    if len(lower) == 2:
        k0, k1 = (x / k for x in lower)
        return k1 / 2, k0 - (k1 / 2) ** 2, k
    k0, k1, k2, k3 = (x / k for x in lower)
    shift = k3 / 4  # so that there is no t³
    square = (k2 - 6 * shift**2) / 2
    slope = k1 - 2 * k2 * shift + 8 * shift**3
    rest = k0 - k1 * shift + k2 * shift**2 - 3 * shift**4 - square**2
    return shift, square, slope, rest, k


NEAR_SQUARES, WIDE_SQUARES = squares(NEAR_TANH), squares(WIDE_TANH)


class Bend(NamedTuple):
    """What c·tanh(a·x) is made of near 0, in one step less as it is of x and not of a·x.

    With t = x² + shift it is (t² + rest)·x·factor. All of this is the same for all of a warp, which
    matters: the tensor cores read registers meanwhile. The least maxima of rows that may take the
    one or the other polynomial are of tanh.
    """

    near_least: Any
    wide_least: Any
    shift: Any
    rest: Any
    factor: Any
    unit: Any  # -1/factor


def bend_of(a: float, c: float, softcap: float) -> Bend:
    shift, rest, k = NEAR_SQUARES
    factor = c * k * a**5
    return Bend(
        NEAR_DEPTH / softcap - NEAR.value, WIDE_DEPTH / softcap - WIDE.value,
        shift / a**2, rest / a**4, factor, -1.0 / factor,
    )  # fmt: skip


@gluon.constexpr_function
def _bent_asm(count, health):
    """PTX of y = c·tanh(a·x) - top and of 2^y for a thread's numbers of two rows, in three ways.

    A warp takes the widest polynomial that its rows need, and beyond them 1 - 2/(1 + e^2ax). The
    powers are made here since ptxas does not move what follows into a way. Operands: y where health
    asks for it, else the powers, and these; numbers in the first's registers, which way a row
    needs, top, a, c, shift, rest and factor of `Bend`, top times its unit.
    """
    first = 2 if health else 1
    names = "way", "top", "a", "c", "shift", "rest", "factor", "under"
    at = {name: (first + i) * count for i, name in enumerate(names, 1)}
    of = {name: f"${place}" for name, place in at.items()}
    power = count * (first - 1)

    def row(name, i):  # a thread's numbers are two of a row, then two of the other
        return f"${at[name] + i // 2 % 2 * 2}"

    lines = [".reg .pred p;", ".reg .f32 t, u, v, r, s, k0, k1;", ".reg .s32 w;",
             f"max.s32 w, {row('way', 0)}, {row('way', 2)};"]  # fmt: skip

    def taken_to(level):
        return [f"setp.le.s32 p, w, {level};", "vote.sync.all.pred p, p, 0xffffffff;",
                f"@!p bra PAST_{level};"]  # fmt: skip

    lines += taken_to(0)
    for i in range(count):
        lines += [f"fma.rn.f32 t, ${i}, ${i}, {of['shift']};", f"fma.rn.f32 u, t, t, {of['rest']};",
                  f"fma.rn.f32 u, u, ${i}, {row('under', i)};", f"mul.f32 ${i}, u, {of['factor']};",
                  f"ex2.approx.ftz.f32 ${i + power}, ${i};"]  # fmt: skip
    shift, square, slope, rest, k = WIDE_SQUARES
    lines += ["bra END;", "PAST_0:", *taken_to(1), f"neg.f32 r, {row('top', 0)};",
              f"neg.f32 s, {row('top', 2)};", f"mul.f32 k0, {of['c']}, {k};",
              f"mov.f32 k1, {rest};"]  # fmt: skip
    for i in range(count):
        lines += [f"mul.f32 v, ${i}, {of['a']};", f"fma.rn.f32 t, v, v, {shift};",
                  f"fma.rn.f32 u, t, t, {square};", f"fma.rn.f32 t, t, {slope}, k1;",
                  "fma.rn.f32 u, u, u, t;", "mul.f32 u, u, v;",
                  f"fma.rn.f32 ${i}, u, k0, {'s' if i // 2 % 2 else 'r'};",
                  f"ex2.approx.ftz.f32 ${i + power}, ${i};"]  # fmt: skip
    lines += ["bra END;", "PAST_1:"]
    lines += [f"sub.f32 r, {of['c']}, {row('top', 0)};", f"sub.f32 s, {of['c']}, {row('top', 2)};",
              f"mul.f32 k0, {of['a']}, 2.8853900817779268;",
              f"mul.f32 k1, {of['c']}, -2.0;"]  # fmt: skip
    for i in range(count):
        lines += [f"mul.f32 u, ${i}, k0;", "ex2.approx.ftz.f32 u, u;", "add.f32 u, u, 1.0;",
                  "rcp.approx.ftz.f32 u, u;",
                  f"fma.rn.f32 ${i}, u, k1, {'s' if i // 2 % 2 else 'r'};",
                  f"ex2.approx.ftz.f32 ${i + power}, ${i};"]  # fmt: skip
    return "{ " + " ".join([*lines, "END:"]) + " }"


@gluon.constexpr_function
def _bent_constraints(count, health):
    results = ["=f"] * count + ["=&f"] * (count if health else 0)
    numbers = ["r"] * count + ["f"] * (7 * count)
    return ",".join([*results, *(str(i) for i in range(count)), *numbers])


@gluon.jit
def bent(b, a, c, s, top, m, highest, HEALTH: gl.constexpr):
    """Exponents and powers of a block, c·tanh(a·s) - top; `highest` are its rows' dot products.

    m is the maximum of the rows' tanh, and top what they count from.
    """
    COUNT: gl.constexpr = s.shape[1] // 2
    x = highest * a
    near = (x < NEAR) & (m > b.near_least)
    wide = (x < WIDE) & (m > b.wide_least)
    way = gl.where(near, 0, gl.where(wide, 1, 2))
    given = [
        s, _over(way, s), _over(top, s), gl.full_like(s, a), gl.full_like(s, c),
        gl.full_like(s, b.shift), gl.full_like(s, b.rest), gl.full_like(s, b.factor),
        _over(top * b.unit, s),
    ]  # fmt: skip
    ASM: gl.constexpr = _bent_asm(COUNT, HEALTH)
    IN_OUT: gl.constexpr = _bent_constraints(COUNT, HEALTH)
    if HEALTH:
        return gl.inline_asm_elementwise(
            ASM, IN_OUT, given, dtype=(gl.float32, gl.float32), is_pure=True, pack=COUNT
        )
    w = gl.inline_asm_elementwise(ASM, IN_OUT, given, dtype=gl.float32, is_pure=True, pack=COUNT)
    return w, w


@gluon.jit
def _over(row, s):
    """A number for each row of a block."""
    return row[:, None].broadcast_to(s.shape)


@gluon.jit
def row_tanh(x, EXACT: gl.constexpr):
    """tanh of a row's maximum; roughly, where that is no figure but what exponents count from."""
    if EXACT:
        return tanh(x)
    return gl.inline_asm_elementwise(
        "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )
