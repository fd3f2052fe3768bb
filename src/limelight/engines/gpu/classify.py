"""Blocks of cells as empty (0), partly masked (1) or full (2)."""

# mypy: ignore-errors
import triton
import triton.language as tl

from limelight.engines.gpu.cells import allowed, split


@triton.jit
def classify_kernel(
    where, classes, heads, nq, nk, rows_a_tile,
    BM: tl.constexpr, BN: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr,
):  # fmt: skip
    """One block of rows_a_tile × BN cells a program. Programs: heads × tiles × blocks.

    A block that reaches past the last key is never full; rows past the last do not count.
    """
    block, rest = split(tl.program_id(0), tl.cdiv(nk, BN))
    tile, flat = split(rest, tl.cdiv(nq, rows_a_tile))
    head, b = split(flat, heads)
    cols = block * BN + tl.arange(0, BN)
    some = 0
    all_of_it = tl.where(block * BN + BN <= nk, 1, 0)
    stop = tl.minimum(tile * rows_a_tile + rows_a_tile, nq)
    for start in range(tile * rows_a_tile, stop, BM):
        rows = start + tl.arange(0, BM)
        exists = (rows < stop)[:, None]
        ok = allowed(
            where, b, head, rows[:, None], cols[None, :], exists, (cols < nk)[None, :], BAND, SPANS
        )
        some = tl.maximum(some, tl.max(ok.to(tl.int32)))
        missing = exists & (ok == 0)
        all_of_it = tl.minimum(all_of_it, 1 - tl.max(missing.to(tl.int32)))
    tl.store(classes + tl.program_id(0), some + some * all_of_it)
