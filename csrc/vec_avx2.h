// 8 lanes of float32, AVX2 + FMA + F16C.
#pragma once
#include <immintrin.h>

#include "base.h"

namespace limelight {
namespace LIMELIGHT_ISA {

constexpr int W = 8;
constexpr int MR = 6;  // 6 x 2 accumulators, 2 operands, 1 broadcast: 15 of 16 registers
constexpr int NV = 2;

using vf = __m256;

INLINE vf vzero() { return _mm256_setzero_ps(); }
INLINE vf vset(float x) { return _mm256_set1_ps(x); }
INLINE vf vload(const float* p) { return _mm256_loadu_ps(p); }
INLINE void vstore(float* p, vf a) { _mm256_storeu_ps(p, a); }
INLINE vf vadd(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vsub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vmul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vdiv(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vfma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vfms(vf a, vf b, vf c) { return _mm256_fmsub_ps(a, b, c); }
INLINE vf vmax(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vmin(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf vwhere_equal(vf a, vf b, vf x, vf y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
// p * 2^n, n an integer in [-126, 127] that still sits in the low bits of `magic` (see exp.h)
INLINE vf vscale2(vf p, vf, vf magic) {
    const __m256i shift = _mm256_slli_epi32(_mm256_castps_si256(magic), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shift));
}
constexpr float exp2_floor = -125.0f;
// 0 where y lies below its floor
INLINE vf vflush(vf p, vf y, vf floor) {
    return _mm256_andnot_ps(_mm256_cmp_ps(y, floor, _CMP_LT_OQ), p);
}

INLINE bool vfinite(vf a) {
    return _mm256_movemask_ps(_mm256_cmp_ps(_mm256_sub_ps(a, a), vzero(), _CMP_EQ_OQ)) == 0xff;
}

INLINE float vhsum(vf a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
INLINE void vhsum4(vf a, vf b, vf c, vf d, float* out) {
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}
INLINE void vhmax4(vf a, vf b, vf c, vf d, float* out) {
    const __m256 ab = _mm256_max_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m256 cd = _mm256_max_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const __m256 s = _mm256_max_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    _mm_storeu_ps(out, _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

INLINE vf vload_bf16(const void* p) {
    const __m128i raw = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}
INLINE vf vload_f16(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
INLINE void vstore_f16(void* p, vf a) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
INLINE void vstore_bf16(void* p, vf a) {
    alignas(32) float lanes[W];
    _mm256_store_ps(lanes, a);
    for (int i = 0; i < W; ++i) store_bf16(static_cast<char*>(p) + 2 * i, lanes[i]);
}

INLINE vf vkeep(vf a, std::uint64_t bits) {
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i some = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), each);
    return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_cmpeq_epi32(some, each)));
}

constexpr int VU = 4;
typedef std::uint64_t vu __attribute__((vector_size(32)));
INLINE vu uramp(std::uint64_t x) { return vu{x, x + 1, x + 2, x + 3}; }
INLINE vu umul(vu a, vu b) { return (vu)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
INLINE vu usort(vu a) {
    const __m256i halves = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    const __m128i bytes = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return (vu)_mm256_shuffle_epi8(_mm256_permutevar8x32_epi32((__m256i)a, halves),
                                   _mm256_broadcastsi128_si256(bytes));
}

INLINE void vtranspose(const float* const* rows, float* dst, i64 ldd) {
    __m256 r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(rows[i]);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(dst + i * ldd, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(dst + (i + 4) * ldd, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
