// Decoding: a few rows against many keys, which are read where they lie, each once.
//
// The time is that of reading the cache; so nothing is packed, dot products run along the key, and
// all rows that share a key head take their part while a block of keys is in the second-level cache.
// Software prefetch was tried by the probe and lost up to 15 %.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

// Whether the rows are few, and keys and values can be read in whole vectors.
INLINE bool decodes(const Call& call) {
    const i64 size = item_size(call.q.dtype);
    return call.group() * call.queries() <= DIRECT_ROWS && call.size() % W == 0 && call.value_size() % W == 0 && call.k.stride[3] == size &&
           call.v.stride[3] == size;
}

template <Dtype T>
INLINE vf load_as(const char* p) {
    if (T == Dtype::bf16) return vload_bf16(p);
    if (T == Dtype::f16) return vload_f16(p);
    return vload(reinterpret_cast<const float*>(p));
}
template <Dtype T>
constexpr i64 bytes_of = T == Dtype::f32 ? 4 : 2;

// sum[r] = q[r] . k, lane by lane.
template <Dtype T, int R>
INLINE void dot(const float* q, i64 ldq, i64 d, const char* k, vf (&sum)[R]) {
    for (int r = 0; r < R; ++r) sum[r] = vzero();
    for (i64 c = 0; c < d; c += W) {
        const vf a = load_as<T>(k + c * bytes_of<T>);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sum[r] = vfma(vload(q + r * ldq + c), a, sum[r]);
    }
}

// s[r][0 .. n) = q[r] . k[j] for R rows. Keys are read from end to end, one after the other: four
// side by side save some loads of q and read float32 from memory at two thirds of the speed.
template <Dtype T, int R>
static void dots(const float* q, i64 ldq, i64 d, const Rows& keys, i64 from, i64 n, float* s,
                 i64 lds) {
    i64 j = 0;
    for (; j + 4 <= n; j += 4) {
        vf a[R], b[R], c[R], e[R];
        dot<T>(q, ldq, d, keys.at(from + j), a);
        dot<T>(q, ldq, d, keys.at(from + j + 1), b);
        dot<T>(q, ldq, d, keys.at(from + j + 2), c);
        dot<T>(q, ldq, d, keys.at(from + j + 3), e);
        for (int r = 0; r < R; ++r) vhsum4(a[r], b[r], c[r], e[r], s + r * lds + j);
    }
    for (; j < n; ++j) {
        vf a[R];
        dot<T>(q, ldq, d, keys.at(from + j), a);
        for (int r = 0; r < R; ++r) s[r * lds + j] = vhsum(a[r]);
    }
}

// t[r][0 .. C*W) += sum over j of p[r][j] * v[j]
template <Dtype T, int R, int C>
static void gather(const float* p, i64 ldp, const Rows& values, i64 from, i64 n, i64 column,
                   float* t, i64 ldt) {
    vf acc[R][C];
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) acc[r][c] = vload(t + r * ldt + column + c * W);
    for (i64 j = 0; j < n; ++j) {
        const char* const v = values.at(from + j) + column * bytes_of<T>;
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
            const vf a = load_as<T>(v + c * W * bytes_of<T>);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) acc[r][c] = vfma(vset(p[r * ldp + j]), a, acc[r][c]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) vstore(t + r * ldt + column + c * W, acc[r][c]);
}

template <Dtype T, int R>
static void gather_rows(const float* p, i64 ldp, const Rows& values, i64 from, i64 n, i64 columns,
                        float* t) {
    constexpr int WIDE = R == 4 ? 4 : 8;
    constexpr i64 STEP = 64;  // keys whose values stay near while the columns are gone through
    for (i64 j = 0; j < n; j += STEP) {
        const i64 some = least(STEP, n - j);
        i64 c = 0;
        for (; c + WIDE * W <= columns; c += WIDE * W)
            gather<T, R, WIDE>(p + j, ldp, values, from + j, some, c, t, columns);
        for (; c + 2 * W <= columns; c += 2 * W)
            gather<T, R, 2>(p + j, ldp, values, from + j, some, c, t, columns);
        for (; c < columns; c += W)
            gather<T, R, 1>(p + j, ldp, values, from + j, some, c, t, columns);
    }
}

