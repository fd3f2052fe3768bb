"""The portable forward pass: one program a tile of rows, all logits exact, nothing masked leaks.

`attend` is the pass over a tile, `finish` ends it; three kernels use them:
    forward_kernel   a tile of one head
    again_kernel     in again.py: the tiles that the Hopper kernel flagged, once more
    decode_kernel    in decode.py: few rows against one of several parts of the keys
"""

# mypy: ignore-errors
# ruff: noqa: E741, RUF059 (kernel code: l is Σp, results are unpacked whole)
from typing import Any, NamedTuple

import triton
import triton.language as tl

from limelight.engines.gpu.cells import (
    LN2,
    LOG2E,
    LOWEST,
    NOTHING,
    allowed,
    finite,
    in_memory,
    in_view,
    load_rows,
    logits,
    reach,
    split,
    spoilt,
    store_rows,
    whole,
)
from limelight.engines.gpu.drops import stays

LEAST = tl.constexpr(-200.0)  # 2^-200 is 0 in float32, and finite


class Sizes(NamedTuple):
    """batch, nq and nk rows and keys, d and dv sizes, query heads, how many share a key head."""

    batch: Any
    nq: Any
    nk: Any
    d: Any
    dv: Any
    heads: Any
    group: Any


class Rows(NamedTuple):
    """Statistics of rows, each [.., Nq] contiguous; the last two None where not asked for."""

    logsumexp: Any
    max_logit: Any
    entropy: Any


