"""The portable backward pass, deterministic: every gradient is summed by one program, in order.

With the weights p = e^(s - logsumexp) recomputed tile by tile and delta = Σ grad_output·output of
each row:

    ds = p · (grad_output·Vᵀ - delta)        by the logits; - h·p·ln p for an entropy's gradient h
    grad_value = pᵀ·grad_output
    grad_query = scale · (ds·slope)·K        slope is that of the softcap
    grad_key   = scale · (ds·slope)ᵀ·Q
    grad_bias  = ds, summed over the axes that the bias broadcasts

Dropout multiplies grad_output·Vᵀ and the p of grad_value, cell by cell, with 0 or its factor.
"""

# mypy: ignore-errors
# ruff: noqa: RUF059 (kernel code: results are unpacked whole)
from typing import Any, NamedTuple

import triton
import triton.language as tl

from limelight.engines.gpu.cells import (
    LN2,
    LOG2E,
    NOTHING,
    allowed,
    clean,
    finite,
    load_rows,
    logits,
    reach,
    row_reach,
    seen,
    split,
    spoilt,
    store_rows,
    whole,
)
from limelight.engines.gpu.drops import stays


class Numbers(NamedTuple):
    """What the gradients need of each row: logsumexp [B, Hq, Nq], and delta.

    delta stands in an array from its number `first` on, by the stride of a head.

    delta = Σ grad_output·output - g + h·entropy, g and h the gradients of the row's logsumexp and
    entropy; h is None, or [B, Hq, Nq].
    """

    lse: Any
    delta: Any
    first: Any
    stride: Any
    h: Any


@triton.jit
def row_delta(output, grad, lse_grad, entropy, h, sizes, flat, rows, exists, DV: tl.constexpr):
    """delta of some rows of a head, see Numbers."""
    head, b = split(flat, sizes.heads)
    at = tl.cast(flat, tl.int64) * sizes.nq + rows
    o = load_rows(output, b, head, rows, exists, sizes.dv, DV).to(tl.float32)
    g = load_rows(grad, b, head, rows, exists, sizes.dv, DV).to(tl.float32)
    delta = tl.sum(o * g, 1)
    if lse_grad is not None:
        delta -= tl.load(lse_grad + at, mask=exists, other=0.0)
    if h is not None:
        delta += tl.load(h + at, mask=exists, other=0.0) * tl.load(entropy + at, exists, 0.0)
    return delta


@triton.jit
def rows_kernel(
    output, grad, lse_grad, entropy, h, delta, sizes, BM: tl.constexpr, DV: tl.constexpr
):
    """delta [B, Hq, Nq]. Programs: heads × tiles."""
    tile, flat = split(tl.program_id(0), tl.cdiv(sizes.nq, BM))
    rows = tile * BM + tl.arange(0, BM)
    exists = rows < sizes.nq
    found = row_delta(output, grad, lse_grad, entropy, h, sizes, flat, rows, exists, DV)
    tl.store(delta + tl.cast(flat, tl.int64) * sizes.nq + rows, found, mask=exists)


@triton.jit
def load_numbers(numbers, sizes, flat, rows, exists):
    """logsumexp, delta and h of some rows of a head; +inf where a row has no keys, so that all its
    weights are 0."""
    at = tl.cast(flat, tl.int64) * sizes.nq + rows
    to = numbers.delta + numbers.first + tl.cast(flat, tl.int64) * numbers.stride + rows
    h = 0.0
    if exists is None:
        lse = tl.load(numbers.lse + at)
        delta = tl.load(to)
        if numbers.h is not None:
            h = tl.load(numbers.h + at)
    else:
        lse = tl.load(numbers.lse + at, mask=exists, other=NOTHING)
        delta = tl.load(to, mask=exists, other=0.0)
        if numbers.h is not None:
            h = tl.load(numbers.h + at, mask=exists, other=0.0)
    return tl.where(lse == NOTHING, float("inf"), lse), delta, h


