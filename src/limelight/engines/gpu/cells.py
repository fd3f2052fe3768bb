"""What every portable kernel asks of a tile of cells: its logits, and which of them are allowed.

Kernel arguments come in groups, so that a signature reads as the call does: Array for a tensor of
four axes, Where for a mask, Form for what turns dot products into logits. A tile has rows and
columns; its rows may belong to several query heads (packed for decoding), so batch and head offsets
are added per row.
"""

# mypy: ignore-errors
from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
NOTHING = tl.constexpr(float("-inf"))


class Array(NamedTuple):
    """A tensor [batch, heads, length, size], by its strides."""

    ptr: Any
    sb: Any
    sh: Any
    sn: Any
    sd: Any


class Where(NamedTuple):
    """Which cells are allowed; low and high are the band, spans and dense may be None."""

    low: Any
    high: Any
    spans: Any
    spans_sb: Any
    spans_sh: Any
    spans_sq: Any
    dense: Any  # bytes [B|1, H|1, Nq|1, Nk|1], or None
    dense_sb: Any
    dense_sh: Any
    dense_sq: Any
    dense_sk: Any


class Form(NamedTuple):
    """Logits from dot products: scale, softcap (or None), bias [B|1, H|1, Nq|1, Nk|1] (or None)."""

    scale: Any
    softcap: Any
    bias: Any
    bias_sb: Any
    bias_sh: Any
    bias_sq: Any
    bias_sk: Any


@triton.jit
def tanh(x):
    """tanh to float32 rounding: an odd polynomial near 0, (1-u)/(1+u) with u = e^(-2|x|) beyond."""
    a = tl.abs(x)
    z = x * x
    near = x * (1.0 + z * (-0.33333333 + z * (0.13333333 + z * (-0.05396825 + z * 0.021869488))))
    u = tl.exp2(a * -2.8853900817779268)
    far = (1.0 - u) / (1.0 + u)
    return tl.where(a < 0.25, near, tl.where(x < 0.0, -far, far))


@triton.jit
def load_rows(x, b, heads, rows, inside, size, WIDTH: tl.constexpr):
    """Rows of an Array, [rows, WIDTH]; zeros outside. `heads` may be a number or one a row."""
    cols = tl.arange(0, WIDTH)
    at = tl.cast(b, tl.int64) * x.sb + tl.cast(heads, tl.int64) * x.sh + rows.to(tl.int64) * x.sn
    ptr = x.ptr + at[:, None] + (cols.to(tl.int64) * x.sd)[None, :]
    return tl.load(ptr, mask=inside[:, None] & (cols < size)[None, :], other=0.0)


@triton.jit
def store_rows(x, b, heads, rows, inside, size, tile, WIDTH: tl.constexpr):
    cols = tl.arange(0, WIDTH)
    at = tl.cast(b, tl.int64) * x.sb + tl.cast(heads, tl.int64) * x.sh + rows.to(tl.int64) * x.sn
    ptr = x.ptr + at[:, None] + (cols.to(tl.int64) * x.sd)[None, :]
    tl.store(ptr, tile.to(x.ptr.dtype.element_ty), mask=inside[:, None] & (cols < size)[None, :])


@triton.jit
def places(sb, sh, sq, sk, b, heads, rows, cols):
    """Offsets of rows × cols in an array [B|1, H|1, Nq|1, Nk|1]."""
    at = tl.cast(b, tl.int64) * sb + tl.cast(heads, tl.int64) * sh + rows.to(tl.int64) * sq
    return at[:, None] + (cols.to(tl.int64) * sk)[None, :]


