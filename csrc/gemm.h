// The inner product of every pass: a tile of M rows against a panel of N vectors.
//
//     acc[r][c] += sum over k of A(r, k) * B[k][c]
//
// B is packed in panels: for each k, NV * W elements side by side. A is read one element at a time
// and broadcast, A(r, k) = a[r * row + k * step]. An element is a float32, or a pair of bfloat16
// whose two products are added by one instruction. For the scores A is turned, [k][MR]: each step
// reads the next bytes, and the addresses are constants.
#pragma once

namespace limelight {
namespace LIMELIGHT_ISA {

constexpr int PANEL = NV * W;

struct Single {  // float32
    using Element = float;
    static constexpr int PER = 1;     // numbers in an element
    static constexpr int DEGREE = 5;  // of the exponential
    INLINE vf load(const float* p) { return vload(p); }
    INLINE vf set(float x) { return vset(x); }
    INLINE vf fma(vf a, vf b, vf c) { return vfma(a, b, c); }
};

#ifdef LIMELIGHT_BF16_DOT
struct Pairs {  // bfloat16, two at a time
    using Element = pair;
    static constexpr int PER = 2;
    static constexpr int DEGREE = 4;
    INLINE vp load(const pair* p) { return pload(p); }
    INLINE vp set(pair x) { return pset(x); }
    INLINE vf fma(vp a, vp b, vf c) { return pdot(a, b, c); }
};
#endif

template <class P, int M, int N>
INLINE void multiply(const typename P::Element* RESTRICT a, i64 row, i64 step,
                     const typename P::Element* RESTRICT b, i64 depth, vf (&acc)[M][N]) {
    for (i64 k = 0; k < depth; ++k) {
        const auto b0 = P::load(b);
        const auto b1 = P::load(b + (N > 1 ? W : 0));
#pragma GCC unroll 12
        for (int r = 0; r < M; ++r) {
            const auto x = P::set(a[r * row]);
            acc[r][0] = P::fma(x, b0, acc[r][0]);
            if (N > 1) acc[r][N - 1] = P::fma(x, b1, acc[r][N - 1]);
        }
        a += step;
        b += PANEL;
    }
}

// Products summed in one go; beyond, sums of sums keep the error small.
constexpr i64 LONG = W == 16 ? 256 : 128;

// s[r][0 .. N*W) = A * B, or += with ADD; A turned.
template <class P, int M, int N, bool ADD = false>
static void score_panel(const typename P::Element* a, const typename P::Element* b, i64 depth,
                        float* s, i64 lds) {
    vf acc[M][N];
#pragma GCC unroll 12
    for (int r = 0; r < M; ++r)
        for (int c = 0; c < N; ++c) acc[r][c] = vzero();
    multiply<P, M, N>(a, 1, MR, b, ADD ? depth : least(depth, LONG), acc);
#pragma GCC unroll 12
    for (int r = 0; r < M; ++r)
        for (int c = 0; c < N; ++c) {
            float* const at = s + r * lds + c * W;
            vstore(at, ADD ? vadd(vload(at), acc[r][c]) : acc[r][c]);
        }
    if (ADD) return;
    for (i64 k = LONG; k < depth; k += LONG)
        score_panel<P, M, N, true>(a + k * MR, b + k * PANEL, least(LONG, depth - k), s, lds);
}

// o[r][0 .. N*W) = o * alpha[r] + A * B, with A in rows of stride lda. The sum starts from zero and
// is added to o at the end: the error halves against going on from o.
template <class P, int M, int N>
static void mix_panel(const typename P::Element* a, i64 lda, const typename P::Element* b, i64 depth,
                      float* o, i64 ldo, const float* alpha) {
    vf acc[M][N];
#pragma GCC unroll 12
    for (int r = 0; r < M; ++r)
        for (int c = 0; c < N; ++c) acc[r][c] = vzero();
    multiply<P, M, N>(a, lda, 1, b, depth, acc);
#pragma GCC unroll 12
    for (int r = 0; r < M; ++r) {
        const vf scale = vset(alpha[r]);
        for (int c = 0; c < N; ++c) {
            float* const at = o + r * ldo + c * W;
            vstore(at, vfma(vload(at), scale, acc[r][c]));
        }
    }
}

// o[r][0 .. N*W) += Aᵀ * B: A(r, k) = a[k * lda + r], float32.
template <int M, int N>
static void mix_transposed(const float* a, i64 lda, const float* b, i64 depth, float* o, i64 ldo) {
    vf acc[M][N];
#pragma GCC unroll 12
    for (int r = 0; r < M; ++r)
        for (int c = 0; c < N; ++c) acc[r][c] = vzero();
    multiply<Single, M, N>(a, 1, lda, b, depth, acc);
#pragma GCC unroll 12
    for (int r = 0; r < M; ++r)
        for (int c = 0; c < N; ++c) {
            float* const at = o + r * ldo + c * W;
            vstore(at, vadd(vload(at), acc[r][c]));
        }
}

// Tiles come in three heights, so that a few rows left over do not cost a whole tile.
constexpr int HEIGHTS[3] = {MR / 3, 2 * MR / 3, MR};
INLINE int height_of(i64 rows) {
    return rows <= HEIGHTS[0] ? HEIGHTS[0] : rows <= HEIGHTS[1] ? HEIGHTS[1] : HEIGHTS[2];
}

// Scores of one tile against `columns` keys (whole panels, but the last may be used in part).
template <class P, int M>
static void score_rows(const typename P::Element* q, const typename P::Element* k, i64 depth,
                       i64 columns, float* s, i64 lds) {
    i64 j = 0;
    for (; j + W < columns; j += PANEL) {
        score_panel<P, M, NV>(q, k, depth, s + j, lds);
        k += depth * PANEL;
    }
    if (j < columns) score_panel<P, M, 1>(q, k, depth, s + j, lds);
}

template <class P>
static void score_tile(int height, const typename P::Element* q, const typename P::Element* k,
                       i64 depth, i64 columns, float* s, i64 lds) {
    if (height == HEIGHTS[2]) score_rows<P, HEIGHTS[2]>(q, k, depth, columns, s, lds);
    else if (height == HEIGHTS[1]) score_rows<P, HEIGHTS[1]>(q, k, depth, columns, s, lds);
    else score_rows<P, HEIGHTS[0]>(q, k, depth, columns, s, lds);
}

// `b` holds `columns` (a multiple of W) in panels that lie `stride` elements apart.
template <class P, int M>
static void mix_rows(const typename P::Element* a, i64 lda, const typename P::Element* b, i64 stride,
                     i64 depth, i64 columns, float* o, i64 ldo, const float* alpha) {
    i64 c = 0;
    for (; c + W < columns; c += PANEL, b += stride)
        mix_panel<P, M, NV>(a, lda, b, depth, o + c, ldo, alpha);
    if (c < columns) mix_panel<P, M, 1>(a, lda, b, depth, o + c, ldo, alpha);
}

template <class P>
static void mix_tile(int height, const typename P::Element* a, i64 lda,
                     const typename P::Element* b, i64 stride, i64 depth, i64 columns, float* o,
                     i64 ldo, const float* alpha) {
    if (height == HEIGHTS[2]) mix_rows<P, HEIGHTS[2]>(a, lda, b, stride, depth, columns, o, ldo, alpha);
    else if (height == HEIGHTS[1]) mix_rows<P, HEIGHTS[1]>(a, lda, b, stride, depth, columns, o, ldo, alpha);
    else mix_rows<P, HEIGHTS[0]>(a, lda, b, stride, depth, columns, o, ldo, alpha);
}

}  // namespace LIMELIGHT_ISA
}  // namespace limelight
