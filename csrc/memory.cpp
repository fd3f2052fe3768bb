#include "memory.h"

#include <mutex>
#include <new>
#include <utility>

namespace limelight {
namespace {

constexpr std::size_t kept = std::size_t{32} << 20;

constexpr std::align_val_t lines{128};  // two cache lines

char* aligned(std::size_t bytes) {
    return static_cast<char*>(::operator new(bytes, lines, std::nothrow));
}

void release(char* memory) { ::operator delete(memory, lines); }

struct Scratch {
    char* data = nullptr;
    std::size_t bytes = 0;
    ~Scratch() { release(data); }
};

thread_local Scratch scratch;

std::mutex guard;
char* spare = nullptr;
std::size_t spare_bytes = 0;

}  // namespace

char* thread_scratch(std::size_t bytes) {
    if (bytes > scratch.bytes || !scratch.data) {
        release(scratch.data);
        scratch.data = aligned(bytes);
        scratch.bytes = scratch.data ? bytes : 0;
    }
    return scratch.data;
}

Block::Block(std::size_t bytes) : data_(nullptr), bytes_(bytes) {
    {
        const std::lock_guard<std::mutex> hold(guard);
        if (spare && spare_bytes >= bytes) {
            data_ = spare;
            bytes_ = spare_bytes;
            spare = nullptr;
        }
    }
    if (!data_) data_ = aligned(bytes);
    if (!data_) throw std::bad_alloc();
}

Block::~Block() {
    if (bytes_ <= kept) {
        const std::lock_guard<std::mutex> hold(guard);
        if (!spare || spare_bytes < bytes_) {
            std::swap(spare, data_);
            std::swap(spare_bytes, bytes_);
        }
    }
    release(data_);
}

}  // namespace limelight
