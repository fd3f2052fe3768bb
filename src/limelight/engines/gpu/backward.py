"""The portable backward pass, deterministic: every gradient is summed by one program, in order.

With the weights p = e^(s - logsumexp) recomputed tile by tile and delta = Σ grad_output·output of
each row:

    ds = p · (grad_output·Vᵀ - delta)        by the logits
    grad_value = pᵀ·grad_output
    grad_query = scale · (ds·slope)·K        slope is that of the softcap
    grad_key   = scale · (ds·slope)ᵀ·Q
    grad_bias  = ds, summed over the axes that the bias broadcasts
"""

# mypy: ignore-errors
# ruff: noqa: RUF059 (kernel code: results are unpacked whole)
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
    row_reach,
    seen,
    split,
    spoilt,
    store_rows,
    whole,
)


@triton.jit
def rows_kernel(output, grad, lse, of_rows, sizes, BM: tl.constexpr, DV: tl.constexpr):
    """What the gradients need of each row, of_rows [2, B, Hq, Nq]. Programs: heads × tiles.

    First the logsumexp as `weightless` gives it, second delta = Σ grad_output·output.
    """
    tile, flat = split(tl.program_id(0), tl.cdiv(sizes.nq, BM))
    head, b = split(flat, sizes.heads)
    rows = tile * BM + tl.arange(0, BM)
    exists = rows < sizes.nq
    at = tl.cast(flat, tl.int64) * sizes.nq + rows
    tl.store(of_rows + at, weightless(tl.load(lse + at, mask=exists, other=0.0)), mask=exists)
    o = load_rows(output, b, head, rows, exists, sizes.dv, DV).to(tl.float32)
    g = load_rows(grad, b, head, rows, exists, sizes.dv, DV).to(tl.float32)
    second = tl.cast(sizes.batch, tl.int64) * sizes.heads * sizes.nq
    tl.store(of_rows + second + at, tl.sum(o * g, 1), mask=exists)


@triton.jit
def weightless(lse):
    """logsumexp with +inf for a row without keys: all its weights are then 0."""
    return tl.where(lse == NOTHING, float("inf"), lse)


@triton.jit
def load_numbers(of_rows, sizes, flat, rows, exists):
    """logsumexp and delta of some rows of a head."""
    at = of_rows + tl.cast(flat, tl.int64) * sizes.nq + rows
    second = tl.cast(sizes.batch, tl.int64) * sizes.heads * sizes.nq
    if exists is None:
        lse = tl.load(at)
        delta = tl.load(at + second)
    else:
        lse = tl.load(at, mask=exists, other=float("inf"))
        delta = tl.load(at + second, mask=exists, other=0.0)
    return lse, delta


