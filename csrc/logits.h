// From scores to logits: scale, softcap, bias, in this order. The mask comes after (mask.h).
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

// How a call's scores become logits. Without softcap and bias the scores stay as they are and the
// exponential takes the scale along: logit = unit * score. Otherwise the logits are written out and
// unit is 1. The sign of the scale has gone into the packed queries.
struct Logits {
    bool written;
    float scale, cap, unit;
    float c, floor;  // 2^(y * c) is the weight of a score y below the maximum; y >= floor
    float sign;

    INLINE Logits of(const Call& call) {
        Logits l;
        const double size = std::fabs(call.scale);
        l.sign = call.scale < 0.0 ? -1.0f : 1.0f;
        l.scale = static_cast<float>(size);
        l.cap = static_cast<float>(call.softcap);
        l.written = call.bias || call.softcap > 0.0 || !(size > 1e-30 && size < 1e30);
        l.unit = l.written ? 1.0f : l.scale;
        l.c = static_cast<float>((l.written ? 1.0 : size) * 1.44269504088896340736);
        l.floor = exp2_floor / l.c;
        return l;
    }
};

// Keys [from, from + n) of a bias row as floats: where they are, or in `spare`.
INLINE const float* bias_row(const Call& call, const Row& row, i64 from, i64 n, float* spare) {
    const i64 stride = call.bias.stride[3];
    const char* const at = row.bias + from * stride;
    if (stride == 0) {
        fill(spare, 0, n, load_any(at, call.bias.dtype));
    } else {
        const i64 inside = least(n, call.keys() - from);
        load_row(at, stride, call.bias.dtype, inside, spare);
        fill(spare, inside, n, 0.0f);
    }
    return spare;
}

// s[0 .. n), the scores of keys from, from + 1, ..., to logits in place; n a multiple of W. Where
// `slope` is given it becomes d logit / d score (without the scale).
template <bool SLOPE>
INLINE void to_logits(const Call& call, const Logits& logits, const Row& row, i64 from, i64 n,
                      float* s, float* slope, float* spare) {
    const vf scale = vset(logits.scale);
    if (logits.cap > 0.0f) {
        const vf cap = vset(logits.cap), inverse = vset(logits.scale / logits.cap);
        for (i64 j = 0; j < n; j += W) {
            const vf t = tanh_of(vmul(vload(s + j), inverse));
            vstore(s + j, vmul(t, cap));
            if (SLOPE) vstore(slope + j, vsub(vset(1.0f), vmul(t, t)));
        }
    } else {
        for (i64 j = 0; j < n; j += W) vstore(s + j, vmul(vload(s + j), scale));
        if (SLOPE) fill(slope, 0, n, 1.0f);
    }
    if (row.bias) {
        const float* const bias = bias_row(call, row, from, n, spare);
        const vf low = vset(-inf);
        for (i64 j = 0; j < n; j += W) {  // -inf forbids, even where the score is NaN
            const vf b = vload(bias + j);
            vstore(s + j, vwhere_equal(b, low, low, vadd(vload(s + j), b)));
        }
    }
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
