// The forward pass: which of three ways, and the work cut into items.
//
//   few rows, rows contiguous    decode.h: keys and values are read where they are
//   up to one block of rows      each item packs a chunk of keys for itself and leaves a partial
//                                state; the states of a row are merged in order
//   more                         each head is packed once, in items of its own, and blocks of rows
//                                follow; a head's items wait for its packing, which came before
//                                them, and a slot is packed anew when its last reader is done
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

// ---- one block of rows: every item packs its own chunk ---------------------------------------

template <class P>
static std::size_t split_space(const Forward<P>& f, char* base, Space<P>* space,
                               typename P::Element** own) {
    Carver carve(base);
    Space<P> x(carve, f.z);
    typename P::Element* const memory = carve.take<typename P::Element>(
        static_cast<std::size_t>(f.elements(least(CHUNK, f.call.keys()))));
    if (space) *space = x;
    if (own) *own = memory;
    return carve.used();
}

template <class P>
static void split_item(void* context, i64 item, char* scratch) {
    const auto& f = *static_cast<const Forward<P>*>(context);
    Carver none(nullptr);
    Space<P> x(none, f.z);
    typename P::Element* k;
    split_space<P>(f, scratch, &x, &k);
    const i64 head = item / f.chunks, chunk = item % f.chunks;
    const i64 from = chunk * CHUNK, to = least(f.call.keys(), from + CHUNK);
    typename P::Element* const v = k + f.z.key_elements(to - from);
    const i64 stride = f.v_stride(to - from);
    f.pack(head, from, to, k, v, stride, x.spare);
    f.block(head, 0, f.z.rows, from, to, Packed<P>{k, v, stride, from}, x);
    if (f.chunks == 1) return f.write_rows(head, f.z.rows, x);
    for (i64 r = 0; r < f.z.rows; ++r)
        f.save(head, chunk, r, x.m[r], x.l[r], x.e[r], x.o + r * f.z.columns);
    f.chunk_done(head, x.o);
}

// ---- many rows: heads packed once -------------------------------------------------------------

constexpr i64 PACK_KEYS = 512;  // keys of one packing item

template <class P>
static void packed_item(void* context, i64 item, char* scratch) {
    const auto& f = *static_cast<const Forward<P>*>(context);
    Carver carve(scratch);
    const Space<P> x(carve, f.z);
    const Order order = order_of(item, f.heads, f.pack_items, f.row_items);
    if (order.head >= f.heads) return;
    const i64 head = order.head, step = order.step;
    typename P::Element* const k = f.packed + head % f.slots * f.slot_elements;
    typename P::Element* const v = k + f.z.key_elements(f.call.keys());
    const i64 stride = f.v_stride(f.call.keys());
    if (order.packing) {
        if (head >= f.slots && !wait_until(&f.done[head - f.slots], f.row_items)) return;
        const i64 from = step * PACK_KEYS, to = least(f.call.keys(), from + PACK_KEYS);
        f.pack(head, from, to, k + from * f.z.depth, v + from / P::PER * PANEL, stride, x.spare);
        f.ready[head].fetch_add(1, std::memory_order_release);
        return;
    }
    if (!wait_until(&f.ready[head], f.pack_items)) return;
    // The last rows of a head see most keys when it is causal: heavy items first.
    const i64 first = (f.row_items - 1 - step) * f.z.bq, count = least(f.z.bq, f.z.rows - first);
    f.block(head, first, count, 0, f.call.keys(), Packed<P>{k, v, stride, 0}, x);
    f.write_rows(head, count, x);
    f.done[head].fetch_add(1, std::memory_order_release);
}

template <class P>
static void run_forward(const Call& call, const Result& out, int threads) {
    Forward<P> f(call, out);
    if (f.heads == 0 || f.z.rows == 0) return;
    if (call.keys() == 0) f.chunks = 1;
    const double work = 4.0 * static_cast<double>(f.heads) * static_cast<double>(f.z.rows) *
                        static_cast<double>(call.keys()) * static_cast<double>(f.z.d + f.z.dv) / 2;
    if (work < 1e6) threads = 1;  // some 10 us: where cores are busy, a region can cost far more

    const bool direct = decodes(call);
    if (direct || f.z.rows <= f.z.bq) {
        const std::size_t states =
            f.chunks > 1 ? static_cast<std::size_t>(f.heads * f.chunks * f.z.rows * f.record()) : 0;
        Carver measure(nullptr);
        measure.take<float>(states);
        measure.take<std::atomic<i64>>(static_cast<std::size_t>(f.heads));
        const Block memory(f.chunks > 1 ? measure.used() : 0);
        if (f.chunks > 1) {
            Carver carve(memory.data());
            f.partial = carve.take<float>(states);
            f.done = carve.take<std::atomic<i64>>(static_cast<std::size_t>(f.heads));
            for (i64 h = 0; h < f.heads; ++h) new (&f.done[h]) std::atomic<i64>(0);
        }
        if (direct) {
            Carver space(nullptr);
            const DecodeSpace x(space, f.z);
            parallel(f.heads * f.chunks, space.used(), threads, &f, decode_item);
        } else {
            parallel(f.heads * f.chunks, split_space<P>(f, nullptr, nullptr, nullptr), threads, &f,
                     split_item<P>);
        }
        return;
    }
    f.pack_items = (call.keys() + PACK_KEYS - 1) / PACK_KEYS;
    f.row_items = (f.z.rows + f.z.bq - 1) / f.z.bq;
    f.slot_elements = f.elements(call.keys());
    const i64 slot_bytes = f.slot_elements * static_cast<i64>(sizeof(typename P::Element));
    f.slots = least(f.heads, slot_bytes > (i64{8} << 20) ? 2 : 4);
    Carver measure(nullptr);
    measure.take<char>(static_cast<std::size_t>(f.slots * slot_bytes));
    measure.take<std::atomic<i64>>(static_cast<std::size_t>(2 * f.heads));
    const Block memory(measure.used());
    Carver carve(memory.data());
    f.packed = reinterpret_cast<typename P::Element*>(
        carve.take<char>(static_cast<std::size_t>(f.slots * slot_bytes)));
    f.ready = carve.take<std::atomic<i64>>(static_cast<std::size_t>(2 * f.heads));
    f.done = f.ready + f.heads;
    for (i64 h = 0; h < 2 * f.heads; ++h) new (&f.ready[h]) std::atomic<i64>(0);
    Carver space(nullptr);
    const Space<P> x(space, f.z);
    parallel(order_items(f.heads, f.pack_items, f.row_items), space.used(), threads, &f,
             packed_item<P>);
}

INLINE void forward_any(const Call& call, const Result& out, int threads) {
#ifdef LIMELIGHT_BF16_DOT
    if (call.q.dtype == Dtype::bf16 && !decodes(call)) return run_forward<Pairs>(call, out, threads);
#endif
    run_forward<Single>(call, out, threads);
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
