// A matrix of any size as a picture: each bin's largest, mean or summed weight.
//
// A weight is exp(s - logsumexp of its row). The maximum needs no exponential a cell: exp is
// monotone, so the largest exponent of a bin decides, and one exponential is taken at the end. What
// is kept is one number a column of the block in hand, and the picture. A cell's score is summed in
// the same order whatever region is asked for: pictures at different zoom agree to the bit.
//
// An item owns some whole bins of rows by some whole bins of columns, so that no two write to one.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

constexpr i64 POOL_KEYS = 256, POOL_ROWS = 8 * MR;    // of a block
constexpr i64 ITEM_KEYS = 2048, ITEM_ROWS = 384;      // of an item, at least, where the bins allow

// Bins in groups of `least` cells or more; returns the number of groups, `first` their first bins.
static i64 group_bins(const i64* edges, i64 bins, i64 cells, i64* first) {
    i64 groups = 0;
    for (i64 bin = 0; bin < bins;) {
        first[groups++] = bin;
        const i64 start = edges[bin];
        while (bin < bins && edges[bin] < start + cells) ++bin;
    }
    first[groups] = bins;
    return groups;
}

struct Picture {
    const Call& call;
    const Pool& pool;
    const Logits logits;
    i64 row_groups, column_groups;
    i64 *first_row, *first_column;  // bins
    i64 most_bins;                  // of one item
};

struct PoolSpace {
    Row* rows;
    float *q, *k, *s, *spare, *base, *top;
    double *sum, *bins, *cells;
    bool* spoilt;

    PoolSpace(Carver& carve, i64 d, i64 bin_count) {
        rows = carve.take<Row>(POOL_ROWS);
        q = carve.take<float>(static_cast<std::size_t>(POOL_ROWS * d));
        k = carve.take<float>(static_cast<std::size_t>(POOL_KEYS * d));
        s = carve.take<float>(static_cast<std::size_t>(MR * POOL_KEYS));
        spare = carve.take<float>(static_cast<std::size_t>(W * round_up(d, W) + POOL_KEYS));
        base = carve.take<float>(POOL_ROWS);
        top = carve.take<float>(POOL_KEYS);
        sum = carve.take<double>(POOL_KEYS);
        spoilt = carve.take<bool>(POOL_KEYS);
        bins = carve.take<double>(static_cast<std::size_t>(bin_count));
        cells = carve.take<double>(static_cast<std::size_t>(bin_count));
    }
};

// How many cells of a row are allowed in each of the columns' bins.
static void count_row(const Call& call, const Row& row, const i64* edges, i64 bins, double* cells,
                      float* spare) {
    if (!row.spans && !row.dense && !row.bias) {
        for (i64 q = 0; q < bins; ++q) {
            const i64 n = least(edges[q + 1], row.hi) - most(edges[q], row.lo);
            if (n > 0) cells[q] += static_cast<double>(n);
        }
        return;
    }
    alignas(64) float here[POOL_KEYS];
    for (i64 q = 0; q < bins; ++q)
        for (i64 from = edges[q]; from < edges[q + 1]; from += POOL_KEYS) {
            const i64 n = least(POOL_KEYS, edges[q + 1] - from);
            fill(here, 0, n, 1.0f);
            blot(call, row, from, from + n, here, 0.0f);
            const float* const bias = row.bias ? bias_row(call, row, from, n, spare) : nullptr;
            i64 allowed = 0;
            for (i64 j = 0; j < n; ++j) allowed += here[j] != 0.0f && !(bias && bias[j] == -inf);
            cells[q] += static_cast<double>(allowed);
        }
}

// The block's columns to the bins of one row of bins: what `top` or `sum` holds for keys from k0 on.
static void flush_columns(const Picture& f, const PoolSpace& x, i64 k0, i64 k1, const i64* edges,
                          i64 bins, bool spoilt, double* to) {
    for (i64 q = 0; q < bins; ++q) {
        const i64 a = most(edges[q], k0) - k0, b = least(edges[q + 1], k1) - k0;
        if (a >= b) continue;
        if (f.pool.kind != Pooling::max) {
            double total = to[q];
            for (i64 j = a; j < b; ++j) total += x.sum[j];
            to[q] = total;
            continue;
        }
        float best = -inf;
        for (i64 j = a; j < b; ++j) best = x.top[j] > best ? x.top[j] : best;
        if (static_cast<double>(best) > to[q]) to[q] = static_cast<double>(best);
        for (i64 j = a; spoilt && j < b; ++j)
            if (x.spoilt[j]) to[q] = static_cast<double>(std::numeric_limits<float>::quiet_NaN());
    }
}

