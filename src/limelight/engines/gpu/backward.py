"""The portable backward pass, deterministic: every gradient is summed by one program, in order.

With the weights p = e^(s - logsumexp) recomputed tile by tile and delta = Σ grad_output·output:

    ds = p · (grad_output·Vᵀ - delta)        by the logits
    grad_value = pᵀ·grad_output
    grad_query = scale · (ds·slope)·K        slope is that of the softcap
    grad_key   = scale · (ds·slope)ᵀ·Q
    grad_bias  = ds, summed over the axes that the bias broadcasts
"""

# mypy: ignore-errors
# ruff: noqa: RUF059 (kernel code: l is Σp, results are unpacked whole)
import triton
import triton.language as tl

from limelight.engines.gpu.cells import (
    LOG2E,
    NOTHING,
    allowed,
    clean,
    finite,
    load_rows,
    logits,
    reach,
    seen,
    store_rows,
)


@triton.jit
def delta_kernel(output, grad, delta, sizes, BM: tl.constexpr, DV: tl.constexpr):
    """delta [B, Hq, Nq] = Σ grad_output·output of each row. Grid: (tiles, batch × heads)."""
    flat = tl.program_id(1)
    b = flat // sizes.heads
    head = flat - b * sizes.heads
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    exists = rows < sizes.nq
    o = load_rows(output, b, head, rows, exists, sizes.dv, DV).to(tl.float32)
    g = load_rows(grad, b, head, rows, exists, sizes.dv, DV).to(tl.float32)
    tl.store(delta + tl.cast(flat, tl.int64) * sizes.nq + rows, tl.sum(o * g, 1), mask=exists)


