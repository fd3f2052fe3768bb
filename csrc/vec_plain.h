// 4 lanes of float32 in the compiler's own vector type: NEON where the target is arm64, else
// whatever the baseline has (SSE2 on x86-64). No instruction set is assumed by the source.
#pragma once
#ifdef __ARM_NEON
#include <arm_neon.h>
#endif

#include "base.h"

namespace limelight {
namespace LIMELIGHT_ISA {

typedef float vf __attribute__((vector_size(16)));
typedef std::int32_t vi __attribute__((vector_size(16)));

constexpr int W = 4;
constexpr int NV = 2;
#ifdef __ARM_NEON
constexpr int MR = 12;  // 32 registers
#else
constexpr int MR = 6;  // 16 registers
#endif

INLINE vf vset(float x) { return vf{x, x, x, x}; }
INLINE vf vzero() { return vset(0.0f); }
INLINE vf vload(const float* p) {
    vf a;
    __builtin_memcpy(&a, p, sizeof a);
    return a;
}
INLINE void vstore(float* p, vf a) { __builtin_memcpy(p, &a, sizeof a); }
INLINE vf vadd(vf a, vf b) { return a + b; }
INLINE vf vsub(vf a, vf b) { return a - b; }
INLINE vf vmul(vf a, vf b) { return a * b; }
INLINE vf vdiv(vf a, vf b) { return a / b; }
#ifdef __ARM_NEON
INLINE vf vfma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
#else
INLINE vf vfma(vf a, vf b, vf c) { return a * b + c; }
#endif
INLINE vf vfms(vf a, vf b, vf c) { return vfma(a, b, -c); }
INLINE vf blend(vi mask, vf x, vf y) { return (vf)((mask & (vi)x) | (~mask & (vi)y)); }
INLINE vf vmax(vf a, vf b) { return blend((vi)(a > b), a, b); }
INLINE vf vmin(vf a, vf b) { return blend((vi)(a < b), a, b); }
INLINE vf vwhere_equal(vf a, vf b, vf x, vf y) { return blend((vi)(a == b), x, y); }
INLINE vf vscale2(vf p, vf, vf magic) { return (vf)((vi)p + ((vi)magic << 23)); }
constexpr float exp2_floor = -125.0f;
INLINE vf vflush(vf p, vf y, vf floor) { return (vf)((vi)p & ~(vi)(y < floor)); }

INLINE bool vfinite(vf a) {
    const vi fine = (vi)(a - a == vzero());
    return (fine[0] & fine[1] & fine[2] & fine[3]) != 0;
}

INLINE float vhsum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
INLINE float vhmax(vf a) {
    const float x = a[0] > a[2] ? a[0] : a[2], y = a[1] > a[3] ? a[1] : a[3];
    return x > y ? x : y;
}
INLINE void vhsum4(vf a, vf b, vf c, vf d, float* out) {
    out[0] = vhsum(a);
    out[1] = vhsum(b);
    out[2] = vhsum(c);
    out[3] = vhsum(d);
}
INLINE void vhmax4(vf a, vf b, vf c, vf d, float* out) {
    out[0] = vhmax(a);
    out[1] = vhmax(b);
    out[2] = vhmax(c);
    out[3] = vhmax(d);
}

INLINE vf vload_bf16(const void* p) {
    const char* c = static_cast<const char*>(p);
    return vf{load_bf16(c), load_bf16(c + 2), load_bf16(c + 4), load_bf16(c + 6)};
}
INLINE vf vload_f16(const void* p) {
    const char* c = static_cast<const char*>(p);
    return vf{load_f16(c), load_f16(c + 2), load_f16(c + 4), load_f16(c + 6)};
}
INLINE void vstore_bf16(void* p, vf a) {
    for (int i = 0; i < W; ++i) store_bf16(static_cast<char*>(p) + 2 * i, a[i]);
}
INLINE void vstore_f16(void* p, vf a) {
    for (int i = 0; i < W; ++i) store_f16(static_cast<char*>(p) + 2 * i, a[i]);
}

INLINE vf vkeep(vf a, std::uint64_t bits) {
    const std::int32_t some = static_cast<std::int32_t>(bits);
    const vi each = {1, 2, 4, 8}, all = {some, some, some, some};
    return (vf)((vi)a & (vi)((all & each) == each));
}

constexpr int VU = 4;
typedef std::uint64_t vu __attribute__((vector_size(32)));
INLINE vu uramp(std::uint64_t x) { return vu{x, x + 1, x + 2, x + 3}; }
INLINE vu umul(vu a, vu b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
INLINE vu usort(vu a) {
    constexpr std::uint64_t first = 0x000000ff000000ff, second = 0x0000ff000000ff00;
    const vu even = (a & first) | (a >> 8 & second), odd = (a >> 8 & first) | (a >> 16 & second);
    vu sorted = {};
    for (int i = 0; i < VU; ++i)
        sorted |= vu{even[i] & 0xffffu, odd[i] & 0xffffu, even[i] >> 32, odd[i] >> 32} << 16 * i;
    return sorted;
}

INLINE void vtranspose(const float* const* rows, float* dst, i64 ldd) {
    for (int i = 0; i < W; ++i) {
        vstore(dst + i * ldd, vf{rows[0][i], rows[1][i], rows[2][i], rows[3][i]});
    }
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
