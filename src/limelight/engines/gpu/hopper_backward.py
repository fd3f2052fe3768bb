"""The backward pass for Hopper, in Gluon: one pass over the keys, dQ summed by TMA reduction.

Map of the kernel
    backward_kernel  allocates the buffers and forks into the partitions below
    _producer        one warp: walks the tiles of keys and the rows that see them, issues the loads
    _consumer        one warpgroup of 64 keys: weights, dS, and the gradients of its keys and values
    _summer          one warpgroup: dQ = dS·K of each item, added to global memory by TMA; draws
    _rows            which blocks of rows see a tile of keys, and which of those in part
    _hide            -inf where the mask forbids

A tile is 128 keys of one key head, 64 for each consumer; an item is a block of ROWS rows of one of
the query heads that share it, so that grouped heads sum into the same registers. Under a diagonal
tiles are of different length: of many query heads they would drift apart until the rows in use no
longer fit L2. There a program takes few heads, and adds its sums to memory by TMA.

Everything lies keys by rows: Sᵀ = K·Qᵀ and dPᵀ = V·dOᵀ leave the tensor cores as Pᵀ and dSᵀ are
wanted by dV += Pᵀ·dO and dK += dSᵀ·Q, as a left side in registers. dSᵀ alone goes to shared memory,
where the summer reads it transposed; the consumers never wait for each other.

Shared memory's bandwidth is the limit at 128: 84 % of it were in use, 64 % of the tensor cores'.
Hence dQ goes through it as the threads hold it (no two meet in a bank), and little is spilt in the
loop. With DEFER dK of an item is issued beside S of the next, under whose weights it runs. ptxas
(12.8) serialises the products where one with its left side in registers is in flight while a
barrier is waited for, or across the end of the loop: what is deferred crosses it as numbers.

The weights are rounded before dS is made of them, and their float32 registers freed: 192 of 208
hold accumulators. V·dOᵀ is added to -delta, rounded, and multiplied by the weights two at a time.
Nothing after the exponents knows of masks: ptxas would make of it a choice in every cell. What is
masked has the weight 0, and a NaN or infinity times that is left to care.

Row statistics come by TMA with the rows and are read when wanted. A bias of 16 bits a cell comes by
TMA too where it can; divided by the scale it is what K·Qᵀ is added to. What dropout takes is drawn
by the summer, which has the time, an item ahead, and goes through shared memory as bits; a weight
that falls is kept with its sign changed, so that one number tells both.

Weights are 2^(c·s - L) by one FMA, L the logsumexp in base 2. Rows whose L is too large for that
have NaN (`edges.LIMIT`), which spoils every tile they meet as a masked NaN does; tiles that hold a
NaN or infinity raise their flag, and `again.py` computes them with care.
"""

# mypy: ignore-errors
# ruff: noqa: RUF059, SIM102 (kernel code: results are unpacked whole)
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

from triton._C.libtriton import ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language import _core
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from limelight.engines.gpu.hopper_drops import fallen, fallen_held, mixed, seed_at, signed
from limelight.engines.gpu.hopper_forward import (
    _keep,
    _pack,
    _release,
    _scalar,
    _unpack,
    _widened,
)
from limelight.engines.gpu.hopper_powers import exp2, quick_tanh, tanh
from limelight.engines.gpu.moved import barrier, reinterpret, tma_load, tma_store

KEYS = 128  # of a tile


@cache
@dataclass(frozen=True, eq=False)
class Config:
    """What is fixed at compile time; one object for one set of values."""

    D: int
    DV: int
    ROWS: int
    STAGES: int
    OSTAGES: int
    LISTED: bool
    BAND: bool
    LEFT: bool
    SPANS: int
    DENSE: bool
    BIAS: bool
    TILED: bool  # and its cells come by TMA
    SOFTCAP: bool
    GENTLE: bool  # a softcap of at most 64
    ENTROPY: bool
    DROP: bool
    DEFER: bool
    SHARED: bool  # a key's gradients are the sum of several programs'

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, gl.constexpr(getattr(self, field.name)))


class Params(NamedTuple):
    """What every partition reads."""

    scratch: Any
    flags: Any
    heads: Any
    group: Any
    taken: Any
    nq: Any
    nk: Any
    tiles: Any
    heads_total: Any
    section: Any
    total: Any
    scale: Any
    c: Any
    softcap: Any
    bend: Any
    low: Any
    high: Any
    listed: Any
    listed_sb: Any
    listed_sh: Any
    width: Any
    spans: Any
    spans_sb: Any
    spans_sh: Any
    spans_sq: Any
    dense: Any
    dense_sb: Any
    dense_sh: Any
    dense_sq: Any
    dense_sk: Any
    bias: Any
    bias_sb: Any
    bias_sh: Any
    bias_sq: Any
    bias_sk: Any
    seed: Any
    threshold: Any
    drop_factor: Any


