// AVX2 with FMA and F16C: Haswell, Zen and later.
#define LIMELIGHT_ISA avx2
#include "vec_avx2.h"
// (the vectors first: the kernels are written in their terms)
#include "kernels.h"

namespace limelight {

extern const Isa isa_avx2;
const Isa isa_avx2 = {"avx2", has_avx2, avx2::forward_any, avx2::backward_any,
                      avx2::pool_any};

}  // namespace limelight
