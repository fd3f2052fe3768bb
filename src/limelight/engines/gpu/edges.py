"""Before and after the Hopper backward: what it needs of each row, sums of gradients rounded.

Both are bound by memory, so they do in one pass what belongs to the same rows. They go from the
last rows to the first: what the pass between them reads first, and wrote last, is in L2.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from limelight.engines.gpu.backward import row_delta
from limelight.engines.gpu.cells import LN2, LOG2E, NOTHING, finite, split

LIMIT = tl.constexpr(8192.0)  # |logsumexp| in base 2 beyond which one FMA is not exact enough


@triton.jit
def _backwards():
    return tl.num_programs(0) - 1 - tl.program_id(0)


@triton.jit
def before_kernel(
    output, grad, lse, lse_grad, entropy, h, stats, dq, sizes, padded,
    BM: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """Statistics of BM rows, [B, Hq, 2|4, padded], and zeros for dq [B, Hq, padded, D].

    First minus the logsumexp in base 2: -inf where a row has no keys and past the last row, NaN for
    all of a program's rows where one is beyond LIMIT. Second delta, third the entropy's gradient,
    see `backward.Numbers`; there is no fourth, but TMA's blocks are powers of two.
    """
    tile, flat = split(_backwards(), tl.cdiv(padded, BM))
    rows = tile * BM + tl.arange(0, BM)
    exists = rows < sizes.nq
    at = tl.cast(flat, tl.int64) * sizes.nq + rows
    found = tl.load(lse + at, mask=exists, other=NOTHING)
    binary = tl.where(found == NOTHING, float("-inf"), -found * LOG2E)
    steep = tl.max(((found != NOTHING) & ~(tl.abs(binary) <= LIMIT)).to(tl.int32), 0) > 0
    binary = tl.where(steep, float("nan"), binary)
    delta = row_delta(output, grad, lse_grad, entropy, h, sizes, flat, rows, exists, DV)
    COUNT: tl.constexpr = 2 if h is None else 4
    to = stats + tl.cast(flat, tl.int64) * padded * COUNT + rows
    there = rows < padded
    tl.store(to, binary, mask=there)
    tl.store(to + padded, delta, mask=there)
    if h is not None:
        tl.store(to + 2 * padded, tl.load(h + at, mask=exists, other=0.0) * LN2, mask=there)
    cells = (tl.cast(flat, tl.int64) * padded + tile * BM) * D + tl.arange(0, BM * D)
    tl.store(dq + cells, tl.zeros([BM * D], tl.float32))


@triton.jit(do_not_specialize=["flags"])
def after_kernel(sums, grad, scratch, flags, scale, sizes, padded, D: tl.constexpr):
    """64 rows of grad = scale·sums in its own dtype; raises their flag where one is not finite.

    The sums lie in blocks of 64 × 64 numbers, in each as the threads of a warpgroup hold it. Of
    `sizes` count those of grad, nq, heads and d; before its flags there are `flags` others.
    """
    number = _backwards()
    tile, flat = split(number, tl.cdiv(sizes.nq, 64))
    head, b = split(flat, sizes.heads)
    rows = tile * 64 + tl.arange(0, 64)
    to = tl.cast(b, tl.int64) * grad.sb + tl.cast(head, tl.int64) * grad.sh
    to = grad.ptr + to + rows.to(tl.int64)[:, None] * grad.sn
    first = sums + (tl.cast(flat, tl.int64) * padded + tile * 64) * D
    whole = 1
    for part in tl.static_range(D // 64):
        held = tl.load(first + part * 4096 + tl.arange(0, 4096))
        whole = tl.minimum(whole, tl.min(finite(held).to(tl.int32), 0))
        held = tl.permute(tl.reshape(held, [8, 4, 8, 4, 2, 2]), [1, 4, 2, 0, 3, 5])
        cols = part * 64 + tl.arange(0, 64)
        x = tl.reshape(held, [64, 64]) * scale
        inside = (rows < sizes.nq)[:, None] & (cols < sizes.d)[None, :]
        tl.store(to + cols[None, :] * grad.sd, x.to(grad.ptr.dtype.element_ty), mask=inside)
    tl.store(scratch + 2 + flags + number, 1, mask=whole == 0)