INLINE void reset_columns(const PoolSpace& x) {
    fill(x.top, 0, POOL_KEYS, -inf);
    for (i64 j = 0; j < POOL_KEYS; ++j) x.sum[j] = 0.0, x.spoilt[j] = false;
}

// Rows [r, r + n) of the tile in hand, all of one bin, to the columns [a, b).
static void add_rows(const Picture& f, const PoolSpace& x, i64 tile, i64 r, i64 n, i64 a, i64 b,
                     bool& spoilt) {
    const vf unit = vset(f.logits.unit), c = vset(log2_e), floor = vset(exp2_floor / log2_e);
    float* const base = x.base + tile;
    for (i64 i = r; i < r + n; ++i) {
        if (base[i] == base[i]) continue;
        spoilt = true;  // a row that saw NaN: all that it sees is NaN, and what it does not is 0
        base[i] = 0.0f;
        for (i64 j = a; j < b; ++j) {
            float& s = x.s[i * POOL_KEYS + j];
            if (s == -inf) continue;
            x.spoilt[j] = true;
            x.sum[j] = std::numeric_limits<double>::quiet_NaN();
            s = -inf;
        }
    }
    for (i64 j = a; j < b; j += W) {
        if (f.pool.kind == Pooling::max) {
            vf best = vload(x.top + j);
            for (i64 i = r; i < r + n; ++i)
                best = vmax(vsub(vmul(vload(x.s + i * POOL_KEYS + j), unit), vset(base[i])), best);
            vstore(x.top + j, best);
            continue;
        }
        vf sum = vzero();
        for (i64 i = r; i < r + n; ++i) {
            vf y = vmin(vzero(), vsub(vmul(vload(x.s + i * POOL_KEYS + j), unit), vset(base[i])));
            sum = vadd(sum, exp2_of<5>(y, c, floor));
        }
        alignas(64) float lanes[W];
        vstore(lanes, sum);
        for (int i = 0; i < W; ++i) x.sum[j + i] += static_cast<double>(lanes[i]);
    }
}

