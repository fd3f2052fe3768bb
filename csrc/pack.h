// Packing: from anybody's strides and float type into the panels that gemm.h reads.
//
//   panels of rows (keys for the scores):     [panel of rows][depth][PANEL]    depth = numbers in a row
//   panels of columns (values for the mix):   [panel of columns][row][PANEL]
//   tiles (queries, which are broadcast):     [tile of MR rows][depth][MR]
//
// With pairs, two neighbours along the summed axis (numbers of a row for the scores, rows for the
// mix) share one element. What lies beyond the edge is zero.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

// n numbers from strided memory to float32; `to` has room up to the next multiple of W.
INLINE void load_row(const char* from, i64 stride, Dtype dtype, i64 n, float* to) {
    const i64 size = item_size(dtype);
    i64 i = 0;
    if (stride == size) {
        if (dtype == Dtype::f32)
            for (; i + W <= n; i += W) vstore(to + i, vload(reinterpret_cast<const float*>(from) + i));
        else if (dtype == Dtype::bf16)
            for (; i + W <= n; i += W) vstore(to + i, vload_bf16(from + 2 * i));
        else if (dtype == Dtype::f16)
            for (; i + W <= n; i += W) vstore(to + i, vload_f16(from + 2 * i));
    }
    for (; i < n; ++i) to[i] = load_any(from + i * stride, dtype);
}

INLINE void store_row(const float* from, Dtype dtype, i64 n, char* to) {
    i64 i = 0;
    if (dtype == Dtype::f32) {
        for (; i + W <= n; i += W) vstore(reinterpret_cast<float*>(to) + i, vload(from + i));
        std::memcpy(to + 4 * i, from + i, static_cast<std::size_t>(4 * (n - i)));
    } else if (dtype == Dtype::bf16) {
        for (; i + W <= n; i += W) vstore_bf16(to + 2 * i, vload(from + i));
        for (; i < n; ++i) store_bf16(to + 2 * i, from[i]);
    } else {
        for (; i + W <= n; i += W) vstore_f16(to + 2 * i, vload(from + i));
        for (; i < n; ++i) store_f16(to + 2 * i, from[i]);
    }
}

struct Rows {  // rows of one head: row i begins at data + i * stride, or where its page lies
    const char* data;
    i64 stride, step;  // bytes between rows, between the numbers of a row
    Dtype dtype;
    const char* table;  // this batch entry's pages, null where the rows follow each other
    int shift;
    const char* at(i64 i) const {
        if (table) {
            std::int32_t page;
            std::memcpy(&page, table + 4 * (i >> shift), 4);
            i = (static_cast<i64>(page) << shift) + (i & ((i64{1} << shift) - 1));
        }
        return data + i * stride;
    }
};

INLINE Rows rows_of(const View& view, i64 batch, i64 head, const Pages& pages = Pages{}) {
    return Rows{view.at(batch, head, 0), view.stride[2], view.stride[3], view.dtype,
                pages.table ? pages.table + batch * pages.stride : nullptr, pages.shift};
}

// Rows [from, to) of n numbers as panels of rows. `spare` holds W rows of round_up(n, W) floats.
static void pack_row_panels(const Rows& rows, i64 from, i64 to, i64 n, float* out, float* spare) {
    const i64 ld = round_up(n, W);
    const bool direct = rows.dtype == Dtype::f32 && rows.step == 4 &&
                        (reinterpret_cast<std::uintptr_t>(rows.data) | rows.stride) % 4 == 0;
    for (i64 j = from; j < to; j += PANEL, out += n * PANEL) {
        for (int part = 0; part < PANEL; part += W) {
            const float* line[W];
            const i64 count = least(W, to - j - part);
            for (int r = 0; r < W; ++r) {
                if (r < count && direct) {
                    line[r] = reinterpret_cast<const float*>(rows.at(j + part + r));
                    continue;
                }
                float* const own = spare + r * ld;
                line[r] = own;
                if (r < count) load_row(rows.at(j + part + r), rows.step, rows.dtype, n, own);
                else std::memset(own, 0, static_cast<std::size_t>(4 * ld));
            }
            i64 d = 0;
            for (; d + W <= n; d += W) {
                const float* at[W];
                for (int r = 0; r < W; ++r) at[r] = line[r] + d;
                vtranspose(at, out + d * PANEL + part, PANEL);
            }
            for (; d < n; ++d)
                for (int r = 0; r < W; ++r) out[d * PANEL + part + r] = line[r][d];
        }
    }
}

// Whether all n numbers are finite; those that are not become 0.
INLINE bool clean(float* x, i64 n) {
    bool fine = true;
    for (i64 i = 0; i < n; ++i) {
        const bool finite = x[i] - x[i] == 0.0f;
        fine &= finite;
        x[i] = finite ? x[i] : 0.0f;
    }
    return fine;
}

