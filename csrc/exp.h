// Exponential and hyperbolic tangent of a vector.
//
// 2^t for t <= 0: n = round(t) by adding 1.5 * 2^23, then a polynomial for 2^(t - n) on [-1/2, 1/2]
// with constant term exactly 1, fitted for the smallest relative error (Lawson's iteration):
// degree 5 errs by 9.1e-8, degree 4 by 2.8e-6, degree 3 by 1.0e-4.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

constexpr float log2_e = 1.44269504088896340736f;
constexpr float magic_number = 12582912.0f;

template <int DEGREE>
INLINE vf exp2_tail(vf f) {  // (2^f - 1) / f
    static_assert(DEGREE == 4 || DEGREE == 5, "fitted degrees");
    if (DEGREE == 4) {
        vf p = vset(0.009582852944731712f);
        p = vfma(p, f, vset(0.055906426161527634f));
        p = vfma(p, f, vset(0.24024099111557007f));
        return vfma(p, f, vset(0.6931241750717163f));
    }
    vf p = vset(0.001326472731307149f);
    p = vfma(p, f, vset(0.009671512991189957f));
    p = vfma(p, f, vset(0.05550733581185341f));
    p = vfma(p, f, vset(0.24022242426872253f));
    return vfma(p, f, vset(0.6931470036506653f));
}

// 2^(y * c) for y <= 0 and c > 0; a true 0 below the smallest normal number; NaN stays NaN.
// `floor` is exp2_floor / c: on y it keeps the rounding trick in range, and y = -inf harmless.
template <int DEGREE>
INLINE vf exp2_of(vf& y, vf c, vf floor) {
    const vf given = y;
    y = vmax(floor, y);  // in this order NaN comes through
    const vf t = vfma(y, c, vset(magic_number));
    const vf n = vsub(t, vset(magic_number));
    const vf f = vfms(y, c, n);
    const vf p = vfma(exp2_tail<DEGREE>(f), f, vset(1.0f));
    return vflush(vscale2(p, n, t), given, floor);
}

INLINE float exp2_of(float y, float c) {
    alignas(64) float lanes[W];
    vf v = vset(y);
    vstore(lanes, exp2_of<5>(v, vset(c), vset(exp2_floor / c)));
    return lanes[0];
}

// tanh x = m / (m + 2) with m = e^2x - 1 = 2^n (2^f - 1) + (2^n - 1), which keeps small x exact.
INLINE vf tanh_of(vf x) {
    x = vmin(vset(10.0f), vmax(vset(-10.0f), x));
    const vf c = vset(2.0f * log2_e);
    const vf t = vfma(x, c, vset(magic_number));
    const vf n = vsub(t, vset(magic_number));
    const vf f = vfms(x, c, n);
    const vf power = vscale2(vset(1.0f), n, t);
    const vf m = vfma(power, vmul(exp2_tail<5>(f), f), vsub(power, vset(1.0f)));
    return vdiv(m, vadd(m, vset(2.0f)));
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
