// A block of rows against packed keys and values: the loop that all forward passes share.
//
// For each block of keys, for each tile of MR rows: scores, logits, mask, softmax, mix. The tile's
// scores stay in the first-level cache, the block's keys and values in the second.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

// Sizes that follow from the call alone, so that results do not depend on the number of threads.
struct Sizes {
    i64 d, dv;          // numbers in a key, in a value
    i64 depth;          // elements in a packed key
    i64 columns;        // dv rounded up to vectors
    i64 panels;         // panels of columns
    i64 kb, bq;         // keys in a block, rows in a block
    i64 rows;           // stacked rows of one key head
    i64 spare;          // floats that packing needs

    INLINE Sizes of(const Call& call, int per) {
        Sizes s;
        s.d = call.size();
        s.dv = call.value_size();
        s.depth = (s.d + per - 1) / per;
        s.columns = round_up(s.dv, W);
        s.panels = (s.columns + PANEL - 1) / PANEL;
        // 256 KB of keys and values at most, to leave room in a second-level cache of 1 MB.
        const i64 room = per * (i64{1} << 16) / most(1, s.d + s.dv) / PANEL * PANEL;
        s.kb = most(2 * PANEL, least(384, room));
        s.bq = 8 * MR;
        s.rows = call.group() * call.queries();
        s.spare = W * round_up(most(s.d, s.dv) + 1, 2 * W) + round_up(s.kb, W);
        return s;
    }
    i64 key_elements(i64 keys) const { return round_up(keys, PANEL) * depth; }
    i64 value_stride(i64 keys, int per) const { return round_up(keys, PANEL) / per * PANEL; }
};

template <class P>
struct Packed {  // keys [origin, ...) of one head
    const typename P::Element *k, *v;
    i64 v_stride;  // elements between panels of value columns
    i64 origin;
};

template <class P>
struct Space {  // one thread's memory for a block of rows
    Row* rows;
    float *m, *l, *e, *alpha;
    typename P::Element* q;
    float *o, *s, *t, *spare;
    pair* p;
    typename P::Element* clean;  // a block's values without NaN, touched only where there are some

    Space(Carver& carve, const Sizes& z) {
        rows = carve.take<Row>(static_cast<std::size_t>(z.bq));
        m = carve.take<float>(static_cast<std::size_t>(z.bq + GROUP));
        l = carve.take<float>(static_cast<std::size_t>(z.bq + GROUP));
        e = carve.take<float>(static_cast<std::size_t>(z.bq + GROUP));
        alpha = carve.take<float>(GROUP);
        q = carve.take<typename P::Element>(static_cast<std::size_t>(z.bq * z.depth));
        o = carve.take<float>(static_cast<std::size_t>(z.bq * z.columns));
        s = carve.take<float>(static_cast<std::size_t>(MR * z.kb));
        t = carve.take<float>(static_cast<std::size_t>(MR * z.columns));
        spare = carve.take<float>(static_cast<std::size_t>(z.spare));
        clean = carve.take<typename P::Element>(
            static_cast<std::size_t>(z.panels * z.kb / P::PER * PANEL));
        p = carve.take<pair>(P::PER == 2 ? static_cast<std::size_t>(MR * z.kb / 2) : 0);
    }
};

// Reads rows [first, first + count) of a head's stacked rows: masks, queries, empty sums.
template <class P>
static void begin_rows(const Call& call, const Logits& logits, const Sizes& z, i64 batch,
                       i64 key_head, i64 first, i64 count, const Space<P>& x) {
    read_rows(call, batch, key_head, first, count, x.rows);
    for (i64 r = 0; r < round_up(count, MR); ++r) {
        x.m[r] = -inf;
        x.l[r] = x.e[r] = 0.0f;
    }
    for (i64 i = 0; i < round_up(count, MR) * z.columns; ++i) x.o[i] = 0.0f;
    for (i64 r = 0; r < round_up(count, MR); ++r) {
        const Row& row = x.rows[r];
        const char* const from = r < count ? call.q.at(batch, row.head, row.query) : nullptr;
        pack_tile_row(from, call.q.stride[3], call.q.dtype, z.d, logits.sign, z.depth,
                      tile_row(x.q, z.depth, r), reinterpret_cast<typename P::Element*>(x.spare));
    }
}

INLINE float weight_at(const Single*, const float* s, const pair*, i64 lds, i64 r, i64 j) {
    return s[r * lds + j];
}
INLINE float value_at(const float* v, i64 stride, i64 j, i64 c) {
    return v[c / PANEL * stride + j * PANEL + c % PANEL];
}
#ifdef LIMELIGHT_BF16_DOT
INLINE float weight_at(const Pairs*, const float*, const pair* p, i64 lds, i64 r, i64 j) {
    const pair both = p[(r * lds + j) / 2];
    return from_bits(j % 2 ? both & 0xffff0000u : both << 16);
}
INLINE float value_at(const pair* v, i64 stride, i64 j, i64 c) {
    const pair both = v[c / PANEL * stride + j / 2 * PANEL + c % PANEL];
    return from_bits(j % 2 ? both & 0xffff0000u : both << 16);
}
#endif