// Rows [from, to) of n numbers as panels of columns that lie `stride` floats apart; rows up to
// `until` are filled with zeros. CLEAN leaves zeros where numbers are not finite.
template <bool CLEAN = false>
static void pack_column_panels(const Rows& rows, i64 from, i64 to, i64 until, i64 n, float* out,
                               i64 stride, float* spare) {
    const i64 ld = round_up(n, W);
    for (i64 i = ld - W; i < ld; ++i) spare[i] = 0.0f;
    for (i64 j = from; j < until; ++j, out += PANEL) {
        if (j < to) load_row(rows.at(j), rows.step, rows.dtype, n, spare);
        if (CLEAN) clean(spare, n);
        for (i64 c = 0; c < ld; c += W)
            vstore(out + c / PANEL * stride + c % PANEL, j < to ? vload(spare + c) : vzero());
    }
}

// One row of n numbers for the broadcast side, times `sign`; a null row is zero.
INLINE void pack_row(const char* from, i64 step, Dtype dtype, i64 n, float sign, float* out) {
    if (!from) return void(std::memset(out, 0, static_cast<std::size_t>(4 * n)));
    load_row(from, step, dtype, n, out);
    if (sign < 0.0f)
        for (i64 i = 0; i < n; ++i) out[i] = -out[i];
}

#ifdef LIMELIGHT_BF16_DOT
INLINE void load_raw(const char* from, i64 step, i64 n, std::uint16_t* to) {
    if (step == 2) std::memcpy(to, from, static_cast<std::size_t>(2 * n));
    else for (i64 i = 0; i < n; ++i) to[i] = raw16(from + i * step);
}

// bfloat16 rows as they are: pairs of numbers are pairs already, and are moved as float32 would be.
static void pack_row_panels(const Rows& rows, i64 from, i64 to, i64 n, pair* out, float* spare) {
    const i64 pairs = (n + 1) / 2, ld = round_up(pairs, W);
    for (i64 j = from; j < to; j += PANEL, out += pairs * PANEL) {
        for (int part = 0; part < PANEL; part += W) {
            const float* line[W];
            for (int r = 0; r < W; ++r) {
                float* const own = spare + r * ld;
                line[r] = own;
                std::memset(own + pairs - 1, 0, static_cast<std::size_t>(4 * (ld - pairs + 1)));
                if (j + part + r < to)
                    load_raw(rows.at(j + part + r), rows.step, n, reinterpret_cast<std::uint16_t*>(own));
                else
                    std::memset(own, 0, static_cast<std::size_t>(4 * ld));
            }
            float* const target = reinterpret_cast<float*>(out) + part;
            i64 d = 0;
            for (; d + W <= pairs; d += W) {
                const float* at[W];
                for (int r = 0; r < W; ++r) at[r] = line[r] + d;
                vtranspose(at, target + d * PANEL, PANEL);
            }
            for (; d < pairs; ++d)
                for (int r = 0; r < W; ++r) std::memcpy(target + d * PANEL + r, line[r] + d, 4);
        }
    }
}

static void pack_column_panels(const Rows& rows, i64 from, i64 to, i64 until, i64 n, pair* out,
                               i64 stride, float* spare) {
    const i64 ld = round_up(n, 2 * W);
    std::uint16_t* const first = reinterpret_cast<std::uint16_t*>(spare);
    std::uint16_t* const second = first + ld;
    std::memset(first, 0, static_cast<std::size_t>(4 * ld));
    for (i64 j = from; j < until; j += 2, out += PANEL) {
        if (j < to) load_raw(rows.at(j), rows.step, n, first);
        else std::memset(first, 0, static_cast<std::size_t>(2 * n));
        if (j + 1 < to) load_raw(rows.at(j + 1), rows.step, n, second);
        else std::memset(second, 0, static_cast<std::size_t>(2 * n));
        for (i64 c = 0; c < n; c += 2 * W) {
            pair* const at = out + c / PANEL * stride;
            pzip(first + c, second + c, at, at + W);
        }
    }
}

INLINE void pack_row(const char* from, i64 step, Dtype, i64 n, float sign, pair* out) {
    const i64 pairs = (n + 1) / 2;
    std::memset(out + (from ? pairs - 1 : 0), 0, static_cast<std::size_t>(from ? 4 : 4 * pairs));
    if (!from) return;
    load_raw(from, step, n, reinterpret_cast<std::uint16_t*>(out));
    if (sign < 0.0f)
        for (i64 i = 0; i < pairs; ++i) out[i] ^= 0x80008000u;
}
#endif

// Where row r begins in tiles of `depth` elements a row; its elements lie MR apart.
template <class Element>
INLINE Element* tile_row(Element* tiles, i64 depth, i64 r) {
    return tiles + r / MR * MR * depth + r % MR;
}

// One row for the broadcast side into a tile; `spare` has room for it.
template <class Element>
INLINE void pack_tile_row(const char* from, i64 step, Dtype dtype, i64 n, float sign, i64 depth,
                          Element* out, Element* spare) {
    pack_row(from, step, dtype, n, sign, spare);
    for (i64 k = 0; k < depth; ++k) out[k * MR] = spare[k];
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
