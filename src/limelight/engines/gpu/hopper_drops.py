"""Dropout in the Hopper kernels: what `limelight.dropout` defines, drawn as threads hold cells.

A thread of a warpgroup holds two neighbours in every eight columns of a product. In the forward
pass columns are keys, and the sixteen of 64 that a thread holds in a row are one draw: `draw` gives
its four words, `left` the weights that stay. In the backward pass columns are queries and rows are
keys: a thread would use two cells of a draw. There another warpgroup draws, `fallen` gives sixteen
bits for each draw, which go through shared memory, and `signed` takes them as they are wanted.
"""

# mypy: ignore-errors
from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from limelight import dropout

ROUNDS = gl.constexpr(dropout.ROUNDS)


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
def _times(x, FACTOR: gl.constexpr):
    """The high and the low half of a product, which is one instruction."""
    return gl.inline_asm_elementwise(
        "{ .reg .b64 t; mul.wide.u32 t, $2, " + FACTOR + "; mov.b64 {$1, $0}, t; }",
        "=r,=r,r", [x], dtype=(gl.uint32, gl.uint32), is_pure=True, pack=1,
    )  # fmt: skip


@gluon.constexpr_function
def _key_asm(step, i):
    """PTX of x ^ y ^ k, k a round's key."""
    key = f"add.u32 k, $3, {i * step % 2**32};"
    return "{ .reg .b32 k; " + key + " lop3.b32 $0, $1, $2, k, 0x96; }"


@gluon.jit
def _mix(x, y, key, ASM: gl.constexpr):
    """Fourteen keys, if they were sums, would be kept in registers from one tile to the next."""
    return gl.inline_asm_elementwise(
        ASM, "=r,r,r,r", [x, y, key], dtype=gl.uint32, is_pure=True, pack=1
    )


@gluon.jit
def _philox(seed, counters, rows, head):
    """Philox4x32-7, four words for each counter and row."""
    a = counters.to(gl.uint32)
    b = rows.to(gl.uint32)
    c = (rows * 0 + head).to(gl.uint32)
    d = seed.offset
    for i in gl.static_range(ROUNDS):
        left, d_next = _times(a, "0xD2511F53")
        right, b_next = _times(c, "0xCD9E8D57")
        a = _mix(right, b, seed.low, _key_asm(0x9E3779B9, i))
        c = _mix(left, d, seed.high, _key_asm(0xBB67AE85, i))
        b = b_next
        d = d_next
    return a, b, c, d


@gluon.jit
def _bytes(word, WHICH: gl.constexpr):
    """Two bytes of a word as a number: prmt's choice, 4 for 0."""
    return gl.inline_asm_elementwise(
        "prmt.b32 $0, $1, 0, " + WHICH + ";", "=r,r", [word],
        dtype=gl.uint32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def _four(word):
    """The 16 bits of a word's four cells: from bit 0, 8, 16 and, around its end, 24."""
    return word & 0xFFFF, _bytes(word, "0x4421"), word >> 16, _bytes(word, "0x4403")


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
def left(w, words, threshold):
    """Weights [64 rows, keys] with 0 for those that fall, by the words that `draw` gave.

    A cell's 16 bits are compared where they are the upper half of a word: for one of four that is
    the word itself, for two a product.
    """
    WIDTH: gl.constexpr = 64 * words.shape[2]
    LAYOUT: gl.constexpr = w.type.layout
    around = gl.inline_asm_elementwise(
        "shf.r.wrap.b32 $0, $1, $1, 8;", "=r,r", [words], dtype=gl.uint32, is_pure=True, pack=1
    )
    cells = gl.join(gl.join(words << 16, words), gl.join(words << 8, around))
    # [.., counter, 64 keys, word, half, neighbour]
    cells = cells.permute([0, 2, 3, 4, 1, 5]).reshape([64, WIDTH])
    cells = gl.convert_layout(cells, LAYOUT, assert_trivial=True)
    bound = ((threshold << 16) - (threshold >> 16)).to(gl.uint32)  # 2^32 is one too many
    return gl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ge.u32 p, $2, $3; selp.f32 $0, $1, 0.0, p; }", "=f,f,r,r",
        [w, cells, cells * 0 + bound], dtype=gl.float32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def _falls(bits, word, threshold):
    """The bits moved up by four, and below them which of a word's four cells fall."""
    a, b, c, d = _four(word)
    bits = bits << 1 | (d - threshold) >> 31
    bits = bits << 1 | (c - threshold) >> 31
    bits = bits << 1 | (b - threshold) >> 31
    return bits << 1 | (a - threshold) >> 31


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
    """For 64 keys from `first` on and ROWS rows from `row0` on: bits for two rows and each counter.

    uint32 [ROWS/2, 4]; bit 2·(j div 8) + j mod 2 is that of key first + j and the first of the two
    rows, and 16 bits higher that of the second.
    """
    DRAWN: gl.constexpr = gl.BlockedLayout([1, ROWS // 32], [1, 32], [4, 1], [1, 0])
    rows = row0 + gl.arange(0, ROWS, gl.SliceLayout(0, DRAWN))[None, :]
    counters = first // 16 + gl.arange(0, 4, gl.SliceLayout(1, DRAWN))[:, None]
    a, b, c, d = _philox(seed, counters, rows, head)
    bits = _falls(_falls(d * 0, d, threshold), c, threshold)
    bits = _falls(_falls(bits, b, threshold), a, threshold)
    even, odd = bits.reshape([4, ROWS // 2, 2]).split()
    return (even | odd << 16).permute([1, 0])


@gluon.constexpr_function
def fallen_held(rows):
    """How a warpgroup holds what `fallen` gives of its tile that lies keys by rows, turned."""
    return gl.SliceLayout(0, gl.SliceLayout(2, _turned(rows)))


@gluon.jit
def signed(weights, bits):
    """Weights [64 keys, rows], packed in pairs, with the sign of those that fall changed.

    `bits` are `fallen`'s, turned: [4, rows/2].
    """
    T: gl.constexpr = _turned(2 * weights.shape[1])
    bits = gl.expand_dims(gl.expand_dims(bits, 0), 2)
    eights = gl.arange(0, 8, gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, T))))
    pairs = gl.arange(0, 2, gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, T))))
    eights = gl.expand_dims(gl.expand_dims(gl.expand_dims(eights, 1), 2), 3)
    pairs = gl.expand_dims(gl.expand_dims(gl.expand_dims(pairs, 0), 1), 3)
    up = (15 - 2 * eights - pairs).to(gl.uint32)
    signs = (bits << up) & 0x80008000  # [8, 4, 2, rows/2], the bits of a pair on top of its halves
    signs = signs.to(gl.int32, bitcast=True).reshape(weights.shape)
    return weights ^ gl.convert_layout(signs, weights.type.layout, assert_trivial=True)


@gluon.jit
def mixed(pairs, dtype: gl.constexpr):
    """Packed weights with 0 for those of changed sign; NaN stays NaN."""
    KIND: gl.constexpr = "bf16x2" if dtype == gl.bfloat16 else "f16x2"
    return gl.inline_asm_elementwise(
        "{ .reg .b32 z; mov.b32 z, 0; max.NaN." + KIND + " $0, $1, z; }", "=r,r", [pairs],
        dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip
