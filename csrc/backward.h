// The backward pass for query, key and value: five products a tile, O(n) memory, no atomics on sums.
//
// Rows come in blocks; a block's dQ is complete when its keys have passed, dK and dV grow in a buffer
// of the head. So that one head can keep several cores busy its blocks of rows are dealt out to
// `parts` buffers, summed in order at the end. How many is fixed by the call: same bits for any
// number of threads. 16-bit types are computed in float32.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

struct Gradient {
    const Call& call;
    const Backward& out;
    const Logits logits;
    RowGradients known;
    i64 d, dv, dcols, vcols, dpanels;  // cols: rounded up to vectors
    i64 rows, keys, heads, blocks, parts;
    i64 slots, slot_floats, pack_items;
    float* memory = nullptr;
    std::atomic<i64>*ready = nullptr, *done = nullptr, *finished = nullptr;  // counters of each head

    Gradient(const Call& c, const Backward& b)
        : call(c), out(b), logits(Logits::of(c)), d(c.size()), dv(c.value_size()),
          dcols(round_up(d, W)), vcols(round_up(dv, W)), dpanels((dcols + PANEL - 1) / PANEL),
          rows(c.group() * c.queries()), keys(round_up(c.keys(), GRAD_KEYS)),
          heads(c.batch() * c.key_heads()), blocks((rows + GRAD_ROWS - 1) / GRAD_ROWS) {
        // Each part costs a buffer to clear and to add: it must have some blocks to do.
        parts = most(1, least(blocks / 6, 16 / most(1, heads)));
        pack_items = keys / GRAD_KEYS;
        slot_floats = keys * d + keys * dv + dpanels * keys * PANEL + parts * keys * (dcols + vcols);
        slots = least(heads, slot_floats > (i64{4} << 20) ? 2 : 4);
    }
    float* slot(i64 head) const { return memory + head % slots * slot_floats; }
    float* key_rows(i64 head) const { return slot(head); }
    float* value_rows(i64 head) const { return slot(head) + keys * d; }
    float* key_columns(i64 head) const { return value_rows(head) + keys * dv; }
    float* sums(i64 head, i64 part) const {  // dK [keys][dcols], then dV [keys][vcols]
        return key_columns(head) + dpanels * keys * PANEL + part * keys * (dcols + vcols);
    }
};

struct GradientSpace : SlopeSpace {
    float *qc, *gc, *dq;  // queries and gradients as panels of columns, [panel][row][PANEL]
    bool* bad;
    GradientSpace(Carver& carve, i64 d, i64 dv) : SlopeSpace(carve, d, dv) {
        qc = carve.take<float>(static_cast<std::size_t>(round_up(d, PANEL) * GRAD_ROWS));
        gc = carve.take<float>(static_cast<std::size_t>(round_up(dv, PANEL) * GRAD_ROWS));
        dq = carve.take<float>(static_cast<std::size_t>(round_up(d, W) * GRAD_ROWS));
        bad = carve.take<bool>(GRAD_ROWS);
    }
};

// o[keys][columns] += Aᵀ * B over rows [from, to), A = [rows][GRAD_KEYS].
static void add_transposed(const float* a, i64 from, i64 to, i64 width, const float* b, i64 columns,
                           float* o) {
    a += from * GRAD_KEYS;
    b += from * PANEL;
    for (i64 c = 0; c < columns; c += PANEL, b += GRAD_ROWS * PANEL) {
        for (i64 j = 0; j < width; j += MR) {
            if (c + W < columns)
                mix_transposed<MR, NV>(a + j, GRAD_KEYS, b, to - from, o + j * columns + c, columns);
            else
                mix_transposed<MR, 1>(a + j, GRAD_KEYS, b, to - from, o + j * columns + c, columns);
        }
    }
}

// Rows [0, count) of tiles as panels of columns, zeros for what is not finite; `bad` says which rows
// had it.
static void to_columns(const float* tiles, i64 count, i64 n, float* out, bool* bad, float* spare) {
    const i64 columns = round_up(n, W);
    fill(spare, 0, columns, 0.0f);
    for (i64 r = 0; r < count; ++r) {
        const float* const row = tile_row(tiles, n, r);
        for (i64 c = 0; c < n; ++c) spare[c] = row[c * MR];
        const bool fine = clean(spare, n);
        if (bad) bad[r] = !fine;
        for (i64 c = 0; c < columns; c += W)
            vstore(out + c / PANEL * GRAD_ROWS * PANEL + r * PANEL + c % PANEL, vload(spare + c));
    }
}