@triton.jit
def attend(
    q, k, v, where, form, sizes, b, hk, heads, rows, exists, key_low, key_high, whole_low,
    whole_high, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    HEALTH: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr,
    CARE: tl.constexpr,
):  # fmt: skip
    """Rows against the keys [key_low, key_high): unnormalised output, maximum, Σp and Σp·y.

    Blocks of keys that all rows see, those within [whole_low, whole_high), come first, without a
    mask. The loops know logits in units of `unit`: without softcap and bias they are the dot
    products as they are, and the unit is the scale, which is positive.

    The maximum of a row without keys is NOTHING, that of a row whose logits are all -inf LOWEST; a
    bias may be as low as that itself, and with one nothing is told apart.
    """
    queries = load_rows(q, b, heads, rows, exists, sizes.d, D)  # [BM, D]
    unit = 1.0
    if form.softcap is None and form.bias is None:
        unit = form.scale
    m = tl.full([BM], NOTHING, tl.float32)
    l = tl.zeros([BM], tl.float32)
    e = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, DV], tl.float32)
    PLAIN: tl.constexpr = where.dense is None and form.bias is None
    begin, full, partial, end = whole(key_low, key_high, whole_low, whole_high, BN, PLAIN)
    if PLAIN:
        for start in range(full, partial, BN):
            acc, m, l, e = mix(
                k, v, where, form, sizes, b, hk, heads, rows, exists, queries, start, key_low,
                key_high, unit, acc, m, l, e, BN, D, DV, HEALTH, BAND, SPANS, EXACT, False, False,
            )  # fmt: skip
    before = (full - begin) // BN
    for i in range(before + (end - partial) // BN):
        start = tl.where(i < before, begin + i * BN, partial + (i - before) * BN)
        acc, m, l, e = mix(
            k, v, where, form, sizes, b, hk, heads, rows, exists, queries, start, key_low,
            key_high, unit, acc, m, l, e, BN, D, DV, HEALTH, BAND, SPANS, EXACT, True, CARE,
        )  # fmt: skip
    if form.seed is not None:
        acc = acc * form.factor
    return acc, tl.where(m <= LOWEST, m, in_view(m * unit)), l, e * LN2


@triton.jit
def mix(
    k, v, where, form, sizes, b, hk, heads, rows, exists, queries, start, key_low, key_high,
    unit, acc, m, l, e, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    HEALTH: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr,
    MASKED: tl.constexpr, CARE: tl.constexpr,
):  # fmt: skip
    """One block of keys into the state.

    With y = (s - m)·unit·log2(e): p = 2^y. When m moves by delta, l and the output shrink by
    a = 2^delta and e becomes a·(e + delta·l). Dropout is of what is mixed alone.
    """
    cols = start + tl.arange(0, BN)
    there = None
    across = (rows * 0 + heads)[:, None]
    ok = None
    if MASKED:
        there = (cols < key_high) & (cols >= key_low)
        ok = allowed(
            where, b, across, rows[:, None], cols[None, :], exists[:, None], there[None, :],
            BAND, SPANS,
        )  # fmt: skip
    keys = load_rows(k, b, hk, cols, there, sizes.d, D)
    dots = tl.dot(queries, tl.trans(keys), input_precision=EXACT)
    s = dots
    if form.softcap is not None or form.bias is not None:
        s, slope = logits(form, dots, b, across, rows[:, None], cols[None, :], ok)
    elif MASKED:
        s = tl.where(ok, in_view(dots), NOTHING)
    c = unit * LOG2E
    new = tl.maximum(m, tl.max(s, 1))
    if not MASKED:
        new = tl.maximum(new, LOWEST)
    base = tl.where(new == NOTHING, 0.0, new)
    delta = tl.where(l > 0.0, (m - base) * c, 0.0)
    y = (s - base[:, None]) * c
    if HEALTH:
        delta = at_least(delta)
        y = at_least(y)
    alpha = tl.exp2(delta)
    p = tl.exp2(y)
    if HEALTH:
        e = alpha * (e + delta * l) + tl.sum(p * y, 1)
    l = l * alpha + tl.sum(p, 1)
    if form.seed is not None:
        p = tl.where(stays(form, b * sizes.heads + heads, rows, start, BN, False), p, 0.0)
    acc = acc * alpha[:, None]
    values = load_rows(v, b, hk, cols, there, sizes.dv, DV)
    one_by_one = False
    if CARE:
        one_by_one = tl.min(finite(values).to(tl.int32)) == 0
    if one_by_one:
        acc = mix_one_by_one(v, sizes, b, hk, start, key_high, p, s, acc, BN, DV)
    else:
        acc += tl.dot(p.to(values.dtype), values, input_precision=EXACT)
    return acc, new, l, e


@triton.jit
def at_least(y):
    """Exponents of 2 from LEAST on: they give the same weights, and times 0 they are 0."""
    return tl.maximum(y, LEAST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def mix_one_by_one(v, sizes, b, hk, start, key_high, p, s, acc, BN: tl.constexpr, DV: tl.constexpr):
    """A block's Σ p·v, key by key and only into the rows that see the key.

    A product with a weight of 0 would carry an infinity or NaN of a masked value into rows that do
    not see it. Blocks that hold one are rare enough to be slow.
    """
    columns = tl.arange(0, BN)
    width = tl.arange(0, DV)
    first = v.ptr + tl.cast(b, tl.int64) * v.sb + tl.cast(hk, tl.int64) * v.sh
    for j in range(BN):
        here = (columns == j)[None, :]
        weight = tl.sum(tl.where(here, p, 0.0), 1)
        sees = tl.max((here & (s > NOTHING)).to(tl.int32), 1) > 0
        there = start + j < key_high
        at = in_memory(v, b, start + j, there) * v.sn + width.to(tl.int64) * v.sd
        inside = (width < sizes.dv) & there
        value = tl.load(first + at, mask=inside, other=0.0).to(tl.float32)
        acc += tl.where(sees[:, None], weight[:, None] * value[None, :], 0.0)
    return acc


@triton.jit
def finish(
    output, stats, sizes, sink, b, heads, rows, exists, acc, m, l, e,
    DV: tl.constexpr, HEALTH: tl.constexpr, SINKS: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Normalise, add the sink and store."""
    at = (tl.cast(b, tl.int64) * sizes.heads + heads) * sizes.nq + rows
    if not BIAS:  # e^(-inf - -inf) is no number, and nor is a row of such, unless a sink takes all
        lost = (m <= LOWEST) & (m != NOTHING)
        rest = tl.where(sink == NOTHING, float("nan"), 0.0) if SINKS else float("nan")
        m = tl.where(lost, NOTHING, m)
        l = tl.where(lost, rest, l)
    highest = tl.where(l == l, m, l)
    factor = tl.where(l > 0.0, 1.0 / l, 0.0)
    factor = tl.where(l == l, factor, l)
    base = tl.where(m == NOTHING, 0.0, m)
    if SINKS:
        top = tl.maximum(m, sink)
        top = tl.where(top == NOTHING, 0.0, top)
        gap = at_least((m - top) * LOG2E)
        a = tl.exp2(gap)
        ps = tl.exp2((sink - top) * LOG2E)
        if HEALTH:
            e = tl.where(l > 0.0, a * (e + gap * LN2 * l), 0.0)
            e += tl.where(ps == 0.0, 0.0, ps * (sink - top))
        l = l * a + ps
        factor = tl.where(l > 0.0, a / l, 0.0)
        factor = tl.where(l == l, factor, l)
        base = top
    store_rows(output, b, heads, rows, exists, sizes.dv, acc * factor[:, None], DV)
    lse = tl.where(l == 0.0, NOTHING, base + tl.log2(l) * LN2)
    tl.store(stats.logsumexp + at, lse, mask=exists)
    if HEALTH:
        tl.store(stats.max_logit + at, highest, mask=exists)
        entropy = tl.where(l == 0.0, 0.0, tl.log2(l) * LN2 - e / l)
        tl.store(stats.entropy + at, tl.where(entropy < 0.0, 0.0, entropy), mask=exists)


@triton.jit
def tile_of_head(
    q, k, v, where, form, sinks, output, stats, sizes, flat, first,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    HEALTH: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr, SINKS: tl.constexpr,
    EXACT: tl.constexpr, CARE: tl.constexpr,
):  # fmt: skip
    """The rows from `first` on of head number `flat`, counted over the batch, from q to output."""
    head, b = split(flat, sizes.heads)
    rows = first + tl.arange(0, BM)
    exists = rows < sizes.nq
    last = tl.minimum(first + BM, sizes.nq) - 1
    low, high, whole_low, whole_high = reach(
        where, b, head, rows, exists, first, last, sizes.nk, BAND, SPANS
    )
    acc, m, l, e = attend(
        q, k, v, where, form, sizes, b, head // sizes.group, head, rows, exists, low, high,
        whole_low, whole_high, BM, BN, D, DV, HEALTH, BAND, SPANS, EXACT, CARE,
    )  # fmt: skip
    sink = 0.0
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32)
    BIAS: tl.constexpr = form.bias is not None
    finish(output, stats, sizes, sink, b, head, rows, exists, acc, m, l, e, DV, HEALTH, SINKS, BIAS)


@triton.jit
def forward_kernel(
    q, k, v, where, form, sinks, output, stats, sizes,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    HEALTH: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr, SINKS: tl.constexpr,
    EXACT: tl.constexpr, CARE: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """A tile of BM rows of one head against all keys. Programs: heads × tiles of rows.

    Without CARE a masked infinity or NaN makes all of a tile NaN. With AGAIN only the tiles of the
    output that hold one are computed.
    """
    tiles = tl.cdiv(sizes.nq, BM)
    tile, flat = split(tl.program_id(0), tiles)
    tile = tiles - 1 - tile  # under a causal mask the last are heaviest
    wanted = True
    if AGAIN:
        head, b = split(flat, sizes.heads)
        wanted = spoilt(output, b, head, tile * BM, sizes.nq, sizes.dv, BM, DV)
    if wanted:
        tile_of_head(
            q, k, v, where, form, sinks, output, stats, sizes, flat, tile * BM,
            BM, BN, D, DV, HEALTH, BAND, SPANS, SINKS, EXACT, CARE,
        )  # fmt: skip