@triton.jit
def slopes(
    form, where, b, head, rows, cols, exists, there, dots, dp, stay, lse, delta, h,
    BAND: tl.constexpr, SPANS: tl.constexpr, MASKED: tl.constexpr, ENTROPY: tl.constexpr,
):  # fmt: skip
    """Of a tile, either way round: the cells seen, what is mixed of each value, ds, and ds by the
    scaled products.

    dots are Q·Kᵀ, dp is grad_output·Vᵀ; stay says which cells dropout leaves, or is None. What is
    masked gives 0, even where it is a NaN. The logits must be rounded as in the forward pass, so
    that the difference from a logsumexp that is one of them is 0: the select of a mask, or
    compiling without FMA, sees to that.
    """
    ok = None
    if MASKED:
        ok = allowed(where, b, head, rows, cols, exists, there, BAND, SPANS)
    s, slope = logits(form, dots, b, head, rows, cols, ok)
    live = s != NOTHING
    y = (s - lse) * LOG2E
    p = tl.exp2(y)
    if stay is not None:
        factor = tl.where(stay, form.factor, 0.0)
        dp = dp * factor
    ds = p * (dp - delta)
    if ENTROPY:
        ds -= tl.where(p == 0.0, 0.0, h * p * y * LN2)
    dd = ds * slope
    if stay is not None:
        p = p * factor
    if MASKED:
        p = tl.where(live, p, 0.0)
        ds = tl.where(live, ds, 0.0)
        dd = tl.where(live, dd, 0.0)
    return live, p, ds, dd


@triton.jit
def from_keys(
    k, v, where, form, sizes, b, hk, head, rows, exists, queries, grads, lse, delta, h, start, acc,
    BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr,
    EXACT: tl.constexpr, MASKED: tl.constexpr, CAREFUL: tl.constexpr, ENTROPY: tl.constexpr,
):  # fmt: skip
    """grad_query of a tile of rows with what a block of keys adds."""
    cols = start + tl.arange(0, BN)
    there = cols < sizes.nk
    held = there if MASKED else None
    keys = load_rows(k, b, hk, cols, held, sizes.d, D)
    values = load_rows(v, b, hk, cols, held, sizes.dv, DV)
    dots = tl.dot(queries, tl.trans(keys), input_precision=EXACT)  # [BM, BN]
    dp = tl.dot(grads, tl.trans(values), input_precision=EXACT)
    stay = None
    if form.seed is not None:
        stay = stays(form, b * sizes.heads + head, rows, start, BN, False)
    live, p, ds, dd = slopes(
        form, where, b, head, rows[:, None], cols[None, :], exists[:, None], there[None, :],
        dots, dp, stay, lse[:, None], delta[:, None], h, BAND, SPANS, MASKED, ENTROPY,
    )  # fmt: skip
    if CAREFUL:
        keys = clean(keys)
    return acc + tl.dot(dd.to(keys.dtype), keys, input_precision=EXACT)