static void gradient_block(const Gradient& f, i64 head, i64 part, i64 block, const GradientSpace& x) {
    const Call& call = f.call;
    const i64 batch = head / call.key_heads(), key_head = head % call.key_heads();
    const i64 first = block * GRAD_ROWS, count = least(GRAD_ROWS, f.rows - first);
    begin_slopes(call, f.logits, f.out.grad_output, f.known, batch, key_head, first, count, x);
    to_columns(x.q, count, f.d, x.qc, nullptr, x.spare);
    to_columns(x.g, count, f.dv, x.gc, x.bad, x.spare);
    fill(x.dq, 0, GRAD_ROWS * f.dcols, 0.0f);
    alignas(64) float ones[MR];
    for (float& one : ones) one = 1.0f;
    float* const dk = f.sums(head, part);
    float* const dv = dk + f.keys * f.dcols;
    i64 lo = call.keys(), hi = 0;
    for (i64 r = 0; r < count; ++r) {
        if (x.rows[r].lo >= x.rows[r].hi) continue;
        lo = least(lo, x.rows[r].lo);
        hi = most(hi, x.rows[r].hi);
    }
    for (i64 k0 = lo / GRAD_KEYS * GRAD_KEYS; k0 < hi && !given_up(); k0 += GRAD_KEYS) {
        const i64 k1 = least(hi, k0 + GRAD_KEYS);
        i64 from = count, to = 0;  // the rows that see anything of this block
        for (i64 t = 0; t < count; t += MR) {
            const Range range = slope_tile<true>(call, f.logits, t, count, k0, k1,
                                                 f.key_rows(head) + k0 * f.d,
                                                 f.value_rows(head) + k0 * f.dv, x);
            if (range.from >= range.to) continue;
            const int height = height_of(count - t);
            from = least(from, t);
            to = least(count, t + height);
            mix_tile<Single>(height, x.ds + t * GRAD_KEYS + range.from, GRAD_KEYS,
                             f.key_columns(head) + (k0 + range.from) * PANEL, f.keys * PANEL,
                             range.to - range.from, f.dcols, x.dq + t * f.dcols, f.dcols, ones);
            // dV reads dO with zeros for NaN, so that it stays out of masked cells; here it comes back.
            for (i64 r = t; r < least(count, t + height); ++r)
                if (x.bad[r])
                    for (i64 j = 0; j < GRAD_KEYS; ++j)
                        if (x.p[r * GRAD_KEYS + j] != 0.0f)
                            x.p[r * GRAD_KEYS + j] = std::numeric_limits<float>::quiet_NaN();
        }
        if (from >= to) continue;
        const i64 width = round_up(k1 - k0, MR);
        add_transposed(x.ds, from, to, width, x.qc, f.dcols, dk + k0 * f.dcols);
        add_transposed(x.p, from, to, width, x.gc, f.vcols, dv + k0 * f.vcols);
    }
    const vf scale = vset(static_cast<float>(call.scale));
    for (i64 r = 0; r < count; ++r) {
        const Row& row = x.rows[r];
        float* const dq = x.dq + r * f.dcols;
        for (i64 c = 0; c < f.dcols; c += W) vstore(dq + c, vmul(vload(dq + c), scale));
        const i64 at = (batch * call.query_heads() + row.head) * call.queries() + row.query;
        store_row(dq, call.q.dtype, f.d, f.out.dq + at * f.d * item_size(call.q.dtype));
    }
}

// The parts' sums, in order, to the caller.
static void finish_head(const Gradient& f, i64 head) {
    const i64 stride = f.keys * (f.dcols + f.vcols), size = item_size(f.call.q.dtype);
    const vf scale = vset(f.logits.scale);
    for (i64 j = 0; j < f.call.keys(); ++j) {
        float *const dk = f.sums(head, 0) + j * f.dcols;
        float *const dv = f.sums(head, 0) + f.keys * f.dcols + j * f.vcols;
        for (i64 part = 1; part < f.parts; ++part) {
            for (i64 c = 0; c < f.dcols; c += W)
                vstore(dk + c, vadd(vload(dk + c), vload(dk + part * stride + c)));
            for (i64 c = 0; c < f.vcols; c += W)
                vstore(dv + c, vadd(vload(dv + c), vload(dv + part * stride + c)));
        }
        for (i64 c = 0; c < f.dcols; c += W) vstore(dk + c, vmul(vload(dk + c), scale));
        const i64 at = head * f.call.keys() + j;
        store_row(dk, f.call.q.dtype, f.d, f.out.dk + at * f.d * size);
        store_row(dv, f.call.q.dtype, f.dv, f.out.dv + at * f.dv * size);
    }
}

