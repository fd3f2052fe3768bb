"""Blocks of cells as empty (0), partly masked (1) or full (2)."""

# mypy: ignore-errors
import triton
import triton.language as tl

from limelight.engines.gpu.cells import allowed


@triton.jit
def classify_kernel(
    where, classes, heads, nq, nk, rows_a_tile,
    BM: tl.constexpr, BN: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr,
):  # fmt: skip
    """One block of rows_a_tile × BN cells a program. Grid: (blocks, tiles, batch × heads).

    A block that reaches past the last key is never full; rows past the last do not count.
    """
    block = tl.program_id(0)
    tile = tl.program_id(1)
    flat = tl.program_id(2)
    b = flat // heads
    head = flat - b * heads
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
    at = (tl.cast(flat, tl.int64) * tl.num_programs(1) + tile) * tl.num_programs(0) + block
    tl.store(classes + at, some + some * all_of_it)
