"""Pictures of the weights without the weights: pooled rectangles, and what each key receives.

Both walk the cells tile by tile with w = e^(s - logsumexp), so they cost a pass over the cells
looked at and hold the picture alone.
"""

# mypy: ignore-errors
# ruff: noqa: RUF059 (kernel code: results are unpacked whole)
import triton
import triton.language as tl

from limelight.engines.gpu.cells import (
    LOG2E,
    NOTHING,
    allowed,
    load_rows,
    logits,
    reach,
    row_reach,
    split,
)


@triton.jit
def weights(
    q, k, where, form, lse_ptr, sizes, flat, b, head, rows, cols, exists, there,
    D: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The weights of a tile, 0 where not allowed, and where they are allowed."""
    queries = load_rows(q, b, head, rows, exists, sizes.d, D)
    keys = load_rows(k, b, head // sizes.group, cols, there, sizes.d, D)
    ok = allowed(
        where, b, head, rows[:, None], cols[None, :], exists[:, None], there[None, :], BAND, SPANS
    )
    dots = tl.dot(queries, tl.trans(keys), input_precision=EXACT)
    s, slope = logits(form, dots, b, head, rows[:, None], cols[None, :], ok)
    at = tl.cast(flat, tl.int64) * sizes.nq + rows
    lse = tl.load(lse_ptr + at, mask=exists, other=0.0)
    live = s != NOTHING
    return tl.where(live, tl.exp2((s - lse[:, None]) * LOG2E), 0.0), live


@triton.jit
def pool_kernel(
    q, k, where, form, lse_ptr, row_edges, column_edges, picture, counts, sizes, height, width,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, LARGEST: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """One rectangle a program: its largest or summed weight, and how many of its cells are allowed.

    Programs: heads × rows of the picture × its columns.
    """
    x, rest = split(tl.program_id(0), width)
    y, flat = split(rest, height)
    head, b = split(flat, sizes.heads)
    top = tl.load(row_edges + y)
    bottom = tl.load(row_edges + y + 1)
    left = tl.load(column_edges + x)
    right = tl.load(column_edges + x + 1)
    largest = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM], tl.float32)
    count = tl.zeros([BM], tl.int64)
    for row in range(top, bottom, BM):
        rows = row + tl.arange(0, BM)
        exists = rows < bottom
        last = tl.minimum(row + BM, bottom) - 1
        low, high, _, _ = reach(where, b, head, rows, exists, row, last, sizes.nk, BAND, SPANS)
        low = tl.maximum(low, left)
        high = tl.minimum(high, right)
        for col in range(low, high, BN):
            cols = col + tl.arange(0, BN)
            w, live = weights(
                q, k, where, form, lse_ptr, sizes, flat, b, head, rows, cols, exists, cols < high,
                D, BAND, SPANS, EXACT,
            )  # fmt: skip
            if LARGEST:
                here = tl.max(w, 1)
                lost = tl.max((w != w).to(tl.int32), 1) > 0
                largest = tl.where(lost, float("nan"), tl.maximum(largest, here))
            else:
                total += tl.sum(w, 1)
            count += tl.sum(live.to(tl.int32), 1)
    at = tl.program_id(0)
    if LARGEST:
        best = tl.max(largest, 0)
        lost = tl.max((largest != largest).to(tl.int32), 0) > 0
        tl.store(picture + at, tl.where(lost, float("nan"), best))
    else:
        tl.store(picture + at, tl.sum(total, 0))
    tl.store(counts + at, tl.sum(count, 0))


@triton.jit
def received_kernel(
    q, k, where, form, lse_ptr, sums, sizes,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
    BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Column sums of the weights, [B, Hq, Nk]. Programs: heads × tiles of keys."""
    tile, flat = split(tl.program_id(0), tl.cdiv(sizes.nk, BN))
    head, b = split(flat, sizes.heads)
    first = tile * BN
    cols = first + tl.arange(0, BN)
    there = cols < sizes.nk
    last = tl.minimum(first + BN, sizes.nk) - 1
    low, high, _, _ = row_reach(where, b, head, first, last, sizes.nq, BAND, SPANS)
    acc = tl.zeros([BN], tl.float32)
    for start in range(low // BM * BM, high, BM):
        rows = start + tl.arange(0, BM)
        w, live = weights(
            q, k, where, form, lse_ptr, sizes, flat, b, head, rows, cols, rows < sizes.nq, there,
            D, BAND, SPANS, EXACT,
        )  # fmt: skip
        acc += tl.sum(w, 0)
    tl.store(sums + tl.cast(flat, tl.int64) * sizes.nk + cols, acc, mask=there)