@triton.jit
def slopes(
    form, where, b, head, rows, cols, exists, there, queries, keys, values, grads, lse, delta,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Of a tile: the allowed cells, the weights, ds, and ds by the scaled dot products."""
    inside = exists[:, None] & there[None, :]
    ok = allowed(where, b, head, rows, cols, inside, BAND, SPANS)
    dots = tl.dot(queries, tl.trans(keys), input_precision=EXACT)
    s, slope = logits(form, dots, b, head, rows, cols, ok)
    live = s != NOTHING
    p = tl.where(live, tl.exp2((s - lse[:, None]) * LOG2E), 0.0)
    dp = tl.dot(grads, tl.trans(values), input_precision=EXACT)
    ds = tl.where(live, p * (dp - delta[:, None]), 0.0)
    return live, p, ds, ds * slope


@triton.jit
def query_kernel(
    q, k, v, output, grad, lse_ptr, delta_ptr, where, form, grad_q, sizes,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """grad_query, a tile of rows a program. Grid: (tiles, batch × query heads).

    With AGAIN only the tiles of grad_q that hold an infinity or NaN are computed, and delta with
    them: a fused backward lets a masked NaN through, this does not. A masked key reaches every row
    before it of a block that the fused kernel takes whole, so one row in 16 tells.
    """
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    flat = tl.program_id(1)
    b = flat // sizes.heads
    head = flat - b * sizes.heads
    hk = head // sizes.group
    rows = tile * BM + tl.arange(0, BM)
    exists = rows < sizes.nq
    wanted = True
    if AGAIN:
        probes = tile * BM + 16 * tl.arange(0, BM // 16)
        before = load_rows(grad_q, b, head, probes, probes < sizes.nq, sizes.d, D)
        wanted = tl.min(finite(before).to(tl.int32)) == 0
    if wanted:
        last = tl.minimum(tile * BM + BM, sizes.nq) - 1
        low, high = reach(where, b, head, rows, exists, tile * BM, last, sizes.nk, BAND, SPANS)
        queries = load_rows(q, b, head, rows, exists, sizes.d, D)
        grads = load_rows(grad, b, head, rows, exists, sizes.dv, DV)
        at = tl.cast(flat, tl.int64) * sizes.nq + rows
        lse = tl.load(lse_ptr + at, mask=exists, other=0.0)
        if AGAIN:
            o = load_rows(output, b, head, rows, exists, sizes.dv, DV).to(tl.float32)
            delta = tl.sum(o * grads.to(tl.float32), 1)
        else:
            delta = tl.load(delta_ptr + at, mask=exists, other=0.0)
        acc = tl.zeros([BM, D], tl.float32)
        for start in range(low // BN * BN, high, BN):
            cols = start + tl.arange(0, BN)
            there = cols < sizes.nk
            keys = load_rows(k, b, hk, cols, there, sizes.d, D)
            values = load_rows(v, b, hk, cols, there, sizes.dv, DV)
            live, p, ds, dd = slopes(
                form, where, b, head, rows, cols, exists, there, queries, keys, values, grads, lse,
                delta, BAND, SPANS, EXACT,
            )  # fmt: skip
            acc += tl.dot(dd.to(keys.dtype), clean(keys), input_precision=EXACT)
        store_rows(grad_q, b, head, rows, exists, sizes.d, acc * form.scale, D)


@triton.jit
def key_kernel(
    q, k, v, grad, lse_ptr, delta_ptr, where, form, grad_k, grad_v, sizes,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """grad_key and grad_value, a tile of keys a program. Grid: (tiles, batch × key heads)."""
    flat = tl.program_id(1)
    key_heads = sizes.heads // sizes.group
    b = flat // key_heads
    hk = flat - b * key_heads
    first = tl.program_id(0) * BN
    cols = first + tl.arange(0, BN)
    there = cols < sizes.nk
    keys = load_rows(k, b, hk, cols, there, sizes.d, D)
    values = load_rows(v, b, hk, cols, there, sizes.dv, DV)
    dk = tl.zeros([BN, D], tl.float32)
    dv = tl.zeros([BN, DV], tl.float32)
    low = 0
    high = sizes.nq
    if BAND:
        low = tl.maximum(first - where.high, 0) // BM * BM
        high = tl.minimum(tl.minimum(first + BN, sizes.nk) - where.low, sizes.nq)
    for g in range(sizes.group):
        head = hk * sizes.group + g
        for start in range(low, high, BM):
            rows = start + tl.arange(0, BM)
            exists = rows < sizes.nq
            queries = load_rows(q, b, head, rows, exists, sizes.d, D)
            grads = load_rows(grad, b, head, rows, exists, sizes.dv, DV)
            at = tl.cast(b * sizes.heads + head, tl.int64) * sizes.nq + rows
            lse = tl.load(lse_ptr + at, mask=exists, other=0.0)
            delta = tl.load(delta_ptr + at, mask=exists, other=0.0)
            live, p, ds, dd = slopes(
                form, where, b, head, rows, cols, exists, there, queries, keys, values, grads, lse,
                delta, BAND, SPANS, EXACT,
            )  # fmt: skip
            if tl.min(finite(grads).to(tl.int32)) == 0:
                dv += seen(tl.trans(live), grads)
            dv += tl.dot(tl.trans(p).to(grads.dtype), clean(grads), input_precision=EXACT)
            dk += tl.dot(tl.trans(dd).to(queries.dtype), clean(queries), input_precision=EXACT)
    store_rows(grad_k, b, hk, cols, there, sizes.d, dk * form.scale, D)
    store_rows(grad_v, b, hk, cols, there, sizes.dv, dv, DV)


@triton.jit
def bias_kernel(
    q, k, v, grad, lse_ptr, delta_ptr, where, form, grad_bias, sizes, batches, heads,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr,
    ALL_ROWS: tl.constexpr, ALL_COLUMNS: tl.constexpr,
):  # fmt: skip
    """grad_bias [B|1, H|1, Nq|1, Nk|1] in float32, a tile a program, summed over what it serves.

    batches and heads are how many of each one element of the bias serves. Grid: (tiles of rows,
    tiles of columns, bias batch × bias heads); one tile along an axis that the bias broadcasts.
    """
    bias_heads = sizes.heads // heads
    bb = tl.program_id(2) // bias_heads
    bh = tl.program_id(2) - bb * bias_heads
    row_from = 0 if ALL_ROWS else tl.program_id(0) * BM
    row_to = sizes.nq if ALL_ROWS else tl.minimum(row_from + BM, sizes.nq)
    col_from = 0 if ALL_COLUMNS else tl.program_id(1) * BN
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
                at = tl.cast(b * sizes.heads + head, tl.int64) * sizes.nq + rows
                lse = tl.load(lse_ptr + at, mask=exists, other=0.0)
                delta = tl.load(delta_ptr + at, mask=exists, other=0.0)
                for col in range(col_from, col_to, BN):
                    cols = col + tl.arange(0, BN)
                    there = cols < sizes.nk
                    keys = load_rows(k, b, hk, cols, there, sizes.d, D)
                    values = load_rows(v, b, hk, cols, there, sizes.dv, DV)
                    live, p, ds, dd = slopes(
                        form, where, b, head, rows, cols, exists, there, queries, keys, values,
                        grads, lse, delta, BAND, SPANS, EXACT,
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
    at = tl.cast(bb, tl.int64) * grad_bias.sb + bh * grad_bias.sh + rows.to(tl.int64) * grad_bias.sn
    ptr = grad_bias.ptr + at[:, None] + (cols.to(tl.int64) * grad_bias.sd)[None, :]
    tl.store(ptr, acc, mask=keep_rows[:, None] & keep_cols[None, :])
