"""With care, once more: the tiles that the Hopper kernels flagged."""

# mypy: ignore-errors
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from limelight.engines.gpu.backward import key_tile, query_tile
from limelight.engines.gpu.cells import split
from limelight.engines.gpu.forward import tile_of_head


@triton.jit
def again_kernel(
    scratch, count, q, k, v, where, form, sinks, output, stats, sizes,
    FLAGS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    HEALTH: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr, SINKS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """The flagged ones of `count` tiles of BM rows, computed with care; lowers their flags.

    The flags come after the Hopper kernel's two counters. A program looks at FLAGS of them; nearly
    always none is raised and that is all it does. It is launched while the Hopper kernel ends, and
    waits for its results.
    """
    gdc_wait()
    flags = scratch + 2
    base = tl.program_id(0) * FLAGS
    places = base + tl.arange(0, FLAGS)
    if tl.max(tl.load(flags + places, mask=places < count, other=0)) > 0:
        for place in range(base, tl.minimum(base + FLAGS, count)):
            if tl.load(flags + place) > 0:
                tile, flat = split(place, tl.cdiv(sizes.nq, BM))
                tile_of_head(
                    q, k, v, where, form, sinks, output, stats, sizes, flat, tile * BM,
                    BM, BN, D, DV, HEALTH, BAND, SPANS, SINKS, EXACT, True,
                )  # fmt: skip
                tl.debug_barrier()  # all warps have read the flag
                tl.store(flags + place, 0)


@triton.jit
def gradients_again_kernel(
    scratch, row_tiles, count, q, k, v, grad, numbers, where, form, grad_q, grad_k, grad_v, sizes,
    FLAGS: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, BAND: tl.constexpr, SPANS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The flagged ones of `count` tiles of 64: row_tiles of rows, then those of keys."""
    flags = scratch + 2
    base = tl.program_id(0) * FLAGS
    places = base + tl.arange(0, FLAGS)
    if tl.max(tl.load(flags + places, mask=places < count, other=0)) > 0:
        for place in range(base, tl.minimum(base + FLAGS, count)):
            if tl.load(flags + place) > 0:
                if place < row_tiles:
                    tile, flat = split(place, tl.cdiv(sizes.nq, TILE))
                    query_tile(
                        q, k, v, grad, numbers, where, form, grad_q, sizes, flat, tile * TILE,
                        TILE, STEP, D, DV, BAND, SPANS, EXACT, True,
                    )  # fmt: skip
                else:
                    tile, flat = split(place - row_tiles, tl.cdiv(sizes.nk, TILE))
                    key_tile(
                        q, k, v, grad, numbers, where, form, grad_k, grad_v, sizes, flat,
                        tile * TILE, STEP, TILE, D, DV, BAND, SPANS, EXACT, True,
                    )  # fmt: skip
                tl.debug_barrier()  # all warps have read the flag
                tl.store(flags + place, 0)
