// The plain structs every file shares: what an attention is, in pointers and byte strides.
#pragma once
#include <cstddef>
#include <cstdint>

namespace limelight {

using i64 = std::int64_t;

enum class Dtype : int { f32 = 0, bf16 = 1, f16 = 2, f64 = 3, boolean = 4, i32 = 5 };

inline i64 item_size(Dtype dtype) {
    switch (dtype) {
        case Dtype::f64: return 8;
        case Dtype::f32:
        case Dtype::i32: return 4;
        case Dtype::boolean: return 1;
        default: return 2;
    }
}

// A strided array of up to five axes. Strides are bytes and may be zero, negative or odd; an axis
// that is broadcast has stride zero, so that no reader needs to know its true length.
struct View {
    const char* data = nullptr;
    i64 shape[5] = {0, 0, 0, 0, 0};
    i64 stride[5] = {0, 0, 0, 0, 0};
    Dtype dtype = Dtype::f32;

    explicit operator bool() const { return data != nullptr; }
    const char* at(i64 a, i64 b, i64 c) const {
        return data + a * stride[0] + b * stride[1] + c * stride[2];
    }
};

// Which cells are allowed: every part that is there must agree.
struct Mask {
    bool band = false;  // low <= j - i <= high
    i64 low = 0, high = 0;
    View spans;  // [b, h, i, interval, 2] of int32, half open, ascending; unused ones (nk, nk)
    View dense;  // [b, h, i, j] of bytes
    bool everything() const { return !band && !spans && !dense; }
};

// Dropout: which weights fall follows from these numbers and the cell's place (dropout.h).
struct Dropping {
    bool on = false;
    std::uint32_t own = 0, common = 0;  // the threshold, 256 own + common
    std::uint64_t seed = 0;
    std::uint32_t offset = 0;
    float scale = 1.0f;  // of the weights that stay
};

// Keys and values in pages: key j of a batch entry is row table[j >> shift] << shift | j & (2^shift - 1)
// of memory that all entries share. Only a forward pass reads them.
struct Pages {
    const char* table = nullptr;  // int32 [batch][pages of an entry]
    i64 stride = 0;               // bytes between batch entries
    int shift = 0;                // a page has 2^shift rows
};

struct Call {
    View q, k, v;  // [batch, heads, length, size]
    Pages pages;   // of k and v, whose batch stride is then 0
    Mask mask;
    View bias;   // [b, h, i, j], any float type
    View sinks;  // [h]
    double scale = 1.0;
    double softcap = 0.0;  // 0: none
    Dropping dropout;

    i64 batch() const { return q.shape[0]; }
    i64 query_heads() const { return q.shape[1]; }
    i64 key_heads() const { return k.shape[1]; }
    i64 queries() const { return q.shape[2]; }
    i64 keys() const { return k.shape[2]; }
    i64 size() const { return q.shape[3]; }
    i64 value_size() const { return v.shape[3]; }
    i64 group() const { return key_heads() ? query_heads() / key_heads() : 0; }
};

// Where a forward pass writes. Rows of statistics are contiguous and may be null, max_logit and
// entropy together; rows of the output lie where its strides say.
struct Result {
    char* output = nullptr;  // [b, h, i, value_size], the call's dtype
    i64 stride[3] = {0, 0, 0};  // bytes between batch entries, heads, rows
    float* logsumexp = nullptr;
    float* max_logit = nullptr;
    float* entropy = nullptr;
    // logsumexp = top + ln total, for the backward pass: at large logits one float cannot hold both.
    float* top = nullptr;
    float* total = nullptr;
};

// Where a backward pass reads and writes. Gradients are contiguous, the call's dtype; those of bias
// (in the bias's own shape) and sinks are float32.
struct Backward {
    View output, grad_output;      // [b, h, i, value_size]
    const float* logsumexp = nullptr;  // [b, h, i] contiguous, as all row statistics
    const float* entropy = nullptr;    // where there is a grad_entropy
    const float *grad_logsumexp = nullptr, *grad_entropy = nullptr;  // null for 0
    char *dq = nullptr, *dk = nullptr, *dv = nullptr;
    float* dbias = nullptr;
    i64 bias_shape[4] = {0, 0, 0, 0};
    float* dsinks = nullptr;  // [h]
};

enum class Pooling : int { max = 0, mean = 1, sum = 2 };

// A picture of the weights: bins of rows by bins of columns, given by their edges, which ascend.
struct Pool {
    const float* logsumexp = nullptr;  // [b, h, i] contiguous
    const i64 *row_edges = nullptr, *column_edges = nullptr;
    i64 rows = 0, columns = 0;  // bins
    Pooling kind = Pooling::max;
    float* values = nullptr;  // [b, h, rows, columns]; max and mean are NaN where no cell is allowed
};

}  // namespace limelight