static void gradient_item(void* context, i64 item, char* scratch) {
    const auto& f = *static_cast<const Gradient*>(context);
    Carver carve(scratch);
    const GradientSpace x(carve, f.d, f.dv);
    const Order order = order_of(item, f.heads, f.pack_items, f.parts);
    if (order.head >= f.heads) return;
    const i64 head = order.head;
    if (order.packing) {
        if (head >= f.slots && !wait_until(&f.done[head - f.slots], 1)) return;
        const i64 batch = head / f.call.key_heads(), key_head = head % f.call.key_heads();
        const i64 from = order.step * GRAD_KEYS, to = least(f.call.keys(), from + GRAD_KEYS);
        const Rows k = rows_of(f.call.k, batch, key_head), v = rows_of(f.call.v, batch, key_head);
        pack_row_panels(k, from, to, f.d, f.key_rows(head) + from * f.d, x.spare);
        pack_row_panels(v, from, to, f.dv, f.value_rows(head) + from * f.dv, x.spare);
        pack_column_panels<true>(k, from, to, from + GRAD_KEYS, f.d,
                                 f.key_columns(head) + from * PANEL, f.keys * PANEL, x.spare);
        f.ready[head].fetch_add(1, std::memory_order_release);
        return;
    }
    if (!wait_until(&f.ready[head], f.pack_items)) return;
    fill(f.sums(head, order.step), 0, f.keys * (f.dcols + f.vcols), 0.0f);
    for (i64 block = order.step; block < f.blocks && !given_up(); block += f.parts)
        gradient_block(f, head, order.step, block, x);
    // `finished` counts the parts; `done` says that the slot is free.
    if (f.finished[head].fetch_add(1, std::memory_order_acq_rel) + 1 == f.parts) {
        finish_head(f, head);
        f.done[head].store(1, std::memory_order_release);
    }
}

// delta = dO . O of every row, summed in the order in which the tiles sum dO . v: where one key has
// all the weight, O is its value to the bit, and dp - delta is exactly 0, as it should.
struct Deltas {
    const Call& call;
    const Backward& out;
    float* delta;

    i64 ld() const { return round_up(call.value_size(), W); }
    std::size_t bytes() const { return static_cast<std::size_t>(4 * 4 * W * ld() + 128); }
};

static void delta_item(void* context, i64 item, char* scratch) {
    const auto& f = *static_cast<const Deltas*>(context);
    const i64 n = f.call.value_size(), ld = f.ld(), queries = f.call.queries();
    const i64 batch = item / f.call.query_heads(), head = item % f.call.query_heads();
    float* const lines = reinterpret_cast<float*>(scratch);  // [2][W][ld], then [2][ld][W]
    float* const turned = lines + 2 * W * ld;
    fill(lines, 0, 2 * W * ld, 0.0f);
    for (i64 i = 0; i < queries; i += W) {
        const i64 count = least(W, queries - i);
        const View* const views[2] = {&f.out.output, &f.out.grad_output};
        for (int which = 0; which < 2; ++which) {
            const View& view = *views[which];
            float *const line = lines + which * W * ld, *const turn = turned + which * W * ld;
            for (i64 r = 0; r < count; ++r)
                load_row(view.at(batch, head, i + r), view.stride[3], view.dtype, n, line + r * ld);
            for (i64 c = 0; c < ld; c += W) {
                const float* at[W];
                for (int r = 0; r < W; ++r) at[r] = line + r * ld + c;
                vtranspose(at, turn + c * W, W);
            }
        }
        vf sum = vzero();
        for (i64 c = 0; c < n; ++c)
            sum = vfma(vload(turned + W * ld + c * W), vload(turned + c * W), sum);
        alignas(64) float lanes[W];
        vstore(lanes, sum);
        for (i64 r = 0; r < count; ++r) f.delta[item * queries + i + r] = lanes[r];
    }
}