@triton.jit
def slopes(
    form, where, b, head, rows, cols, exists, there, dots, dp, lse, delta,
    BAND: tl.constexpr, SPANS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Of a tile, either way round: the cells seen, the weights, ds, and ds by the scaled products.

    dots are Q·Kᵀ, dp is grad_output·Vᵀ. What is masked gives 0, even where it is a NaN. The logits
    must be rounded as in the forward pass, so that the difference from a logsumexp that is one of
    them is 0: the select of a mask, or compiling without FMA, sees to that.
    """
    ok = None
    if MASKED:
        ok = allowed(where, b, head, rows, cols, exists, there, BAND, SPANS)
    s, slope = logits(form, dots, b, head, rows, cols, ok)
    live = s != NOTHING
    p = tl.exp2((s - lse) * LOG2E)
    ds = p * (dp - delta)
    dd = ds * slope
    if MASKED:
        p = tl.where(live, p, 0.0)
        ds = tl.where(live, ds, 0.0)
        dd = tl.where(live, dd, 0.0)
    return live, p, ds, dd


@triton.jit
def from_keys(
    k, v, where, form, sizes, b, hk, head, rows, exists, queries, grads, lse, delta, start, acc,
    BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr,
    EXACT: tl.constexpr, MASKED: tl.constexpr, CAREFUL: tl.constexpr,
):  # fmt: skip
    """grad_query of a tile of rows with what a block of keys adds."""
    cols = start + tl.arange(0, BN)
    there = cols < sizes.nk
    held = there if MASKED else None
    keys = load_rows(k, b, hk, cols, held, sizes.d, D)
    values = load_rows(v, b, hk, cols, held, sizes.dv, DV)
    dots = tl.dot(queries, tl.trans(keys), input_precision=EXACT)  # [BM, BN]
    dp = tl.dot(grads, tl.trans(values), input_precision=EXACT)
    live, p, ds, dd = slopes(
        form, where, b, head, rows[:, None], cols[None, :], exists[:, None], there[None, :],
        dots, dp, lse[:, None], delta[:, None], BAND, SPANS, MASKED,
    )  # fmt: skip
    if CAREFUL:
        keys = clean(keys)
    return acc + tl.dot(dd.to(keys.dtype), keys, input_precision=EXACT)


@triton.jit
def query_kernel(
    q, k, v, output, grad, of_rows, where, form, grad_q, sizes,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """grad_query, a tile of rows a program. Programs: query heads × tiles.

    A masked infinity or NaN makes all of a tile NaN. With AGAIN only the tiles of grad_q that hold
    one are computed, with care; of_rows is then the logsumexp alone.
    """
    tiles = tl.cdiv(sizes.nq, BM)
    tile, flat = split(tl.program_id(0), tiles)
    tile = tiles - 1 - tile
    head, b = split(flat, sizes.heads)
    hk = head // sizes.group
    first = tile * BM
    rows = first + tl.arange(0, BM)
    exists = rows < sizes.nq
    wanted = True
    if AGAIN:
        wanted = spoilt(grad_q, b, head, first, sizes.nq, sizes.d, BM, D)
    if wanted:
        last = tl.minimum(first + BM, sizes.nq) - 1
        low, high, whole_low, whole_high = reach(
            where, b, head, rows, exists, first, last, sizes.nk, BAND, SPANS
        )
        queries = load_rows(q, b, head, rows, exists, sizes.d, D)
        grads = load_rows(grad, b, head, rows, exists, sizes.dv, DV)
        if AGAIN:
            at = tl.cast(flat, tl.int64) * sizes.nq + rows
            lse = weightless(tl.load(of_rows + at, mask=exists, other=NOTHING))
            o = load_rows(output, b, head, rows, exists, sizes.dv, DV).to(tl.float32)
            delta = tl.sum(o * grads.to(tl.float32), 1)
        else:
            lse, delta = load_numbers(of_rows, sizes, flat, rows, exists)
        acc = tl.zeros([BM, D], tl.float32)
        CELLS: tl.constexpr = where.dense is not None or form.bias is not None
        PLAIN: tl.constexpr = not (CELLS or AGAIN or EXACT == "ieee")
        begin, full, partial, end = whole(low, high, whole_low, whole_high, BN, PLAIN)
        if PLAIN:
            for start in range(full, partial, BN):
                acc = from_keys(
                    k, v, where, form, sizes, b, hk, head, rows, exists, queries, grads, lse,
                    delta, start, acc, BN, D, DV, BAND, SPANS, EXACT, False, False,
                )  # fmt: skip
        before = (full - begin) // BN
        for i in range(before + (end - partial) // BN):
            start = tl.where(i < before, begin + i * BN, partial + (i - before) * BN)
            acc = from_keys(
                k, v, where, form, sizes, b, hk, head, rows, exists, queries, grads, lse, delta,
                start, acc, BN, D, DV, BAND, SPANS, EXACT, True, AGAIN,
            )  # fmt: skip
        store_rows(grad_q, b, head, rows, exists, sizes.d, acc * form.scale, D)


@triton.jit
def from_rows(
    q, grad, of_rows, where, form, sizes, b, head, cols, there, keys, values, start,
    dk, dv, BM: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BAND: tl.constexpr,
    SPANS: tl.constexpr, EXACT: tl.constexpr, MASKED: tl.constexpr,
    CAREFUL: tl.constexpr,
):  # fmt: skip
    """grad_key and grad_value of a tile of keys with what a block of rows adds.

    The tile lies keys by rows, so that the weights are a product's left side as they are.
    """
    rows = start + tl.arange(0, BM)
    exists = rows < sizes.nq
    held = exists if MASKED else None
    queries = load_rows(q, b, head, rows, held, sizes.d, D)
    grads = load_rows(grad, b, head, rows, held, sizes.dv, DV)
    lse, delta = load_numbers(of_rows, sizes, b * sizes.heads + head, rows, held)
    dots = tl.dot(keys, tl.trans(queries), input_precision=EXACT)  # [BN, BM]
    dp = tl.dot(values, tl.trans(grads), input_precision=EXACT)
    live, p, ds, dd = slopes(
        form, where, b, head, rows[None, :], cols[:, None], exists[None, :], there[:, None],
        dots, dp, lse[None, :], delta[None, :], BAND, SPANS, MASKED,
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
def key_kernel(
    q, k, v, grad, of_rows, where, form, grad_k, grad_v, sizes,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    """grad_key and grad_value, a tile of keys a program. Programs: key heads × tiles.

    With AGAIN only the tiles that hold an infinity or NaN are computed, with care.
    """
    tile, flat = split(tl.program_id(0), tl.cdiv(sizes.nk, BN))
    hk, b = split(flat, sizes.heads // sizes.group)
    first = tile * BN
    cols = first + tl.arange(0, BN)
    there = cols < sizes.nk
    wanted = True
    if AGAIN:
        wanted = spoilt(grad_k, b, hk, first, sizes.nk, sizes.d, BN, D) or spoilt(
            grad_v, b, hk, first, sizes.nk, sizes.dv, BN, DV
        )
    if wanted:
        last = tl.minimum(first + BN, sizes.nk) - 1
        keys = load_rows(k, b, hk, cols, there, sizes.d, D)
        values = load_rows(v, b, hk, cols, there, sizes.dv, DV)
        dk = tl.zeros([BN, D], tl.float32)
        dv = tl.zeros([BN, DV], tl.float32)
        CELLS: tl.constexpr = where.dense is not None or form.bias is not None
        PLAIN: tl.constexpr = not (CELLS or AGAIN or EXACT == "ieee")
        for g in range(sizes.group):
            head = hk * sizes.group + g
            low, high, whole_low, whole_high = row_reach(
                where, b, head, first, last, sizes.nq, BAND, SPANS
            )
            begin, full, partial, end = whole(low, high, whole_low, whole_high, BM, PLAIN)
            if PLAIN:
                for start in range(full, partial, BM):
                    dk, dv = from_rows(
                        q, grad, of_rows, where, form, sizes, b, head, cols, there, keys,
                        values, start, dk, dv, BM, D, DV, BAND, SPANS, EXACT, False, False,
                    )  # fmt: skip
            before = (full - begin) // BM
            for i in range(before + (end - partial) // BM):
                start = tl.where(i < before, begin + i * BM, partial + (i - before) * BM)
                dk, dv = from_rows(
                    q, grad, of_rows, where, form, sizes, b, head, cols, there, keys,
                    values, start, dk, dv, BM, D, DV, BAND, SPANS, EXACT, True, AGAIN,
                )  # fmt: skip
        store_rows(grad_k, b, hk, cols, there, sizes.d, dk * form.scale, D)
        store_rows(grad_v, b, hk, cols, there, sizes.dv, dv, DV)


@triton.jit
def bias_kernel(
    q, k, v, grad, of_rows, where, form, grad_bias, sizes, batches, heads,
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
                lse, delta = load_numbers(of_rows, sizes, at, rows, exists)
                for col in range(col_from, col_to, BN):
                    cols = col + tl.arange(0, BN)
                    there = cols < sizes.nk
                    keys = load_rows(k, b, hk, cols, there, sizes.d, D)
                    values = load_rows(v, b, hk, cols, there, sizes.dv, DV)
                    dots = tl.dot(queries, tl.trans(keys), input_precision=EXACT)
                    dp = tl.dot(grads, tl.trans(values), input_precision=EXACT)
                    live, p, ds, dd = slopes(
                        form, where, b, head, rows[:, None], cols[None, :], exists[:, None],
                        there[None, :], dots, dp, lse[:, None], delta[:, None], BAND, SPANS,
                        True,
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
