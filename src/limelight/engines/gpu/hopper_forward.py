"""The forward pass for Hopper, in Gluon: one producer warp, two or three consumer warpgroups.

Map of the kernel
    forward_kernel   allocates the buffers and forks into the partitions below
    _producer        one warp: walks the tiles and their key blocks, issues the TMA loads
    _consumer        one warpgroup of 64 query rows: logits, softmax, mix, and the row's health
    _step            one block of keys in a consumer, in one of two orders
    _plan            which key blocks a tile needs: partial ones first, then full ones
    _finish          normalise, add the sink, store

A tile is 64 rows for each consumer, and each consumer is its own partition of one warpgroup
(triton-lang/triton#11047). P's registers are written only when its P·V has ended
(triton-lang/triton#9433). Two orders of a consumer's work are kept, see `_step`:
    in turn   P(i-1)·V(i-1), Q·K(i), wait for both, softmax of i. While one warpgroup computes its
              softmax the others have the tensor cores.
    OVERLAP   Q·K(i), P(i-1)·V(i-1), wait for the first, maximum of i beside the second. Warpgroups
              pass a turn round, so that the products of one are not mixed with another's. Ahead at
              256, where the products are long.
Warpgroups that start in step stay in step and want the same units at the same time. A mask with a
diagonal sets them apart; without one each starts when the one before has its first logits. There
(EARLY, with the query in registers) the next tile's first logits are also computed beside the last
P·V of this one; values then have one buffer more, so that those of the next tile need not wait.

The softmax works in base 2 with c = scale·log2(e): y = c·s - m as one FMA, p = 2^y, l = Σp and,
for the entropy, e = Σp·y. The FMA needs |m| < 2^20 to be exact to rounding; a tile with larger
logits, or with an infinity or NaN in its result (which a masked value may have caused), raises its
flag and the careful kernel in `again.py` computes it again.

A bias of 16 bits a cell comes by TMA where it can, a tile for each consumer; divided by the scale
it is what the dot products are added to, and made so a block ahead, among the powers: products
whose left side is in registers hold their warp until it is read, so that little runs beside them,
while special functions leave it time. Under a softcap the logits stay what tanh gave, and c has the
softcap in it.

Programs are persistent. The producer takes tiles from a counter, heaviest first, and hands each
tile's place and plan to the consumers, which spares them the divisions; the last program to end
sets the counters back. Blocks that are only partly allowed come first; the long loop has no mask.
"""

# mypy: ignore-errors
# ruff: noqa: E741, RUF059, SIM102, B007 (kernel code: l is Σp, results are unpacked whole)
from collections import namedtuple
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from limelight.engines.gpu.hopper_drops import draw, left, row_lanes, seed_at
from limelight.engines.gpu.hopper_powers import bent, exp2, quick_tanh, row_tanh, tanh
from limelight.engines.gpu.moved import barrier, tma_load, tma_store

LOG2E = gl.constexpr(1.4426950408889634)
LN2 = gl.constexpr(0.6931471805599453)
LIMIT = gl.constexpr(1048576.0)  # |c·m| beyond which c·s - m as one FMA is not exact enough


@cache
@dataclass(frozen=True, eq=False)
class Config:
    """What is fixed at compile time; sizes are those of the padded blocks.

    There is one object for one set of values, so that looking up its kernel compares identities.
    """

    D: int
    DV: int
    BN: int
    STAGES: int
    CONSUMERS: int
    HEALTH: bool
    MODE: int
    MASKED: bool
    PAIRS: bool
    BAND: bool
    LEFT: bool
    SPANS: int
    DENSE: bool
    BIAS: bool
    TILED: bool  # and its cells come by TMA
    SOFTCAP: bool
    GENTLE: bool  # a softcap of at most 64
    SINKS: bool
    DROP: bool
    QREG: bool
    EARLY: bool
    OVERLAP: bool
    HALF: bool
    ALIAS: bool
    BM: int

    def __post_init__(self) -> None:
        # Attributes of a constexpr object reach the kernel as they are, so they are constexpr too.
        for field in fields(self):
            object.__setattr__(self, field.name, gl.constexpr(getattr(self, field.name)))


class Bars(NamedTuple):
    """The barriers by which producer and consumers hand buffers to each other."""

    q_ready: Any
    q_empty: Any
    k_ready: Any
    v_ready: Any
    empty: Any
    t_ready: Any
    t_empty: Any
    turns: Any
    bias_ready: Any
    bias_empty: Any


class Bufs(NamedTuple):
    """What lies in shared memory."""

    q: Any
    k: Any
    v: Any
    bias: Any
    o: Any
    t: Any


class Tile(NamedTuple):
    """A tile's number, its place, and its plan of key blocks."""

    t: Any
    b: Any
    h: Any
    tile: Any
    right: Any
    npart: Any
    blocks: Any
    hi: Any
    flo: Any
    fhi: Any


class Descriptor(TensorDescriptor):
    """A tensor for TMA, which is known to fit: see `launch.reader`."""

    def __post_init__(self) -> None:
        pass


def describe(tensor: Any, rows: int, size: int, swizzle: int) -> Descriptor:
    """Blocks of `rows` rows of a tensor [B, H, N, D]."""
    layout = _shared(swizzle, 8 * tensor.element_size())
    return Descriptor(tensor, tensor.shape, tensor.stride(), [1, 1, rows, size], layout)


@cache
def _shared(swizzle: int, bits: int) -> Any:
    return gl.NVMMASharedLayout(swizzle, bits, 4)