class Buffers(NamedTuple):
    """Shared memory."""

    q: Any
    do: Any
    stats: Any
    k: Any
    v: Any
    ds: Any
    dq: Any
    out: Any
    drawn: Any
    bias: Any
    items: Any
    tile: Any


class Bars(NamedTuple):
    """Barriers: of what has arrived, and of what may be written again."""

    q_full: Any
    q_free: Any
    do_full: Any
    do_free: Any
    ds_full: Any
    ds_free: Any
    drawn_full: Any
    drawn_free: Any
    bias_full: Any
    bias_free: Any
    kv_full: Any
    kv_free: Any
    tile_full: Any
    tile_free: Any


class Tile(NamedTuple):
    """A tile of keys as the producer tells of it."""

    t: Any
    b: Any
    hk: Any
    first: Any
    items: Any


@_core.builtin
def _reduce_add(desc, coord, src, _semantic=None):
    """A block of shared memory added to global memory by TMA; Gluon does not export it."""
    coord = _semantic._convert_to_ir_values(coord, require_i64=False)
    kind = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(kind, desc.handle, coord, src.handle)


@gluon.jit
def _where(p, C: gl.constexpr, t):
    """Tile number t as (batch entry, key head, first query head, past the last, tile).

    Heads are in sections, heavy tiles first; of a group's heads a tile takes a part.
    """
    per = p.section * p.tiles
    sec = t // per
    u = t - sec * per
    width = gl.minimum(p.section, p.heads_total - sec * p.section)
    level = u // width
    flat = sec * p.section + (u - level * width)
    key_heads = p.heads // p.group
    parts = gl.cdiv(p.group, p.taken) if C.SHARED else 1
    shared = flat // parts if C.SHARED else flat
    b = shared // key_heads
    hk = shared - b * key_heads
    first = hk * p.group
    last = first + p.group
    if C.SHARED:
        first += (flat - shared * parts) * p.taken
        last = gl.minimum(first + p.taken, last)
    return b, hk, first, last, level


