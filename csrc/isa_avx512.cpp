// AVX-512: Skylake-X and later.
#define LIMELIGHT_ISA avx512
#include "vec_avx512.h"
// (the vectors first: the kernels are written in their terms)
#include "kernels.h"

namespace limelight {

extern const Isa isa_avx512;
const Isa isa_avx512 = {"avx512", has_avx512, avx512::forward_any, avx512::backward_any,
                        avx512::pool_any};

}  // namespace limelight
