#include "isa.h"

#include <atomic>
#include <cstring>

namespace limelight {

#if defined(__x86_64__)
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
