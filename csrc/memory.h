// Aligned memory: a scratch that each thread keeps, and one block that calls hand on to each other.
#pragma once
#include <cstddef>

namespace limelight {

// 64-byte aligned memory of the calling thread, at least `bytes`, reused by later calls. Null when
// there is none left.
char* thread_scratch(std::size_t bytes);

// A zero-cost-to-repeat buffer: one block of up to `kept` bytes outlives the call that made it,
// because the page faults of a fresh 12 MB block cost 2 to 4 % of a 30 ms attention.
class Block {
  public:
    explicit Block(std::size_t bytes);  // throws std::bad_alloc
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    char* data() const { return data_; }

  private:
    char* data_;
    std::size_t bytes_;
};

// Cuts one block into aligned pieces. With a null base it only measures.
class Carver {
  public:
    explicit Carver(char* base) : base_(base) {}
    template <class T>
    T* take(std::size_t count) {
        char* const here = base_ ? base_ + used_ : nullptr;
        used_ += (count * sizeof(T) + 127) / 128 * 128;
        return reinterpret_cast<T*>(here);
    }
    std::size_t used() const { return used_; }

  private:
    char* base_;
    std::size_t used_ = 0;
};

}  // namespace limelight
