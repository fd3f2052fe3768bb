"""The forward pass for Hopper, in Gluon: one producer warp, two or three consumer warpgroups.

Map of the kernel
    forward_kernel   allocates the buffers and forks into the partitions below
    _producer        one warp: walks the tiles and their key blocks, issues the TMA loads
    _consumer        one warpgroup of 64 query rows: logits, softmax, mix, and the row's health
    _plan            which key blocks a tile needs: partial ones first, then full ones
    _finish          normalise, add the sink, store

A tile is 64 rows for each consumer. For block i a consumer issues Q·K(i), then P(i-1)·V(i-1), both
asynchronous, waits for the first and computes the softmax of i while the second runs. P's
registers are written only after its P·V has ended (Triton issue 9433), and each consumer is its
own partition of one warpgroup (issue 11047).

The softmax works in base 2 with c = scale·log2(e): y = c·s - m as one FMA, p = 2^y, l = Σp and,
for the entropy, e = Σp·y. The FMA needs |m| < 2^20 to be exact to rounding; a tile with larger
logits, or with an infinity or NaN in its result (which a masked value may have caused), raises its
flag and the careful kernel in `forward.py` computes it again.

Rescaling is lazy: the reference m of a row moves only when some row of its warp would otherwise
exceed 2^8, so O is left alone in nearly all blocks; l, e and O are all relative to the same m, so
the result does not change.
"""

# mypy: ignore-errors
from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

LOG2E = gl.constexpr(1.4426950408889634)
LN2 = gl.constexpr(0.6931471805599453)
LIMIT = gl.constexpr(1048576.0)  # |c·m| beyond which the fused multiply-subtract is not exact enough


class Params(NamedTuple):
    """What every partition reads; upper case is fixed at compile time."""

    o_ptr: Any
    lse_ptr: Any
    max_ptr: Any
    ent_ptr: Any
    flag_ptr: Any
    o_sb: Any
    o_sh: Any
    o_sn: Any
    heads: Any
    group: Any
    nq: Any
    nk: Any
    dv: Any
    tiles: Any
    heads_total: Any
    section: Any
    total: Any
    scale: Any
    c: Any
    fill: Any
    softcap: Any
    sinks_ptr: Any
    low: Any
    high: Any
    plan_ptr: Any
    plan_sb: Any
    plan_sh: Any
    list_ptr: Any
    list_width: Any
    spans_ptr: Any
    spans_sb: Any
    spans_sh: Any
    spans_sq: Any
    dense_ptr: Any
    dense_sb: Any
    dense_sh: Any
    dense_sq: Any
    dense_sk: Any
    bias_ptr: Any
    bias_sb: Any
    bias_sh: Any
    bias_sq: Any
    bias_sk: Any
    D: Any
    DV: Any
    BM: Any
    BN: Any
    STAGES: Any
    CONSUMERS: Any
    HEALTH: Any
    MODE: Any
    MASKED: Any
    BAND: Any
    SPANS: Any
    DENSE: Any
    BIAS: Any
    SOFTCAP: Any
    SINKS: Any
    LAZY: Any
    PACK: Any


@gluon.constexpr_function
def _rescale_asm(count):
    """PTX that multiplies `count` accumulators by their row's factor unless the warp's are all 1."""
    lines = [".reg .pred p;", ".reg .pred r;"]
    for i in range(count):
        lines.append(f"mov.f32 ${i}, ${count + i};")
    lines.append(f"setp.neu.f32 p, ${2 * count}, 0f3F800000;")
    lines.append(f"setp.neu.or.f32 p, ${2 * count + 2}, 0f3F800000, p;")
    lines.append("vote.sync.any.pred r, p, 0xffffffff;")
    lines.append("@!r bra DONE;")
    for i in range(count):
        lines.append(f"mul.f32 ${i}, ${count + i}, ${2 * count + i};")
    lines.append("DONE:")
    return "{ " + " ".join(lines) + " }"


