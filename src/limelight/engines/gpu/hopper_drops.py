"""Dropout in the Hopper kernels: what `limelight.dropout` defines, drawn as threads hold cells.

A thread of a warpgroup holds two neighbours in every eight columns of a product. In the forward
pass columns are keys, and the 32 of 128 that a thread holds in a row are one draw: `draw` gives the
bits of those that stay, `left` their weights. In the backward pass columns are queries and rows are
keys: a thread would use four cells of a draw. There another warpgroup draws, `fallen` gives the
bits, which go through shared memory, and `signed` takes them as they are wanted.
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
def _turned_left(word, BY: gl.constexpr):
    return gl.inline_asm_elementwise(
        "shf.l.wrap.b32 $0, $1, $1, " + BY + ";", "=r,r", [word],
        dtype=gl.uint32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.constexpr_function
def _bit_asm(i):
    return f"bfe.s32 $0, $1, {i}, 1;"


@gluon.jit
def _above(plane, own, stay, ASM: gl.constexpr, KEEP: gl.constexpr):
    """A bit of each cell beside the bound's: what it decides, and else what lower ones did."""
    bound = gl.inline_asm_elementwise(
        ASM, "=r,r", [plane.to(gl.int32) * 0 + own], dtype=gl.uint32, is_pure=KEEP, pack=1
    )
    return gl.inline_asm_elementwise(
        "lop3.b32 $0, $1, $2, $3, 0xb2;", "=r,r,r,r", [plane, bound, stay],
        dtype=gl.uint32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def _stay(a, b, c, d, threshold, KEEP: gl.constexpr):
    """The bits of a draw's 32 cells: those that stay.

    KEEP: the bits of the threshold may be kept in registers from one draw to the next.
    """
    own = gl.minimum(threshold >> 8, 255)
    common = (threshold - (own << 8)).to(gl.uint32)
    e = _turned_left(a, "5")
    f = _turned_left(b, "10")
    g = _turned_left(c, "15")
    h = _turned_left(d, "20")
    k = _turned_left(a, "25")
    planes = (h ^ k, g ^ h, f ^ g, e ^ f, d, c, b, a)
    stay = gl.where((a * 0x9E3779B1) >> 24 >= common, 0xFFFFFFFF, 0).to(gl.uint32)
    for i in gl.static_range(8):
        stay = _above(planes[i], own, stay, _bit_asm(i), KEEP)
    return stay


@gluon.constexpr_function
def row_lanes():
    """[64, 4]: what each of the four lanes of a row holds, as it lies in a tile of logits."""
    return gl.DistributedLinearLayout(
        [[8, 0]], [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [], [64, 4]
    )


@gluon.jit
def draw(seed, threshold, head, first, start, WIDTH: gl.constexpr):
    """Which cells stay of 64 rows from `first` on and WIDTH keys from `start` on: bits [64, 4].

    By row and counter; each thread has those of its own cells, bit 16·n + g for neighbour n in
    eight g.
    """
    LAYOUT: gl.constexpr = row_lanes()
    rows = first + gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))[:, None]
    counters = start // 128 * 4 + gl.arange(0, 4, gl.SliceLayout(0, LAYOUT))[None, :]
    a, b, c, d = _philox(seed, counters, rows, head)
    stay = _stay(a, b, c, d, threshold, True)
    if WIDTH == 64:
        stay = stay >> (start % 128 // 8).to(gl.uint32)
    return stay


@gluon.jit
def left(pairs, stay):
    """Weights [64 rows, keys], packed in pairs, with 0 for those that fall: `draw` says which."""
    EIGHTS: gl.constexpr = pairs.shape[1] // 4
    L: gl.constexpr = _beside(EIGHTS)
    eights = gl.arange(0, EIGHTS, gl.SliceLayout(0, gl.SliceLayout(2, L)))[None, :, None]
    stay = gl.convert_layout(stay, gl.SliceLayout(1, L), assert_trivial=True)
    up = gl.expand_dims(stay, 1) << (7 - eights % 8).to(gl.uint32)  # [64, eights, 4]
    # A byte's highest bit over two bytes, for each of two neighbours.
    which = gl.where(eights < 8, 0xAA88, 0xBB99) + up.to(gl.int32) * 0
    up = gl.convert_layout(up.reshape(pairs.shape), pairs.type.layout, assert_trivial=True)
    which = gl.convert_layout(which.reshape(pairs.shape), pairs.type.layout, assert_trivial=True)
    return gl.inline_asm_elementwise(
        "{ .reg .b32 m; prmt.b32 m, $2, 0, $3; and.b32 $0, $1, m; }", "=r,r,r,r",
        [pairs, up, which], dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.constexpr_function
def _beside(eights):
    """[64 rows, eights of keys, 4 lanes of a row]: a tile's pairs as their threads hold them."""
    registers = [[8, 0, 0]] + [[0, 1 << i, 0] for i in range(eights.bit_length() - 1)]
    threads = [[0, 0, 1], [0, 0, 2], [1, 0, 0], [2, 0, 0], [4, 0, 0]]
    return gl.DistributedLinearLayout(
        registers, threads, [[16, 0, 0], [32, 0, 0]], [], [64, eights, 4]
    )


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
    """For 128 keys from `first` on and ROWS rows from `row0` on: bits by two rows and counter.

    Two uint32 [ROWS/2, 4], of the first 64 keys and of the others; bit 8·(j mod 2) + j div 8 is
    that of the j-th key and the first of the two rows, and 16 bits higher that of the second.
    """
    DRAWN: gl.constexpr = gl.BlockedLayout([1, ROWS // 32], [1, 32], [4, 1], [1, 0])
    rows = row0 + gl.arange(0, ROWS, gl.SliceLayout(0, DRAWN))[None, :]
    counters = first // 32 + gl.arange(0, 4, gl.SliceLayout(1, DRAWN))[:, None]
    a, b, c, d = _philox(seed, counters, rows, head)
    even, odd = (~_stay(a, b, c, d, threshold, False)).reshape([4, ROWS // 2, 2]).split()
    return _bytes(even, odd, "0x6420").permute([1, 0]), _bytes(even, odd, "0x7531").permute([1, 0])


@gluon.jit
def _bytes(one, other, WHICH: gl.constexpr):
    return gl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $2, " + WHICH + ";", "=r,r,r", [one, other],
        dtype=gl.uint32, is_pure=True, pack=1,
    )  # fmt: skip


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
    up = (15 - eights - 8 * pairs).to(gl.uint32)
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