// Whether all of s[rows][lds] is finite, by its sum: where that of finite numbers passes the range,
// they are doubted for nothing. columns a multiple of W.
INLINE bool all_finite(const float* s, i64 lds, i64 rows, i64 columns) {
    vf sum = vzero(), more = vzero();
    for (i64 r = 0; r < rows; ++r) {
        const float* const row = s + r * lds;
        i64 j = 0;
        for (; j + W < columns; j += 2 * W) {
            sum = vadd(sum, vload(row + j));
            more = vadd(more, vload(row + j + W));
        }
        if (j < columns) sum = vadd(sum, vload(row + j));
    }
    return vfinite(vadd(sum, more));
}

// A sum that passes a float's range on its way goes on from that infinity, whatever its sign. Scores
// of one row that are infinite, or no number, though query and key are finite, are summed in double.
static void sum_again(const Call& call, const Row& row, float sign, i64 from, i64 n, float* s) {
    const Rows keys = rows_of(call.k, row.batch, row.head / call.group(), call.pages);
    const char* const q = call.q.at(row.batch, row.head, row.query);
    for (i64 j = 0; j < least(n, call.keys() - from); ++j) {
        if (s[j] - s[j] == 0.0f) continue;
        const char* const k = keys.at(from + j);
        double sum = 0.0, lost = 0.0;
        for (i64 c = 0; c < call.size(); ++c) {
            const double a = static_cast<double>(load_any(q + c * call.q.stride[3], call.q.dtype));
            const double b = static_cast<double>(load_any(k + c * keys.step, keys.dtype));
            sum += a * b;
            lost += 0.0 * a + 0.0 * b;
        }
        if (lost == 0.0) s[j] = sign * static_cast<float>(sum);
    }
}

// Of the rows of a tile; columns a multiple of W.
static void mend_rows(const Call& call, const Row* rows, i64 count, float sign, i64 from,
                      i64 columns, float* s, i64 lds) {
    for (i64 r = 0; r < count; ++r) sum_again(call, rows[r], sign, from, columns, s + r * lds);
}

// The same where they need it. To ask row by row cost 2 to 4 % of a forward, 15 % of a tiny one.
INLINE void mend_tile(const Call& call, const Row* rows, i64 count, float sign, i64 from,
                      i64 columns, float* s, i64 lds) {
    if (!all_finite(s, lds, count, columns))
        mend_rows(call, rows, count, sign, from, columns, s, lds);
}

INLINE float cleaned(float x) { return x - x == 0.0f ? x : 0.0f; }
INLINE pair cleaned(pair x) {
    const pair low = x & 0xffffu, high = x & 0xffff0000u;
    return ((low & 0x7f80u) == 0x7f80u ? 0u : low) | ((high & 0x7f800000u) == 0x7f800000u ? 0u : high);
}

// 0 * NaN is NaN: where a value that is not finite has spoilt a tile with masked cells, it is mixed
// again with zeros for such values, and they are added where they are allowed. Rows that do not see
// them get the bits that they would have had.
template <class P>
static void mix_carefully(const Call& call, const Sizes& z, const Row* rows, int height, i64 count,
                          i64 from, i64 columns, const Packed<P>& packed, const Space<P>& x,
                          const typename P::Element* w, const float* ones) {
    const i64 depth = columns / P::PER, stride = z.kb / P::PER * PANEL;
    const i64 offset = (from - packed.origin) / P::PER * PANEL;
    for (i64 panel = 0; panel < z.panels; ++panel)
        for (i64 i = 0; i < depth * PANEL; ++i)
            x.clean[panel * stride + i] = cleaned(packed.v[panel * packed.v_stride + offset + i]);
    fill(x.t, 0, height * z.columns, 0.0f);
    mix_tile<P>(height, w, z.kb / P::PER, x.clean, stride, depth, z.columns, x.t, z.columns, ones);
    for (i64 j = 0; j < least(columns, call.keys() - from); ++j)
        for (i64 c = 0; c < z.dv; ++c) {
            const float v = value_at(packed.v, packed.v_stride, from + j - packed.origin, c);
            if (v - v == 0.0f) continue;
            for (i64 r = 0; r < count; ++r)
                if (allows(call, rows[r], from + j))
                    x.t[r * z.columns + c] +=
                        v * weight_at(static_cast<const P*>(nullptr), x.s, x.p, z.kb, r, j);
        }
}

