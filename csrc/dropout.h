// Which weights dropout takes: Philox4x32-7 of the cell's place, as src/limelight/dropout.py defines
// it. A line of bits says it of one row, a bit a key, from a multiple of 64 on; four counters draw 64
// of them. What stays is scaled when the row is written (forward) or where it is used (backward).
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

constexpr i64 DROP_KEYS = 64;           // keys of four counters: eight bytes of a line
constexpr i64 LINE_KEYS = 384 + 128;    // room for a block of keys, wherever it begins
constexpr int DROP_ROUNDS = 7;
static_assert(VU % 4 == 0, "whole blocks of keys");

struct Line {
    alignas(8) std::uint8_t bytes[(LINE_KEYS + 16 * VU) / 8 + 8];
    i64 first;  // key of the first bit

    // The bits of keys from, from + 1, ...: at least 57 of them.
    std::uint64_t at(i64 from) const {
        std::uint64_t some;
        std::memcpy(&some, bytes + (from - first) / 8, 8);
        return some >> (from - first) % 8;
    }
};

// The line of keys [from, to) of a row.
static void draw(const Call& call, const Row& row, i64 from, i64 to, Line& line) {
    const Dropping& drop = call.dropout;
    line.first = from / DROP_KEYS * DROP_KEYS;
    std::uint32_t key[2] = {static_cast<std::uint32_t>(drop.seed),
                            static_cast<std::uint32_t>(drop.seed >> 32)};
    vu keys[DROP_ROUNDS][2];
    for (auto& round : keys) {
        round[0] = uset(key[0]);
        round[1] = uset(key[1]);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    const vu m0 = uset(0xD2511F53u), m1 = uset(0xCD9E8D57u);
    const vu query = uset(static_cast<std::uint64_t>(row.query));
    const vu head = uset(static_cast<std::uint64_t>(row.batch * call.query_heads() + row.head));
    const vu offset = uset(drop.offset);
    std::uint8_t* to_bytes = line.bytes;
    for (i64 k = line.first; k < to; k += 16 * VU, to_bytes += 2 * VU) {
        vu a = uramp(static_cast<std::uint64_t>(k / 16)), b = query, c = head, d = offset;
#pragma GCC unroll 7
        for (int round = 0; round < DROP_ROUNDS; ++round) {
            const vu left = umul(a, m0), right = umul(c, m1);  // the high halves of a, .. do not count
            a = uhigh_xor(right, b, keys[round][0]);
            b = right;
            c = uhigh_xor(left, d, keys[round][1]);
            d = left;
        }
        const vu words[4] = {a, b, c, d};
#pragma GCC unroll 4
        for (int word = 0; word < 4; ++word) {
            uabove<0>(words[word], drop.threshold, to_bytes + 2 * word);
            uabove<1>(words[word], drop.threshold, to_bytes + 2 * word + 1);
        }
    }
}

// s[0 .. n), the weights of keys from, from + 1, ... of a row, with zeros for those that fall.
static void drop_row(const Call& call, const Row& row, i64 from, i64 n, float* s) {
    Line line;
    draw(call, row, from, from + n, line);
    for (i64 j = 0; j < n; j += W) vstore(s + j, vkeep(vload(s + j), line.at(from + j)));
}
#ifdef LIMELIGHT_BF16_DOT
static void drop_row(const Call& call, const Row& row, i64 from, i64 n, pair* s) {
    Line line;
    draw(call, row, from, from + n, line);
    for (i64 j = 0; j < n; j += 2 * W) pkeep(s + j / 2, line.at(from + j));
}
#endif

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
