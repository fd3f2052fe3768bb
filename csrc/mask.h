// Masks, a row at a time: where a row's keys begin and end, and what to blot out between.
//
// The rows of all query heads that share a key head are stacked: row r is query r % queries of the
// group's head r / queries, so that a tile may hold rows of several heads.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

struct Row {
    i64 head, query;
    i64 lo, hi;          // no allowed key lies outside [lo, hi)
    const char* spans;   // this row's intervals, null when lo and hi say it all
    const char* dense;   // this row's bytes
    const char* bias;    // this row's numbers
    i64 batch;
};

struct Span {
    i64 lo, hi;
};

INLINE Span span_of(const Call& call, const char* spans, i64 n) {
    const View& view = call.mask.spans;
    std::int32_t lo, hi;
    std::memcpy(&lo, spans + n * view.stride[3], 4);
    std::memcpy(&hi, spans + n * view.stride[3] + view.stride[4], 4);
    return Span{lo, hi};
}

INLINE Row row_of(const Call& call, i64 batch, i64 head, i64 query) {
    Row row;
    row.head = head;
    row.query = query;
    row.lo = 0;
    row.hi = call.keys();
    const Mask& mask = call.mask;
    if (mask.band) {
        row.lo = most(row.lo, row.query + mask.low);
        row.hi = least(row.hi, row.query + mask.high + 1);
    }
    row.spans = nullptr;
    if (mask.spans) {
        const char* const at = mask.spans.at(batch, row.head, row.query);
        i64 first = call.keys(), last = 0, used = 0;
        for (i64 n = 0; n < mask.spans.shape[3]; ++n) {
            const Span span = span_of(call, at, n);
            if (span.lo >= span.hi) continue;
            first = least(first, span.lo);
            last = most(last, span.hi);
            ++used;
        }
        row.lo = most(row.lo, first);
        row.hi = least(row.hi, last);
        if (used > 1) row.spans = at;
    }
    if (row.lo >= row.hi) row.lo = row.hi = 0;
    row.dense = mask.dense ? mask.dense.at(batch, row.head, row.query) : nullptr;
    row.bias = call.bias ? call.bias.at(batch, row.head, row.query) : nullptr;
    row.batch = batch;
    return row;
}

// Rows [first, first + count) of the stack of one key head.
INLINE void read_rows(const Call& call, i64 batch, i64 key_head, i64 first, i64 count, Row* rows) {
    i64 head = key_head * call.group() + first / call.queries(), query = first % call.queries();
    const bool plain = call.mask.everything() && !call.bias;
    for (i64 r = 0; r < count; ++r) {
        rows[r] = plain ? Row{head, query, 0, call.keys(), nullptr, nullptr, nullptr, batch}
                        : row_of(call, batch, head, query);
        if (++query == call.queries()) ++head, query = 0;
    }
}

enum Cover { EMPTY, PARTIAL, FULL };

// What a dense row says about keys [from, to).
INLINE Cover dense_cover(const char* dense, i64 stride, i64 from, i64 to) {
    if (stride == 0) return dense[0] ? FULL : EMPTY;
    i64 allowed = 0;
    if (stride == 1) {
        for (i64 j = from; j < to; ++j) allowed += dense[j] != 0;
    } else {
        for (i64 j = from; j < to; ++j) allowed += dense[j * stride] != 0;
    }
    return allowed == 0 ? EMPTY : allowed == to - from ? FULL : PARTIAL;
}

INLINE void fill(float* s, i64 from, i64 to, float x) {
    for (i64 j = from; j < to; ++j) s[j] = x;
}

// Writes `x` to s[0 .. to - from) wherever the mask forbids key from + j.
INLINE void blot(const Call& call, const Row& row, i64 from, i64 to, float* s, float x) {
    const i64 n = to - from;
    const i64 lo = most(0, least(n, row.lo - from)), hi = most(lo, least(n, row.hi - from));
    fill(s, 0, lo, x);
    fill(s, hi, n, x);
    if (row.spans) {
        i64 gap = lo;
        for (i64 i = 0; i < call.mask.spans.shape[3]; ++i) {
            const Span span = span_of(call, row.spans, i);
            if (span.lo >= span.hi) continue;
            fill(s, gap, least(hi, span.lo - from), x);
            gap = most(gap, span.hi - from);
        }
        fill(s, gap, hi, x);
    }
    if (row.dense) {
        const i64 stride = call.mask.dense.stride[3];
        const char* const dense = row.dense + from * stride;
        if (stride == 1) {
            for (i64 j = lo; j < hi; ++j) s[j] = dense[j] ? s[j] : x;
        } else {
            for (i64 j = lo; j < hi; ++j) s[j] = dense[j * stride] ? s[j] : x;
        }
    }
}

// Whether one cell is allowed: mask and bias.
INLINE bool allows(const Call& call, const Row& row, i64 j) {
    float cell = 1.0f;
    blot(call, row, j, j + 1, &cell, 0.0f);
    if (cell == 0.0f) return false;
    return !row.bias || load_any(row.bias + j * call.bias.stride[3], call.bias.dtype) != -inf;
}

// Whether a row may attend to any key at all.
INLINE bool sees(const Call& call, const Row& row) {
    for (i64 j = row.lo; j < row.hi; ++j)
        if (allows(call, row, j)) return true;
    return false;
}

// A tile of rows against keys [from, to): which columns to compute, and whether any is forbidden.
struct Range {
    i64 from, to;  // from == to: nothing to do
    bool partial;
};

INLINE Range range_of(const Call& call, const Row* rows, i64 count, i64 from, i64 to) {
    if (call.mask.everything()) return Range{from, to, false};
    i64 lo = to, hi = from;
    for (i64 r = 0; r < count; ++r) {
        lo = least(lo, rows[r].lo < rows[r].hi ? rows[r].lo : to);
        hi = most(hi, rows[r].hi);
    }
    lo = most(lo, from);
    hi = least(hi, to);
    if (lo >= hi) return Range{from, from, false};
    bool partial = false;
    bool spans = false, dense = false;
    for (i64 r = 0; r < count; ++r) {
        partial |= rows[r].lo > lo || rows[r].hi < hi;
        spans |= rows[r].spans != nullptr;
        dense |= rows[r].dense != nullptr;
    }
    if (spans) {  // a tile that lies within one interval of every row is whole
        for (i64 r = 0; r < count && !partial; ++r) {
            if (!rows[r].spans) continue;
            bool inside = false;
            for (i64 i = 0; i < call.mask.spans.shape[3]; ++i) {
                const Span span = span_of(call, rows[r].spans, i);
                inside |= span.lo <= lo && hi <= span.hi;
            }
            partial = !inside;
        }
    }
    if (dense) {
        const i64 stride = call.mask.dense.stride[3];
        Cover all = dense_cover(rows[0].dense, stride, lo, hi);
        for (i64 r = 1; r < count && all != PARTIAL; ++r)
            if (dense_cover(rows[r].dense, stride, lo, hi) != all) all = PARTIAL;
        if (all == EMPTY) return Range{from, from, false};
        partial |= all == PARTIAL;
    }
    return Range{lo, hi, partial};
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
