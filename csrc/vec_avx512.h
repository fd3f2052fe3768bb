// 16 lanes of float32, AVX-512 (F, BW, DQ, VL). With LIMELIGHT_BF16_DOT also AVX512_BF16.
#pragma once
#include <immintrin.h>

#include "base.h"

namespace limelight {
namespace LIMELIGHT_ISA {

constexpr int W = 16;   // lanes
constexpr int MR = 12;  // rows of a tile: 12 x 2 accumulators, 2 operands, broadcasts: 32 registers
constexpr int NV = 2;   // vectors in a panel

using vf = __m512;

INLINE vf vzero() { return _mm512_setzero_ps(); }
INLINE vf vset(float x) { return _mm512_set1_ps(x); }
INLINE vf vload(const float* p) { return _mm512_loadu_ps(p); }
INLINE void vstore(float* p, vf a) { _mm512_storeu_ps(p, a); }
INLINE vf vadd(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vsub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vmul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vdiv(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vfms(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }
INLINE vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }  // b where either is NaN
INLINE vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); }
// x where a == b, else y
INLINE vf vwhere_equal(vf a, vf b, vf x, vf y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), y, x);
}
INLINE vf vscale2(vf p, vf n, vf) { return _mm512_scalef_ps(p, n); }  // p * 2^n
constexpr float exp2_floor = -152.0f;  // scalef goes through the denormals to a true zero
INLINE vf vflush(vf p, vf, vf) { return p; }

// Whether no lane is infinite, or no number.
INLINE bool vfinite(vf a) {
    return _mm512_cmp_ps_mask(_mm512_sub_ps(a, a), _mm512_setzero_ps(), _CMP_EQ_OQ) == 0xffff;
}

INLINE float vhsum(vf a) { return _mm512_reduce_add_ps(a); }

INLINE __m256 fold(vf a) {
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
// The sums of four vectors, to out[0..3].
INLINE void vhsum4(vf a, vf b, vf c, vf d, float* out) {
    const __m256 ab = _mm256_hadd_ps(fold(a), fold(b)), cd = _mm256_hadd_ps(fold(c), fold(d));
    const __m256 s = _mm256_hadd_ps(ab, cd);
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}
INLINE __m256 fold_max(vf a) {
    return _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
// The largest of each of four vectors, to out[0..3].
INLINE void vhmax4(vf a, vf b, vf c, vf d, float* out) {
    const __m256 x = fold_max(a), y = fold_max(b), z = fold_max(c), w = fold_max(d);
    const __m256 xy = _mm256_max_ps(_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y));
    const __m256 zw = _mm256_max_ps(_mm256_unpacklo_ps(z, w), _mm256_unpackhi_ps(z, w));
    const __m256 s = _mm256_max_ps(_mm256_shuffle_ps(xy, zw, 0x44), _mm256_shuffle_ps(xy, zw, 0xee));
    _mm_storeu_ps(out, _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
}

INLINE vf vload_bf16(const void* p) {
    const __m256i raw = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
}
INLINE vf vload_f16(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
INLINE void vstore_f16(void* p, vf a) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
INLINE void vstore_bf16(void* p, vf a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256(static_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

// W x W transpose: column r of dst (row stride ldd) is row r of src.
INLINE void vtranspose(const float* const* rows, float* dst, i64 ldd) {
    __m512 r[16], t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(rows[i]);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        _mm512_storeu_ps(dst + (i + 0) * ldd, _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
        _mm512_storeu_ps(dst + (i + 8) * ldd, _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd));
        _mm512_storeu_ps(dst + (i + 4) * ldd, _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88));
        _mm512_storeu_ps(dst + (i + 12) * ldd, _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd));
    }
}

// Where bit i of `bits` is set lane i, else 0.
INLINE vf vkeep(vf a, std::uint64_t bits) { return _mm512_maskz_mov_ps(static_cast<__mmask16>(bits), a); }

// 64-bit numbers for the generator of dropout.h.
constexpr int VU = 8;
typedef std::uint64_t vu __attribute__((vector_size(64)));
INLINE vu uramp(std::uint64_t x) { return vu{x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7}; }
INLINE vu umul(vu a, vu b) { return (vu)_mm512_mul_epu32((__m512i)a, (__m512i)b); }  // of the low halves
// The low halves, then the high ones, and of every four first the even bytes, then the odd ones.
INLINE vu usort(vu a) {
    const __m512i halves = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    const __m128i bytes = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return (vu)_mm512_shuffle_epi8(_mm512_permutexvar_epi32(halves, (__m512i)a),
                                   _mm512_broadcast_i32x4(bytes));
}

#ifdef LIMELIGHT_BF16_DOT
using vp = __m512i;  // 16 pairs of bfloat16
INLINE vp pload(const pair* p) { return _mm512_loadu_si512(p); }
INLINE void pkeep(pair* p, std::uint64_t bits) {  // of 2W bfloat16 those whose bit is set, else 0
    _mm512_storeu_si512(p, _mm512_maskz_mov_epi16(static_cast<__mmask32>(bits), pload(p)));
}
INLINE vp pset(pair x) { return _mm512_set1_epi32(static_cast<int>(x)); }
// c + a.lo * b.lo + a.hi * b.hi in every lane
INLINE vf pdot(vp a, vp b, vf c) {
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
// 2W floats to W pairs, in order
INLINE void pstore(pair* p, vf low, vf high) {
    _mm512_storeu_si512(p, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}
// Rows a and b, 2W bfloat16 each, to pairs (a[i], b[i]): the first W to lo, the next W to hi.
INLINE void pzip(const void* a, const void* b, pair* lo, pair* hi) {
    const __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);
    const __m512i l = _mm512_unpacklo_epi16(x, y), h = _mm512_unpackhi_epi16(x, y);
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_storeu_si512(lo, _mm512_permutex2var_epi64(l, first, h));
    _mm512_storeu_si512(hi, _mm512_permutex2var_epi64(l, second, h));
}
#endif

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