struct DecodeSpace {
    Row* rows;
    float *own_q, *o, *t, *s, *spare, *m, *l, *e, *alpha;

    DecodeSpace(Carver& carve, const Sizes& z) {
        const std::size_t n = DIRECT_ROWS;
        rows = carve.take<Row>(n);
        own_q = carve.take<float>(n * static_cast<std::size_t>(z.d));
        o = carve.take<float>(n * static_cast<std::size_t>(z.columns));
        t = carve.take<float>(n * static_cast<std::size_t>(z.columns));
        s = carve.take<float>(n * static_cast<std::size_t>(z.kb));
        spare = carve.take<float>(static_cast<std::size_t>(z.spare));
        m = carve.take<float>(4 * GROUP);
        l = m + GROUP;
        e = l + GROUP;
        alpha = e + GROUP;
    }
};

// The sum over allowed cells only, for a block in which 0 * NaN spoilt the quick one; the others are
// summed in the same order as there, to the same bits.
template <Dtype T>
static void gather_carefully(const Call& call, const Row& row, const Rows& values, i64 from, i64 n,
                             const float* p, float* t) {
    fill(t, 0, call.value_size(), 0.0f);
    for (i64 j = 0; j < n; ++j) {
        if (!allows(call, row, from + j)) continue;
        const char* const v = values.at(from + j);
        for (i64 c = 0; c < call.value_size(); c += W)
            vstore(t + c, vfma(vset(p[j]), load_as<T>(v + c * bytes_of<T>), vload(t + c)));
    }
}

template <Dtype T>
static void decode_keys(const Call& call, const Result& out, const Logits& logits, const Sizes& z,
                        i64 batch, i64 key_head, i64 from, i64 to, const float* q, i64 ldq,
                        const DecodeSpace& x) {
    const Rows keys = rows_of(call.k, batch, key_head, call.pages);
    const Rows values = rows_of(call.v, batch, key_head, call.pages);
    const i64 rows = z.rows, d = z.d;
    bool first = true;  // nothing in `o` yet: the first block goes straight there
    for (i64 k0 = from; k0 < to && !given_up(); k0 += z.kb) {
        const Range range = range_of(call, x.rows, rows, k0, least(to, k0 + z.kb));
        const i64 n = range.to - range.from;
        if (n <= 0) continue;
        const i64 columns = round_up(n, W);
        i64 r = 0;
        for (; r + 4 <= rows && W == 16; r += 4)
            dots<T, 4>(q + r * ldq, ldq, d, keys, range.from, n, x.s + r * z.kb, z.kb);
        for (; r + 2 <= rows; r += 2)
            dots<T, 2>(q + r * ldq, ldq, d, keys, range.from, n, x.s + r * z.kb, z.kb);
        for (; r < rows; ++r)
            dots<T, 1>(q + r * ldq, ldq, d, keys, range.from, n, x.s + r * z.kb, z.kb);
        for (r = 0; r < rows; ++r) fill(x.s + r * z.kb, n, columns, 0.0f);
        mend_tile(call, x.rows, rows, logits.sign, range.from, columns, x.s, z.kb);
        for (r = 0; r < rows; ++r) {
            float* const s = x.s + r * z.kb;
            if (logits.written)
                to_logits<false>(call, logits, x.rows[r], range.from, columns, s, nullptr, x.spare);
            fill(s, n, columns, -inf);
            if (range.partial) blot(call, x.rows[r], range.from, range.to, s, -inf);
        }
        alignas(64) float top[GROUP];
        tops(static_cast<int>(rows), columns, x.s, z.kb, top);
        if (out.entropy)
            softmax_tile<Single, true>(static_cast<int>(rows), columns, x.s, z.kb, nullptr, 0,
                                       logits, top, x.m, x.l, x.e, x.alpha);
        else
            softmax_tile<Single, false>(static_cast<int>(rows), columns, x.s, z.kb, nullptr, 0,
                                        logits, top, x.m, x.l, x.e, x.alpha);
        if (!z.dv) continue;
        if (call.dropout.on) drop_rows(call, x.rows, rows, range.from, columns, x.s, z.kb);
        float* const sums = first ? x.o : x.t;
        fill(sums, 0, rows * z.columns, 0.0f);
        r = 0;
        for (; r + 4 <= rows && W == 16; r += 4)
            gather_rows<T, 4>(x.s + r * z.kb, z.kb, values, range.from, n, z.columns, sums + r * z.columns);
        for (; r + 2 <= rows && W == 16; r += 2)
            gather_rows<T, 2>(x.s + r * z.kb, z.kb, values, range.from, n, z.columns, sums + r * z.columns);
        for (; r < rows; ++r)
            gather_rows<T, 1>(x.s + r * z.kb, z.kb, values, range.from, n, z.columns, sums + r * z.columns);
        for (r = 0; r < rows; ++r) {
            float *const t = sums + r * z.columns, *const o = x.o + r * z.columns;
            if ((range.partial || logits.written) && !all_finite(t, z.columns, 1, z.columns))
                gather_carefully<T>(call, x.rows[r], values, range.from, n, x.s + r * z.kb, t);
            if (first) continue;
            const vf alpha = vset(x.alpha[r]);
            for (i64 c = 0; c < z.columns; c += W)
                vstore(o + c, vfma(vload(o + c), alpha, vload(t + c)));
        }
        first = false;
    }
    if (first) fill(x.o, 0, rows * z.columns, 0.0f);
}

