// What every instruction set's build of the kernels starts from: one number at a time.
//
// Each isa_*.cpp compiles the same headers in a namespace of its own, with its own flags. So that
// the linker cannot pick an AVX-512 copy of a shared function for an older machine, everything in
// these headers is inline by force or static, and no container of the standard library is used.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "types.h"

#ifndef LIMELIGHT_ISA
#error "define LIMELIGHT_ISA before including the kernels"
#endif
#define INLINE static inline __attribute__((always_inline))
#define RESTRICT __restrict__

namespace limelight {
namespace LIMELIGHT_ISA {

using pair = std::uint32_t;  // two bfloat16, the earlier in the low half

constexpr float inf = std::numeric_limits<float>::infinity();

INLINE float from_bits(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
INLINE std::uint32_t to_bits(float x) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
INLINE std::uint16_t raw16(const char* p) {
    std::uint16_t x;
    std::memcpy(&x, p, 2);
    return x;
}

INLINE float load_bf16(const char* p) { return from_bits(static_cast<std::uint32_t>(raw16(p)) << 16); }
INLINE std::uint16_t to_bf16(float x) {
    const std::uint32_t bits = to_bits(x);
    if (x != x) return static_cast<std::uint16_t>((bits | 0x400000u) >> 16);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
INLINE void store_bf16(char* p, float x) {
    const std::uint16_t half = to_bf16(x);
    std::memcpy(p, &half, 2);
}

// IEEE half precision: 1 sign, 5 exponent, 10 fraction bits.
INLINE float load_f16(const char* p) {
    const std::uint32_t half = raw16(p), sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) return from_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest < 0x400u) {  // zero and denormals: fraction * 2^-24
        const float x = static_cast<float>(rest) * 5.9604644775390625e-8f;
        return from_bits(sign | to_bits(x));
    }
    return from_bits(sign | ((rest << 13) + 0x38000000u));
}
INLINE void store_f16(char* p, float x) {
    const std::uint32_t bits = to_bits(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    std::uint32_t half;
    if (size > 0x7f800000u) {
        half = 0x7e00u;
    } else if (size >= 0x477ff000u) {  // 65520 and up round to infinity
        half = 0x7c00u;
    } else if (size < 0x38800000u) {  // below 2^-14: adding 0.5 rounds to units of 2^-24
        half = to_bits(from_bits(size) + 0.5f) - 0x3f000000u;
    } else {
        half = (size + 0xc8000fffu + ((size >> 13) & 1u)) >> 13;
    }
    const std::uint16_t out = static_cast<std::uint16_t>(sign | half);
    std::memcpy(p, &out, 2);
}

// One number of any float type; p may be misaligned.
INLINE float load_any(const char* p, Dtype dtype) {
    switch (dtype) {
        case Dtype::f32: {
            float x;
            std::memcpy(&x, p, 4);
            return x;
        }
        case Dtype::f64: {
            double x;
            std::memcpy(&x, p, 8);
            return static_cast<float>(x);
        }
        case Dtype::bf16: return load_bf16(p);
        default: return load_f16(p);
    }
}

INLINE i64 round_up(i64 n, i64 to) { return (n + to - 1) / to * to; }
INLINE i64 least(i64 a, i64 b) { return a < b ? a : b; }
INLINE i64 most(i64 a, i64 b) { return a > b ? a : b; }

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
