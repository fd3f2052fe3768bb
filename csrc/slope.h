// What a row of weights is, and how it moves: the part that the backward passes share.
//
// From the saved logsumexp each tile's weights come back, p = exp(s - logsumexp). With dO the
// gradient of the output and delta = dO . O of the row, dp = dO . v and
//     ds = p * (dp - delta),
// which is the gradient of the logit, and so of the bias; times the softcap's slope and the scale it
// is that of the score. Where logsumexp and entropy H have gradients of their own, gl and gh,
//     ds = p * (dp - delta + gl - gh * (ln p + H)) = p * (dp - delta' - gh * y),  y = ln p,
// and delta' is all that changes for gl.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

struct RowGradients {  // what the passes know of every row, [b, h, i]
    const float* base;   // subtracted from the logits
    const float* share;  // then multiplied with exp(...); null for 1
    const float* delta;
    const float* turn;  // the gradient of the row's entropy; null for 0
};

constexpr i64 GRAD_KEYS = 192;  // keys in a block: whole panels, and whole tiles of keys
constexpr i64 GRAD_ROWS = 96;   // rows in a block
static_assert(GRAD_KEYS % PANEL == 0 && GRAD_KEYS % MR == 0 && GRAD_ROWS % MR == 0, "whole tiles");

struct SlopeSpace {
    Row* rows;
    float *q, *g;                  // queries and output gradients, in tiles
    float *base, *share, *delta, *turn;  // of this block's rows
    float *p, *ds;                 // [GRAD_ROWS][GRAD_KEYS]
    float *slope, *spare;

    SlopeSpace(Carver& carve, i64 d, i64 dv) {
        rows = carve.take<Row>(GRAD_ROWS);
        q = carve.take<float>(static_cast<std::size_t>(GRAD_ROWS * d));
        g = carve.take<float>(static_cast<std::size_t>(GRAD_ROWS * dv));
        base = carve.take<float>(GRAD_ROWS);
        share = carve.take<float>(GRAD_ROWS);
        delta = carve.take<float>(GRAD_ROWS);
        turn = carve.take<float>(GRAD_ROWS);
        p = carve.take<float>(GRAD_ROWS * GRAD_KEYS);
        ds = carve.take<float>(GRAD_ROWS * GRAD_KEYS);
        slope = carve.take<float>(GRAD_KEYS);
        spare = carve.take<float>(static_cast<std::size_t>(W * round_up(most(d, dv) + 1, 2 * W) + GRAD_KEYS));
    }
};

// Rows [first, first + count) of a head's stacked rows.
static void begin_slopes(const Call& call, const Logits& logits, const View& grad,
                         const RowGradients& known, i64 batch, i64 key_head, i64 first, i64 count,
                         const SlopeSpace& x) {
    read_rows(call, batch, key_head, first, count, x.rows);
    for (i64 r = 0; r < round_up(count, MR); ++r) {
        const char *q = nullptr, *g = nullptr;
        if (r < count) {
            Row& row = x.rows[r];
            const i64 at = (batch * call.query_heads() + row.head) * call.queries() + row.query;
            x.base[r] = known.base[at];
            x.share[r] = known.share ? known.share[at] : 1.0f;
            x.delta[r] = known.delta[at];
            x.turn[r] = known.turn ? known.turn[at] : 0.0f;
            if (x.base[r] == -inf) row.lo = row.hi = 0, x.base[r] = 0.0f;  // without keys: no part
            q = call.q.at(batch, row.head, row.query);
            g = grad.at(batch, row.head, row.query);
        }
        const i64 d = call.size(), dv = call.value_size();
        pack_tile_row(q, call.q.stride[3], call.q.dtype, d, logits.sign, d, tile_row(x.q, d, r), x.spare);
        pack_tile_row(g, grad.stride[3], grad.dtype, dv, 1.0f, dv, tile_row(x.g, dv, r), x.spare);
    }
}