@gluon.jit
def _times(x, c):
    """x·c, rounded and never fused into a sum: one maximum must always scale to one number."""
    return gl.inline_asm_elementwise(
        "mul.rn.f32 $0, $1, $2;", "=f,f,f", [x, c], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def _tile(t, tiles, heads_total, section):
    """Tile number t as (flat head, tile): heads in sections that fit L2, heavy tiles first."""
    per = section * tiles
    sec = t // per
    u = t - sec * per
    width = gl.minimum(section, heads_total - sec * section)
    level = u // width
    return sec * section + (u - level * width), tiles - 1 - level


@gluon.jit
def _plan(p, C: gl.constexpr, b, h, tile):
    """Key blocks of a tile: (partial on the right, partial in all, all, hi, flo, fhi)."""
    if C.MODE == 2:
        slot = (b * p.plan_sb + h * p.plan_sh + tile).to(gl.int64)
        npart = gl.load(p.plan_ptr + slot * 2)
        total = gl.load(p.plan_ptr + slot * 2 + 1)
        return npart, npart, total, 0, 0, 0
    r0 = tile * C.BM
    r1 = gl.minimum(r0 + C.BM, p.nq)
    if C.MODE == 1:
        slot = (b * p.plan_sb + h * p.plan_sh + tile).to(gl.int64) * 4
        any_lo = gl.load(p.plan_ptr + slot)
        any_hi = gl.load(p.plan_ptr + slot + 1)
        all_lo = gl.load(p.plan_ptr + slot + 2)
        all_hi = gl.load(p.plan_ptr + slot + 3)
    elif C.BAND:
        any_lo = gl.maximum(r0 + p.low, 0)
        any_hi = gl.minimum(r1 + p.high, p.nk)
        all_lo = gl.maximum(r1 - 1 + p.low, 0)
        all_hi = gl.minimum(r0 + p.high + 1, p.nk)
    else:
        any_lo = 0
        any_hi = p.nk
        all_lo = 0
        all_hi = p.nk
    lo = gl.minimum(any_lo, p.nk) // C.BN
    hi = gl.maximum((gl.maximum(any_hi, 0) + C.BN - 1) // C.BN, lo)
    hi = gl.where(any_hi > any_lo, hi, lo)
    flo = gl.minimum(gl.maximum((all_lo + C.BN - 1) // C.BN, lo), hi)
    fhi = gl.minimum(gl.maximum(gl.maximum(all_hi, 0) // C.BN, flo), hi)
    right = hi - fhi
    return right, right + flo - lo, hi - lo, hi, flo, fhi


@gluon.jit
def _block(p, C: gl.constexpr, now, i):
    """The key block that comes i-th in a tile's plan."""
    if C.MODE == 2:
        slot = (now.b * p.plan_sb + now.h * p.plan_sh + now.tile).to(gl.int64)
        return gl.load(p.list_ptr + slot * p.list_width + i)
    partial = gl.where(i < now.right, now.hi - 1 - i, now.flo - 1 - (i - now.right))
    return gl.where(i < now.npart, partial, now.fhi - 1 - (i - now.npart))


@gluon.jit
def _where(p, t):
    head, tile = _tile(t, p.tiles, p.heads_total, p.section)
    b = head // p.heads
    h = head - b * p.heads
    return b, h, tile


@gluon.jit
def _publish(t_buf, bars, r, now):
    """Hand a tile to the consumers, so that they need not divide for its place."""
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    slot = r & 1
    mbarrier.wait(bars.t_empty.index(slot), ((r >> 1) & 1) ^ 1)
    for f in gl.static_range(len(now)):
        t_buf.index(slot * len(now) + f).store(gl.full([1], now[f], gl.int32, ONE))
    mbarrier.arrive(bars.t_ready.index(slot), count=1)


@gluon.jit
def _receive(t_buf, bars, r):
    slot = r & 1
    mbarrier.wait(bars.t_ready.index(slot), (r >> 1) & 1)
    at = slot * 10
    now = Tile(
        _scalar(t_buf, at), _scalar(t_buf, at + 1), _scalar(t_buf, at + 2), _scalar(t_buf, at + 3),
        _scalar(t_buf, at + 4), _scalar(t_buf, at + 5), _scalar(t_buf, at + 6),
        _scalar(t_buf, at + 7), _scalar(t_buf, at + 8), _scalar(t_buf, at + 9),
    )  # fmt: skip
    mbarrier.arrive(bars.t_empty.index(slot), count=1)
    return now


@gluon.jit
def _scalar(t_buf, f):
    return gl.max(t_buf.index(f).load(gl.BlockedLayout([1], [32], [4], [0])), 0)


@gluon.jit
def _producer(p, C: gl.constexpr, q_desc, k_desc, v_desc, bias_desc, bufs, bars):
    count = 0
    turn = 0
    r = 0
    t = gl.program_id(0)
    while t < p.total:
        b, h, tile = _where(p, t)
        right, npart, blocks, hi, flo, fhi = _plan(p, C, b, h, tile)
        now = Tile(t, b, h, tile, right, npart, blocks, hi, flo, fhi)
        _publish(bufs.t, bars, r, now)
        r += 1
        hk = h // p.group
        if blocks > 0:
            for w in gl.static_range(C.CONSUMERS):
                mbarrier.wait(bars.q_empty.index(w), (turn & 1) ^ 1)
                mbarrier.expect(bars.q_ready.index(w), q_desc.block_type.nbytes)
                tma_load(
                    q_desc, [b, h, tile * C.BM + w * 64, 0], bars.q_ready.index(w), bufs.q.index(w)
                )
            turn += 1
            for i in range(blocks):
                j = _block(p, C, now, i) * C.BN
                stage = count % C.STAGES
                phase = (count // C.STAGES) & 1
                mbarrier.wait(bars.empty.index(stage), phase ^ 1)
                mbarrier.expect(bars.k_ready.index(stage), k_desc.block_type.nbytes)
                tma_load(k_desc, [b, hk, j, 0], bars.k_ready.index(stage), bufs.k.index(stage))
                if C.TILED:
                    for w in gl.static_range(C.CONSUMERS):
                        mbarrier.wait(bars.bias_empty.index(w), (count & 1) ^ 1)
                        mbarrier.expect(bars.bias_ready.index(w), bias_desc.block_type.nbytes)
                        tma_load(
                            bias_desc,
                            [gl.where(p.bias_sb == 0, 0, b), gl.where(p.bias_sh == 0, 0, h),
                             tile * C.BM + w * 64, j],
                            bars.bias_ready.index(w), bufs.bias.index(w),
                        )  # fmt: skip
                # Values are released with the keys of the next block.
                if not C.EARLY:
                    after = count + 1
                    mbarrier.wait(bars.empty.index(after % C.STAGES), ((after // C.STAGES) & 1) ^ 1)
                stage = count % bufs.v.shape[0]
                mbarrier.expect(bars.v_ready.index(stage), v_desc.block_type.nbytes)
                tma_load(v_desc, [b, hk, j, 0], bars.v_ready.index(stage), bufs.v.index(stage))
                count += 1
        t = gl.num_programs(0) + gl.atomic_add(p.scratch_ptr, 1)
    gdc_launch_dependents()
    _publish(bufs.t, bars, r, Tile(t, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    # The last program to end leaves the counters as it found them.
    if gl.atomic_add(p.scratch_ptr + 1, 1) == gl.num_programs(0) - 1:
        gl.store(p.scratch_ptr, 0)
        gl.store(p.scratch_ptr + 1, 0)


@gluon.constexpr_function
def _keep_asm(count, compare):
    """PTX that keeps a thread's `count` logits of a [64, 2·count] tile on one side of a column.

    Register r of lane t holds column 8·(r/4) + 2·(t mod 4) + (r mod 2), of the first row where
    (r/2) mod 2 is 0 and of the second where it is 1. Operands: results, logits, bounds, fill. The
    columns are immediates, so the mask costs two instructions a cell and no registers.
    """
    lines = [".reg .pred p;", ".reg .s32 t, x, y;", "mov.u32 t, %laneid;", "and.b32 t, t, 3;"]
    lines.append("shl.b32 t, t, 1;")
    lines.append(f"sub.s32 x, ${2 * count}, t;")
    lines.append(f"sub.s32 y, ${2 * count + 2}, t;")
    for r in range(count):
        bound = "y" if (r // 2) % 2 else "x"
        lines.append(f"setp.{compare}.s32 p, {bound}, {8 * (r // 4) + r % 2};")
        lines.append(f"selp.f32 ${r}, ${count + r}, ${3 * count}, p;")
    return "{ " + " ".join(lines) + " }"


@gluon.constexpr_function
def _keep_constraints(count):
    return ",".join(["=f"] * count + ["f"] * count + ["r"] * count + ["f"] * count)


@gluon.jit
def _keep(s, bound, fill, COMPARE: gl.constexpr):
    """s where the column compares to the row's bound as asked, else fill; bound [64]."""
    COUNT: gl.constexpr = s.shape[1] // 2
    return gl.inline_asm_elementwise(
        _keep_asm(COUNT, COMPARE),
        _keep_constraints(COUNT),
        [s, bound[:, None].broadcast_to(s.shape), gl.full_like(s, fill)],
        dtype=gl.float32,
        is_pure=True,
        pack=COUNT,
    )


@gluon.jit
def _cells(p, C: gl.constexpr, ptr, sb, sh, sq, sk, b, h, rows, cols):
    """A tile of an array [B|1, H|1, Nq|1, Nk|1]; past the last key and row are any numbers."""
    at = ptr + b.to(gl.int64) * sb + h.to(gl.int64) * sh
    at = at + (gl.minimum(rows, p.nq - 1).to(gl.int64) * sq)[:, None]
    if C.PAIRS:
        PAIR: gl.constexpr = ptr.dtype.element_ty.primitive_bitwidth // 4
        at = at + cols[None, :]
        return gl.load(gl.multiple_of(gl.max_contiguous(at, [1, 2]), [1, PAIR]))
    return gl.load(at + (gl.minimum(cols, p.nk - 1).to(gl.int64) * sk)[None, :])


@gluon.jit
def _mask(p, C: gl.constexpr, s, b, h, rows, start, lane):
    """Logits of the columns from `start` on, with the cells that the mask forbids at `fill`."""
    cols = start + lane
    last = gl.minimum(rows + p.high, p.nk - 1) if C.BAND else rows * 0 + (p.nk - 1)
    s = _keep(s, last - start, p.fill, "ge")
    if C.LEFT:
        s = _keep(s, rows + (p.low - start), p.fill, "le")
    if C.SPANS > 0:
        base = p.spans_ptr + b.to(gl.int64) * p.spans_sb + h.to(gl.int64) * p.spans_sh
        base += gl.minimum(rows, p.nq - 1).to(gl.int64) * p.spans_sq
        if C.SPANS == 1:
            s = _keep(s, gl.load(base + 1) - 1 - start, p.fill, "ge")
            s = _keep(s, gl.load(base) - start, p.fill, "le")
        else:
            inside = (cols < 0)[None, :] & (rows < 0)[:, None]
            for r in gl.static_range(C.SPANS):
                first = gl.load(base + 2 * r)[:, None]
                last = gl.load(base + 2 * r + 1)[:, None]
                inside = inside | ((cols[None, :] >= first) & (cols[None, :] < last))
            s = gl.where(inside, s, p.fill)
    if C.DENSE:
        seen = _cells(
            p, C, p.dense_ptr, p.dense_sb, p.dense_sh, p.dense_sq, p.dense_sk, b, h, rows, cols
        )
        s = gl.where(seen != 0, s, p.fill)
    return s


@gluon.jit
def _logits(p, C: gl.constexpr, s, b, h, rows, start, lane, MASKED: gl.constexpr):
    cols = start + lane
    if C.SOFTCAP:
        s = quick_tanh(s, p.scale, C.HEALTH) if C.GENTLE else tanh(s * p.scale)
    if C.BIAS and not C.TILED:
        s = s * (p.softcap if C.SOFTCAP else p.scale)
        x = _cells(
            p, C, p.bias_ptr, p.bias_sb, p.bias_sh, p.bias_sq, p.bias_sk, b, h, rows, cols
        ).to(gl.float32)
        s = gl.where(x == float("-inf"), p.fill, s + x)
    if MASKED:
        s = _mask(p, C, s, b, h, rows, start, lane)
    return s


@gluon.jit
def _lanes(x):
    """A tile's numbers by row and lane: [64, 4, columns/4], the last in a thread's registers."""
    lanes = x.reshape([64, x.shape[1] // 8, 4, 2]).permute([0, 2, 1, 3])
    return lanes.reshape([64, 4, x.shape[1] // 4])


@gluon.jit
def _sum(x):
    """The sums over each lane's columns, [64, 4]; the four are added when the row is done."""
    return gl.convert_layout(gl.sum(_lanes(x), 2), row_lanes(), assert_trivial=True)


@gluon.jit
def _highest(s, CHAINS: gl.constexpr):
    """Each row's maximum, by a thread in one chain or in four.

    In one ptxas begins a row's powers beside the other row's maximum. In four nothing waits for a
    link: with dropout, which draws beside it, and where both rows are needed for what comes next.
    """
    if CHAINS:
        LAYOUT: gl.constexpr = gl.SliceLayout(1, s.type.layout)
        chains = gl.max(_lanes(s).reshape([64, 4, 4, s.shape[1] // 16]), 3)
        top = gl.convert_layout(gl.max(chains, 2), row_lanes(), assert_trivial=True)
        highest = gl.convert_layout(gl.max(top, 1), LAYOUT, assert_trivial=True)
    else:
        highest = gl.max(s, 1)
    return highest


@gluon.jit
def _row(x):
    """A number for each row beside the lanes' sums, [64, 1]."""
    return gl.convert_layout(x, gl.SliceLayout(1, row_lanes()), assert_trivial=True)[:, None]


@gluon.jit
def _lift(p, m, highest, SELECT: gl.constexpr):
    """A block's maximum into the running one: (new maximum, in base 2, shift, rescaling factor).

    m is the running maximum in the units of the logits; a row that has seen only forbidden cells
    keeps it at `fill`, and with SELECT its exponents are then relative to 0.
    """
    new = gl.maximum(m, highest)
    top = _times(new, p.c)
    if SELECT:
        top = gl.where(new > p.fill * 0.5, top, 0.0)
    delta = _times(m, p.c) - top
    if SELECT:
        delta = gl.where(m > p.fill * 0.5, delta, 0.0)
    return new, top, delta, exp2(delta)


@gluon.constexpr_function
def _bends(C, masked):
    """Whether `bent` makes a block's exponents, and its powers with them."""
    return C.SOFTCAP.value and C.GENTLE.value and not C.BIAS.value and not masked


@gluon.jit
def _exponents(p, C: gl.constexpr, s, m, b, h, rows, start, lane, MASKED: gl.constexpr):
    """y = c·s - m of a block: (y, 2^y where `_bends`, m, shift, rescaling factor).

    The maximum is lifted first: see `_lift`.
    """
    if _bends(C, MASKED):
        highest = _highest(s, True)
        m, top, delta, alpha = _lift(p, m, row_tanh(highest * p.scale, C.HEALTH), False)
        y, w = bent(p.bend, p.scale, p.c, s, top, m, highest, C.HEALTH)
    else:
        s = _logits(p, C, s, b, h, rows, start, lane, MASKED)
        # From 128 on without a mask too: ptxas then lets the exponentials of a thread's first row
        # run beside the maximum of its second.
        SELECT: gl.constexpr = C.MASKED or C.D > 64
        m, top, delta, alpha = _lift(p, m, _highest(s, C.DROP), SELECT)
        y = gl.fma(s, gl.full_like(s, p.c), (-top)[:, None].broadcast_to(s.shape))
        w = y
    return y, w, m, delta, alpha


@gluon.jit
def _weights(C: gl.constexpr, y, w, MASKED: gl.constexpr):
    """2^y, where they are not w already: (weights, Σ of them, Σ of them times y)."""
    if not _bends(C, MASKED):
        w = exp2(y)
    return w, _sum(w), _sum(w * y) if C.HEALTH else 0.0


@gluon.jit
def _pack(w, dtype: gl.constexpr):
    """[64, BN] weights rounded and packed in pairs, [64, BN/2] int32.

    Loop-carried half types would be kept one to a register and packed again before each use;
    pairs cross the loop as they are, and unpacking folds away.
    """
    low, high = w.reshape([64, w.shape[1] // 2, 2]).split()
    KIND: gl.constexpr = "bf16x2" if dtype == gl.bfloat16 else "f16x2"
    return gl.inline_asm_elementwise(
        "cvt.rn." + KIND + ".f32 $0, $2, $1;",
        "=r,f,f",
        [low, high],
        dtype=gl.int32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def _unpack(pairs, dtype: gl.constexpr, layout: gl.constexpr):
    low = pairs.to(gl.int16)
    high = (pairs >> 16).to(gl.int16)
    w = gl.join(low, high).reshape([64, pairs.shape[1] * 2]).to(dtype, bitcast=True)
    return gl.convert_layout(w, layout, assert_trivial=True)


@gluon.jit
def _widen(pairs, dtype: gl.constexpr, layout: gl.constexpr):
    """Packed pairs as float32, [64, N]."""
    if dtype == gl.bfloat16:
        FIRST: gl.constexpr = "shl.b32 $0, $1, 16;"
        SECOND: gl.constexpr = "and.b32 $0, $1, 0xffff0000;"
    else:
        FIRST: gl.constexpr = "{ .reg .b16 a, b; mov.b32 {a, b}, $1; cvt.f32.f16 $0, a; }"
        SECOND: gl.constexpr = "{ .reg .b16 a, b; mov.b32 {a, b}, $1; cvt.f32.f16 $0, b; }"
    low = gl.inline_asm_elementwise(FIRST, "=f,r", [pairs], dtype=gl.float32, is_pure=True, pack=1)
    high = gl.inline_asm_elementwise(
        SECOND, "=f,r", [pairs], dtype=gl.float32, is_pure=True, pack=1
    )
    both = gl.join(low, high).reshape([64, pairs.shape[1] * 2])
    return gl.convert_layout(both, layout, assert_trivial=True)


@gluon.jit
def _widened(cells, layout: gl.constexpr):
    """Numbers of 16 bits as float32, [64, N], packed in pairs until then."""
    low, high = cells.to(gl.int16, bitcast=True).reshape([64, cells.shape[1] // 2, 2]).split()
    pairs = low.to(gl.uint16, bitcast=True).to(gl.int32) | high.to(gl.int32) << 16
    return _widen(pairs, cells.dtype, layout)


@gluon.jit
def _arrived(C: gl.constexpr, bufs, ready, count, wanted=True):
    """The keys or values of block number `count`, once they are there."""
    STAGES: gl.constexpr = bufs.shape[0]
    stage = count % STAGES
    mbarrier.wait(ready.index(stage), (count // STAGES) & 1, pred=wanted)
    return bufs.index(stage).reshape([C.BN, bufs.shape[-1]])


@gluon.jit
def _bias(C: gl.constexpr, W: gl.constexpr, bufs, bars, count, L: gl.constexpr, wanted):
    """The bias of block number `count`, once it is there; anything where none is wanted."""
    mbarrier.wait(bars.bias_ready.index(W), count & 1, pred=wanted)
    cells = bufs.bias.index(W).reshape([64, C.BN]).slice(0, L.instr_shape[1], dim=1).load(L)
    fence_async_shared()  # TMA writes there next
    return cells


@gluon.jit
def _begun(p, C: gl.constexpr, cells):
    """What a block's dot products are added to: its bias, divided by the scale."""
    LAYOUT: gl.constexpr = cells.type.layout
    x = _widened(cells, LAYOUT) * (1.0 / p.scale)
    if C.HEALTH:  # -inf masks; the fill's product with a weight of 0 is a number
        x = gl.inline_asm_elementwise(
            "max.NaN.f32 $0, $1, $2;", "=f,f,f", [x, gl.full_like(x, p.fill)], dtype=gl.float32,
            is_pure=True, pack=1,
        )  # fmt: skip
    return x


@gluon.jit
def _release(bar, wanted=True):
    """One arrival for the warpgroup. As one that expects no bytes it needs no barrier behind it."""
    barrier()
    mbarrier.expect(bar, 0, pred=wanted)


@gluon.jit
def _take(turns, W: gl.constexpr, count):
    """Wait until the warpgroup before this one has issued its products of block number `count`."""
    mbarrier.wait(turns.index(W), (count & 1) ^ 1 if W == 0 else count & 1)


@gluon.jit
def _pass(C: gl.constexpr, turns, W: gl.constexpr):
    """The next warpgroup's turn."""
    mbarrier.expect(turns.index((W + 1) % C.CONSUMERS), 0)


@gluon.jit
def _step(
    p,
    C: gl.constexpr,
    W: gl.constexpr,
    MASKED: gl.constexpr,
    b,
    h,
    first_row,
    rows,
    start,
    lane,
    seed,
    qa,
    bufs,
    bars,
    count,
    more,
    begun,
    w,
    o,
    m,
    l,
    e,
    OL: gl.constexpr,
    PL: gl.constexpr,
    dtype: gl.constexpr,
):
    """Block number `count`: its logits and softmax, and the mix of the block before it.

    In turn, that mix was issued by the step before, and this step's own is left in flight. With
    OVERLAP, `w` brings the weights of the block before, and takes this block's to the next step.
    """
    stage = count % C.STAGES
    k = _arrived(C, bufs.k, bars.k_ready, count).permute([1, 0])
    if C.OVERLAP:
        v = _arrived(C, bufs.v, bars.v_ready, count - 1)
        _take(bars.turns, W, count)
    s = warpgroup_mma(qa, k, begun, use_acc=C.TILED, is_async=True)  # [64, BN]
    if C.OVERLAP:
        o = warpgroup_mma(_unpack(w, dtype, PL), v, o, is_async=True)  # [64, DV]
        _pass(C, bars.turns, W)
        s = warpgroup_mma_wait(1, [s])
    else:
        v = _arrived(C, bufs.v, bars.v_ready, count)
        s, o = warpgroup_mma_wait(0, [s, o])
        _release(bars.empty.index(stage))
    if C.DROP:  # among the powers: before the wait it would hold up what is issued
        stay = draw(seed, p.threshold, b * p.heads + h, first_row, start, C.BN)
    if C.TILED:
        LAYOUT: gl.constexpr = begun.type.layout
        cells = _bias(C, W, bufs, bars, count + 1, LAYOUT, more)
    HIDES: gl.constexpr = MASKED and C.MASKED
    y, w, m, delta, alpha = _exponents(p, C, s, m, b, h, rows, start, lane, HIDES)
    if C.OVERLAP:
        o = warpgroup_mma_wait(0, [o])
        _release(bars.empty.index(stage))
    w, sums, mean = _weights(C, y, w, HIDES)
    if C.HEALTH:
        e = _row(alpha) * (e + _row(delta) * l) + mean
    l = l * _row(alpha) + sums
    o = o * gl.convert_layout(alpha, gl.SliceLayout(1, OL))[:, None]
    w = _pack(w, dtype)
    if C.DROP:
        w = left(w, stay)
    if C.TILED:
        begun = _begun(p, C, cells)
    if not C.OVERLAP:
        o = warpgroup_mma(_unpack(w, dtype, PL), v, o, is_async=True)
    if C.TILED:  # here, as the barrier before it would be waited for among the powers
        _release(bars.bias_empty.index(W), more)
    return begun, w, o, m, l, e


@gluon.jit
def _first(p, C: gl.constexpr, W: gl.constexpr, FL: gl.constexpr, q, bufs, bars, count, wanted):
    """The logits of a tile's first block, left in flight; where none is wanted, of anything."""
    WIDTH: gl.constexpr = FL.instr_shape[1]
    k = _arrived(C, bufs.k, bars.k_ready, count, wanted).slice(0, WIDTH).permute([1, 0])
    if C.OVERLAP:
        _take(bars.turns, W, count)
    begun = gl.zeros([64, WIDTH], gl.float32, FL)
    if C.TILED:
        begun = _begun(p, C, _bias(C, W, bufs, bars, count, FL, True))
        _release(bars.bias_empty.index(W))
    s = warpgroup_mma(q, k, begun, use_acc=C.TILED, is_async=True)
    if C.OVERLAP:
        _pass(C, bars.turns, W)
    return s


@gluon.jit
def _next(p, C: gl.constexpr, W: gl.constexpr, FL: gl.constexpr, q, bufs, bars, count, turn, r):
    """A tile's record and, in flight, the logits of its first block."""
    now = _receive(bufs.t, bars, r)
    mbarrier.wait(bars.q_ready.index(W), turn & 1, pred=now.blocks > 0)
    s = _first(p, C, W, FL, q, bufs, bars, count, now.blocks > 0)
    return s, now


@gluon.jit
def _consumer(p, C: gl.constexpr, W: gl.constexpr, o_desc, bufs, bars):
    SL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C.BN, 16])
    OL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C.DV, 16])
    PL: gl.constexpr = gl.DotOperandLayout(0, OL, 2)
    QL: gl.constexpr = gl.DotOperandLayout(0, SL, 2)
    # The upper 64 rows see only the first half of a block on the diagonal.
    WIDTH: gl.constexpr = C.BN // 2 if C.HALF and W == 0 else C.BN
    FL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    FIRST_QL: gl.constexpr = gl.DotOperandLayout(0, FL, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, SL)
    APART: gl.constexpr = not C.OVERLAP and not C.BAND
    dtype: gl.constexpr = bufs.q.dtype
    q = bufs.q.index(W).reshape([64, C.D])
    seed = seed_at(p.seed_ptr) if C.DROP else 0
    count = 0
    turn = 0
    r = 1
    if APART and W > 0:
        mbarrier.wait(bars.turns.index(W), 0)
    if C.EARLY:
        s, now = _next(p, C, W, FL, q, bufs, bars, count, turn, 0)
        s = warpgroup_mma_wait(0, [s])
    else:
        now = _receive(bufs.t, bars, 0)
    while now.t < p.total:
        first_row = now.tile * C.BM + W * 64
        this_b = now.b
        this_h = now.h
        rows = first_row + gl.arange(0, 64, ROWS)
        lane = gl.arange(0, C.BN, gl.SliceLayout(0, SL))
        zero = gl.zeros([64, C.BN], gl.float32, SL)
        m = gl.full([64], p.fill, gl.float32, ROWS)
        l = gl.zeros([64, 4], gl.float32, row_lanes())
        e = gl.zeros([64, 4], gl.float32, row_lanes())
        o = gl.zeros([64, C.DV], gl.float32, OL)
        # Blocks at the start of the plan may lie wholly beyond the diagonal of these 64 rows.
        skip = 0
        if C.MODE == 0 and C.BAND:
            reach = gl.minimum(gl.minimum(first_row + 64, p.nq) + p.high, p.nk)
            beyond = now.hi - (gl.maximum(reach, 0) + C.BN - 1) // C.BN
            skip = gl.minimum(gl.maximum(beyond, 0), now.right)
        for i in range(skip):
            _arrived(C, bufs.k, bars.k_ready, count)
            _arrived(C, bufs.v, bars.v_ready, count)
            mbarrier.arrive(bars.empty.index(count % C.STAGES), count=1)
            if C.TILED:
                mbarrier.wait(bars.bias_ready.index(W), count & 1)
                mbarrier.arrive(bars.bias_empty.index(W), count=1)
            if C.OVERLAP:
                _take(bars.turns, W, count)
                _pass(C, bars.turns, W)
            count += 1
        if now.blocks > 0:
            if not C.EARLY:
                mbarrier.wait(bars.q_ready.index(W), turn & 1)
            turn += 1
        if C.QREG:
            qa = q.load(QL)
            first_q = gl.convert_layout(qa, FIRST_QL, assert_trivial=True)
            if now.blocks > 0:
                mbarrier.arrive(bars.q_empty.index(W), count=1)
        else:
            qa = q
            first_q = q
        if now.blocks > skip:
            if not C.EARLY:
                s = _first(p, C, W, FL, first_q, bufs, bars, count, True)
                s = warpgroup_mma_wait(0, [s])
            _release(bars.empty.index(count % C.STAGES))
            if APART:
                _pass(C, bars.turns, W)
            start = _block(p, C, now, skip) * C.BN
            first_rows = gl.convert_layout(rows, gl.SliceLayout(1, FL), assert_trivial=True)
            first_lane = gl.arange(0, WIDTH, gl.SliceLayout(0, FL))
            first_m = gl.convert_layout(m, gl.SliceLayout(1, FL), assert_trivial=True)
            y, w, first_m, delta, alpha = _exponents(
                p, C, s, first_m, now.b, now.h, first_rows, start, first_lane, C.MASKED
            )
            m = gl.convert_layout(first_m, ROWS, assert_trivial=True)
            w, l, mean = _weights(C, y, w, C.MASKED)
            if C.HEALTH:
                e = mean
            w = _pack(w, dtype)
            if C.DROP:
                at = now.b * p.heads + now.h
                w = left(w, draw(seed, p.threshold, at, first_row, start, WIDTH))
            begun = zero
            if C.TILED:
                more = now.blocks > skip + 1
                begun = _begun(p, C, _bias(C, W, bufs, bars, count + 1, SL, more))
                _release(bars.bias_empty.index(W), more)
            if not C.OVERLAP:
                v = _arrived(C, bufs.v, bars.v_ready, count).slice(0, WIDTH)
                barrier()  # else the compiler guards the next such wait, in every step
                o = warpgroup_mma_init(o)
                o = warpgroup_mma(_unpack(w, dtype, PL), v, o, use_acc=False, is_async=True)
                w = _pack(zero, dtype)  # not read; it has the type of a step's weights
            for i in range(skip + 1, now.npart):
                start = _block(p, C, now, i) * C.BN
                count += 1
                begun, w, o, m, l, e = _step(
                    p, C, W, True, now.b, now.h, first_row, rows, start, lane, seed, qa, bufs,
                    bars, count, i + 1 < now.blocks, begun, w, o, m, l, e, OL, PL, dtype,
                )  # fmt: skip
            for i in range(gl.maximum(now.npart, skip + 1), now.blocks):
                start = _block(p, C, now, i) * C.BN
                count += 1
                begun, w, o, m, l, e = _step(
                    p, C, W, False, now.b, now.h, first_row, rows, start, lane, seed, qa, bufs,
                    bars, count, i + 1 < now.blocks, begun, w, o, m, l, e, OL, PL, dtype,
                )  # fmt: skip
            if C.OVERLAP:
                v = _arrived(C, bufs.v, bars.v_ready, count)
                o = warpgroup_mma(_unpack(w, dtype, PL), v, o, is_async=True)
            count += 1
            if C.EARLY:
                s, now = _next(p, C, W, FL, q, bufs, bars, count, turn, r)
                s, o = warpgroup_mma_wait(0, [s, o])
            else:
                o = warpgroup_mma_wait(0, [o])
        else:
            if APART:
                _pass(C, bars.turns, W)
            if C.EARLY:
                s, now = _next(p, C, W, FL, q, bufs, bars, count, turn, r)
                s = warpgroup_mma_wait(0, [s])
        if not C.QREG and not C.ALIAS:
            if now.blocks > 0:
                mbarrier.arrive(bars.q_empty.index(W), count=1)
        factor = _finish(p, C, this_b, this_h, first_row, o, m, l, e, SL)
        o = o * gl.convert_layout(factor, gl.SliceLayout(1, OL))[:, None]
        tma.store_wait(0)
        barrier()
        tile_o = bufs.o.index(W)
        tile_o.reshape([64, C.DV]).store(o.to(dtype))
        fence_async_shared()
        tma_store(o_desc, [this_b, this_h, first_row, 0], tile_o)
        if C.ALIAS:
            tma.store_wait(0)
            barrier()
            if now.blocks > 0:
                mbarrier.arrive(bars.q_empty.index(W), count=1)
        if not C.EARLY:
            now = _receive(bufs.t, bars, r)
        r += 1
    tma.store_wait(0)


@gluon.jit
def _finish(p, C: gl.constexpr, b, h, first_row, o, m, l, e, SL: gl.constexpr):
    """Store the row statistics; returns the factor that normalises the output, [64]."""
    rows = first_row + gl.arange(0, 64, gl.SliceLayout(1, SL))
    l = gl.convert_layout(gl.sum(l, 1), gl.SliceLayout(1, SL), assert_trivial=True)
    e = gl.convert_layout(gl.sum(e, 1), gl.SliceLayout(1, SL), assert_trivial=True)
    real = l > 0.0
    top = gl.where(real, _times(m, p.c), 0.0)
    # Zero times any number is zero, times an infinity or NaN it is NaN.
    strange = gl.convert_layout(gl.sum(o * 0.0, 1), gl.SliceLayout(1, SL))
    odd = (gl.abs(top) > LIMIT) | (strange != 0.0) | (l * 0.0 != 0.0)
    if C.HEALTH:  # a weight of 0 times an exponent of -inf
        odd = odd | (e * 0.0 != 0.0)
    if C.TILED:  # the tensor cores round what they add to products that are much smaller
        odd = odd | (gl.abs(top) > 1024.0)
    if not C.DENSE:
        # Nothing was summed where there may be keys in view: perhaps all their logits are -inf.
        last = gl.minimum(rows + p.high, p.nk - 1) if C.BAND else rows * 0 + (p.nk - 1)
        first = gl.maximum(rows + p.low, 0) if C.LEFT else rows * 0
        odd = odd | ((l == 0.0) & (first <= last))
    factor = gl.where(real, 1.0 / l, 0.0)
    if C.SINKS:
        sink = gl.load(p.sinks_ptr + h).to(gl.float32) * LOG2E
        odd = odd | ((gl.abs(top * 0.0 + sink) <= LIMIT) == 0)  # also where a sink is no number
        new = gl.where(real, gl.maximum(top, sink), sink)
        a = gl.where(real, exp2(top - new), 0.0)
        ps = exp2(sink - new)
        if C.HEALTH:
            e = a * (e + (top - new) * l) + ps * (sink - new)
        l = l * a + ps
        top = new
        factor = a / l
    lse = gl.where(l > 0.0, top * LN2 + gl.log(l), float("-inf"))
    flat = b * p.heads + h
    at = flat.to(gl.int64) * p.nq + rows
    inside = rows < p.nq
    gl.store(p.lse_ptr + at, lse, mask=inside)
    if C.HEALTH:
        highest = gl.where(real, m * (p.c * LN2), float("-inf"))
        gl.store(p.max_ptr + at, highest, mask=inside)
        entropy = gl.where(l > 0.0, gl.log(l) - LN2 * e / l, 0.0)
        gl.store(p.ent_ptr + at, gl.maximum(entropy, 0.0), mask=inside)
    flag = p.scratch_ptr + 2 + (flat * gl.cdiv(p.nq, 64) + first_row // 64) + rows * 0
    gl.store(flag, rows * 0 + 1, mask=odd & inside)
    return factor * p.drop_factor if C.DROP else factor


# Triton compiles once more for numbers that are 1 or a multiple of 16, except for these; in a tuple
# it would for all of them.
UNSPECIALISED = [
    "heads", "group", "nq", "nk", "tiles", "heads_total", "section", "total", "low", "high",
    "plan_sb", "plan_sh", "list_width", "spans_sb", "spans_sh", "spans_sq", "dense_sb",
    "dense_sh", "dense_sq", "bias_sb", "bias_sh", "bias_sq", "threshold",
]  # fmt: skip


@gluon.jit(do_not_specialize=UNSPECIALISED)
def forward_kernel(
    q_desc, k_desc, v_desc, o_desc, bias_desc,
    lse_ptr, max_ptr, ent_ptr, scratch_ptr, heads, group, nq, nk, tiles, heads_total, section,
    total, scale, c, fill, softcap, sinks_ptr, low, high, plan_ptr, plan_sb, plan_sh, list_ptr,
    list_width, spans_ptr, spans_sb, spans_sh, spans_sq, dense_ptr, dense_sb, dense_sh, dense_sq,
    dense_sk, bias_ptr, bias_sb, bias_sh, bias_sq, bias_sk, seed_ptr, threshold, drop_factor,
    bend,
    C: gl.constexpr,
):  # fmt: skip
    """Attention of [B, Hq, Nq, D] queries in tiles of BM rows; see the top of the file."""
    p = Params(
        lse_ptr, max_ptr, ent_ptr, scratch_ptr, heads, group, nq, nk, tiles, heads_total, section,
        total, scale, c, fill, softcap, sinks_ptr, low, high, plan_ptr, plan_sb, plan_sh, list_ptr,
        list_width, spans_ptr, spans_sb, spans_sh, spans_sq, dense_ptr, dense_sb, dense_sh,
        dense_sq, dense_sk, bias_ptr, bias_sb, bias_sh, bias_sq, bias_sk, seed_ptr, threshold,
        drop_factor, bend,
    )  # fmt: skip
    gdc_wait()
    q_bufs = gl.allocate_shared_memory(q_desc.dtype, [C.CONSUMERS, 1, 1, 64, C.D], q_desc.layout)
    k_bufs = gl.allocate_shared_memory(k_desc.dtype, [C.STAGES, 1, 1, C.BN, C.D], k_desc.layout)
    VALUES: gl.constexpr = C.STAGES + 1 if C.EARLY else C.STAGES
    v_bufs = gl.allocate_shared_memory(v_desc.dtype, [VALUES, 1, 1, C.BN, C.DV], v_desc.layout)
    if C.ALIAS:
        o_bufs = q_bufs
    else:
        o_bufs = gl.allocate_shared_memory(
            o_desc.dtype, [C.CONSUMERS, 1, 1, 64, C.DV], o_desc.layout
        )
    q_ready = gl.allocate_shared_memory(gl.int64, [C.CONSUMERS, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [C.CONSUMERS, 1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [C.STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [C.STAGES, 1], mbarrier.MBarrierLayout())
    v_ready = gl.allocate_shared_memory(gl.int64, [VALUES, 1], mbarrier.MBarrierLayout())
    for w in gl.static_range(C.CONSUMERS):
        mbarrier.init(q_ready.index(w), count=1)
        mbarrier.init(q_empty.index(w), count=1)
    for i in gl.static_range(C.STAGES):
        mbarrier.init(k_ready.index(i), count=1)
        mbarrier.init(empty.index(i), count=C.CONSUMERS)
        mbarrier.init(v_ready.index(i), count=1)
    if C.EARLY:
        mbarrier.init(v_ready.index(C.STAGES), count=1)
    t_buf = gl.allocate_shared_memory(gl.int32, [20, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    t_ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    t_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(t_ready.index(i), count=1)
        mbarrier.init(t_empty.index(i), count=C.CONSUMERS)
    turns = gl.allocate_shared_memory(gl.int64, [C.CONSUMERS, 1], mbarrier.MBarrierLayout())
    for w in gl.static_range(C.CONSUMERS):
        mbarrier.init(turns.index(w), count=1)
    bias_bufs = turns  # not read
    bias_ready = turns
    bias_empty = turns
    if C.TILED:
        BAR: gl.constexpr = mbarrier.MBarrierLayout()
        bias_bufs = gl.allocate_shared_memory(
            bias_desc.dtype, [C.CONSUMERS, 1, 1, 64, C.BN], bias_desc.layout
        )
        bias_ready = gl.allocate_shared_memory(gl.int64, [C.CONSUMERS, 1], BAR)
        bias_empty = gl.allocate_shared_memory(gl.int64, [C.CONSUMERS, 1], BAR)
        for w in gl.static_range(C.CONSUMERS):
            mbarrier.init(bias_ready.index(w), count=1)
            mbarrier.init(bias_empty.index(w), count=1)
    bars = Bars(
        q_ready, q_empty, k_ready, v_ready, empty, t_ready, t_empty, turns, bias_ready, bias_empty
    )  # fmt: skip
    bufs = Bufs(q_bufs, k_bufs, v_bufs, bias_bufs, o_bufs, t_buf)
    if C.CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consumer, (p, C, 0, o_desc, bufs, bars)),
                (_consumer, (p, C, 1, o_desc, bufs, bars)),
                (_producer, (p, C, q_desc, k_desc, v_desc, bias_desc, bufs, bars)),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (_consumer, (p, C, 0, o_desc, bufs, bars)),
                (_consumer, (p, C, 1, o_desc, bufs, bars)),
                (_consumer, (p, C, 2, o_desc, bufs, bars)),
                (_producer, (p, C, q_desc, k_desc, v_desc, bias_desc, bufs, bars)),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )


# What every partition reads: the kernel's arguments between its descriptors and its constants.
Params = namedtuple("Params", forward_kernel.arg_names[5:-1])
