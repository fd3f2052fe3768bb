// One parallel loop, on the OpenMP runtime that the process already has.
#pragma once
#include "types.h"

namespace limelight {

// How many threads a call uses: what set_threads() said, else what the process's OpenMP says,
// else OMP_NUM_THREADS, else the processors this process may run on.
int threads();
void set_threads(int count);  // 0: back to the default
const char* thread_runtime();

// Calls body(context, item, scratch) for every item in [0, items), each once, taken in order by
// whichever thread is free. `scratch` is `bytes` of 64-byte aligned memory of that thread. An item
// may wait, with wait_until(), for items of lower number. Throws std::bad_alloc when a thread had
// no memory.
using Body = void (*)(void* context, i64 item, char* scratch);
void parallel(i64 items, std::size_t bytes, int threads, void* context, Body body);

// True when the loop is being given up: a thread had no memory, or the caller was interrupted. For
// long items to look at between blocks of keys, some 100 us apart: an atomic load, and for the thread
// that called parallel() the clock too.
bool given_up();

// What the calling thread asks every 20 ms while it works; true gives the loop up, and parallel()
// throws Interrupted.
struct Interrupted {};
void set_asked(bool (*asked)());

// Spins, then yields, until counter >= target. False when the loop is being given up.
bool wait_until(const void* counter, i64 target);

}  // namespace limelight
