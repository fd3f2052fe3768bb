// The instruction sets, and which of them calls run on.
#pragma once
#include "types.h"

namespace limelight {

// One build of the kernels.
struct Isa {
    const char* name;
    bool (*here)();  // whether this machine has it
    void (*forward)(const Call&, const Result&, int threads);
    void (*backward)(const Call&, const Backward&, int threads);
    void (*pool)(const Call&, const Pool&, int threads);
};

#if defined(__x86_64__)
// Whether the processor has an instruction set and the system keeps its registers.
bool has_avx2();        // with FMA and F16C
bool has_avx512();      // F, BW, DQ and VL
bool has_avx512bf16();  // and AVX512_BF16
#endif

// Best first; null at the end.
const Isa* const* isas();
const Isa& isa();                    // the one in use
bool set_isa(const char* name);      // false: no such one, or not on this machine

}  // namespace limelight