@gluon.constexpr_function
def _rescale_constraints(count):
    return ",".join(["=f"] * count + ["f"] * (2 * count))


@gluon.jit
def _exp2(x):
    return gl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def _any_in_warp(x):
    """1.0 in every lane of a warp in which some lane has x > 8, else 0.0."""
    return gl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .pred r; setp.gt.f32 p, $1, 0f41000000;"
        " vote.sync.any.pred r, p, 0xffffffff; selp.f32 $0, 0f3F800000, 0f00000000, r; }",
        "=f,f",
        [x],
        dtype=gl.float32,
        is_pure=True,
        pack=1,
    )


@gluon.jit
def _tanh(x):
    """tanh to float32 rounding: an odd polynomial near 0, (1-u)/(1+u) with u = e^(-2|x|) beyond."""
    a = gl.abs(x)
    z = x * x
    near = x * (1.0 + z * (-0.33333333 + z * (0.13333333 + z * (-0.05396825 + z * 0.021869488))))
    u = _exp2(a * -2.8853900817779268)
    far = (1.0 - u) / (1.0 + u)
    far = gl.where(x < 0.0, -far, far)
    return gl.where(a < 0.25, near, far)


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
def _plan(p, b, h, tile):
    """Key blocks of a tile: (partial on the right, partial in all, all, hi, flo, fhi)."""
    if p.MODE == 2:
        slot = (b * p.plan_sb + h * p.plan_sh + tile).to(gl.int64)
        npart = gl.load(p.plan_ptr + slot * 2)
        total = gl.load(p.plan_ptr + slot * 2 + 1)
        return npart, npart, total, 0, 0, 0
    else:
        r0 = tile * p.BM
        r1 = gl.minimum(r0 + p.BM, p.nq)
        if p.MODE == 1:
            slot = (b * p.plan_sb + h * p.plan_sh + tile).to(gl.int64) * 4
            any_lo = gl.load(p.plan_ptr + slot)
            any_hi = gl.load(p.plan_ptr + slot + 1)
            all_lo = gl.load(p.plan_ptr + slot + 2)
            all_hi = gl.load(p.plan_ptr + slot + 3)
        elif p.BAND:
            any_lo = gl.maximum(r0 + p.low, 0)
            any_hi = gl.minimum(r1 + p.high, p.nk)
            all_lo = gl.maximum(r1 - 1 + p.low, 0)
            all_hi = gl.minimum(r0 + p.high + 1, p.nk)
        else:
            any_lo = 0
            any_hi = p.nk
            all_lo = 0
            all_hi = p.nk
        lo = gl.minimum(any_lo, p.nk) // p.BN
        hi = gl.maximum((gl.maximum(any_hi, 0) + p.BN - 1) // p.BN, lo)
        hi = gl.where(any_hi > any_lo, hi, lo)
        flo = gl.minimum(gl.maximum((all_lo + p.BN - 1) // p.BN, lo), hi)
        fhi = gl.minimum(gl.maximum(gl.maximum(all_hi, 0) // p.BN, flo), hi)
        right = hi - fhi
        return right, right + flo - lo, hi - lo, hi, flo, fhi


@gluon.jit
def _block(p, b, h, tile, i, right, npart, hi, flo, fhi):
    """The key block that comes i-th in a tile's plan."""
    if p.MODE == 2:
        slot = (b * p.plan_sb + h * p.plan_sh + tile).to(gl.int64)
        return gl.load(p.list_ptr + slot * p.list_width + i)
    else:
        partial = gl.where(i < right, hi - 1 - i, flo - 1 - (i - right))
        return gl.where(i < npart, partial, fhi - 1 - (i - npart))


@gluon.jit
def _where(p, t):
    head, tile = _tile(t, p.tiles, p.heads_total, p.section)
    b = head // p.heads
    h = head - b * p.heads
    return b, h, tile


@gluon.jit
def _number(p, r):
    """The r-th tile of this program: round robin, every second round backwards."""
    pid = gl.program_id(0)
    step = gl.num_programs(0)
    return r * step + gl.where(r % 2 == 1, step - 1 - pid, pid)


@gluon.jit
def _producer(p, q_desc, k_desc, v_desc, q_bufs, k_bufs, v_bufs, bars):
    q_ready, q_empty, k_ready, k_empty, v_ready, v_empty = bars
    count = 0
    turn = 0
    for r in range(gl.cdiv(p.total, gl.num_programs(0))):
        t = _number(p, r)
        if t < p.total:
            b, h, tile = _where(p, t)
            right, npart, blocks, hi, flo, fhi = _plan(p, b, h, tile)
            hk = h // p.group
            if blocks > 0:
                for w in gl.static_range(p.CONSUMERS):
                    mbarrier.wait(q_empty.index(w), (turn & 1) ^ 1)
                    mbarrier.expect(q_ready.index(w), q_desc.block_type.nbytes)
                    tma.async_copy_global_to_shared(
                        q_desc, [b, h, tile * p.BM + w * 64, 0], q_ready.index(w), q_bufs.index(w)
                    )
                turn += 1
                for i in range(blocks):
                    j = _block(p, b, h, tile, i, right, npart, hi, flo, fhi) * p.BN
                    stage = count % p.STAGES
                    phase = (count // p.STAGES) & 1
                    mbarrier.wait(k_empty.index(stage), phase ^ 1)
                    mbarrier.expect(k_ready.index(stage), k_desc.block_type.nbytes)
                    tma.async_copy_global_to_shared(
                        k_desc, [b, hk, j, 0], k_ready.index(stage), k_bufs.index(stage)
                    )
                    mbarrier.wait(v_empty.index(stage), phase ^ 1)
                    mbarrier.expect(v_ready.index(stage), v_desc.block_type.nbytes)
                    tma.async_copy_global_to_shared(
                        v_desc, [b, hk, j, 0], v_ready.index(stage), v_bufs.index(stage)
                    )
                    count += 1


@gluon.jit
def _mask(p, s, b, h, rows, cols):
    """Logits with the cells that the mask forbids at `fill`."""
    ok = (cols < p.nk)[None, :]
    if p.BAND:
        shift = cols[None, :] - rows[:, None]
        ok = ok & (shift >= p.low) & (shift <= p.high)
    if p.SPANS > 0:
        row = gl.minimum(rows, p.nq - 1).to(gl.int64) * p.spans_sq
        base = p.spans_ptr + b.to(gl.int64) * p.spans_sb + h.to(gl.int64) * p.spans_sh
        inside = (cols < 0)[None, :] & (rows < 0)[:, None]
        for r in gl.static_range(p.SPANS):
            first = gl.load(base + row + 2 * r)
            last = gl.load(base + row + 2 * r + 1)
            inside = inside | ((cols[None, :] >= first[:, None]) & (cols[None, :] < last[:, None]))
        ok = ok & inside
    if p.DENSE:
        base = p.dense_ptr + b.to(gl.int64) * p.dense_sb + h.to(gl.int64) * p.dense_sh
        at = base + (rows.to(gl.int64) * p.dense_sq)[:, None] + (cols.to(gl.int64) * p.dense_sk)[None, :]
        inside = (rows < p.nq)[:, None] & (cols < p.nk)[None, :]
        ok = ok & (gl.load(at, mask=inside, other=0) != 0)
    return gl.where(ok, s, p.fill)


@gluon.jit
def _logits(p, s, b, h, rows, cols, MASKED: gl.constexpr):
    if p.SOFTCAP:
        s = p.softcap * _tanh(s * (p.scale / p.softcap))
    elif p.BIAS:
        s = s * p.scale
    if p.BIAS:
        base = p.bias_ptr + b.to(gl.int64) * p.bias_sb + h.to(gl.int64) * p.bias_sh
        at = base + (rows.to(gl.int64) * p.bias_sq)[:, None] + (cols.to(gl.int64) * p.bias_sk)[None, :]
        inside = (rows < p.nq)[:, None] & (cols < p.nk)[None, :]
        x = gl.load(at, mask=inside, other=0.0).to(gl.float32)
        s = gl.where(x == float("-inf"), p.fill, s + x)
    if MASKED:
        s = _mask(p, s, b, h, rows, cols)
    return s


@gluon.jit
def _softmax(p, s, m, m2, l, e, FIRST: gl.constexpr):
    """One block into the running state: p, the rescaling factor, and the new (m, m2, l, e).

    m is the true maximum in the units of s (for health), m2 the reference of the exponent in
    base 2. A row that has seen only forbidden cells keeps m at `fill` and m2 at 0.
    """
    m = gl.maximum(m, gl.max(s, 1))
    live = m > p.fill * 0.5
    top = m * p.c
    if FIRST:
        new = gl.where(live, top, 0.0) if p.MASKED else top
        y = gl.fma(s, gl.full_like(s, p.c), (-new)[:, None].broadcast_to(s.shape))
        w = _exp2(y)
        l = gl.sum(w, 1)
        if p.HEALTH:
            e = gl.sum(w * y, 1)
        return w, l, m, new, l, e
    else:
        if p.LAZY:
            move = _any_in_warp(gl.abs(top - m2)) > 0.0
            if p.MASKED:
                move = (move | (l == 0.0)) & live
            new = gl.where(move, top, m2)
        else:
            new = gl.where(live, top, m2) if p.MASKED else top
        delta = m2 - new
        alpha = _exp2(delta)
        if p.MASKED:
            alpha = gl.where(l == 0.0, 1.0, alpha)
        y = gl.fma(s, gl.full_like(s, p.c), (-new)[:, None].broadcast_to(s.shape))
        w = _exp2(y)
        if p.HEALTH:
            e = alpha * (e + delta * l) + gl.sum(w * y, 1)
        l = l * alpha + gl.sum(w, 1)
        return w, alpha, m, new, l, e


@gluon.jit
def _rescale(p, o, alpha, OL: gl.constexpr):
    factor = gl.convert_layout(alpha, gl.SliceLayout(1, OL))[:, None].broadcast_to(o.shape)
    if p.LAZY:
        return gl.inline_asm_elementwise(
            _rescale_asm(p.PACK),
            _rescale_constraints(p.PACK),
            [o, factor],
            dtype=gl.float32,
            is_pure=True,
            pack=p.PACK,
        )
    else:
        return o * factor


@gluon.jit
def _consumer(p, W: gl.constexpr, q_bufs, k_bufs, v_bufs, bars):
    q_ready, q_empty, k_ready, k_empty, v_ready, v_empty = bars
    SL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, p.BN, 16])
    OL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, p.DV, 16])
    PL: gl.constexpr = gl.DotOperandLayout(0, OL, 2)
    dtype: gl.constexpr = q_bufs.dtype
    q = q_bufs.index(W).reshape([64, p.D])
    count = 0
    turn = 0
    for r in range(gl.cdiv(p.total, gl.num_programs(0))):
        t = _number(p, r)
        if t < p.total:
            b, h, tile = _where(p, t)
            right, npart, blocks, hi, flo, fhi = _plan(p, b, h, tile)
            first_row = tile * p.BM + W * 64
            rows = first_row + gl.arange(0, 64, gl.SliceLayout(1, SL))
            lane = gl.arange(0, p.BN, gl.SliceLayout(0, SL))
            m = gl.full([64], p.fill, gl.float32, gl.SliceLayout(1, SL))
            m2 = gl.zeros([64], gl.float32, gl.SliceLayout(1, SL))
            l = gl.zeros([64], gl.float32, gl.SliceLayout(1, SL))
            e = gl.zeros([64], gl.float32, gl.SliceLayout(1, SL))
            o = gl.zeros([64, p.DV], gl.float32, OL)
            zero = gl.zeros([64, p.BN], gl.float32, SL)
            if blocks > 0:
                mbarrier.wait(q_ready.index(W), turn & 1)
                turn += 1
                stage = count % p.STAGES
                mbarrier.wait(k_ready.index(stage), (count // p.STAGES) & 1)
                k = k_bufs.index(stage).reshape([p.BN, p.D]).permute([1, 0])
                s = warpgroup_mma(q, k, zero, use_acc=False, is_async=True)
                s = warpgroup_mma_wait(0, [s])
                mbarrier.arrive(k_empty.index(stage), count=1)
                cols = _block(p, b, h, tile, 0, right, npart, hi, flo, fhi) * p.BN + lane
                s = _logits(p, s, b, h, rows, cols, p.MASKED)
                w, alpha, m, m2, l, e = _softmax(p, s, m, m2, l, e, True)
                w16 = gl.convert_layout(w.to(dtype), PL)
                for i in range(1, npart):
                    # [64, BN] logits of block i beside the mix of block i-1
                    stage = (count + 1) % p.STAGES
                    mbarrier.wait(k_ready.index(stage), ((count + 1) // p.STAGES) & 1)
                    k = k_bufs.index(stage).reshape([p.BN, p.D]).permute([1, 0])
                    s = warpgroup_mma(q, k, zero, use_acc=False, is_async=True)
                    last = count % p.STAGES
                    mbarrier.wait(v_ready.index(last), (count // p.STAGES) & 1)
                    v = v_bufs.index(last).reshape([p.BN, p.DV])
                    o = warpgroup_mma(w16, v, o, is_async=True)
                    s = warpgroup_mma_wait(1, [s])
                    mbarrier.arrive(k_empty.index(stage), count=1)
                    cols = _block(p, b, h, tile, i, right, npart, hi, flo, fhi) * p.BN + lane
                    s = _logits(p, s, b, h, rows, cols, True)
                    w, alpha, m, m2, l, e = _softmax(p, s, m, m2, l, e, False)
                    o, w16 = warpgroup_mma_wait(0, [o, w16])
                    mbarrier.arrive(v_empty.index(last), count=1)
                    o = _rescale(p, o, alpha, OL)
                    w16 = gl.convert_layout(w.to(dtype), PL)
                    count += 1
                for i in range(gl.maximum(npart, 1), blocks):
                    stage = (count + 1) % p.STAGES
                    mbarrier.wait(k_ready.index(stage), ((count + 1) // p.STAGES) & 1)
                    k = k_bufs.index(stage).reshape([p.BN, p.D]).permute([1, 0])
                    s = warpgroup_mma(q, k, zero, use_acc=False, is_async=True)
                    last = count % p.STAGES
                    mbarrier.wait(v_ready.index(last), (count // p.STAGES) & 1)
                    v = v_bufs.index(last).reshape([p.BN, p.DV])
                    o = warpgroup_mma(w16, v, o, is_async=True)
                    s = warpgroup_mma_wait(1, [s])
                    mbarrier.arrive(k_empty.index(stage), count=1)
                    if p.BIAS:
                        cols = _block(p, b, h, tile, i, right, npart, hi, flo, fhi) * p.BN + lane
                    s = _logits(p, s, b, h, rows, cols, False)
                    w, alpha, m, m2, l, e = _softmax(p, s, m, m2, l, e, False)
                    o, w16 = warpgroup_mma_wait(0, [o, w16])
                    mbarrier.arrive(v_empty.index(last), count=1)
                    o = _rescale(p, o, alpha, OL)
                    w16 = gl.convert_layout(w.to(dtype), PL)
                    count += 1
                mbarrier.arrive(q_empty.index(W), count=1)
                last = count % p.STAGES
                mbarrier.wait(v_ready.index(last), (count // p.STAGES) & 1)
                v = v_bufs.index(last).reshape([p.BN, p.DV])
                o = warpgroup_mma(w16, v, o, is_async=True)
                o = warpgroup_mma_wait(0, [o])
                mbarrier.arrive(v_empty.index(last), count=1)
                count += 1
            _finish(p, b, h, first_row, o, m, m2, l, e, SL, OL, dtype)


@gluon.jit
def _finish(p, b, h, first_row, o, m, m2, l, e, SL: gl.constexpr, OL: gl.constexpr, dtype: gl.constexpr):
    rows = first_row + gl.arange(0, 64, gl.SliceLayout(1, SL))
    odd = gl.abs(m2) > LIMIT
    real = m > p.fill * 0.5
    if p.SINKS:
        sink = gl.load(p.sinks_ptr + h).to(gl.float32) * LOG2E
        odd = odd | (gl.abs(m2 * 0.0 + sink) > LIMIT)
        new = gl.where(real, gl.maximum(m2, sink), sink)
        a = gl.where(real, _exp2(m2 - new), 0.0)
        ps = _exp2(sink - new)
        if p.HEALTH:
            e = a * e + gl.where(real, a * (m2 - new) * l, 0.0) + ps * (sink - new)
        l = l * a + ps
        m2 = new
        factor = gl.where(l > 0.0, a / l, 0.0)
    else:
        factor = gl.where(l > 0.0, 1.0 / l, 0.0)
    lse = gl.where(l > 0.0, m2 * LN2 + gl.log(l), float("-inf"))
    flat = (b * p.heads + h).to(gl.int64)
    inside = rows < p.nq
    gl.store(p.lse_ptr + flat * p.nq + rows, lse, mask=inside)
    if p.HEALTH:
        gl.store(
            p.max_ptr + flat * p.nq + rows,
            gl.where(real, m * (p.c * LN2), float("-inf")),
            mask=inside,
        )
        ent = gl.where(l > 0.0, gl.log(l) - LN2 * e / l, 0.0)
        gl.store(p.ent_ptr + flat * p.nq + rows, gl.maximum(ent, 0.0), mask=inside)
    o = o * gl.convert_layout(factor, gl.SliceLayout(1, OL))[:, None]
    out_rows = first_row + gl.arange(0, 64, gl.SliceLayout(1, OL))
    cols = gl.arange(0, p.DV, gl.SliceLayout(0, OL))
    at = (
        p.o_ptr
        + b.to(gl.int64) * p.o_sb
        + h.to(gl.int64) * p.o_sh
        + (out_rows.to(gl.int64) * p.o_sn)[:, None]
        + cols[None, :]
    )
    gl.store(at, o.to(dtype), mask=(out_rows < p.nq)[:, None] & (cols < p.dv)[None, :])
    # An infinity or NaN anywhere makes this sum NaN or infinite; a normal tile's is finite.
    worst = gl.max(gl.max(gl.where(o == o, gl.abs(o), float("inf")), 1), 0)
    bad = (gl.max(gl.where(odd & inside, 1, 0), 0) > 0) | (worst == float("inf"))
    bad = bad | (gl.max(gl.where((lse == float("inf")) | (lse != lse), 1, 0), 0) > 0)
    gl.store(p.flag_ptr + flat * gl.cdiv(p.nq, 64) + first_row // 64, bad.to(gl.int32), mask=first_row < p.nq)


@gluon.jit
def forward_kernel(
    q_desc,
    k_desc,
    v_desc,
    o_ptr,
    lse_ptr,
    max_ptr,
    ent_ptr,
    flag_ptr,
    o_sb,
    o_sh,
    o_sn,
    heads,
    group,
    nq,
    nk,
    dv,
    tiles,
    heads_total,
    section,
    total,
    scale,
    c,
    fill,
    softcap,
    sinks_ptr,
    low,
    high,
    plan_ptr,
    plan_sb,
    plan_sh,
    list_ptr,
    list_width,
    spans_ptr,
    spans_sb,
    spans_sh,
    spans_sq,
    dense_ptr,
    dense_sb,
    dense_sh,
    dense_sq,
    dense_sk,
    bias_ptr,
    bias_sb,
    bias_sh,
    bias_sq,
    bias_sk,
    D: gl.constexpr,
    DV: gl.constexpr,
    BM: gl.constexpr,
    BN: gl.constexpr,
    STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
    HEALTH: gl.constexpr,
    MODE: gl.constexpr,
    MASKED: gl.constexpr,
    BAND: gl.constexpr,
    SPANS: gl.constexpr,
    DENSE: gl.constexpr,
    BIAS: gl.constexpr,
    SOFTCAP: gl.constexpr,
    SINKS: gl.constexpr,
    LAZY: gl.constexpr,
    PACK: gl.constexpr,
):
    """Attention of [B, Hq, Nq, D] queries in tiles of BM rows; see the top of the file."""
    p = Params(
        o_ptr,
        lse_ptr,
        max_ptr,
        ent_ptr,
        flag_ptr,
        o_sb,
        o_sh,
        o_sn,
        heads,
        group,
        nq,
        nk,
        dv,
        tiles,
        heads_total,
        section,
        total,
        scale,
        c,
        fill,
        softcap,
        sinks_ptr,
        low,
        high,
        plan_ptr,
        plan_sb,
        plan_sh,
        list_ptr,
        list_width,
        spans_ptr,
        spans_sb,
        spans_sh,
        spans_sq,
        dense_ptr,
        dense_sb,
        dense_sh,
        dense_sq,
        dense_sk,
        bias_ptr,
        bias_sb,
        bias_sh,
        bias_sq,
        bias_sk,
        D,
        DV,
        BM,
        BN,
        STAGES,
        CONSUMERS,
        HEALTH,
        MODE,
        MASKED,
        BAND,
        SPANS,
        DENSE,
        BIAS,
        SOFTCAP,
        SINKS,
        LAZY,
        PACK,
    )
    q_bufs = gl.allocate_shared_memory(q_desc.dtype, [CONSUMERS, 1, 1, 64, D], q_desc.layout)
    k_bufs = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BN, D], k_desc.layout)
    v_bufs = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, 1, BN, DV], v_desc.layout)
    q_ready = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for w in gl.static_range(CONSUMERS):
        mbarrier.init(q_ready.index(w), count=1)
        mbarrier.init(q_empty.index(w), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_ready.index(i), count=1)
        mbarrier.init(k_empty.index(i), count=CONSUMERS)
        mbarrier.init(v_ready.index(i), count=1)
        mbarrier.init(v_empty.index(i), count=CONSUMERS)
    bars = (q_ready, q_empty, k_ready, k_empty, v_ready, v_empty)
    load = (p, q_desc, k_desc, v_desc, q_bufs, k_bufs, v_bufs, bars)
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (_consumer, (p, 0, q_bufs, k_bufs, v_bufs, bars)),
                (_producer, load),
            ],
            [1],
            [24],
        )
    elif CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consumer, (p, 0, q_bufs, k_bufs, v_bufs, bars)),
                (_consumer, (p, 1, q_bufs, k_bufs, v_bufs, bars)),
                (_producer, load),
            ],
            [4, 1],
            [240, 24],
        )
    else:
        gl.warp_specialize(
            [
                (_consumer, (p, 0, q_bufs, k_bufs, v_bufs, bars)),
                (_consumer, (p, 1, q_bufs, k_bufs, v_bufs, bars)),
                (_consumer, (p, 2, q_bufs, k_bufs, v_bufs, bars)),
                (_producer, load),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )
