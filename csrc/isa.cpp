#include "isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>
#include <cstring>

namespace limelight {

#if defined(__x86_64__)
// Read from the processor itself: __builtin_cpu_supports needs a runtime library that a module for
// Windows is not linked with.
namespace {

struct Processor {
    unsigned basic = 0;     // leaf 1, ecx
    unsigned extended = 0;  // leaf 7, ebx
    unsigned more = 0;      // leaf 7.1, eax
    unsigned kept = 0;      // XCR0: the registers that the system keeps

    Processor() {
        unsigned a = 0, b = 0, c = 0, d = 0;
        if (!__get_cpuid(1, &a, &b, &c, &d)) return;
        basic = c;
        if (basic >> 27 & 1) __asm__ volatile("xgetbv" : "=a"(kept), "=d"(d) : "c"(0));
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
        extended = b;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) more = a;
    }
};

bool all(unsigned word, unsigned bits) { return (word & bits) == bits; }

const Processor& processor() {
    static const Processor read;
    return read;
}

}  // namespace

bool has_avx2() {
    const Processor& p = processor();
    return all(p.kept, 0x6) && all(p.basic, 1u << 12 | 1u << 29) && all(p.extended, 1u << 5);
}
bool has_avx512() {
    const Processor& p = processor();
    return has_avx2() && all(p.kept, 0xe6) &&
           all(p.extended, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31);
}
bool has_avx512bf16() { return has_avx512() && all(processor().more, 1u << 5); }

extern const Isa isa_avx512bf16, isa_avx512, isa_avx2;
#elif defined(__aarch64__)
extern const Isa isa_neon;
#endif
extern const Isa isa_plain;

const Isa* const* isas() {
    static const Isa* const all[] = {
#if defined(__x86_64__)
        &isa_avx512bf16, &isa_avx512, &isa_avx2,
#elif defined(__aarch64__)
        &isa_neon,
#endif
        &isa_plain, nullptr};
    return all;
}

namespace {

const Isa* best() {
    const Isa* const* one = isas();
    while (!(*one)->here()) ++one;  // plain is always here
    return *one;
}

std::atomic<const Isa*> chosen{nullptr};

}  // namespace

const Isa& isa() {
    const Isa* now = chosen.load(std::memory_order_relaxed);
    if (!now) chosen.store(now = best(), std::memory_order_relaxed);
    return *now;
}

bool set_isa(const char* name) {
    for (const Isa* const* one = isas(); *one; ++one) {
        if (std::strcmp((*one)->name, name) == 0 && (*one)->here()) {
            chosen.store(*one, std::memory_order_relaxed);
            return true;
        }
    }
    return false;
}

}  // namespace limelight