// p (after dropout, if any) and ds of the tile that starts at row t, against keys [k0, k1): k and v are packed as panels of
// rows from key k0 on. Returns the range of columns written, relative to k0, in whole vectors; the
// rest of the tile's rows is zero. `ds` has the softcap's slope in it where SCORES, else not.
template <bool SCORES>
static Range slope_tile(const Call& call, const Logits& logits, i64 t, i64 count, i64 k0, i64 k1,
                        const float* k, const float* v, const SlopeSpace& x) {
    const int height = height_of(count - t);
    const i64 n = least(height, count - t), d = call.size(), dv = call.value_size();
    float *const p = x.p + t * GRAD_KEYS, *const ds = x.ds + t * GRAD_KEYS;
    const Range range = range_of(call, x.rows + t, n, k0, k1);
    if (range.from >= range.to) {
        fill(p, 0, height * GRAD_KEYS, 0.0f);
        fill(ds, 0, height * GRAD_KEYS, 0.0f);
        return Range{0, 0, false};
    }
    const i64 a = (range.from - k0) / PANEL * PANEL, columns = round_up(range.to - k0 - a, W);
    const bool partial = range.partial || k0 + a < range.from || k0 + a + columns > range.to;
    score_tile<Single>(height, x.q + t * d, k + a * d, d, columns, p + a, GRAD_KEYS);
    score_tile<Single>(height, x.g + t * dv, v + a * dv, dv, columns, ds + a, GRAD_KEYS);
    mend_tile(call, x.rows + t, n, logits.sign, k0 + a, columns, p + a, GRAD_KEYS);
    Line lines[MR];
    if (call.dropout.on) draw(call, x.rows + t, n, k0 + a, k0 + a + columns, lines);
    const vf unit = vset(logits.unit), c = vset(log2_e), floor = vset(exp2_floor / log2_e);
    for (i64 r = 0; r < height; ++r) {
        float *const pr = p + r * GRAD_KEYS, *const dr = ds + r * GRAD_KEYS;
        fill(pr, 0, a, 0.0f);
        fill(dr, 0, a, 0.0f);
        fill(pr, a + columns, GRAD_KEYS, 0.0f);
        fill(dr, a + columns, GRAD_KEYS, 0.0f);
        if (r >= n) {
            fill(pr, a, a + columns, 0.0f);
            fill(dr, a, a + columns, 0.0f);
            continue;
        }
        const Row& row = x.rows[t + r];
        const bool bent = logits.written && SCORES;
        if (logits.written)
            to_logits<SCORES>(call, logits, row, k0 + a, columns, pr + a, x.slope, x.spare);
        if (partial) blot(call, row, k0 + a, k0 + a + columns, pr + a, -inf);
        if (std::isnan(x.base[t + r]) || std::isnan(x.share[t + r])) {  // NaN is in all the row sees
            for (i64 j = a; j < a + columns; ++j)
                pr[j] = dr[j] = pr[j] == -inf ? 0.0f : std::numeric_limits<float>::quiet_NaN();
            continue;
        }
        const vf base = vset(x.base[t + r]), share = vset(x.share[t + r]), delta = vset(x.delta[t + r]);
        const bool turned = x.turn[t + r] != 0.0f;
        const vf turn = vset(x.turn[t + r]), raise = vset(call.dropout.scale);
        for (i64 j = a; j < a + columns; j += W) {
            // At most 0: what rounding of a large logsumexp would add must not overflow.
            vf y = vmin(vzero(), vsub(vmul(vload(pr + j), unit), base));
            const vf w = vmul(exp2_of<5>(y, c, floor), share);
            vf mixed = w, by = vload(dr + j);
            if (call.dropout.on) {
                const std::uint64_t bits = lines[r].at(k0 + j);
                mixed = vkeep(vmul(w, raise), bits);
                by = vkeep(vmul(by, raise), bits);
            }
            by = vsub(by, delta);
            if (turned) by = vsub(by, vmul(turn, y));
            by = vmul(w, by);
            if (bent) by = vmul(by, vload(x.slope + j - a));
            vstore(pr + j, mixed);
            vstore(dr + j, vwhere_equal(w, vzero(), vzero(), by));  // masked: dp may be NaN
        }
    }
    return Range{a, a + columns, partial};
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
