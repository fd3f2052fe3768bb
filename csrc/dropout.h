// Which weights dropout takes: Philox4x32-7 of the cell's place, as src/limelight/dropout.py defines
// it. A line of bits says it of one row, a bit a key, from a multiple of 128 on; four counters draw
// 128 of them. What stays is scaled when the row is written (forward) or where it is used (backward).
//
// Products of the generator take 64 bits, its words 32: rows are drawn in pairs, and their words
// compared together, one row's in the low halves, the other's in the high ones.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

constexpr i64 DROP_KEYS = 128;        // keys of four counters: 16 bytes of a line
constexpr i64 LINE_KEYS = 384 + 128;  // room for a block of keys, wherever it begins
constexpr int DROP_ROUNDS = 7;
static_assert(VU % 4 == 0, "whole blocks of keys");
static_assert(MR % 2 == 0 && GROUP % 2 == 0, "rows in pairs");

struct Line {
    alignas(8) std::uint8_t bytes[(LINE_KEYS + 32 * VU) / 8 + 8];
    i64 first;  // key of the first bit

    // The bits of keys from, from + 1, ...: at least 57 of them.
    std::uint64_t at(i64 from) const {
        const auto bit = static_cast<std::uint64_t>(from - first);
        std::uint64_t some;
        std::memcpy(&some, bytes + bit / 8, 8);
        return some >> bit % 8;
    }
};

typedef std::uint32_t vw __attribute__((vector_size(sizeof(vu))));
struct Words {
    vu a, b, c, d;
};

INLINE vu uset(std::uint64_t x) { return x - vu{}; }
INLINE vu halves(vu low, vu high) { return (low & 0xffffffffu) | high << 32; }
INLINE vu turn(vu a, int by) { return (vu)((vw)a << by | (vw)a >> (32 - by)); }  // halves, to the left

// Four words of a counter, in the low halves; in the high ones is anything.
INLINE Words philox(Words x, const vu (&keys)[DROP_ROUNDS][2]) {
    const vu first = uset(0xD2511F53u), second = uset(0xCD9E8D57u);
#pragma GCC unroll 7
    for (int round = 0; round < DROP_ROUNDS; ++round) {
        const vu left = umul(x.a, first), right = umul(x.c, second);
        x = Words{right >> 32 ^ x.b ^ keys[round][0], right, left >> 32 ^ x.d ^ keys[round][1], left};
    }
    return x;
}

// The bits of the cells that stay, 32 of each draw: from the lowest bit of their numbers up, as what a
// higher one decides is decided.
INLINE vu stays(const Words& x, std::uint32_t own, std::uint32_t common) {
    const vu e = turn(x.a, 5), f = turn(x.b, 10), g = turn(x.c, 15), h = turn(x.d, 20), k = turn(x.a, 25);
    const vu planes[8] = {h ^ k, g ^ h, f ^ g, e ^ f, x.d, x.c, x.b, x.a};
    vu stay = (vu)((vw)x.a * 0x9E3779B1u >> 24 >= common);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) stay = own >> i & 1 ? planes[i] & stay : planes[i] | stay;
    return stay;
}

INLINE vu exchange(vu a, int by, std::uint64_t mask) {  // bits of `mask` with those so far above them
    const vu differ = (a ^ a >> by) & mask;
    return a ^ differ ^ differ << by;
}
// The bits of four draws in the order of their keys. A byte of a draw has one key of each of eight
// eights; the eight bytes for these eights are a matrix, and its transpose is eight bytes of a line.
INLINE vu in_order(vu stay) {
    vu cells = usort(stay);
    cells = exchange(cells, 7, 0x00aa00aa00aa00aau);
    cells = exchange(cells, 14, 0x0000cccc0000ccccu);
    return exchange(cells, 28, 0x00000000f0f0f0f0u);
}

// The lines of keys [from, to) of some rows; there is room for an even number of lines.
static void draw(const Call& call, const Row* rows, i64 count, i64 from, i64 to, Line* lines) {
    const Dropping drop = call.dropout;
    auto low = static_cast<std::uint32_t>(drop.seed), high = static_cast<std::uint32_t>(drop.seed >> 32);
    vu keys[DROP_ROUNDS][2];
    for (auto& round : keys) {
        round[0] = uset(low);
        round[1] = uset(high);
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    const i64 start = from / DROP_KEYS * DROP_KEYS;
    for (i64 r = 0; r < count; r += 2) {
        vu query[2], head[2];
        for (int i = 0; i < 2; ++i) {
            const Row& row = rows[least(r + i, count - 1)];
            query[i] = uset(static_cast<std::uint64_t>(row.query));
            head[i] = uset(static_cast<std::uint64_t>(row.batch * call.query_heads() + row.head));
            lines[r + i].first = start;
        }
        for (i64 k = start; k < to; k += 32 * VU) {
            const vu counters = uramp(static_cast<std::uint64_t>(k) / 32), offset = uset(drop.offset);
            const Words x = philox({counters, query[0], head[0], offset}, keys);
            const Words y = philox({counters, query[1], head[1], offset}, keys);
            const Words both = {halves(x.a, y.a), halves(x.b, y.b), halves(x.c, y.c), halves(x.d, y.d)};
            const vu cells = in_order(stays(both, drop.own, drop.common));
            std::uint8_t bytes[2][4 * VU];
            std::memcpy(bytes, &cells, sizeof bytes);
            for (int i = 0; i < 2; ++i)
                std::memcpy(lines[r + i].bytes + (k - start) / 8, bytes[i], sizeof bytes[i]);
        }
    }
}

// Rows of s, the weights of keys from, from + 1, ..., with zeros for those that fall.
static void drop_rows(const Call& call, const Row* rows, i64 count, i64 from, i64 n, float* s, i64 lds) {
    Line lines[GROUP];
    draw(call, rows, count, from, from + n, lines);
    for (i64 r = 0; r < count; ++r, s += lds)
        for (i64 j = 0; j < n; j += W) vstore(s + j, vkeep(vload(s + j), lines[r].at(from + j)));
}
#ifdef LIMELIGHT_BF16_DOT
static void drop_rows(const Call& call, const Row* rows, i64 count, i64 from, i64 n, pair* s, i64 lds) {
    Line lines[GROUP];
    draw(call, rows, count, from, from + n, lines);
    for (i64 r = 0; r < count; ++r, s += lds)
        for (i64 j = 0; j < n; j += 2 * W) pkeep(s + j / 2, lines[r].at(from + j));
}
#endif

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
