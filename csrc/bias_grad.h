// The gradient of a bias: ds summed over the axes along which the bias was broadcast.
//
// A pass of its own that rebuilds ds (two products a tile), so that every number of the result has
// one owner and one order of summation, whatever the bias's shape. An item owns a stretch of the
// bias's rows, or, where all queries share one row, a stretch of its keys, and goes over all batch
// entries, heads and rows that read it.
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
    double* sums;  // [GRAD_ROWS] or [GRAD_KEYS]
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
    const bool wide = shape[3] != 1;  // a number for every key
    const i64 j1 = f.by_rows || !wide ? keys : least(keys, j0 + GRAD_KEYS);
    float* const to = f.out.dbias + bh * shape[2] * shape[3];
    if (f.by_rows && wide) fill(to, i0 * keys, i1 * keys, 0.0f);
    for (i64 i = 0; i < GRAD_KEYS; ++i) x.sums[i] = 0.0;
    for (i64 b = b0; b < b1; ++b)
        for (i64 h = h0; h < h1; ++h) {
            const i64 key_head = h / call.group();
            const Rows k = rows_of(call.k, b, key_head), v = rows_of(call.v, b, key_head);
            for (i64 i = i0; i < i1; i += GRAD_ROWS) {
                const i64 count = least(GRAD_ROWS, i1 - i);
                begin_slopes(call, f.logits, f.out.grad_output, f.known, b, key_head,
                             h % call.group() * queries + i, count, x);
                for (i64 k0 = j0; k0 < j1; k0 += GRAD_KEYS) {
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
                                if (f.by_rows && wide) to[(i + r) * keys + k0 + j] += ds;
                                else if (f.by_rows) x.sums[r] += static_cast<double>(ds);
                                else if (wide) x.sums[j] += static_cast<double>(ds);
                                else x.sums[0] += static_cast<double>(ds);
                            }
                    }
                }
            }
        }
    if (f.by_rows && wide) return;
    if (f.by_rows)
        for (i64 i = i0; i < i1; ++i) to[i] = static_cast<float>(x.sums[i - i0]);
    else if (wide)
        for (i64 j = j0; j < j1; ++j) to[j] = static_cast<float>(x.sums[j - j0]);
    else
        to[0] = static_cast<float>(x.sums[0]);
}

static void bias_gradient(const Call& call, const Backward& out, const Logits& logits,
                          const RowGradients& known, int threads) {
    const i64* const shape = out.bias_shape;
    BiasGradient f{call, out, logits, known, 1, shape[2] != 1};
    if (f.by_rows) f.stretches = (shape[2] + GRAD_ROWS - 1) / GRAD_ROWS;
    else if (shape[3] != 1) f.stretches = (shape[3] + GRAD_KEYS - 1) / GRAD_KEYS;
    Carver space(nullptr);
    const BiasSpace x(space, call.size(), call.value_size());
    parallel(shape[0] * shape[1] * f.stretches, space.used(), threads, &f, bias_item);
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