// All rows of the block against keys [from, to), which `packed` holds.
template <class P, bool HEALTH>
static void attend(const Call& call, const Logits& logits, const Sizes& z, i64 count, i64 from,
                   i64 to, const Packed<P>& packed, const Space<P>& x) {
    i64 lo = to, hi = from;
    for (i64 r = 0; r < count; ++r) {
        if (x.rows[r].lo >= x.rows[r].hi) continue;
        lo = least(lo, x.rows[r].lo);
        hi = most(hi, x.rows[r].hi);
    }
    from += most(0, lo - from) / z.kb * z.kb;
    to = least(to, hi);
    alignas(64) float ones[MR], top[GROUP];
    for (float& one : ones) one = 1.0f;
    for (i64 k0 = from; k0 < to && !given_up(); k0 += z.kb) {
        const i64 k1 = least(to, k0 + z.kb);
        for (i64 t = 0; t < count; t += MR) {
            const int height = height_of(count - t);
            const i64 n = least(height, count - t);
            Range range = range_of(call, x.rows + t, n, k0, k1);
            if (range.from >= range.to) continue;
            // Whole panels are computed; what they add at the edges is blotted out.
            const i64 a = k0 + (range.from - k0) / PANEL * PANEL;
            const i64 columns = round_up(range.to - a, W);
            const bool partial = range.partial || a < range.from || a + columns > range.to;
            score_tile<P>(height, x.q + t * z.depth, packed.k + (a - packed.origin) * z.depth,
                          z.depth, columns, x.s, z.kb);
            const bool plain = !partial && !logits.written;  // tops() sees the scores
            if (!plain) mend_tile(call, x.rows + t, n, logits.sign, a, columns, x.s, z.kb);
            if (logits.written)
                for (i64 r = 0; r < n; ++r)
                    to_logits<false>(call, logits, x.rows[t + r], a, columns, x.s + r * z.kb,
                                     nullptr, x.spare);
            if (partial)
                for (i64 r = 0; r < n; ++r)
                    blot(call, x.rows[t + r], a, a + columns, x.s + r * z.kb, -inf);
            if (!tops(height, columns, x.s, z.kb, top) && plain) {
                mend_rows(call, x.rows + t, n, logits.sign, a, columns, x.s, z.kb);
                tops(height, columns, x.s, z.kb, top);
            }
            softmax_tile<P, HEALTH>(height, columns, x.s, z.kb, x.p, z.kb / 2, logits, top, x.m + t,
                                    x.l + t, x.e + t, x.alpha);
            if (!z.dv) continue;
            const typename P::Element* const v =
                packed.v + (a - packed.origin) / P::PER * PANEL;
            auto* const w = reinterpret_cast<typename P::Element*>(
                P::PER == 2 ? static_cast<void*>(x.p) : static_cast<void*>(x.s));
            const i64 ldw = z.kb / P::PER, depth = (columns + P::PER - 1) / P::PER;
            if (call.dropout.on) drop_rows(call, x.rows + t, n, a, columns, w, ldw);
            float* const o = x.o + t * z.columns;
            if (plain) {
                mix_tile<P>(height, w, ldw, v, packed.v_stride, depth, z.columns, o, z.columns,
                            x.alpha);
                continue;
            }
            fill(x.t, 0, height * z.columns, 0.0f);
            mix_tile<P>(height, w, ldw, v, packed.v_stride, depth, z.columns, x.t, z.columns, ones);
            if (!all_finite(x.t, z.columns, n, z.columns))
                mix_carefully<P>(call, z, x.rows + t, height, n, a, columns, packed, x, w, ones);
            for (i64 r = 0; r < n; ++r) {
                const vf alpha = vset(x.alpha[r]);
                for (i64 c = 0; c < z.columns; c += W) {
                    float* const at = o + r * z.columns + c;
                    vstore(at, vfma(vload(at), alpha, vload(x.t + r * z.columns + c)));
                }
            }
        }
    }
}

INLINE float sink_of(const Call& call, i64 head) {
    if (!call.sinks) return -inf;
    return load_any(call.sinks.data + head * call.sinks.stride[0], call.sinks.dtype);
}

// One finished row to the caller's arrays; `o` is overwritten.
static void write_row(const Call& call, const Result& out, const Logits& logits, i64 batch,
                      i64 head, i64 query, float m, float l, float e, float* o) {
    const float sink = sink_of(call, head);
    // Nothing summed: a row without keys, or one whose logits are all -inf though no mask says so,
    // which is no number unless a sink takes all.
    if (l == 0.0f && !(std::fabs(sink) < inf) && sees(call, row_of(call, batch, head, query)))
        l = std::numeric_limits<float>::quiet_NaN();
    const Finished row = finish(m, l, e, logits.unit, sink);
    const i64 at = (batch * call.query_heads() + head) * call.queries() + query;
    if (out.logsumexp) out.logsumexp[at] = row.logsumexp;
    if (out.entropy) {
        out.max_logit[at] = row.max_logit;
        out.entropy[at] = row.entropy;
    }
    if (out.total) {
        out.top[at] = row.top;
        out.total[at] = row.total;
    }
    const i64 dv = call.value_size();
    char* const to =
        out.output + batch * out.stride[0] + head * out.stride[1] + query * out.stride[2];
    const vf weight = vset(row.weight * call.dropout.scale);
    const bool direct = call.q.dtype == Dtype::f32 && dv % W == 0;
    float* const scaled = direct ? reinterpret_cast<float*>(to) : o;
    for (i64 c = 0; c < dv; c += W) vstore(scaled + c, vmul(vload(o + c), weight));
    if (!direct) store_row(o, call.q.dtype, dv, to);
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