// Each sink's gradient, summed over the head's rows.
static void sink_gradients(const Call& call, const RowGradients& known, float* dsinks) {
    const i64 queries = call.queries();
    for (i64 h = 0; h < call.query_heads(); ++h) {
        double sum = 0.0;
        for (i64 b = 0; b < call.batch(); ++b)
            for (i64 i = 0; i < queries; ++i) {
                const i64 at = (b * call.query_heads() + h) * queries + i;
                sum += static_cast<double>(sink_slope(call, known, h, at));
            }
        dsinks[h] = static_cast<float>(sum);
    }
}

static void backward_any(const Call& call, const Backward& out, int threads) {
    Gradient f(call, out);
    const i64 all = call.batch() * call.query_heads() * call.queries();
    // A logsumexp beyond 1000 holds too few digits after the point: find top and total again.
    bool large = false;
    for (i64 i = 0; i < all; ++i) {
        const float size = std::fabs(out.logsumexp[i]);
        large |= size > 1000.0f && size < inf;
    }
    Carver measure(nullptr);
    const auto carve_all = [&](Carver& carve, float*& delta, float*& spare) {
        delta = carve.take<float>(static_cast<std::size_t>(all));
        spare = carve.take<float>(large ? static_cast<std::size_t>(3 * all) : 0);
        f.ready = carve.take<std::atomic<i64>>(static_cast<std::size_t>(3 * f.heads));
        f.memory = carve.take<float>(static_cast<std::size_t>(f.slots * f.slot_floats));
    };
    float *delta, *spare;
    carve_all(measure, delta, spare);
    const Block memory(measure.used());
    Carver carve(memory.data());
    carve_all(carve, delta, spare);
    f.done = f.ready + f.heads;
    f.finished = f.done + f.heads;
    for (i64 h = 0; h < 3 * f.heads; ++h) new (&f.ready[h]) std::atomic<i64>(0);

    Deltas deltas{call, out, delta};
    parallel(call.batch() * call.query_heads(), deltas.bytes(), threads, &deltas, delta_item);
    f.known = RowGradients{out.logsumexp, nullptr, delta, out.grad_entropy};
    for (i64 i = 0; i < all; ++i) {
        if (out.logsumexp[i] == -inf) continue;  // a row without keys
        if (out.grad_logsumexp) delta[i] -= out.grad_logsumexp[i];
        if (out.grad_entropy) delta[i] += out.grad_entropy[i] * out.entropy[i];
    }
    if (large) {
        Call scores = call;
        scores.v = scores.k;  // values of size 0: the weights alone
        scores.v.shape[3] = 0;
        Result again;
        again.logsumexp = spare;
        again.top = spare + all;
        again.total = spare + 2 * all;
        run_forward<Single>(scores, again, threads);
        // The logsumexp may be over more keys than this call's (a part of a longer sequence): then
        // it alone says what share they have, as far as it can.
        for (i64 i = 0; i < all; ++i) {
            const float given = out.logsumexp[i], rounding = 2.4e-7f * std::fabs(given);
            const bool whole = again.logsumexp[i] >= given - rounding;
            if (again.total[i] > 0.0f) {  // 0 for a row without keys
                const float log_share = whole ? -std::log(again.total[i]) : again.top[i] - given;
                again.total[i] = whole ? 1.0f / again.total[i] : std::exp(log_share);
                // y is below `top`, ln p below the logsumexp
                if (out.grad_entropy) delta[i] += out.grad_entropy[i] * log_share;
            }
        }
        f.known = RowGradients{again.top, again.total, delta, out.grad_entropy};
    }
    if (out.dsinks) sink_gradients(call, f.known, out.dsinks);
    if (f.heads && f.rows && call.keys()) {
        Carver space(nullptr);
        const GradientSpace x(space, f.d, f.dv);
        parallel(order_items(f.heads, f.pack_items, f.parts), space.used(), threads, &f, gradient_item);
    } else {
        const std::size_t size = static_cast<std::size_t>(item_size(call.q.dtype));
        std::memset(out.dq, 0, size * static_cast<std::size_t>(all * f.d));
        const i64 some = call.batch() * call.key_heads() * call.keys();
        std::memset(out.dk, 0, size * static_cast<std::size_t>(some * f.d));
        std::memset(out.dv, 0, size * static_cast<std::size_t>(some * f.dv));
    }
    if (out.dbias) bias_gradient(call, out, f.logits, f.known, threads);
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
