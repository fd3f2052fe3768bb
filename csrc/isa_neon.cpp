// NEON, which every 64-bit ARM has.
#define LIMELIGHT_ISA neon
#include "vec_plain.h"
// (the vectors first: the kernels are written in their terms)
#include "kernels.h"

namespace limelight {

static bool here() {
    return true;
}

extern const Isa isa_neon;
const Isa isa_neon = {"neon", here, neon::forward_any, neon::backward_any,
                      neon::pool_any};

}  // namespace limelight
