// The gradient of a bias: ds summed over the axes along which the bias was broadcast.
//
// A pass of its own that rebuilds ds (two products a tile), so that every number of the result has
// one owner and one order of summation, whatever the bias's shape. An item owns a stretch of the
// bias's rows, or, where all queries share one row, a stretch of its keys, and goes over all batch
// entries, heads and rows that read it.
//
// A bias that is the same for all keys of a row needs no pass. To add to all its logits, the sink's
// too, moves the logsumexp alone: the sum of ds over a row's keys is that gradient less the sink's ds.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

struct BiasGradient {
    const Call& call;
    const Backward& out;
    const Logits& logits;
    const RowGradients& known;
    i64 stretches;  // of rows or of keys
    bool by_rows;
};

struct BiasSpace : SlopeSpace {
    float *k, *v;
    double* sums;  // of each key, where all queries share them
    BiasSpace(Carver& carve, i64 d, i64 dv) : SlopeSpace(carve, d, dv) {
        k = carve.take<float>(static_cast<std::size_t>(GRAD_KEYS * d));
        v = carve.take<float>(static_cast<std::size_t>(GRAD_KEYS * dv));
        sums = carve.take<double>(GRAD_KEYS);
    }
};

static void bias_item(void* context, i64 item, char* scratch) {
    const auto& f = *static_cast<const BiasGradient*>(context);
    const Call& call = f.call;
    const i64* const shape = f.out.bias_shape;
    Carver carve(scratch);
    const BiasSpace x(carve, call.size(), call.value_size());
    const i64 stretch = item % f.stretches, bh = item / f.stretches;
    const i64 bias_head = bh % shape[1], bias_batch = bh / shape[1];
    const i64 b0 = shape[0] == 1 ? 0 : bias_batch, b1 = shape[0] == 1 ? call.batch() : b0 + 1;
    const i64 h0 = shape[1] == 1 ? 0 : bias_head, h1 = shape[1] == 1 ? call.query_heads() : h0 + 1;
    const i64 queries = call.queries(), keys = call.keys();
    const i64 i0 = f.by_rows ? stretch * GRAD_ROWS : 0;
    const i64 i1 = f.by_rows ? least(queries, i0 + GRAD_ROWS) : queries;
    const i64 j0 = f.by_rows ? 0 : stretch * GRAD_KEYS;
    const i64 j1 = f.by_rows ? keys : least(keys, j0 + GRAD_KEYS);
    float* const to = f.out.dbias + bh * shape[2] * keys;
    if (f.by_rows) fill(to, i0 * keys, i1 * keys, 0.0f);
    for (i64 i = 0; i < GRAD_KEYS; ++i) x.sums[i] = 0.0;
    for (i64 b = b0; b < b1; ++b)
        for (i64 h = h0; h < h1; ++h) {
            const i64 key_head = h / call.group();
            const Rows k = rows_of(call.k, b, key_head), v = rows_of(call.v, b, key_head);
            for (i64 i = i0; i < i1; i += GRAD_ROWS) {
                const i64 count = least(GRAD_ROWS, i1 - i);
                begin_slopes(call, f.logits, f.out.grad_output, f.known, b, key_head,
                             h % call.group() * queries + i, count, x);
                for (i64 k0 = j0; k0 < j1 && !given_up(); k0 += GRAD_KEYS) {
                    const i64 k1 = least(j1, k0 + GRAD_KEYS);
                    pack_row_panels(k, k0, k1, call.size(), x.k, x.spare);
                    pack_row_panels(v, k0, k1, call.value_size(), x.v, x.spare);
                    for (i64 t = 0; t < count; t += MR) {
                        const Range range =
                            slope_tile<false>(call, f.logits, t, count, k0, k1, x.k, x.v, x);
                        const i64 end = least(range.to, k1 - k0);
                        for (i64 r = t; r < least(count, t + MR); ++r)
                            for (i64 j = range.from; j < end; ++j) {
                                const float ds = x.ds[r * GRAD_KEYS + j];
                                if (f.by_rows) to[(i + r) * keys + k0 + j] += ds;
                                else x.sums[j] += static_cast<double>(ds);
                            }
                    }
                }
            }
        }
    if (!f.by_rows)
        for (i64 j = j0; j < j1; ++j) to[j] = static_cast<float>(x.sums[j - j0]);
}

// The share that a row's sink takes.
INLINE float sink_share(const Call& call, const RowGradients& known, i64 head, i64 at) {
    const float sink = sink_of(call, head);
    if (sink == -inf) return 0.0f;
    return std::exp(std::fmin(0.0f, sink - known.base[at])) * (known.share ? known.share[at] : 1.0f);
}

// The gradient of a row's sink, whose value is 0: p * (0 - delta), and its part of the entropy.
INLINE float sink_slope(const Call& call, const RowGradients& known, i64 head, i64 at) {
    const float share = sink_share(call, known, head, at);
    if (share == 0.0f) return 0.0f;
    float slope = known.delta[at];
    if (known.turn) slope += known.turn[at] * std::fmin(0.0f, sink_of(call, head) - known.base[at]);
    return -share * slope;
}

// One number a row, or fewer.
static void row_bias_gradient(const Call& call, const Backward& out, const RowGradients& known) {
    const i64* const shape = out.bias_shape;
    const i64 batches = call.batch(), heads = call.query_heads(), queries = call.queries();
    const i64 per_batch = shape[0] == 1 ? batches : 1, per_head = shape[1] == 1 ? heads : 1;
    const i64 per_row = shape[2] == 1 ? queries : 1;
    for (i64 cell = 0; cell < shape[0] * shape[1] * shape[2]; ++cell) {
        const i64 b = cell / (shape[1] * shape[2]), h = cell / shape[2] % shape[1], i = cell % shape[2];
        double sum = 0.0;
        for (i64 bb = b; bb < b + per_batch; ++bb)
            for (i64 hh = h; hh < h + per_head; ++hh)
                for (i64 ii = i; ii < i + per_row; ++ii) {
                    const i64 at = (bb * heads + hh) * queries + ii;
                    sum -= static_cast<double>(sink_slope(call, known, hh, at));
                    if (out.grad_logsumexp && known.base[at] != -inf)
                        sum += static_cast<double>(out.grad_logsumexp[at]);
                }
        out.dbias[cell] = static_cast<float>(sum);
    }
}

static void bias_gradient(const Call& call, const Backward& out, const Logits& logits,
                          const RowGradients& known, int threads) {
    const i64* const shape = out.bias_shape;
    if (shape[3] == 1) return row_bias_gradient(call, out, known);
    const bool by_rows = shape[2] != 1;
    const i64 stretches = by_rows ? (shape[2] + GRAD_ROWS - 1) / GRAD_ROWS
                                  : (shape[3] + GRAD_KEYS - 1) / GRAD_KEYS;
    BiasGradient f{call, out, logits, known, stretches, by_rows};
    Carver space(nullptr);
    const BiasSpace x(space, call.size(), call.value_size());
    parallel(shape[0] * shape[1] * stretches, space.used(), threads, &f, bias_item);
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
