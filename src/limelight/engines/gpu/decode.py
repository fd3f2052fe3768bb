"""Few queries against many keys: heads packed into one tile, keys in parts, the parts merged.

The rows of all query heads that share a key head make one tile, so that keys and values are read
once. Each program takes one part of the keys and leaves its unnormalised state; the one that ends
last merges all parts of its key head, in their order, so that the bits do not depend on who ends
when. There is one launch, and its counters are left at zero.
"""

# mypy: ignore-errors
# ruff: noqa: E741 (kernel code: l is Σp)
import triton
import triton.language as tl

from limelight.engines.gpu.cells import LN2, LOG2E, NOTHING, reach, split
from limelight.engines.gpu.forward import at_least, attend, finish


@triton.jit
def decode_kernel(
    q, k, v, where, form, sinks, output, stats, sizes, keys_a_part, partial, counters,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    HEALTH: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr, SINKS: tl.constexpr,
    EXACT: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Row r of the tile is query r // group of head hk·group + r mod group.

    Programs: key heads × parts of the keys. `partial` has room for [batch × key heads, parts]
    tiles of DV + 3 columns of BM numbers: the mix, the maximum, Σp and Σp·y.
    """
    BIAS: tl.constexpr = form.bias is not None
    HIDES: tl.constexpr = BAND or SPANS > 0 or where.dense is not None or BIAS
    parts = tl.cdiv(sizes.nk, keys_a_part)
    part, flat = split(tl.program_id(0), parts)
    hk, b = split(flat, sizes.heads // sizes.group)
    r = tl.arange(0, BM)
    rows = r // sizes.group
    heads = hk * sizes.group + (r - rows * sizes.group)
    exists = rows < sizes.nq
    low, high, whole_low, whole_high = reach(
        where, b, heads, rows, exists, 0, sizes.nq - 1, sizes.nk, BAND, SPANS
    )
    low = tl.maximum(low, part * keys_a_part)
    high = tl.minimum(high, part * keys_a_part + keys_a_part)
    acc, m, l, e = attend(
        q, k, v, where, form, sizes, b, hk, heads, rows, exists, low, high, whole_low, whole_high,
        BM, BN, D, DV, HEALTH, BAND, SPANS, EXACT, HIDES,
    )  # fmt: skip
    sink = 0.0
    if SINKS:
        sink = tl.load(sinks + heads, mask=exists, other=0.0).to(tl.float32)
    if not SPLIT:
        finish(
            output, stats, sizes, sink, b, heads, rows, exists, acc, m, l, e,
            DV, HEALTH, SINKS, BIAS,
        )  # fmt: skip
    else:
        SIZE: tl.constexpr = BM * (DV + 3)
        first = partial + tl.cast(flat, tl.int64) * parts * SIZE
        mine = first + part * SIZE
        cells = r[:, None] * DV + tl.arange(0, DV)[None, :]
        tl.store(mine + cells, acc, mask=exists[:, None])
        tl.store(mine + BM * DV + r, m, mask=exists)
        tl.store(mine + BM * (DV + 1) + r, l, mask=exists)
        tl.store(mine + BM * (DV + 2) + r, e, mask=exists)
        tl.debug_barrier()  # every thread's stores before the count that tells of them
        if tl.atomic_add(counters + flat, 1, sem="acq_rel") == parts - 1:
            tl.debug_barrier()
            m = tl.full([BM], NOTHING, tl.float32)
            l = tl.zeros([BM], tl.float32)
            e = tl.zeros([BM], tl.float32)
            acc = tl.zeros([BM, DV], tl.float32)
            for i in tl.range(parts, loop_unroll_factor=4):  # loads of four at a time
                other = first + i * SIZE
                m1 = tl.load(other + BM * DV + r, exists, NOTHING, cache_modifier=".cg")
                l1 = tl.load(other + BM * (DV + 1) + r, exists, 0.0, cache_modifier=".cg")
                e1 = tl.load(other + BM * (DV + 2) + r, exists, 0.0, cache_modifier=".cg")
                acc1 = tl.load(other + cells, exists[:, None], 0.0, cache_modifier=".cg")
                new = tl.maximum(m, m1)
                base = tl.where(new == NOTHING, 0.0, new)
                delta = at_least(tl.where(l > 0.0, m - base, 0.0) * LOG2E)
                delta1 = at_least(tl.where(l1 > 0.0, m1 - base, 0.0) * LOG2E)
                alpha = tl.exp2(delta)
                alpha1 = tl.exp2(delta1)
                if HEALTH:
                    e = alpha * (e + delta * LN2 * l) + alpha1 * (e1 + delta1 * LN2 * l1)
                l = l * alpha + l1 * alpha1
                acc = acc * alpha[:, None] + acc1 * alpha1[:, None]
                m = new
            finish(
                output, stats, sizes, sink, b, heads, rows, exists, acc, m, l, e,
                DV, HEALTH, SINKS, BIAS,
            )  # fmt: skip
            tl.store(counters + flat, 0)
