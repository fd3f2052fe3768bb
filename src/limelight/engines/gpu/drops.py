"""Which cells of a tile dropout leaves: the definition of `limelight.dropout`, drawn by tiles.

A draw's 32 cells become the bits of one number, so that little moves between threads before a tile
of cells is spread from them.
"""

# mypy: ignore-errors
import triton
import triton.language as tl

from limelight import dropout

ROUNDS = tl.constexpr(dropout.ROUNDS)


@triton.jit
def philox(a, b, c, d, low, high):
    """Philox4x32-7 of a counter of four 32-bit words under a key of two."""
    for _ in tl.static_range(ROUNDS):
        left = a.to(tl.uint64) * 0xD2511F53
        right = c.to(tl.uint64) * 0xCD9E8D57
        a = (right >> 32).to(tl.uint32) ^ b ^ low
        b = right.to(tl.uint32)
        c = (left >> 32).to(tl.uint32) ^ d ^ high
        d = left.to(tl.uint32)
        low += 0x9E3779B9
        high += 0xBB67AE85
    return a, b, c, d


@triton.jit
def turned(word, BY: tl.constexpr):
    """A word turned left."""
    return (word << BY) | (word >> (32 - BY))


@triton.jit
def compared(a, b, c, d, threshold):
    """Which of a draw's 32 cells stay, a bit each."""
    threshold = tl.cast(threshold, tl.uint32)
    own = tl.minimum(threshold >> 8, 255)
    e = turned(a, 5)
    f = turned(b, 10)
    g = turned(c, 15)
    h = turned(d, 20)
    k = turned(a, 25)
    planes = (h ^ k, g ^ h, f ^ g, e ^ f, d, c, b, a)
    common = (a * 0x9E3779B1) >> 24
    stay = tl.where(common >= threshold - (own << 8), 0xFFFFFFFF, 0).to(tl.uint32)
    for i in tl.static_range(8):
        lower = ((own >> i) & 1) - 1  # all ones where the threshold has a 0
        stay = (planes[i] & stay) | (lower & (planes[i] | stay))
    return stay


@triton.jit
def stays(form, heads, rows, start, BN: tl.constexpr, TURNED: tl.constexpr):
    """Which of a tile's cells stay, [rows, BN], or [BN, rows] where it lies keys by rows.

    The BN keys from `start` on, a multiple of BN; heads, a number or one a row, are counted over
    the batch.
    """
    BM: tl.constexpr = rows.shape[0]
    BLOCKS: tl.constexpr = (BN + 127) // 128
    EIGHTS: tl.constexpr = BN // BLOCKS // 8
    counters = (start // 128 * 4 + tl.arange(0, 4 * BLOCKS)).to(tl.uint32)
    heads = (rows * 0 + heads).to(tl.uint32)
    rows = rows.to(tl.uint32)
    seed = tl.load(form.seed).to(tl.uint64)
    offset = tl.load(form.seed + 1).to(tl.uint32)
    if TURNED:
        a, b, c, d = philox(
            counters[:, None], rows[None, :], heads[None, :], offset, seed.to(tl.uint32),
            (seed >> 32).to(tl.uint32),
        )  # fmt: skip
    else:
        a, b, c, d = philox(
            counters[None, :], rows[:, None], heads[:, None], offset, seed.to(tl.uint32),
            (seed >> 32).to(tl.uint32),
        )  # fmt: skip
    bits = compared(a, b, c, d, form.threshold) >> tl.cast(start % 128 // 8, tl.uint32)
    # Of every eight keys, counter c serves the neighbours 2c and 2c + 1.
    eights = tl.arange(0, EIGHTS).to(tl.uint32)
    pair = (16 * tl.arange(0, 2)).to(tl.uint32)
    if TURNED:
        # A sum, which Triton moves to another layout: what it is of would be drawn there anew, by
        # eight threads each.
        bits = tl.sum(bits[:, :, None], 2)
        bits = tl.reshape(bits, [BLOCKS, 1, 4, 1, BM])
        at = eights[None, :, None, None, None] + pair[None, None, None, :, None]
        cells = tl.reshape((bits >> at) & 1 != 0, [BN, BM])
    else:
        bits = tl.reshape(bits, [BM, BLOCKS, 1, 4, 1])
        at = eights[None, None, :, None, None] + pair[None, None, None, None, :]
        cells = tl.reshape((bits >> at) & 1 != 0, [BM, BN])
    return cells