@triton.jit
def query_tile(
    q, k, v, grad, numbers, where, form, grad_q, sizes, flat, first,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr, CAREFUL: tl.constexpr,
):  # fmt: skip
    """grad_query of BM rows from `first` on."""
    head, b = split(flat, sizes.heads)
    hk = head // sizes.group
    rows = first + tl.arange(0, BM)
    exists = rows < sizes.nq
    last = tl.minimum(first + BM, sizes.nq) - 1
    low, high, whole_low, whole_high = reach(
        where, b, head, rows, exists, first, last, sizes.nk, BAND, SPANS
    )
    queries = load_rows(q, b, head, rows, exists, sizes.d, D)
    grads = load_rows(grad, b, head, rows, exists, sizes.dv, DV)
    lse, delta, h = load_numbers(numbers, sizes, flat, rows, exists)
    ENTROPY: tl.constexpr = numbers.h is not None
    if ENTROPY:
        h = h[:, None]
    acc = tl.zeros([BM, D], tl.float32)
    CELLS: tl.constexpr = where.dense is not None or form.bias is not None
    PLAIN: tl.constexpr = not (CELLS or CAREFUL or EXACT == "ieee")
    begin, full, partial, end = whole(low, high, whole_low, whole_high, BN, PLAIN)
    if PLAIN:
        for start in range(full, partial, BN):
            acc = from_keys(
                k, v, where, form, sizes, b, hk, head, rows, exists, queries, grads, lse, delta,
                h, start, acc, BN, D, DV, BAND, SPANS, EXACT, False, False, ENTROPY,
            )  # fmt: skip
    before = (full - begin) // BN
    for i in range(before + (end - partial) // BN):
        start = tl.where(i < before, begin + i * BN, partial + (i - before) * BN)
        acc = from_keys(
            k, v, where, form, sizes, b, hk, head, rows, exists, queries, grads, lse, delta, h,
            start, acc, BN, D, DV, BAND, SPANS, EXACT, True, CAREFUL, ENTROPY,
        )  # fmt: skip
    store_rows(grad_q, b, head, rows, exists, sizes.d, acc * form.scale, D)


@triton.jit
def query_kernel(
    q, k, v, grad, numbers, where, form, grad_q, sizes,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """grad_query, a tile of rows a program. Programs: query heads × tiles.

    A masked infinity or NaN makes all of a tile NaN. With AGAIN only the tiles of grad_q that hold
    one are computed, with care.
    """
    tiles = tl.cdiv(sizes.nq, BM)
    tile, flat = split(tl.program_id(0), tiles)
    first = (tiles - 1 - tile) * BM
    wanted = True
    if AGAIN:
        head, b = split(flat, sizes.heads)
        wanted = spoilt(grad_q, b, head, first, sizes.nq, sizes.d, BM, D)
    if wanted:
        query_tile(
            q, k, v, grad, numbers, where, form, grad_q, sizes, flat, first,
            BM, BN, D, DV, BAND, SPANS, EXACT, AGAIN,
        )  # fmt: skip


@triton.jit
def from_rows(
    q, grad, numbers, where, form, sizes, b, head, first, there, keys, values, start,
    dk, dv, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr, MASKED: tl.constexpr,
    CAREFUL: tl.constexpr,
):  # fmt: skip
    """grad_key and grad_value of a tile of keys with what a block of rows adds.

    The tile lies keys by rows, so that the weights are a product's left side as they are.
    """
    cols = first + tl.arange(0, BN)
    rows = start + tl.arange(0, BM)
    exists = rows < sizes.nq
    stay = None
    if form.seed is not None:
        # Before the rows are read: its bits change threads, and what is read earlier is held until
        # then (on an A100, size 64: 1040 bytes of registers set aside, and so 64).
        stay = stays(form, b * sizes.heads + head, rows, first, BN, True)
    held = exists if MASKED else None
    queries = load_rows(q, b, head, rows, held, sizes.d, D)
    grads = load_rows(grad, b, head, rows, held, sizes.dv, DV)
    lse, delta, h = load_numbers(numbers, sizes, b * sizes.heads + head, rows, held)
    ENTROPY: tl.constexpr = numbers.h is not None
    if ENTROPY:
        h = h[None, :]
    dots = tl.dot(keys, tl.trans(queries), input_precision=EXACT)  # [BN, BM]
    dp = tl.dot(values, tl.trans(grads), input_precision=EXACT)
    live, p, ds, dd = slopes(
        form, where, b, head, rows[None, :], cols[:, None], exists[None, :], there[:, None],
        dots, dp, stay, lse[None, :], delta[None, :], h, BAND, SPANS, MASKED, ENTROPY,
    )  # fmt: skip
    if CAREFUL:
        if tl.min(finite(grads).to(tl.int32)) == 0:
            dv += seen(live, grads)
        queries = clean(queries)
        grads = clean(grads)
    dv += tl.dot(p.to(grads.dtype), grads, input_precision=EXACT)
    dk += tl.dot(dd.to(queries.dtype), queries, input_precision=EXACT)
    return dk, dv


@triton.jit
def key_tile(
    q, k, v, grad, numbers, where, form, grad_k, grad_v, sizes, flat, first,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr, CAREFUL: tl.constexpr,
):  # fmt: skip
    """grad_key and grad_value of BN keys from `first` on."""
    hk, b = split(flat, sizes.heads // sizes.group)
    cols = first + tl.arange(0, BN)
    there = cols < sizes.nk
    last = tl.minimum(first + BN, sizes.nk) - 1
    keys = load_rows(k, b, hk, cols, there, sizes.d, D)
    values = load_rows(v, b, hk, cols, there, sizes.dv, DV)
    dk = tl.zeros([BN, D], tl.float32)
    dv = tl.zeros([BN, DV], tl.float32)
    CELLS: tl.constexpr = where.dense is not None or form.bias is not None
    PLAIN: tl.constexpr = not (CELLS or CAREFUL or EXACT == "ieee")
    for g in range(sizes.group):
        head = hk * sizes.group + g
        low, high, whole_low, whole_high = row_reach(
            where, b, head, first, last, sizes.nq, BAND, SPANS
        )
        begin, full, partial, end = whole(low, high, whole_low, whole_high, BM, PLAIN)
        if PLAIN:
            for start in range(full, partial, BM):
                dk, dv = from_rows(
                    q, grad, numbers, where, form, sizes, b, head, first, there, keys, values,
                    start, dk, dv, BM, BN, D, DV, BAND, SPANS, EXACT, False, False,
                )  # fmt: skip
        before = (full - begin) // BM
        for i in range(before + (end - partial) // BM):
            start = tl.where(i < before, begin + i * BM, partial + (i - before) * BM)
            dk, dv = from_rows(
                q, grad, numbers, where, form, sizes, b, head, first, there, keys, values,
                start, dk, dv, BM, BN, D, DV, BAND, SPANS, EXACT, True, CAREFUL,
            )  # fmt: skip
    store_rows(grad_k, b, hk, cols, there, sizes.d, dk * form.scale, D)
    store_rows(grad_v, b, hk, cols, there, sizes.dv, dv, DV)


@triton.jit
def key_kernel(
    q, k, v, grad, numbers, where, form, grad_k, grad_v, sizes,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """grad_key and grad_value, a tile of keys a program. Programs: key heads × tiles.

    With AGAIN only the tiles that hold an infinity or NaN are computed, with care.
    """
    tile, flat = split(tl.program_id(0), tl.cdiv(sizes.nk, BN))
    first = tile * BN
    wanted = True
    if AGAIN:
        hk, b = split(flat, sizes.heads // sizes.group)
        wanted = spoilt(grad_k, b, hk, first, sizes.nk, sizes.d, BN, D) or spoilt(
            grad_v, b, hk, first, sizes.nk, sizes.dv, BN, DV
        )
    if wanted:
        key_tile(
            q, k, v, grad, numbers, where, form, grad_k, grad_v, sizes, flat, first,
            BM, BN, D, DV, BAND, SPANS, EXACT, AGAIN,
        )  # fmt: skip


@triton.jit
def bias_kernel(
    q, k, v, grad, numbers, where, form, grad_bias, sizes, batches, heads,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr,
    ALL_ROWS: tl.constexpr, ALL_COLUMNS: tl.constexpr,
):  # fmt: skip
    """grad_bias [B|1, H|1, Nq|1, Nk|1] in float32, a tile a program, summed over what it serves.

    batches and heads are how many of each one element of the bias serves. Programs: bias batch ×
    bias heads × tiles of columns × tiles of rows; one tile along an axis that the bias broadcasts.
    """
    down, rest = split(tl.program_id(0), 1 if ALL_ROWS else tl.cdiv(sizes.nq, BM))
    across, flat = split(rest, 1 if ALL_COLUMNS else tl.cdiv(sizes.nk, BN))
    bh, bb = split(flat, sizes.heads // heads)
    row_from = down * BM
    row_to = sizes.nq if ALL_ROWS else tl.minimum(row_from + BM, sizes.nq)
    col_from = across * BN
    col_to = sizes.nk if ALL_COLUMNS else tl.minimum(col_from + BN, sizes.nk)
    acc = tl.zeros([BM, BN], tl.float32)
    for b in range(bb * batches, (bb + 1) * batches):
        for head in range(bh * heads, (bh + 1) * heads):
            hk = head // sizes.group
            for row in range(row_from, row_to, BM):
                rows = row + tl.arange(0, BM)
                exists = rows < sizes.nq
                queries = load_rows(q, b, head, rows, exists, sizes.d, D)
                grads = load_rows(grad, b, head, rows, exists, sizes.dv, DV)
                at = b * sizes.heads + head
                lse, delta, h = load_numbers(numbers, sizes, at, rows, exists)
                ENTROPY: tl.constexpr = numbers.h is not None
                if ENTROPY:
                    h = h[:, None]
                for col in range(col_from, col_to, BN):
                    cols = col + tl.arange(0, BN)
                    there = cols < sizes.nk
                    keys = load_rows(k, b, hk, cols, there, sizes.d, D)
                    values = load_rows(v, b, hk, cols, there, sizes.dv, DV)
                    dots = tl.dot(queries, tl.trans(keys), input_precision=EXACT)
                    dp = tl.dot(grads, tl.trans(values), input_precision=EXACT)
                    stay = None
                    if form.seed is not None:
                        stay = stays(form, at, rows, col, BN, False)
                    live, p, ds, dd = slopes(
                        form, where, b, head, rows[:, None], cols[None, :], exists[:, None],
                        there[None, :], dots, dp, stay, lse[:, None], delta[:, None], h, BAND,
                        SPANS, True, ENTROPY,
                    )  # fmt: skip
                    acc += ds
    rows = row_from + tl.arange(0, BM)
    cols = col_from + tl.arange(0, BN)
    keep_rows = rows < sizes.nq
    keep_cols = cols < sizes.nk
    if ALL_ROWS:
        acc = tl.broadcast_to(tl.sum(acc, 0)[None, :], [BM, BN])
        keep_rows = tl.arange(0, BM) == 0
    if ALL_COLUMNS:
        acc = tl.broadcast_to(tl.sum(acc, 1)[:, None], [BM, BN])
        keep_cols = tl.arange(0, BN) == 0
    at = tl.cast(bb, tl.int64) * grad_bias.sb + tl.cast(bh, tl.int64) * grad_bias.sh
    at = at + rows.to(tl.int64) * grad_bias.sn
    ptr = grad_bias.ptr + at[:, None] + (cols.to(tl.int64) * grad_bias.sd)[None, :]
    tl.store(ptr, acc, mask=keep_rows[:, None] & keep_cols[None, :])
