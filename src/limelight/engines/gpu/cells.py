"""What every portable kernel asks of a tile of cells: its logits, and which of them are allowed.

Kernel arguments come in groups, so that a signature reads as the call does: Array for a tensor of
four axes, Where for a mask, Form for what turns dot products into logits. A tile has rows and
columns, and may lie either way: `allowed` and `logits` take what belongs to rows as [.., 1] and
what belongs to columns as [1, ..], or the other way round. Its rows may belong to several query
heads (packed for decoding), so batch and head offsets are added per row.
"""

# mypy: ignore-errors
from typing import Any, NamedTuple

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
NOTHING = tl.constexpr(float("-inf"))
LOWEST = tl.constexpr(-3.4028234663852886e38)  # of float32


class Array(NamedTuple):
    """A tensor [batch, heads, length, size], by its strides.

    Where it has a table, its rows lie in pages of 2^shift: row n of batch entry b is on page
    table[b, n >> shift] of rows that all entries share (sb is 0).
    """

    ptr: Any
    sb: Any
    sh: Any
    sn: Any
    sd: Any
    table: Any = None
    table_sb: Any = None
    shift: Any = None


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
    """Logits from dot products: scale, softcap (or None), bias [B|1, H|1, Nq|1, Nk|1] (or None).

    And weights after them: where `seed` is not None, cells whose 16 bits are below `threshold` fall
    and the others are multiplied with `factor`; see `drops.py`.
    """

    scale: Any
    softcap: Any
    bias: Any
    bias_sb: Any
    bias_sh: Any
    bias_sq: Any
    bias_sk: Any
    seed: Any
    threshold: Any
    factor: Any


@triton.jit
def split(at, across):
    """The (column, row) of number `at` where numbers stand in rows of `across`.

    Programs are numbered along one axis: the others of a GPU's grid end at 65,535.
    """
    row = at // across
    return at - row * across, row


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
def in_memory(x, b, rows, inside):
    """Where an Array has these rows, in 64 bits: as they are numbered, or as its table says."""
    found = tl.cast(rows, tl.int64)
    if x.table is not None:
        at = x.table + tl.cast(b, tl.int64) * x.table_sb + (rows >> x.shift)
        page = tl.load(at) if inside is None else tl.load(at, mask=inside, other=0)
        found = (tl.cast(page, tl.int64) << x.shift) + (rows & ((1 << x.shift) - 1))
    return found


@triton.jit
def load_rows(x, b, heads, rows, inside, size, WIDTH: tl.constexpr):
    """Rows of an Array, [rows, WIDTH]; zeros outside. `heads` may be a number or one a row.

    `inside` says which rows there are, None that all of them are.
    """
    cols = tl.arange(0, WIDTH)
    places = in_memory(x, b, rows, inside)
    at = tl.cast(b, tl.int64) * x.sb + tl.cast(heads, tl.int64) * x.sh + places * x.sn
    ptr = x.ptr + at[:, None] + (cols.to(tl.int64) * x.sd)[None, :]
    held = (cols < size)[None, :]
    if inside is not None:
        held = held & inside[:, None]
    return tl.load(ptr, mask=held, other=0.0)


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
    return at + cols.to(tl.int64) * sk


@triton.jit
def allowed(where, b, heads, rows, cols, exists, there, BAND: tl.constexpr, SPANS: tl.constexpr):
    """Which cells may be attended to; `exists` and `there` say which rows and columns there are."""
    ok = exists & there
    if BAND:
        shift = cols - rows
        ok = ok & (shift >= where.low) & (shift <= where.high)
    if SPANS > 0:
        at = (
            tl.cast(b, tl.int64) * where.spans_sb
            + tl.cast(heads, tl.int64) * where.spans_sh
            + rows.to(tl.int64) * where.spans_sq
        )
        within = ok & (cols < 0)
        for r in tl.static_range(SPANS):
            first = tl.load(where.spans + at + 2 * r, mask=exists, other=0)
            last = tl.load(where.spans + at + 2 * r + 1, mask=exists, other=0)
            within = within | ((cols >= first) & (cols < last))
        ok = ok & within
    if where.dense is not None:
        at = places(where.dense_sb, where.dense_sh, where.dense_sq, where.dense_sk, b, heads, rows,
                    cols)  # fmt: skip
        ok = ok & (tl.load(where.dense + at, mask=ok, other=0) != 0)
    return ok


