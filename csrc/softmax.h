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

// s[rows][lds], columns a multiple of W: weights in place (and as pairs to `pairs`, if that is what
// the mix reads). alpha[r] is what the row's output so far must be multiplied with.
template <class P, bool HEALTH>
static void softmax_tile(int height, i64 columns, float* s, i64 lds, pair* pairs, i64 ldp,
                         const Logits& logits, float* m, float* l, float* e, float* alpha) {
    (void)pairs, (void)ldp;  // read only where there are pairs
    alignas(64) float fresh[32], drop[32], factor[32];  // height + W at most
    static_assert(MR + W <= 32 && 8 + W <= 32, "room for a tile and for a decoding group");
    for (int r = 0; r < height; ++r) {
        vf top0 = vset(-inf), top1 = top0;
        i64 j = 0;
        for (; j + 2 * W <= columns; j += 2 * W) {  // vmax(x, top): a NaN score is left out here,
            top0 = vmax(vload(s + r * lds + j), top0);  // and shows in the sums
            top1 = vmax(vload(s + r * lds + j + W), top1);
        }
        if (j < columns) top0 = vmax(vload(s + r * lds + j), top0);
        const float top = vhmax(vmax(top0, top1));
        const float now = top > m[r] ? top : m[r];
        fresh[r] = now == -inf ? 0.0f : now;
        drop[r] = m[r] == -inf ? 0.0f : m[r] - fresh[r];
        m[r] = now;
    }
    for (int r = height; r < height + W; ++r) drop[r] = 0.0f;
    const vf c = vset(logits.c), floor = vset(logits.floor);
    for (int r = 0; r < height; r += W) {
        vf y = vload(drop + r);
        vstore(factor + r, exp2_of<5>(y, c, floor));
    }
    for (int r = 0; r < height; ++r) {
        const vf top = vset(fresh[r]);
        vf sum = vzero(), moment = vzero();
        float* const row = s + r * lds;
        i64 j = 0;
        auto weigh = [&](i64 at) {
            vf y = vsub(vload(row + at), top);
            const vf p = exp2_of<P::DEGREE>(y, c, floor);
            sum = vadd(sum, p);
            if (HEALTH) moment = vfma(p, y, moment);
            return p;
        };
#ifdef LIMELIGHT_BF16_DOT
        if (P::PER == 2) {
            for (; j + 2 * W <= columns; j += 2 * W) {
                const vf p0 = weigh(j), p1 = weigh(j + W);
                pstore(pairs + r * ldp + j / 2, p0, p1);
            }
            if (j < columns) pstore(pairs + r * ldp + j / 2, weigh(j), vzero());
        } else
#endif
            for (; j < columns; j += W) vstore(row + j, weigh(j));
        const float a = factor[r];
        if (HEALTH) e[r] = a * (e[r] + drop[r] * l[r]) + vhsum(moment);
        l[r] = a * l[r] + vhsum(sum);
        alpha[r] = a;
    }
}

struct Finished {
    float weight;  // output = weight * (sum of p * v)
    float logsumexp, max_logit, entropy;
};

// A row's numbers once every key has passed. `sink` is one more outcome, -inf for none.
INLINE Finished finish(float m, float l, float e, float unit, float sink) {
    Finished row;
    m *= unit;
    e *= unit;
    row.max_logit = l != l && m < inf ? l : m;
    if (sink > -inf) {
        const float top = m > sink ? m : sink;
        const float a = std::exp(m - top), y = sink - top, p = std::exp(y);
        e = m == -inf ? 0.0f : a * (e + (m - top) * l);
        if (p > 0.0f) e += p * y;
        const float total = a * l + p;
        const float log = std::log(total);
        row.weight = l == 0.0f ? 0.0f : a / total;
        row.logsumexp = top + log;
        row.entropy = log - e / total;
    } else if (l == 0.0f) {
        return Finished{0.0f, -inf, -inf, 0.0f};
    } else {
        const float log = std::log(l);
        row.weight = 1.0f / l;
        row.logsumexp = m + log;
        row.entropy = log - e / l;
    }
    if (row.entropy < 0.0f) row.entropy = 0.0f;
    return row;
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