@gluon.jit
def _rows(p, C: gl.constexpr, b, h, tile):
    """Blocks of rows that see a tile of keys: (first, how many, first whole, past the last whole).

    Of a listed mask: (place of its list, how many, how many of them in part, 0); see plan.keyed.
    """
    if C.LISTED:
        slot = b * p.listed_sb + h * p.listed_sh + tile
        at = p.listed + slot.to(gl.int64) * p.width
        return slot, gl.load(at + 1), gl.load(at), 0
    k0 = tile * 128
    k1 = gl.minimum(k0 + 128, p.nk) - 1
    blocks = (p.nq + C.ROWS - 1) // C.ROWS
    lo = 0
    hi = blocks
    flo = 0
    fhi = blocks
    if C.BAND:
        lo = gl.minimum(gl.maximum(k0 - p.high, 0) // C.ROWS, blocks)
        hi = gl.minimum((gl.maximum(k1 - p.low + 1, 0) + C.ROWS - 1) // C.ROWS, blocks)
        hi = gl.maximum(hi, lo)
        flo = gl.minimum((gl.maximum(k1 - p.high, 0) + C.ROWS - 1) // C.ROWS, hi)
        last = gl.maximum(k0 - p.low + 1, 0)
        fhi = gl.where(last >= p.nq, hi, gl.minimum(last // C.ROWS, hi))
    fhi = gl.where(k0 + 128 > p.nk, 0, fhi)
    return lo, hi - lo, flo, fhi


@gluon.jit
def _tell(buf, full, free, r, record):
    """A tile to the other partitions."""
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    slot = r & 1
    mbarrier.wait(free.index(slot), ((r >> 1) & 1) ^ 1)
    for f in gl.static_range(len(record)):
        buf.index(slot * len(record) + f).store(gl.full([1], record[f], gl.int32, ONE))
    mbarrier.arrive(full.index(slot), count=1)


@gluon.jit
def _hear(buf, full, free, r):
    slot = r & 1
    mbarrier.wait(full.index(slot), (r >> 1) & 1)
    base = slot * 5
    found = Tile(
        _scalar(buf, base), _scalar(buf, base + 1), _scalar(buf, base + 2), _scalar(buf, base + 3),
        _scalar(buf, base + 4),
    )  # fmt: skip
    mbarrier.arrive(free.index(slot), count=1)
    return found


@gluon.jit
def _producer(p, C: gl.constexpr, descs, s, bars):
    q_desc, do_desc, stats_desc, k_desc, v_desc, dq_desc, dk_desc, dv_desc, bias_desc = descs
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    count = 0
    turn = 0
    r = 0
    t = gl.program_id(0)
    while t < p.total:
        b, hk, first, last, tile = _where(p, C, t)
        items = 0
        for h in range(first, last):
            at, n, x, y = _rows(p, C, b, h, tile)
            items += n
        _tell(s.tile, bars.tile_full, bars.tile_free, r, (t, b, hk, tile * 128, items))
        r += 1
        if items > 0:
            mbarrier.wait(bars.kv_free, (turn & 1) ^ 1)
            turn += 1
            mbarrier.expect(bars.kv_full, k_desc.block_type.nbytes + v_desc.block_type.nbytes)
            tma_load(k_desc, [b, hk, tile * 128, 0], bars.kv_full, s.k.index(0))
            tma_load(v_desc, [b, hk, tile * 128, 0], bars.kv_full, s.v.index(0))
            for h in range(first, last):
                at, n, whole, past = _rows(p, C, b, h, tile)
                for i in range(n):
                    if C.LISTED:
                        row = gl.load(p.listed + at.to(gl.int64) * p.width + 2 + i)
                        part = i < whole
                    else:
                        row = at + i
                        part = (row < whole) | (row >= past)
                    stage = count % C.STAGES
                    phase = ((count // C.STAGES) & 1) ^ 1
                    mbarrier.wait(bars.q_free.index(stage), phase)
                    place = count % 8 * 2
                    told = row * 2 + gl.where(part, 1, 0)
                    s.items.index(place).store(gl.full([1], told, gl.int32, ONE))
                    s.items.index(place + 1).store(gl.full([1], h, gl.int32, ONE))
                    bytes: gl.constexpr = q_desc.block_type.nbytes + stats_desc.block_type.nbytes
                    mbarrier.expect(bars.q_full.index(stage), bytes)
                    row0 = row * C.ROWS
                    tma_load(q_desc, [b, h, row0, 0], bars.q_full.index(stage), s.q.index(stage))
                    tma_load(
                        stats_desc, [b, h, 0, row0], bars.q_full.index(stage), s.stats.index(stage)
                    )
                    stage = count % C.OSTAGES
                    mbarrier.wait(bars.do_free.index(stage), ((count // C.OSTAGES) & 1) ^ 1)
                    mbarrier.expect(bars.do_full.index(stage), do_desc.block_type.nbytes)
                    tma_load(do_desc, [b, h, row0, 0], bars.do_full.index(stage), s.do.index(stage))
                    if C.TILED:
                        bias_b = gl.where(p.bias_sb == 0, 0, b)
                        bias_h = gl.where(p.bias_sh == 0, 0, h)
                        for w in gl.static_range(2):
                            mbarrier.wait(bars.bias_free.index(w), (count & 1) ^ 1)
                            mbarrier.expect(bars.bias_full.index(w), bias_desc.block_type.nbytes)
                            tma_load(
                                bias_desc, [bias_b, bias_h, row0, tile * 128 + 64 * w],
                                bars.bias_full.index(w), s.bias.index(w),
                            )  # fmt: skip
                    count += 1
        t = gl.num_programs(0) + gl.atomic_add(p.scratch, 1)
    _tell(s.tile, bars.tile_full, bars.tile_free, r, (t, 0, 0, 0, 0))
    # The last program to end leaves the counters as it found them.
    if gl.atomic_add(p.scratch + 1, 1) == gl.num_programs(0) - 1:
        gl.store(p.scratch, 0)
        gl.store(p.scratch + 1, 0)


@gluon.jit
def _cells(p, ptr, sb, sh, sq, sk, b, h, first, row0, side, lane):
    """Cells of an array [B|1, H|1, Nq|1, Nk|1], keys by rows; past the last are any numbers.

    One address and 32-bit steps from it: few registers. A step is below 2^31 for strides to 2^24.
    """
    at = ptr + b.to(gl.int64) * sb + h.to(gl.int64) * sh
    first = gl.minimum(first, p.nk - 1)
    at = at + first.to(gl.int64) * sk + row0.to(gl.int64) * sq
    down = gl.minimum(side, p.nk - 1 - first) * sk
    across = gl.minimum(lane, p.nq - 1 - row0) * sq
    return gl.load(at + (down[:, None] + across[None, :]))


@gluon.jit
def _hide(p, C: gl.constexpr, x, b, h, first, row0, side, lane):
    """x [64 keys, ROWS] with -inf where the mask forbids, and past the last key and row."""
    keys = first + side
    last = gl.minimum(keys - p.low, p.nq - 1) if C.LEFT else keys * 0 + (p.nq - 1)
    x = _keep(x, gl.where(keys < p.nk, last, -1) - row0, float("-inf"), "ge")
    if C.BAND:
        x = _keep(x, keys - p.high - row0, float("-inf"), "le")
    if C.SPANS > 0:
        base = p.spans + b.to(gl.int64) * p.spans_sb + h.to(gl.int64) * p.spans_sh
        base = base + row0.to(gl.int64) * p.spans_sq
        base = base + gl.minimum(lane, p.nq - 1 - row0) * p.spans_sq
        if C.SPANS == 1:
            x = gl.where(keys[:, None] >= gl.load(base)[None, :], x, float("-inf"))
            x = gl.where(keys[:, None] < gl.load(base + 1)[None, :], x, float("-inf"))
        else:
            inside = (keys < 0)[:, None] & (lane < 0)[None, :]
            for r in gl.static_range(C.SPANS):
                begin = gl.load(base + 2 * r)[None, :]
                end = gl.load(base + 2 * r + 1)[None, :]
                inside = inside | ((keys[:, None] >= begin) & (keys[:, None] < end))
            x = gl.where(inside, x, float("-inf"))
    if C.DENSE:
        seen = _cells(
            p, p.dense, p.dense_sb, p.dense_sh, p.dense_sq, p.dense_sk, b, h, first, row0, side,
            lane,
        )  # fmt: skip
        x = gl.where(seen != 0, x, float("-inf"))
    return x


@gluon.jit
def _numbers(C: gl.constexpr, stats, which: gl.constexpr, SL: gl.constexpr):
    """One statistic of an item's rows, [1, ROWS]."""
    COUNT: gl.constexpr = stats.shape[2]
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    rows = reinterpret(stats, gl.float32, [COUNT, C.ROWS], flat).index(which)
    return rows.load(gl.SliceLayout(0, SL))[None, :]


@gluon.jit
def _begun(p, C: gl.constexpr, W: gl.constexpr, s, bars, count, SL: gl.constexpr):
    """What K·Qᵀ of item number `count` is added to: its bias, divided by the scale, turned."""
    mbarrier.wait(bars.bias_full.index(W), count & 1)
    cells = s.bias.index(W).reshape([C.ROWS, 64]).permute([1, 0]).load(SL)
    fence_async_shared()  # TMA writes there next
    _release(bars.bias_free.index(W))
    return _widened(cells, SL) * (1.0 / p.scale)


@gluon.jit
def _below(C: gl.constexpr, stats, SL: gl.constexpr):
    """What V·dOᵀ is added to: -delta, or with dropout 0, as the sum has a factor."""
    if C.DROP:
        return gl.zeros([64, C.ROWS], gl.float32, SL)
    return -_numbers(C, stats, 1, SL).broadcast_to([64, C.ROWS])


@gluon.jit
def _paired(WHAT: gl.constexpr, pairs, others, dtype: gl.constexpr):
    """Products (mul) or differences (sub) of numbers packed in pairs."""
    KIND: gl.constexpr = "bf16x2" if dtype == gl.bfloat16 else "f16x2"
    return gl.inline_asm_elementwise(
        WHAT + ".rn." + KIND + " $0, $1, $2;", "=r,r,r", [pairs, others],
        dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def _or_delta(weights, off, delta):
    """dP - delta, and delta where a weight fell: it has the other sign, and there dP is 0."""
    return gl.inline_asm_elementwise(
        "{ .reg .b32 m; prmt.b32 m, $1, 0, 0xbb99; lop3.b32 $0, $2, $3, m, 0xd8; }",
        "=r,r,r,r", [weights, off, delta], dtype=gl.int32, is_pure=True, pack=1,
    )  # fmt: skip


@gluon.jit
def _consumer(p, C: gl.constexpr, W: gl.constexpr, descs, s, bars):
    q_desc, do_desc, stats_desc, k_desc, v_desc, dq_desc, dk_desc, dv_desc, bias_desc = descs
    ROWS: gl.constexpr = C.ROWS
    SL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    KL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C.D, 16])
    VL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, C.DV, 16])
    dtype: gl.constexpr = s.q.dtype
    zero = gl.zeros([64, ROWS], gl.float32, SL)
    lane = gl.arange(0, ROWS, gl.SliceLayout(0, SL))
    side = gl.arange(0, 64, gl.SliceLayout(1, SL))
    count = 0
    turn = 0
    r = 0
    tile = _hear(s.tile, bars.tile_full, bars.tile_free, r)
    while tile.t < p.total:
        some = tile.items > 0
        mbarrier.wait(bars.kv_full, turn & 1, pred=some)
        dk = gl.zeros([64, C.D], gl.float32, KL)
        dv = gl.zeros([64, C.DV], gl.float32, VL)
        pairs = _pack(zero, dtype)
        for i in range(tile.items):
            stage = count % C.STAGES
            ostage = count % C.OSTAGES
            before = (count + C.STAGES - gl.where(i > 0, 1, 0)) % C.STAGES
            q = s.q.index(stage).reshape([ROWS, C.D])
            do = s.do.index(ostage).reshape([ROWS, C.DV])
            mbarrier.wait(bars.q_full.index(stage), (count // C.STAGES) & 1)
            told = _scalar(s.items, count % 8 * 2)
            h = _scalar(s.items, count % 8 * 2 + 1)
            row0 = (told >> 1) * ROWS
            part = told & 1
            # Always 0, and not known to be: else the descriptors are kept, and spilt.
            nought = told >> 30
            k = s.k.index(nought).reshape([128, C.D]).slice(64 * W, 64)
            v = s.v.index(nought).reshape([128, C.DV]).slice(64 * W, 64)
            begun = _begun(p, C, W, s, bars, count, SL) if C.TILED else zero
            x = warpgroup_mma(k, q.permute([1, 0]), begun, use_acc=C.TILED, is_async=True)
            if C.DEFER:
                ds16 = _unpack(pairs, dtype, gl.DotOperandLayout(0, KL, 2))
                dk = warpgroup_mma(ds16, s.q.index(before).reshape([ROWS, C.D]), dk, is_async=True)
            x = warpgroup_mma_wait(1 if C.DEFER else 0, [x])
            if C.SOFTCAP:
                bent = quick_tanh(x, p.bend, False) if C.GENTLE else tanh(x * p.bend)
                x = bent * p.softcap if C.BIAS else bent
                slope = _pack(1.0 - bent * bent, dtype)
            elif C.BIAS and not C.TILED:
                x = x * p.scale
            if C.BIAS and not C.TILED:
                extra = _cells(
                    p, p.bias, p.bias_sb, p.bias_sh, p.bias_sq, p.bias_sk, tile.b, h,
                    tile.first + 64 * W, row0, side, lane,
                ).to(gl.float32)  # fmt: skip
                x = x + extra
            stats = s.stats.index(stage)
            less = _numbers(C, stats, 0, SL).broadcast_to(x.shape)
            y = gl.fma(x, gl.full_like(x, p.c), less)
            if C.BIAS and not C.TILED:
                y = gl.where(extra == float("-inf"), float("-inf"), y)
            if part != 0:
                y = _hide(p, C, y, tile.b, h, tile.first + 64 * W, row0, side, lane)
            w = exp2(y)
            if C.ENTROPY:
                share = gl.where(w == 0.0, 0.0, w * y) * _numbers(C, stats, 2, SL)
                share = _pack(share, dtype)
            weights = _pack(w, dtype)
            if C.DROP:
                mbarrier.wait(bars.drawn_full.index(count % 2), (count // 2) & 1)
                fell = s.drawn.index(count % 2).slice(4 * W, 4, dim=1).permute([1, 0])
                weights = signed(weights, fell.load(fallen_held(ROWS)))
            if C.DEFER:
                dk = warpgroup_mma_wait(0, [dk])
                barrier()
                mbarrier.expect(bars.q_free.index(before), 0, pred=i > 0)
            mbarrier.wait(bars.do_full.index(ostage), (count // C.OSTAGES) & 1)
            below = _below(C, stats, SL)
            dp = warpgroup_mma(v, do.permute([1, 0]), below, use_acc=not C.DROP, is_async=True)
            w16 = mixed(weights, dtype) if C.DROP else weights
            w16 = _unpack(w16, dtype, gl.DotOperandLayout(0, VL, 2))
            dv = warpgroup_mma(w16, do, dv, is_async=True)
            dp = warpgroup_mma_wait(1, [dp])
            if C.DROP:
                delta = _numbers(C, stats, 1, SL).broadcast_to(dp.shape)
                off = _pack(gl.fma(dp, gl.full_like(dp, p.drop_factor), -delta), dtype)
                off = _or_delta(weights, off, _pack(delta, dtype))
            else:
                off = _pack(dp, dtype)
            pairs = _paired("mul", weights, off, dtype)
            if C.ENTROPY:
                pairs = _paired("sub", pairs, share, dtype)
            if C.SOFTCAP:
                pairs = _paired("mul", pairs, slope, dtype)
            if C.DEFER:
                dv = warpgroup_mma_wait(0, [dv])
            slot = count % 2
            mbarrier.wait(bars.ds_free.index(slot), ((count // 2) & 1) ^ 1)
            s.ds.index(slot).slice(64 * W, 64).store(_unpack(pairs, dtype, SL))
            fence_async_shared()
            barrier()
            mbarrier.expect(bars.ds_full.index(slot), 0)
            if C.DROP:
                mbarrier.expect(bars.drawn_free.index(slot), 0)
            if C.DEFER:
                mbarrier.expect(bars.do_free.index(ostage), 0)
            else:
                ds16 = _unpack(pairs, dtype, gl.DotOperandLayout(0, KL, 2))
                dk = warpgroup_mma(ds16, q, dk, is_async=True)
                dk, dv = warpgroup_mma_wait(0, [dk, dv])
                barrier()
                mbarrier.expect(bars.q_free.index(stage), 0)
                mbarrier.expect(bars.do_free.index(ostage), 0)
            count += 1
        if C.DEFER:
            before = (count + C.STAGES - 1) % C.STAGES
            if some:
                ds16 = _unpack(pairs, dtype, gl.DotOperandLayout(0, KL, 2))
                dk = warpgroup_mma(ds16, s.q.index(before).reshape([ROWS, C.D]), dk, is_async=False)
            barrier()
            mbarrier.expect(bars.q_free.index(before), 0, pred=some)
        mbarrier.expect(bars.kv_free, 0, pred=some)
        turn += gl.where(some, 1, 0)
        _flag(p, tile.b, tile.hk, tile.first + 64 * W, dk, dv)
        if C.DROP:
            dv = dv * p.drop_factor
        _give(C, dv_desc, s, W, tile, dv)
        _give(C, dk_desc, s, W, tile, dk * p.scale)
        r += 1
        tile = _hear(s.tile, bars.tile_full, bars.tile_free, r)
    tma.store_wait(0)


@gluon.jit
def _flag(p, b, hk, first, dk, dv):
    """Raise the flag of 64 keys whose gradients hold an infinity or NaN: that times 0 is not 0."""
    odd = gl.sum(dk * 0.0, 1)
    LAYOUT: gl.constexpr = odd.type.layout
    odd = odd + gl.convert_layout(gl.sum(dv * 0.0, 1), LAYOUT)
    flat = b * (p.heads // p.group) + hk
    at = p.scratch + 2 + p.flags + flat * gl.cdiv(p.nk, 64) + first // 64
    none = gl.zeros([64], gl.int32, LAYOUT)
    gl.store(at + none, none + 1, mask=(odd != 0.0) & (first < p.nk))


@gluon.jit
def _give(C: gl.constexpr, desc, s, W: gl.constexpr, tile, x):
    """A gradient of 64 keys, by way of shared memory: rounded, or added to what others made."""
    out = s.out.index(W)
    x = x.to(out.dtype)
    COLUMNS: gl.constexpr = x.shape[1] // 64
    for part in gl.static_range(COLUMNS):
        half = x
        if COLUMNS > 1:
            low, high = x.reshape([64, 2, 64]).permute([0, 2, 1]).split()
            half = low if part == 0 else high
        if C.SHARED:
            upper, lower = _in_place(half).reshape([2, 8, 256]).permute([1, 2, 0]).split()
            place = (tile.first // 64 + W) * COLUMNS + part
            for piece in gl.static_range(2):
                _through(out, upper if piece == 0 else lower)
                barrier()
                _reduce_add(desc, [tile.b, tile.hk, place * 16 + piece * 8, 0], out)
        else:
            _through(out, half)
            tma_store(desc, [tile.b, tile.hk, tile.first + 64 * W, 64 * part], out)


@gluon.jit
def _through(out, x):
    """Numbers in the shared memory that TMA reads, once it has read what was there."""
    tma.store_wait(0)
    barrier()
    out.reshape(x.shape).store(x)
    fence_async_shared()


@gluon.jit
def _in_place(x):
    """[64, 64] as the threads hold it: four numbers of a thread, thread after thread, [16, 256].

    Written so to shared memory no two threads meet in a bank; `edges.after_kernel` knows the order.
    """
    x = x.reshape([4, 2, 8, 8, 4, 2]).permute([3, 0, 2, 4, 1, 5])
    return x.reshape([16, 256])


@gluon.jit
def _part(C: gl.constexpr, part: gl.constexpr, dq_desc, s, bars, b, h, row0, slot, k, zero):
    """64 rows × 64 columns of an item's dQ."""
    down: gl.constexpr = part // (C.D // 64)
    across: gl.constexpr = part % (C.D // 64)
    ds = s.ds.index(slot).slice(64 * down, 64, dim=1).permute([1, 0])
    half = k.slice(64 * across, 64, dim=1)
    dq = warpgroup_mma(ds, half, zero, use_acc=False, is_async=True)
    dq = warpgroup_mma_wait(0, [dq])
    if part == C.ROWS * C.D // 4096 - 1:
        _release(bars.ds_free.index(slot))
    tma.store_wait(1)
    barrier()
    out = s.dq.index(part % 2)
    out.reshape([16, 256]).store(_in_place(dq))
    fence_async_shared()
    barrier()
    place = (row0 // 64 + down) * (C.D // 64) + across
    _reduce_add(dq_desc, [b, h, place * 16, 0], out)


@gluon.jit
def _draw(p, C: gl.constexpr, seed, s, bars, tile, count):
    """Which weights of item number `count` fall, for the consumers; the producer has told of it."""
    slot = count % 2
    mbarrier.wait(bars.q_full.index(count % C.STAGES), (count // C.STAGES) & 1)
    row0 = (_scalar(s.items, count % 8 * 2) >> 1) * C.ROWS
    flat = tile.b * p.heads + _scalar(s.items, count % 8 * 2 + 1)
    mbarrier.wait(bars.drawn_free.index(slot), ((count // 2) & 1) ^ 1)
    fell, others = fallen(seed, p.threshold, flat, tile.first, row0, C.ROWS)
    s.drawn.index(slot).slice(0, 4, dim=1).store(fell)
    s.drawn.index(slot).slice(4, 4, dim=1).store(others)
    barrier()
    mbarrier.expect(bars.drawn_full.index(slot), 0)


@gluon.jit
def _summer(p, C: gl.constexpr, descs, s, bars):
    q_desc, do_desc, stats_desc, k_desc, v_desc, dq_desc, dk_desc, dv_desc, bias_desc = descs
    # In two parts of 64 rows × 64 columns: few registers.
    QL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    k = s.k.index(0).reshape([128, C.D])
    zero = gl.zeros([64, 64], gl.float32, QL)
    seed = seed_at(p.seed) if C.DROP else 0
    count = 0
    turn = 0
    r = 0
    tile = _hear(s.tile, bars.tile_full, bars.tile_free, r)
    while tile.t < p.total:
        some = tile.items > 0
        mbarrier.wait(bars.kv_full, turn & 1, pred=some)
        if C.DROP:
            if some:
                _draw(p, C, seed, s, bars, tile, count)
        for i in range(tile.items):
            if C.DROP:
                if i + 1 < tile.items:
                    _draw(p, C, seed, s, bars, tile, count + 1)
            slot = count % 2
            mbarrier.wait(bars.ds_full.index(slot), (count // 2) & 1)
            told = _scalar(s.items, count % 8 * 2)
            h = _scalar(s.items, count % 8 * 2 + 1)
            row0 = (told >> 1) * C.ROWS
            for part in gl.static_range(C.ROWS * C.D // 4096):
                _part(C, part, dq_desc, s, bars, tile.b, h, row0, slot, k, zero)
            count += 1
        barrier()
        mbarrier.expect(bars.kv_free, 0, pred=some)
        turn += gl.where(some, 1, 0)
        r += 1
        tile = _hear(s.tile, bars.tile_full, bars.tile_free, r)
    tma.store_wait(0)


UNSPECIALISED = [
    "flags", "heads", "group", "taken", "nq", "nk", "tiles", "heads_total", "section",
    "total", "low", "high", "listed_sb", "listed_sh", "width", "spans_sb", "spans_sh", "spans_sq",
    "dense_sb", "dense_sh", "dense_sq", "bias_sb", "bias_sh", "bias_sq", "threshold",
]  # fmt: skip


@gluon.jit(do_not_specialize=UNSPECIALISED)
def backward_kernel(
    q_desc, do_desc, stats_desc, k_desc, v_desc, dq_desc, dk_desc, dv_desc, bias_desc,
    scratch, flags, heads, group, taken, nq, nk, tiles, heads_total, section, total, scale, c,
    softcap, bend, low, high, listed, listed_sb, listed_sh, width, spans, spans_sb, spans_sh,
    spans_sq, dense, dense_sb, dense_sh, dense_sq, dense_sk, bias, bias_sb, bias_sh, bias_sq,
    bias_sk, seed, threshold, drop_factor,
    C: gl.constexpr,
):  # fmt: skip
    """Gradients of query (added to dq), key and value; see the top of the file."""
    p = Params(
        scratch, flags, heads, group, taken, nq, nk, tiles, heads_total, section, total, scale,
        c, softcap, bend, low, high, listed, listed_sb, listed_sh, width, spans, spans_sb,
        spans_sh, spans_sq, dense, dense_sb, dense_sh, dense_sq, dense_sk, bias, bias_sb, bias_sh,
        bias_sq, bias_sk, seed, threshold, drop_factor,
    )  # fmt: skip
    descs = (
        q_desc, do_desc, stats_desc, k_desc, v_desc, dq_desc, dk_desc, dv_desc, bias_desc
    )  # fmt: skip
    ST: gl.constexpr = C.STAGES
    dtype: gl.constexpr = q_desc.dtype
    COUNT: gl.constexpr = stats_desc.block_type.shape[2]
    FLAT: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    TURNED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    empty = gl.allocate_shared_memory(gl.int32, [1], FLAT)  # not read
    s = Buffers(
        q=gl.allocate_shared_memory(dtype, [ST, 1, 1, C.ROWS, C.D], q_desc.layout),
        do=gl.allocate_shared_memory(dtype, [C.OSTAGES, 1, 1, C.ROWS, C.DV], do_desc.layout),
        stats=gl.allocate_shared_memory(gl.float32, [ST, 1, 1, COUNT, C.ROWS], stats_desc.layout),
        k=gl.allocate_shared_memory(dtype, [1, 1, 1, 128, C.D], k_desc.layout),
        v=gl.allocate_shared_memory(dtype, [1, 1, 1, 128, C.DV], v_desc.layout),
        ds=gl.allocate_shared_memory(dtype, [2, 128, C.ROWS], TURNED),
        dq=gl.allocate_shared_memory(gl.float32, [2, 1, 1, 16, 256], dq_desc.layout),
        out=gl.allocate_shared_memory(
            dk_desc.dtype, [2, 1, 1, 8, 256] if C.SHARED else [2, 1, 1, 64, 64], dk_desc.layout
        ),
        drawn=gl.allocate_shared_memory(gl.uint32, [2, C.ROWS // 2, 8], PLAIN) if C.DROP else empty,
        bias=gl.allocate_shared_memory(bias_desc.dtype, [2, 1, 1, C.ROWS, 64], bias_desc.layout)
        if C.TILED
        else empty,
        items=gl.allocate_shared_memory(gl.int32, [16, 1], FLAT),
        tile=gl.allocate_shared_memory(gl.int32, [10, 1], FLAT),
    )
    BAR: gl.constexpr = mbarrier.MBarrierLayout()
    bars = Bars(
        q_full=gl.allocate_shared_memory(gl.int64, [ST, 1], BAR),
        q_free=gl.allocate_shared_memory(gl.int64, [ST, 1], BAR),
        do_full=gl.allocate_shared_memory(gl.int64, [C.OSTAGES, 1], BAR),
        do_free=gl.allocate_shared_memory(gl.int64, [C.OSTAGES, 1], BAR),
        ds_full=gl.allocate_shared_memory(gl.int64, [2, 1], BAR),
        ds_free=gl.allocate_shared_memory(gl.int64, [2, 1], BAR),
        drawn_full=gl.allocate_shared_memory(gl.int64, [2, 1], BAR),
        drawn_free=gl.allocate_shared_memory(gl.int64, [2, 1], BAR),
        bias_full=gl.allocate_shared_memory(gl.int64, [2, 1], BAR),
        bias_free=gl.allocate_shared_memory(gl.int64, [2, 1], BAR),
        kv_full=gl.allocate_shared_memory(gl.int64, [1], BAR),
        kv_free=gl.allocate_shared_memory(gl.int64, [1], BAR),
        tile_full=gl.allocate_shared_memory(gl.int64, [2, 1], BAR),
        tile_free=gl.allocate_shared_memory(gl.int64, [2, 1], BAR),
    )
    for i in gl.static_range(ST):
        mbarrier.init(bars.q_full.index(i), count=1)
        mbarrier.init(bars.q_free.index(i), count=2)
    for i in gl.static_range(C.OSTAGES):
        mbarrier.init(bars.do_full.index(i), count=1)
        mbarrier.init(bars.do_free.index(i), count=2)
    for i in gl.static_range(2):
        mbarrier.init(bars.ds_full.index(i), count=2)
        mbarrier.init(bars.ds_free.index(i), count=1)
        mbarrier.init(bars.drawn_full.index(i), count=1)
        mbarrier.init(bars.drawn_free.index(i), count=2)
        mbarrier.init(bars.bias_full.index(i), count=1)
        mbarrier.init(bars.bias_free.index(i), count=1)
        mbarrier.init(bars.tile_full.index(i), count=1)
        mbarrier.init(bars.tile_free.index(i), count=3)
    mbarrier.init(bars.kv_full, count=1)
    mbarrier.init(bars.kv_free, count=3)
    gl.warp_specialize(
        [
            (_consumer, (p, C, 0, descs, s, bars)),
            (_consumer, (p, C, 1, descs, s, bars)),
            (_summer, (p, C, descs, s, bars)),
            (_producer, (p, C, descs, s, bars)),
        ],
        [4, 4, 1],
        [208, 72, 24],
    )
