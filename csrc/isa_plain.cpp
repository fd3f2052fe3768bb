// Whatever the compiler makes of plain C++ with four-lane vectors: runs anywhere.
#define LIMELIGHT_ISA plain
#include "vec_plain.h"
// (the vectors first: the kernels are written in their terms)
#include "kernels.h"

namespace limelight {

static bool here() {
    return true;
}

extern const Isa isa_plain;
const Isa isa_plain = {"plain", here, plain::forward_any, plain::backward_any,
                       plain::pool_any};

}  // namespace limelight
