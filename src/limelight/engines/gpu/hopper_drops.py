"""Dropout in the Hopper kernels: what `limelight.dropout` defines, drawn as threads hold cells.

A thread of a warpgroup holds two neighbours in every eight columns of a product. In the forward
pass columns are keys, and the sixteen of 64 that a thread holds in a row are one draw: `draw` gives
its four words, `stays` the cells. In the backward pass columns are queries and rows are keys: a
thread would use two cells of a draw. There each thread draws for two or four queries, the draw's
sixteen bits go through shared memory, and `fallen` gives them as they are wanted.
"""

# mypy: ignore-errors
from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


class Seed(NamedTuple):
    """The generator's key, and the counter's last word."""

    low: Any
    high: Any
    offset: Any


@gluon.jit
def seed_at(ptr):
    seed = gl.load(ptr).to(gl.uint64)
    return Seed(
        seed.to(gl.uint32), (seed >> 32).to(gl.uint32), gl.load(ptr + 1).to(gl.uint32)
    )  # fmt: skip


@gluon.jit
def _philox(seed, counters, rows, head):
    """Philox4x32-10, four words for each counter and row."""
    low = seed.low
    high = seed.high
    a = counters.to(gl.uint32)
    b = rows.to(gl.uint32)
    c = head.to(gl.uint32)
    d = seed.offset
    for _ in gl.static_range(10):
        left = a.to(gl.uint64) * 0xD2511F53
        right = c.to(gl.uint64) * 0xCD9E8D57
        a = (right >> 32).to(gl.uint32) ^ b ^ low
        b = right.to(gl.uint32)
        c = (left >> 32).to(gl.uint32) ^ d ^ high
        d = left.to(gl.uint32)
        low += 0x9E3779B9
        high += 0xBB67AE85
    return a, b, c, d


@gluon.constexpr_function
def row_lanes():
    """[64, 4]: what each of the four lanes of a row holds, as it lies in a tile of logits."""
    return gl.DistributedLinearLayout(
        [[8, 0]], [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [], [64, 4]
    )


@gluon.jit
def draw(seed, head, first, start, WIDTH: gl.constexpr):
    """The words of 64 rows from `first` on and WIDTH keys from `start` on: [64, 4, WIDTH/64, 4].

    By row, counter, 64 keys and word; each thread has those of its own cells.
    """
    LAYOUT: gl.constexpr = row_lanes()
    rows = first + gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))[:, None]
    counters = start // 16 + gl.arange(0, 4, gl.SliceLayout(0, LAYOUT))[None, :]
    a, b, c, d = _philox(seed, counters, rows, head)
    words = gl.join(gl.join(a, c), gl.join(b, d))  # [64, 4, 2, 2]
    if WIDTH == 128:
        a, b, c, d = _philox(seed, counters + 4, rows, head)
        more = gl.join(gl.join(a, c), gl.join(b, d))
        words = gl.join(words, more).permute([0, 1, 4, 2, 3])
    return words.reshape([64, 4, WIDTH // 64, 4])


@gluon.jit
def stays(words, threshold, LAYOUT: gl.constexpr):
    """Which cells of [64 rows, keys] stay, by the words that `draw` gave."""
    WIDTH: gl.constexpr = 64 * words.shape[2]
    around = ((words << 8) & 0xFFFF) | (words >> 24)
    cells = gl.join(
        gl.join(words & 0xFFFF, words >> 16), gl.join((words >> 8) & 0xFFFF, around)
    )  # [64, counter, 64 keys, word, half, neighbour]
    cells = cells.permute([0, 2, 3, 4, 1, 5]).reshape([64, WIDTH])
    return gl.convert_layout(cells, LAYOUT, assert_trivial=True) >= threshold


@gluon.jit
def _fallen_bits(word, threshold):
    """Bits 0 to 3: which of a word's four cells fall."""
    bits = ((word & 0xFFFF) < threshold).to(gl.uint32)
    bits |= (((word >> 8) & 0xFFFF) < threshold).to(gl.uint32) << 1
    bits |= ((word >> 16) < threshold).to(gl.uint32) << 2
    around = ((word << 8) & 0xFFFF) | (word >> 24)
    return bits | (around < threshold).to(gl.uint32) << 3


@gluon.constexpr_function
def _turned(rows):
    """[eights of 64 keys, counter, neighbour, pairs of rows]: a tile that lies keys by rows, with
    two neighbouring rows as one."""
    registers = [[1, 0, 0, 0]] + [[0, 0, 0, 4 << i] for i in range((rows // 8).bit_length() - 1)]
    threads = [[0, 0, 0, 1], [0, 0, 0, 2], [0, 0, 1, 0], [0, 1, 0, 0], [0, 2, 0, 0]]
    return gl.DistributedLinearLayout(
        registers, threads, [[2, 0, 0, 0], [4, 0, 0, 0]], [], [8, 4, 2, rows // 2]
    )


@gluon.jit
def fallen(seed, threshold, head, first, row0, ROWS: gl.constexpr):
    """For 64 keys from `first` on and ROWS rows from `row0` on: bits for each counter and two rows.

    uint32 [1, 4, 1, ROWS/2]; bit 2·(j div 8) + j mod 2 is that of key first + j and the first of
    the two rows, and 16 bits higher that of the second.
    """
    DRAWN: gl.constexpr = gl.BlockedLayout([1, ROWS // 32], [1, 32], [4, 1], [1, 0])
    rows = row0 + gl.arange(0, ROWS, gl.SliceLayout(0, DRAWN))[None, :]
    counters = first // 16 + gl.arange(0, 4, gl.SliceLayout(1, DRAWN))[:, None]
    a, b, c, d = _philox(seed, counters, rows, head)
    bits = _fallen_bits(a, threshold) | _fallen_bits(b, threshold) << 4
    bits |= (_fallen_bits(c, threshold) | _fallen_bits(d, threshold) << 4) << 8
    even, odd = bits.reshape([4, ROWS // 2, 2]).split()
    HELD: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, _turned(ROWS)))
    held = gl.convert_layout(even | odd << 16, HELD)
    return gl.expand_dims(gl.expand_dims(held, 0), 2)


@gluon.jit
def signed(w, bits, LAYOUT: gl.constexpr):
    """Weights [64 keys, rows] with the sign of those that fall changed."""
    ROWS: gl.constexpr = w.shape[1]
    T: gl.constexpr = _turned(ROWS)
    eights = gl.arange(0, 8, gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, T))))
    pairs = gl.arange(0, 2, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, T))))
    eights = gl.expand_dims(gl.expand_dims(gl.expand_dims(eights, 1), 2), 3)
    pairs = gl.expand_dims(gl.expand_dims(gl.expand_dims(pairs, 0), 1), 3)
    up = (15 - 2 * eights - pairs).to(gl.uint32)
    second = bits << up  # [8, 4, 2, ROWS/2], the bit of the second of two rows on top
    first = second << 16
    sign = gl.join(first, second).reshape([64, ROWS])
    sign = gl.convert_layout(sign, LAYOUT, assert_trivial=True) & 0x80000000
    return (w.to(gl.uint32, bitcast=True) ^ sign).to(gl.float32, bitcast=True)


@gluon.jit
def mixed(pairs, dtype: gl.constexpr):
    """Packed weights with 0 for those of changed sign; NaN stays NaN."""
    KIND: gl.constexpr = "bf16x2" if dtype == gl.bfloat16 else "f16x2"
    return gl.inline_asm_elementwise(
        "{ .reg .b32 z; mov.b32 z, 0; max.NaN." + KIND + " $0, $1, z; }", "=r,r", [pairs],
        dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip
