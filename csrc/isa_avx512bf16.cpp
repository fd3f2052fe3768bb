// AVX-512 with AVX512_BF16: Zen 4, Cooper Lake, Sapphire Rapids and later.
#define LIMELIGHT_ISA avx512bf16
#define LIMELIGHT_BF16_DOT
#include "vec_avx512.h"
// (the vectors first: the kernels are written in their terms)
#include "kernels.h"

namespace limelight {

extern const Isa isa_avx512bf16;
const Isa isa_avx512bf16 = {"avx512bf16", has_avx512bf16, avx512bf16::forward_any, avx512bf16::backward_any,
                            avx512bf16::pool_any};

}  // namespace limelight