static void pool_item(void* context, i64 item, char* scratch) {
    const auto& f = *static_cast<const Picture*>(context);
    const Call& call = f.call;
    Carver carve(scratch);
    const PoolSpace x(carve, call.size(), f.most_bins);
    const i64 column_group = item % f.column_groups, rest = item / f.column_groups;
    const i64 row_group = rest % f.row_groups, bh = rest / f.row_groups;
    const i64 batch = bh / call.query_heads(), head = bh % call.query_heads();
    const i64 key_head = head / call.group();
    const i64 p0 = f.first_row[row_group], p1 = f.first_row[row_group + 1];
    const i64 q0 = f.first_column[column_group], bins = f.first_column[column_group + 1] - q0;
    const i64 *const rows = f.pool.row_edges, *const columns = f.pool.column_edges + q0;
    const float* const lse = f.pool.logsumexp + bh * call.queries();
    const Rows keys = rows_of(call.k, batch, key_head);
    for (i64 i = 0; i < (p1 - p0) * bins; ++i) {
        x.bins[i] = f.pool.kind == Pooling::max ? static_cast<double>(-inf) : 0.0;
        x.cells[i] = 0.0;
    }
    if (f.pool.kind != Pooling::sum)
        for (i64 p = p0; p < p1; ++p)
            for (i64 i = rows[p]; i < rows[p + 1]; ++i)
                count_row(call, row_of(call, batch, head, i), columns, bins,
                          x.cells + (p - p0) * bins, x.spare);
    for (i64 k0 = columns[0]; k0 < columns[bins]; k0 += POOL_KEYS) {
        const i64 k1 = least(columns[bins], k0 + POOL_KEYS);
        pack_row_panels(keys, k0, k1, call.size(), x.k, x.spare);
        bool spoilt = false;
        i64 p = p0;
        const auto leave_bin = [&] {
            flush_columns(f, x, k0, k1, columns, bins, spoilt, x.bins + (p - p0) * bins);
            reset_columns(x);
            spoilt = false;
            ++p;
        };
        reset_columns(x);
        for (i64 i0 = rows[p0]; i0 < rows[p1] && !given_up(); i0 += POOL_ROWS) {
            const i64 count = least(POOL_ROWS, rows[p1] - i0);
            for (i64 r = 0; r < round_up(count, MR); ++r) {
                const char* from = nullptr;
                if (r < count) {
                    x.rows[r] = row_of(call, batch, head, i0 + r);
                    x.base[r] = lse[i0 + r] == -inf ? 0.0f : lse[i0 + r];
                    from = call.q.at(batch, head, i0 + r);
                }
                pack_tile_row(from, call.q.stride[3], call.q.dtype, call.size(), f.logits.sign,
                              call.size(), tile_row(x.q, call.size(), r), x.spare);
            }
            for (i64 t = 0; t < count; t += MR) {
                const int height = height_of(count - t);
                const i64 n = least(height, count - t);
                const Range range = range_of(call, x.rows + t, n, k0, k1);
                const i64 a = (range.from - k0) / PANEL * PANEL;
                const i64 width = range.from < range.to ? round_up(range.to - k0 - a, W) : 0;
                if (width) {
                    score_tile<Single>(height, x.q + t * call.size(), x.k + a * call.size(),
                                       call.size(), width, x.s + a, POOL_KEYS);
                    const bool partial = range.partial || k0 + a < range.from || k0 + a + width > range.to;
                    mend_tile(call, x.rows + t, n, f.logits.sign, k0 + a, width, x.s + a, POOL_KEYS);
                    for (i64 r = 0; r < n; ++r) {
                        float* const s = x.s + r * POOL_KEYS + a;
                        const float base = x.base[t + r];
                        if (base != base) fill(s, 0, width, base);  // -inf would look hidden
                        if (f.logits.written)
                            to_logits<false>(call, f.logits, x.rows[t + r], k0 + a, width, s, nullptr, x.spare);
                        if (partial) blot(call, x.rows[t + r], k0 + a, k0 + a + width, s, -inf);
                    }
                }
                for (i64 r = 0; r < n;) {  // the rows of one bin at a time
                    while (i0 + t + r >= rows[p + 1]) leave_bin();
                    const i64 some = least(n - r, rows[p + 1] - (i0 + t + r));
                    if (width) add_rows(f, x, t, r, some, a, a + width, spoilt);
                    r += some;
                }
            }
        }
        while (p < p1) leave_bin();
    }
    for (i64 p = p0; p < p1; ++p)
        for (i64 q = 0; q < bins; ++q) {
            const i64 own = (p - p0) * bins + q;
            double value = x.bins[own];
            if (f.pool.kind == Pooling::max) value = std::exp(value > 0.0 ? 0.0 : value);
            if (f.pool.kind == Pooling::mean) value /= x.cells[own];
            if (f.pool.kind != Pooling::sum && x.cells[own] == 0.0)
                value = static_cast<double>(std::numeric_limits<float>::quiet_NaN());
            f.pool.values[(bh * f.pool.rows + p) * f.pool.columns + q0 + q] = static_cast<float>(value);
        }
}

static void pool_any(const Call& call, const Pool& pool, int threads) {
    if (pool.rows < 1 || pool.columns < 1) return;
    Carver measure(nullptr);
    measure.take<i64>(static_cast<std::size_t>(pool.rows + 1));
    measure.take<i64>(static_cast<std::size_t>(pool.columns + 1));
    const Block memory(measure.used());
    Carver carve(memory.data());
    Picture f{call, pool, Logits::of(call), 0, 0, nullptr, nullptr, 0};
    f.first_row = carve.take<i64>(static_cast<std::size_t>(pool.rows + 1));
    f.first_column = carve.take<i64>(static_cast<std::size_t>(pool.columns + 1));
    f.row_groups = group_bins(pool.row_edges, pool.rows, ITEM_ROWS, f.first_row);
    f.column_groups = group_bins(pool.column_edges, pool.columns, ITEM_KEYS, f.first_column);
    i64 tall = 0, wide = 0;
    for (i64 g = 0; g < f.row_groups; ++g) tall = most(tall, f.first_row[g + 1] - f.first_row[g]);
    for (i64 g = 0; g < f.column_groups; ++g)
        wide = most(wide, f.first_column[g + 1] - f.first_column[g]);
    f.most_bins = tall * wide;
    Carver space(nullptr);
    const PoolSpace x(space, call.size(), f.most_bins);
    parallel(call.batch() * call.query_heads() * f.row_groups * f.column_groups, space.used(), threads,
             &f, pool_item);
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
