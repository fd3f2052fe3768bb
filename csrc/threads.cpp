// Threads: share the OpenMP runtime that is already loaded.
//
// A pool of our own would fight with torch's libgomp, whose workers keep spinning for a while after
// each region: measured at n = 512, an own std::thread pool fell to 0.7 x of torch where the shared
// runtime reached 1.28 x. So GOMP_parallel is looked up at run time (LLVM's and Intel's runtimes
// export it too). Where there is none, and in the child of a fork, where libgomp's pool is dead but
// does not know it, each region starts plain threads and joins them. So does Windows, whose OpenMP
// runtimes have no GOMP_parallel and where nothing forks.
#include "threads.h"

#ifndef _WIN32
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#endif

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "memory.h"

namespace limelight {
namespace {

using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
using OmpMaxThreads = int (*)();
using OmpInParallel = int (*)();

struct Runtime {
    GompParallel parallel = nullptr;
    OmpMaxThreads max_threads = nullptr;
    OmpInParallel in_parallel = nullptr;
};

std::atomic<int> chosen{0};
std::atomic<bool> forked{false};

Runtime find_runtime() {
    Runtime found;
#ifndef _WIN32
    void* library = RTLD_DEFAULT;
    if (!dlsym(library, "GOMP_parallel")) {
        // Loaded by somebody, but not globally; else the system's own, if it has one.
        library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
        if (!library) library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);
        if (!library) return found;
    }
    found.parallel = reinterpret_cast<GompParallel>(dlsym(library, "GOMP_parallel"));
    found.max_threads = reinterpret_cast<OmpMaxThreads>(dlsym(library, "omp_get_max_threads"));
    found.in_parallel = reinterpret_cast<OmpInParallel>(dlsym(library, "omp_in_parallel"));
    if (!found.parallel || !found.max_threads || !found.in_parallel) return Runtime{};
#endif
    return found;
}

const Runtime& runtime() {
    static const Runtime found = [] {
#ifndef _WIN32
        pthread_atfork(nullptr, nullptr, [] { forked.store(true); });
#endif
        return find_runtime();
    }();
    return found;
}

int available_processors() {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    const unsigned count = std::thread::hardware_concurrency();
    return count ? static_cast<int>(count) : 1;
}

struct Loop {
    i64 items;
    std::size_t bytes;
    void* context;
    Body body;
    std::thread::id caller;
    std::chrono::steady_clock::time_point asked;  // the caller's alone
    std::atomic<i64> next{0};
    std::atomic<bool> failed{false};
    bool interrupted = false;
};

thread_local Loop* current = nullptr;
std::atomic<bool (*)()> ask{nullptr};
constexpr std::chrono::milliseconds BETWEEN_ASKING{20};

void work(void* pointer) {
    auto* loop = static_cast<Loop*>(pointer);
    if (loop->next.load(std::memory_order_relaxed) >= loop->items) return;
    char* scratch = thread_scratch(loop->bytes);
    if (!scratch) {
        loop->failed.store(true);
        return;
    }
    Loop* const outer = current;
    current = loop;
    while (!given_up()) {
        const i64 item = loop->next.fetch_add(1, std::memory_order_relaxed);
        if (item >= loop->items) break;
        loop->body(loop->context, item, scratch);
    }
    current = outer;
}

void work_on_plain_threads(Loop& loop, int count) {
    std::vector<std::thread> helpers;
    helpers.reserve(static_cast<std::size_t>(count - 1));
    for (int i = 1; i < count; ++i) {
        try {
            helpers.emplace_back(work, &loop);
        } catch (const std::system_error&) {
            break;  // no more threads to be had: the others do the work
        }
    }
    work(&loop);
    for (auto& helper : helpers) helper.join();
}

}  // namespace

int threads() {
    const int set = chosen.load();
    if (set > 0) return set;
    if (runtime().max_threads) return runtime().max_threads();
    if (const char* text = std::getenv("OMP_NUM_THREADS")) {
        const int count = std::atoi(text);
        if (count > 0) return count;
    }
    return available_processors();
}

void set_threads(int count) { chosen.store(count); }

const char* thread_runtime() {
    return runtime().parallel && !forked.load() ? "openmp" : "threads";
}

void parallel(i64 items, std::size_t bytes, int count, void* context, Body body) {
    Loop loop{items, bytes, context, body,
              std::this_thread::get_id(), std::chrono::steady_clock::now()};
    if (items < count) count = static_cast<int>(items);
    if (count <= 1) {
        work(&loop);
    } else if (const Runtime& omp = runtime(); omp.parallel && !forked.load()) {
        // Inside somebody else's region we are one of its threads already.
        if (omp.in_parallel()) {
            work(&loop);
        } else {
            omp.parallel(work, &loop, static_cast<unsigned>(count), 0);
        }
    } else {
        work_on_plain_threads(loop, count);
    }
    if (loop.interrupted) throw Interrupted();
    if (loop.failed.load()) throw std::bad_alloc();
}

void set_asked(bool (*asked)()) { ask.store(asked); }

bool given_up() {
    Loop* const loop = current;
    if (!loop) return false;
    if (loop->failed.load(std::memory_order_relaxed)) return true;
    if (loop->caller != std::this_thread::get_id()) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now - loop->asked < BETWEEN_ASKING) return false;
    loop->asked = now;
    const auto asked = ask.load(std::memory_order_relaxed);
    if (!asked || !asked()) return false;
    loop->interrupted = true;
    loop->failed.store(true);
    return true;
}

bool wait_until(const void* pointer, i64 target) {
    const auto* counter = static_cast<const std::atomic<i64>*>(pointer);
    for (int spins = 0; counter->load(std::memory_order_acquire) < target; ++spins) {
        if (spins <= 1000) continue;
        if (given_up()) return false;
        std::this_thread::yield();
    }
    return true;
}

}  // namespace limelight