@triton.jit
def allowed(where, b, heads, rows, cols, inside, BAND: tl.constexpr, SPANS: tl.constexpr):
    """Which cells may be attended to; `inside` [rows, cols] says which exist."""
    ok = inside
    if BAND:
        shift = cols[None, :] - rows[:, None]
        ok = ok & (shift >= where.low) & (shift <= where.high)
    if SPANS > 0:
        at = (
            tl.cast(b, tl.int64) * where.spans_sb
            + tl.cast(heads, tl.int64) * where.spans_sh
            + rows.to(tl.int64) * where.spans_sq
        )
        exists = tl.max(inside.to(tl.int32), 1) > 0
        within = inside & (cols < 0)[None, :]
        for r in tl.static_range(SPANS):
            first = tl.load(where.spans + at + 2 * r, mask=exists, other=0)
            last = tl.load(where.spans + at + 2 * r + 1, mask=exists, other=0)
            within = within | ((cols[None, :] >= first[:, None]) & (cols[None, :] < last[:, None]))
        ok = ok & within
    if where.dense is not None:
        at = places(where.dense_sb, where.dense_sh, where.dense_sq, where.dense_sk, b, heads, rows,
                    cols)  # fmt: skip
        ok = ok & (tl.load(where.dense + at, mask=ok, other=0) != 0)
    return ok


@triton.jit
def reach(where, b, heads, rows, exists, first, last, nk, BAND: tl.constexpr, SPANS: tl.constexpr):
    """The keys [low, high) that some row of a tile may see; first and last are its extreme rows."""
    low = 0
    high = nk
    if BAND:
        low = tl.maximum(first + where.low, 0)
        high = tl.minimum(last + where.high + 1, nk)
    if SPANS > 0:
        at = (
            tl.cast(b, tl.int64) * where.spans_sb
            + tl.cast(heads, tl.int64) * where.spans_sh
            + rows.to(tl.int64) * where.spans_sq
        )
        lowest = tl.full([rows.shape[0]], 2147483647, tl.int32)
        highest = tl.zeros([rows.shape[0]], tl.int32)
        for r in tl.static_range(SPANS):
            start = tl.load(where.spans + at + 2 * r, mask=exists, other=0)
            stop = tl.load(where.spans + at + 2 * r + 1, mask=exists, other=0)
            some = stop > start
            lowest = tl.where(some, tl.minimum(lowest, start), lowest)
            highest = tl.where(some, tl.maximum(highest, stop), highest)
        low = tl.maximum(low, tl.min(lowest, 0))
        high = tl.minimum(high, tl.max(highest, 0))
    return low, high


@triton.jit
def logits(form, dots, b, heads, rows, cols, ok):
    """Dot products to logits, -inf where not allowed; also the slope of the softcap (1 without).

    `ok` is None where everything is allowed, and there is then no bias.
    The slope is d(capped)/d(scaled) = 1 - tanh², which the backward pass needs.
    """
    s = dots * form.scale
    slope = 1.0
    if form.softcap is not None:
        bent = tanh(s / form.softcap)
        s = bent * form.softcap
        slope = 1.0 - bent * bent
    if form.bias is not None:
        at = places(form.bias_sb, form.bias_sh, form.bias_sq, form.bias_sk, b, heads, rows, cols)
        s = s + tl.load(form.bias + at, mask=ok, other=0.0).to(s.dtype)
    if ok is not None:
        s = tl.where(ok, s, NOTHING)
    return s, slope


@triton.jit
def finite(x):
    return (x - x) == 0.0


@triton.jit
def clean(x):
    """x with infinities and NaN as 0."""
    return tl.where(finite(x), x, tl.zeros_like(x))


@triton.jit
def seen(ok, x):
    """What rows see of the infinities and NaN among x: [rows, width] of 0, ±inf or NaN.

    A product with a weight of 0 would spread a NaN to rows that do not see it; these are counts of
    what each row does see.
    """
    see = ok.to(tl.float16)
    up = tl.dot(see, (x == float("inf")).to(tl.float16)) > 0.0
    down = tl.dot(see, (x == float("-inf")).to(tl.float16)) > 0.0
    lost = tl.dot(see, (x != x).to(tl.float16)) > 0.0
    bad = tl.where(up, float("inf"), 0.0) + tl.where(down, float("-inf"), 0.0)
    return tl.where(lost, float("nan"), bad)
