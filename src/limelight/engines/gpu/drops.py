"""Which cells of a tile dropout leaves: the definition of `limelight.dropout`, drawn by tiles.

A draw's sixteen cells become sixteen bits of one number, bit 2·(j mod 64 div 8) + j mod 2 that of
key j, so that little moves between threads before a tile of cells is spread from them.
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
def four_bits(word, threshold):
    """Which of a word's four cells stay: those from bit 0, 8, 16 and, around its end, 24."""
    bits = ((word & 0xFFFF) >= threshold).to(tl.uint32)
    bits |= (((word >> 8) & 0xFFFF) >= threshold).to(tl.uint32) << 1
    bits |= ((word >> 16) >= threshold).to(tl.uint32) << 2
    around = ((word << 8) & 0xFFFF) | (word >> 24)
    return bits | (around >= threshold).to(tl.uint32) << 3


@triton.jit
def stays(form, heads, rows, start, BN: tl.constexpr, TURNED: tl.constexpr):
    """Which of a tile's cells stay, [rows, BN], or [BN, rows] where it lies keys by rows.

    The BN keys from `start` on, a multiple of BN; heads, a number or one a row, are counted over
    the batch.
    """
    BM: tl.constexpr = rows.shape[0]
    BLOCKS: tl.constexpr = (BN + 63) // 64
    EIGHTS: tl.constexpr = BN // BLOCKS // 8
    counters = (start // 64 * 4 + tl.arange(0, 4 * BLOCKS)).to(tl.uint32)
    heads = (rows * 0 + heads).to(tl.uint32)
    rows = rows.to(tl.uint32)
    seed = tl.load(form.seed).to(tl.uint64)
    offset = tl.load(form.seed + 1).to(tl.uint32)
    eighths = 2 * (start % 64 // 8 + tl.arange(0, EIGHTS))
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
    a = four_bits(a, form.threshold)
    b = four_bits(b, form.threshold) << 4
    c = four_bits(c, form.threshold) << 8
    d = four_bits(d, form.threshold) << 12
    # Of every eight keys, counter c serves the neighbours 2c and 2c + 1.
    pair = tl.arange(0, 2)
    if TURNED:
        # A sum, which Triton moves to another layout: what it is of would be drawn there anew, by
        # eight threads each.
        bits = tl.sum(tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [4 * BLOCKS, BM, 4]), 2)
        bits = tl.reshape(bits, [BLOCKS, 1, 4, 1, BM])
        at = eighths[None, :, None, None, None] + pair[None, None, None, :, None]
        cells = tl.reshape((bits >> at.to(tl.uint32)) & 1 != 0, [BN, BM])
    else:
        bits = tl.reshape(a | b | c | d, [BM, BLOCKS, 1, 4, 1])
        at = eighths[None, None, :, None, None] + pair[None, None, None, None, :]
        cells = tl.reshape((bits >> at.to(tl.uint32)) & 1 != 0, [BM, BN])
    return cells