@triton.jit
def reach(where, b, heads, rows, exists, first, last, nk, BAND: tl.constexpr, SPANS: tl.constexpr):
    """The keys [low, high) that some row of a tile may see, and those that every row sees.

    first and last are the tile's extreme rows. What every row sees, as far as band and spans tell,
    comes as a second pair; there may be none.
    """
    low = 0
    high = nk
    whole_low = 0
    whole_high = nk
    if BAND:
        low = tl.maximum(first + where.low, 0)
        high = tl.minimum(last + where.high + 1, nk)
        whole_low = tl.maximum(last + where.low, 0)
        whole_high = tl.minimum(first + where.high + 1, nk)
    if SPANS > 0:
        at = (
            tl.cast(b, tl.int64) * where.spans_sb
            + tl.cast(heads, tl.int64) * where.spans_sh
            + rows.to(tl.int64) * where.spans_sq
        )
        lowest = tl.zeros([rows.shape[0]], tl.int32) + nk
        highest = tl.zeros([rows.shape[0]], tl.int32)
        for r in tl.static_range(SPANS):
            start = tl.load(where.spans + at + 2 * r, mask=exists, other=0)
            stop = tl.load(where.spans + at + 2 * r + 1, mask=exists, other=0)
            some = stop > start
            lowest = tl.where(some, tl.minimum(lowest, start), lowest)
            highest = tl.where(some, tl.maximum(highest, stop), highest)
            if SPANS == 1:
                whole_low = tl.maximum(whole_low, tl.max(start, 0))
                whole_high = tl.minimum(whole_high, tl.min(tl.where(exists, stop, nk), 0))
            else:
                whole_high = 0
        low = tl.maximum(low, tl.min(lowest, 0))
        high = tl.minimum(high, tl.max(highest, 0))
    return low, high, whole_low, whole_high


@triton.jit
def row_reach(where, b, head, first, last, nq, BAND: tl.constexpr, SPANS: tl.constexpr):
    """The rows [low, high) that may see some key of a tile, and those that see every key of it.

    The other way round than `reach`: first and last are the tile's extreme keys.
    """
    low = 0
    high = nq
    whole_low = 0
    whole_high = nq
    if BAND:
        low = tl.maximum(first - where.high, 0)
        high = tl.minimum(last - where.low + 1, nq)
        whole_low = tl.maximum(last - where.high, 0)
        whole_high = tl.minimum(first - where.low + 1, nq)
    if SPANS > 0:
        CHUNK: tl.constexpr = 1024
        at = tl.cast(b, tl.int64) * where.spans_sb + tl.cast(head, tl.int64) * where.spans_sh
        lowest = tl.zeros([CHUNK], tl.int32) + nq
        highest = tl.full([CHUNK], -1, tl.int32)
        least = tl.zeros([CHUNK], tl.int32) + nq
        most = tl.full([CHUNK], -1, tl.int32)
        count = tl.zeros([CHUNK], tl.int32)
        for chunk in range(low, high, CHUNK):
            rows = chunk + tl.arange(0, CHUNK)
            exists = rows < high
            for r in tl.static_range(SPANS):
                span = where.spans + at + rows.to(tl.int64) * where.spans_sq + 2 * r
                start = tl.load(span, mask=exists, other=0)
                stop = tl.load(span + 1, mask=exists, other=0)
                some = tl.maximum(start, first) < tl.minimum(stop, last + 1)
                lowest = tl.where(some, tl.minimum(lowest, rows), lowest)
                highest = tl.where(some, tl.maximum(highest, rows), highest)
                if SPANS == 1:
                    every = some & (start <= first) & (stop > last)
                    least = tl.where(every, tl.minimum(least, rows), least)
                    most = tl.where(every, tl.maximum(most, rows), most)
                    count += every.to(tl.int32)
        low = tl.minimum(tl.min(lowest, 0), high)
        high = tl.maximum(tl.max(highest, 0) + 1, low)
        one_stretch = tl.sum(count, 0) == tl.max(most, 0) - tl.min(least, 0) + 1
        whole_low = tl.maximum(whole_low, tl.min(least, 0))
        whole_high = tl.where(one_stretch, tl.minimum(whole_high, tl.max(most, 0) + 1), 0)
    return low, high, whole_low, whole_high


@triton.jit
def whole(low, high, whole_low, whole_high, STEP: tl.constexpr, PLAIN: tl.constexpr):
    """The blocks from low to high: (begin, the first whole one, past the last of them, end).

    A whole block needs no mask. Without PLAIN none is: a boolean array or a bias is read by cell.
    """
    begin = low // STEP * STEP
    end = tl.maximum(tl.cdiv(high, STEP) * STEP, begin)
    full = begin
    partial = begin
    if PLAIN:
        full = tl.minimum(tl.cdiv(tl.maximum(low, whole_low), STEP) * STEP, end)
        partial = tl.maximum(tl.maximum(tl.minimum(high, whole_high), 0) // STEP * STEP, full)
    return begin, full, partial, end


@triton.jit
def in_view(s):
    """Logits that are seen: -inf becomes the lowest number, so that none is taken for hidden."""
    return tl.maximum(s, LOWEST, propagate_nan=tl.PropagateNan.ALL)


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
        bias = tl.load(form.bias + at, mask=ok, other=0.0).to(s.dtype)
        s = tl.where(bias == NOTHING, NOTHING, s + bias)  # -inf hides, even a NaN
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


@triton.jit
def spoilt(x, b, head, first, length, size, TILE: tl.constexpr, WIDTH: tl.constexpr):
    """Whether a tile holds an infinity or NaN that came from a masked cell.

    Such a one reaches every row of its tile, so one row in 16 tells.
    """
    probes = first + 16 * tl.arange(0, TILE // 16)
    rows = load_rows(x, b, head, probes, probes < length, size, WIDTH)
    return tl.min(finite(rows).to(tl.int32)) == 0
