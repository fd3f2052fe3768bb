// One block of the online softmax for a tile, and what a row has when all blocks are through.
//
// A row carries its maximum m, l = sum of p and e = sum of p * y with y = s - m (Milakov and
// Gimelshein 2018; e is ours). When the maximum moves from m to m', with a = exp(m - m'):
//     e <- a * (e + (m - m') * l),   l <- a * l,   output <- a * output.
// Then logsumexp = m + ln l and entropy = ln l - e / l. y, not s, is summed: at large logits the
// sum over s would cancel.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

constexpr int GROUP = 16;  // rows that one call of softmax_tile may have, and whole vectors of them
static_assert(MR <= GROUP && GROUP % W == 0, "room for a tile");

// The largest number of each row of s[rows][lds] to `top`, which has room for GROUP; columns a
// multiple of W. Tells whether all are finite, as all_finite does, from what is loaded anyway.
static bool tops(int height, i64 columns, const float* s, i64 lds, float* top) {
    vf sum[4] = {vzero(), vzero(), vzero(), vzero()};
    for (int r = 0; r < height; r += 4) {
        vf best[4];
        for (int i = 0; i < 4; ++i) {
            best[i] = vset(-inf);
            if (r + i >= height) continue;
            // vmax(x, best): a NaN score is left out here, and shows in the sums.
            for (i64 j = 0; j < columns; j += W) {
                const vf x = vload(s + (r + i) * lds + j);
                best[i] = vmax(x, best[i]);
                sum[i] = vadd(x, sum[i]);
            }
        }
        vhmax4(best[0], best[1], best[2], best[3], top + r);
    }
    for (int r = (height + 3) / 4 * 4; r < GROUP; ++r) top[r] = -inf;
    return vfinite(vadd(vadd(sum[0], sum[1]), vadd(sum[2], sum[3])));
}

// s[rows][lds], columns a multiple of W: weights in place (or as pairs to `pairs`, if that is what
// the mix reads). `top` is what tops() left, and is written. alpha[r] is what the row's output so far
// must be multiplied with. Sums of four rows are folded together: one at a time cost 10 ns a row.
// m, l, e and alpha have room for GROUP rows.
template <class P, bool HEALTH>
static void softmax_tile(int height, i64 columns, float* RESTRICT s, i64 lds, pair* RESTRICT pairs,
                         i64 ldp, const Logits& logits, float* RESTRICT top, float* m, float* l,
                         float* e, float* alpha) {
    (void)pairs, (void)ldp;  // read only where there are pairs
    alignas(64) float drop[GROUP];
    const vf c = vset(logits.c), floor = vset(logits.floor), low = vset(-inf);
    for (int r = 0; r < height; r += W) {  // `top` becomes what is subtracted: never -inf
        const vf before = vload(m + r), now = vmax(vload(top + r), before);
        const vf fresh = vwhere_equal(now, low, vzero(), now);
        vf y = vwhere_equal(before, low, vzero(), vsub(before, fresh));
        vstore(m + r, now);
        vstore(top + r, fresh);
        vstore(drop + r, y);
        vstore(alpha + r, exp2_of<5>(y, c, floor));
    }
    alignas(64) float sums[GROUP] = {}, moments[GROUP] = {};  // rows beyond `height` stay as they are
    for (int r = 0; r < height; r += 4) {
        vf sum[4], moment[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            vf total = vzero(), turn = vzero();
            if (r + i < height) {
                float* const row = s + (r + i) * lds;
                const vf less = vset(top[r + i]);
#ifdef LIMELIGHT_BF16_DOT
                if (P::PER == 2) {
                    pair* const to = pairs + (r + i) * ldp;
                    for (i64 j = 0; j < columns; j += 2 * W) {
                        vf y0 = vsub(vload(row + j), less), p1 = vzero();
                        const vf p0 = exp2_of<P::DEGREE>(y0, c, floor);
                        total = vadd(total, p0);
                        if (HEALTH) turn = vfma(p0, y0, turn);
                        if (j + W < columns) {
                            vf y1 = vsub(vload(row + j + W), less);
                            p1 = exp2_of<P::DEGREE>(y1, c, floor);
                            total = vadd(total, p1);
                            if (HEALTH) turn = vfma(p1, y1, turn);
                        }
                        pstore(to + j / 2, p0, p1);
                    }
                } else
#endif
                    for (i64 j = 0; j < columns; j += W) {
                        vf y = vsub(vload(row + j), less);
                        const vf p = exp2_of<P::DEGREE>(y, c, floor);
                        total = vadd(total, p);
                        if (HEALTH) turn = vfma(p, y, turn);
                        vstore(row + j, p);
                    }
            }
            sum[i] = total;
            moment[i] = turn;
        }
        vhsum4(sum[0], sum[1], sum[2], sum[3], sums + r);
        if (HEALTH) vhsum4(moment[0], moment[1], moment[2], moment[3], moments + r);
    }
    for (int r = 0; r < height; r += W) {
        const vf a = vload(alpha + r), before = vload(l + r);
        if (HEALTH) {
            const vf moved = vfma(vload(drop + r), before, vload(e + r));
            vstore(e + r, vfma(a, moved, vload(moments + r)));
        }
        vstore(l + r, vfma(a, before, vload(sums + r)));
    }
}

struct Finished {
    float weight;  // output = weight * (sum of p * v)
    float logsumexp, max_logit, entropy;
    float top, total;  // logsumexp = top + ln total
};

// A row's numbers once every key has passed. `sink` is one more outcome, -inf for none.
INLINE Finished finish(float m, float l, float e, float unit, float sink) {
    Finished row;
    m *= unit;
    e *= unit;
    row.max_logit = l != l && m < inf ? l : m;
    if (sink != -inf) {  // NaN included
        const float top = m > sink ? m : sink;
        const float a = std::exp(m - top), y = sink - top, p = std::exp(y);
        e = a == 0.0f ? 0.0f : a * (e + (m - top) * l);  // m - top may be beyond a float
        if (p > 0.0f) e += p * y;
        const float total = a * l + p;
        const float log = std::log(total);
        row.weight = l == 0.0f ? 0.0f : a / total;
        row.top = top;
        row.total = total;
        row.logsumexp = top + log;
        row.entropy = log - e / total;
    } else if (l == 0.0f) {
        return Finished{0.0f, -inf, -inf, 0.0f, -inf, 0.0f};
    } else {
        const float log = std::log(l);
        row.weight = 1.0f / l;
        row.top = m;
        row.total = l;
        row.logsumexp = m + log;
        row.entropy = log - e / l;
    }
    if (row.entropy < 0.0f) row.entropy = 0.0f;
    return row;
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
