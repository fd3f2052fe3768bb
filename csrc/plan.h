// What the passes of a forward have in common: the call, the cut into items, partial states.
//
// A state is (m, l, e, sum of p * v) over some of the keys; merging two is exact, and the merge of
// all chunks of a row runs in order. The cut depends on the call alone, never on the number of
// threads: same bits for any number.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

constexpr i64 CHUNK = 1024;      // keys of one partial state
constexpr i64 DIRECT_ROWS = 8;   // up to so many rows, packing would cost more than it saves

// Heads that are packed once and then read by many items. The order of the items is
//     P0 P1 R0 P2 R1 P3 R2 ...
// packing (P) runs one head ahead of the rows (R), and every item waits only for earlier ones: the
// rows for their head's packing, and the packing for the last reader of its slot, two heads back or
// more. There is no barrier, and no deadlock with any number of threads.
struct Order {
    i64 head, step;
    bool packing;
};
INLINE i64 order_items(i64 heads, i64 packs, i64 rows) { return packs + heads * (packs + rows); }
INLINE Order order_of(i64 item, i64 heads, i64 packs, i64 rows) {
    const i64 later = item - packs;
    if (later < 0) return Order{0, item, true};
    const i64 head = later / (packs + rows), step = later % (packs + rows);
    if (step >= packs) return Order{head, step - packs, false};
    return Order{head + 1 < heads ? head + 1 : heads, step, true};  // none after the last head
}

template <class P>
struct Forward {
    using Element = typename P::Element;
    const Call& call;
    const Result& out;
    const Logits logits;
    const Sizes z;
    i64 heads;    // batch * key heads
    i64 chunks;   // of keys
    // Partial states of the split passes: [head][chunk][row] of columns + 3 floats.
    float* partial = nullptr;
    std::atomic<i64>* done = nullptr;  // chunks finished, a head
    // The packed pass.
    i64 slots = 0, pack_items = 0, row_items = 0, slot_elements = 0;
    Element* packed = nullptr;
    std::atomic<i64>* ready = nullptr;  // pack items finished, a head

    Forward(const Call& c, const Result& r)
        : call(c), out(r), logits(Logits::of(c)), z(Sizes::of(c, P::PER)),
          heads(c.batch() * c.key_heads()), chunks((c.keys() + CHUNK - 1) / CHUNK) {}

    i64 record() const { return z.columns + W; }
    i64 batch_of(i64 head) const { return head / call.key_heads(); }
    i64 key_head_of(i64 head) const { return head % call.key_heads(); }
    i64 v_stride(i64 keys) const { return z.value_stride(keys, P::PER); }
    i64 elements(i64 keys) const { return z.key_elements(keys) + z.panels * v_stride(keys); }

    void save(i64 head, i64 chunk, i64 row, float m, float l, float e, const float* o) const {
        float* const to = partial + ((head * chunks + chunk) * z.rows + row) * record();
        to[0] = m;
        to[1] = l;
        to[2] = e;
        std::memcpy(to + W, o, static_cast<std::size_t>(4 * z.columns));
    }

    // The states of every chunk, merged in order; `o` has room for one row.
    void merge(i64 head, float* o) const {
        const i64 batch = batch_of(head), first = key_head_of(head) * call.group();
        for (i64 row = 0; row < z.rows; ++row) {
            float m = -inf, l = 0.0f, e = 0.0f;
            fill(o, 0, z.columns, 0.0f);
            for (i64 chunk = 0; chunk < chunks; ++chunk) {
                const float* const from = partial + ((head * chunks + chunk) * z.rows + row) * record();
                if (from[1] == 0.0f) {  // no weight but 0; beside a NaN or infinity that is no number
                    for (i64 c = 0; c < z.columns; c += W)
                        vstore(o + c, vadd(vload(o + c), vload(from + W + c)));
                    continue;
                }
                const float top = m > from[0] ? m : from[0];
                const float fresh = top == -inf ? 0.0f : top;
                const float d0 = m == -inf ? 0.0f : m - fresh, d1 = from[0] - fresh;
                const float a0 = l == 0.0f ? 0.0f : exp2_of(d0, logits.c);
                const float a1 = exp2_of(d1, logits.c);
                const float e1 = from[0] == -inf ? from[2] : from[2] + d1 * from[1];
                e = a0 * (e + d0 * l) + a1 * e1;
                l = a0 * l + a1 * from[1];
                m = top;
                const vf v0 = vset(a0), v1 = vset(a1);
                for (i64 c = 0; c < z.columns; c += W)
                    vstore(o + c, vfma(vload(o + c), v0, vmul(vload(from + W + c), v1)));
            }
            write_row(call, out, logits, batch, first + row / call.queries(), row % call.queries(),
                      m, l, e, o);
        }
    }

    // The last chunk of a head to finish merges them all.
    void chunk_done(i64 head, float* o) const {
        if (done[head].fetch_add(1, std::memory_order_acq_rel) + 1 == chunks) merge(head, o);
    }

    void pack(i64 head, i64 from, i64 to, Element* k, Element* v, i64 stride, float* spare) const {
        const i64 batch = batch_of(head), key_head = key_head_of(head);
        pack_row_panels(rows_of(call.k, batch, key_head, call.pages), from, to, z.d, k, spare);
        if (z.dv)
            pack_column_panels(rows_of(call.v, batch, key_head, call.pages), from, to,
                               from + round_up(to - from, PANEL), z.dv, v, stride, spare);
    }

    void block(i64 head, i64 first, i64 count, i64 from, i64 to, const Packed<P>& kv,
               const Space<P>& x) const {
        begin_rows<P>(call, logits, z, batch_of(head), key_head_of(head), first, count, x);
        if (out.entropy) attend<P, true>(call, logits, z, count, from, to, kv, x);
        else attend<P, false>(call, logits, z, count, from, to, kv, x);
    }

    void write_rows(i64 head, i64 count, const Space<P>& x) const {
        for (i64 r = 0; r < count; ++r)
            write_row(call, out, logits, batch_of(head), x.rows[r].head, x.rows[r].query, x.m[r],
                      x.l[r], x.e[r], x.o + r * z.columns);
    }
};

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