static void decode_item(void* context, i64 item, char* scratch) {
    const auto& f = *static_cast<const Forward<Single>*>(context);
    const Call& call = f.call;
    Carver carve(scratch);
    const DecodeSpace x(carve, f.z);
    const i64 head = item / f.chunks, chunk = item % f.chunks;
    const i64 batch = f.batch_of(head), key_head = f.key_head_of(head), rows = f.z.rows;
    read_rows(call, batch, key_head, 0, rows, x.rows);
    for (i64 r = 0; r < rows; ++r) {
        x.m[r] = -inf;
        x.l[r] = x.e[r] = 0.0f;
    }
    // Queries are read where they are, too, if they can be.
    const View& given = call.q;
    const float* q = reinterpret_cast<const float*>(given.at(batch, x.rows[0].head, x.rows[0].query));
    i64 ldq = (call.queries() == 1 ? given.stride[1] : given.stride[2]) / 4;
    if (given.dtype != Dtype::f32 || given.stride[3] != 4 || given.stride[1] % 4 ||
        given.stride[2] % 4 || f.logits.sign < 0.0f || (call.queries() > 1 && call.group() > 1)) {
        q = x.own_q;
        ldq = f.z.d;
        for (i64 r = 0; r < rows; ++r)
            pack_row(given.at(batch, x.rows[r].head, x.rows[r].query), given.stride[3], given.dtype,
                     f.z.d, f.logits.sign, x.own_q + r * f.z.d);
    }
    const i64 from = chunk * CHUNK, to = least(call.keys(), from + CHUNK);
    switch (call.q.dtype) {
        case Dtype::bf16:
            decode_keys<Dtype::bf16>(call, f.out, f.logits, f.z, batch, key_head, from, to, q, ldq, x);
            break;
        case Dtype::f16:
            decode_keys<Dtype::f16>(call, f.out, f.logits, f.z, batch, key_head, from, to, q, ldq, x);
            break;
        default:
            decode_keys<Dtype::f32>(call, f.out, f.logits, f.z, batch, key_head, from, to, q, ldq, x);
    }
    if (f.chunks == 1) {
        for (i64 r = 0; r < rows; ++r)
            write_row(call, f.out, f.logits, batch, x.rows[r].head, x.rows[r].query, x.m[r], x.l[r],
                      x.e[r], x.o + r * f.z.columns);
        return;
    }
    for (i64 r = 0; r < rows; ++r)
        f.save(head, chunk, r, x.m[r], x.l[r], x.e[r], x.o + r * f.z.columns);
    f.chunk_done(head, x.o);
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
