// The module limelight.engines._native: arrays in, one call, the GIL released.
//
// An array comes as an object with the buffer protocol (NumPy) or as a tuple (address, shape,
// strides in elements) that the Python side makes of a torch tensor; either way nothing is copied
// and the caller keeps it alive.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "exchange.h"
#include "isa.h"
#include "threads.h"

namespace nb = nanobind;
using namespace limelight;

namespace {

// Holds the buffers of one call.
class Arrays {
  public:
    Arrays() = default;
    Arrays(const Arrays&) = delete;
    Arrays& operator=(const Arrays&) = delete;
    ~Arrays() {
        for (int i = 0; i < used_; ++i) PyBuffer_Release(&held_[i]);
    }

    // `given` as an array of `axes` axes; None gives an empty view.
    View view(nb::handle given, Dtype dtype, int axes, const char* name) {
        View view;
        view.dtype = dtype;
        if (given.is_none()) return view;
        if (PyTuple_Check(given.ptr())) {
            from_tuple(given, axes, name, view);
        } else {
            from_buffer(given, axes, name, view);
        }
        for (int i = 0; i < axes; ++i) {
            if (view.shape[i] < 0) throw std::invalid_argument(std::string(name) + " has a negative size");
            if (view.shape[i] <= 1) view.stride[i] = 0;
        }
        static const char nothing = 0;
        if (!view.data) view.data = &nothing;  // an empty array has no address of its own
        return view;
    }

    // Contiguous memory of exactly `count` numbers, to write to or, if not `writable`, to read.
    template <class T>
    T* target(nb::handle given, i64 count, const char* name, bool writable = true) {
        if (given.is_none()) return nullptr;
        Py_buffer& buffer = next();
        if (PyTuple_Check(given.ptr())) {  // (address, bytes) of a fresh contiguous tensor
            --used_;
            const auto address = nb::cast<std::uintptr_t>(given[0]);
            if (nb::cast<i64>(given[1]) != count * static_cast<i64>(sizeof(T)))
                throw std::invalid_argument(std::string(name) + " has the wrong size to write to");
            return reinterpret_cast<T*>(address);
        }
        if (PyObject_GetBuffer(given.ptr(), &buffer, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0) {
            --used_;
            throw nb::python_error();
        }
        if (buffer.len != count * static_cast<i64>(sizeof(T)))
            throw std::invalid_argument(std::string(name) + " has the wrong size to write to");
        return static_cast<T*>(buffer.buf);
    }

    // An array of four axes to write to, whose rows are contiguous.
    View writable(nb::handle given, Dtype dtype, const char* name) {
        View view;
        view.dtype = dtype;
        if (PyTuple_Check(given.ptr())) from_tuple(given, 4, name, view);
        else from_buffer(given, 4, name, view, PyBUF_STRIDES | PyBUF_WRITABLE);
        if (view.shape[3] > 1 && view.stride[3] != item_size(dtype))
            throw std::invalid_argument(std::string(name) + " has rows that are not contiguous");
        return view;
    }

  private:
    Py_buffer& next() {
        if (used_ == 20) throw std::invalid_argument("too many arrays");
        return held_[used_++];
    }

    static void from_tuple(nb::handle given, int axes, const char* name, View& view) {
        nb::handle shape = given[1], strides = given[2];
        if (nb::len(shape) != static_cast<std::size_t>(axes))
            throw std::invalid_argument(std::string(name) + " has the wrong number of axes");
        view.data = reinterpret_cast<const char*>(nb::cast<std::uintptr_t>(given[0]));
        for (int i = 0; i < axes; ++i) {
            view.shape[i] = nb::cast<i64>(shape[i]);
            view.stride[i] = nb::cast<i64>(strides[i]) * item_size(view.dtype);
        }
    }

    void from_buffer(nb::handle given, int axes, const char* name, View& view,
                     int flags = PyBUF_STRIDES) {
        Py_buffer& buffer = next();
        if (PyObject_GetBuffer(given.ptr(), &buffer, flags) != 0) {
            --used_;
            throw nb::python_error();
        }
        if (buffer.ndim != axes || buffer.itemsize != item_size(view.dtype))
            throw std::invalid_argument(std::string(name) + " has the wrong number of axes or item size");
        view.data = static_cast<const char*>(buffer.buf);
        for (int i = 0; i < axes; ++i) {
            view.shape[i] = buffer.shape[i];
            view.stride[i] = buffer.strides[i];
        }
    }

    Py_buffer held_[20];
    int used_ = 0;
};

[[noreturn]] void mismatch(const char* what) {
    throw std::invalid_argument(std::string(what) + " does not fit the query and key");
}

// An array that broadcasts to [batch, heads, queries, keys].
void check_broadcast(const View& view, const Call& call, int axes, const char* name) {
    const i64 full[4] = {call.batch(), call.query_heads(), call.queries(), call.keys()};
    for (int i = 0; view && i < axes; ++i)
        if (view.shape[i] != 1 && view.shape[i] != full[i]) mismatch(name);
}

constexpr i64 LIMIT = i64{1} << 40;

void check_sizes(const Call& call) {
    const View &a = call.q, &b = call.k, &c = call.v;
    if (!a || !b || !c || a.shape[3] != b.shape[3] || a.shape[3] < 1) mismatch("the key");
    if (a.shape[0] != b.shape[0] || a.shape[0] != c.shape[0] || b.shape[1] != c.shape[1] ||
        b.shape[2] != c.shape[2])
        mismatch("the value");
    if (a.shape[1] && (!b.shape[1] || a.shape[1] % b.shape[1])) mismatch("the number of key heads");
    // Room for every index and byte count the kernels form.
    i64 cells;
    if (__builtin_mul_overflow(b.shape[2] + 1024, a.shape[3] + c.shape[3] + 64, &cells) ||
        cells > LIMIT || a.shape[2] > LIMIT || a.shape[3] > LIMIT || c.shape[3] > LIMIT)
        throw std::invalid_argument("the sizes are beyond any memory");
}

void read_band(Call& call, nb::handle band) {
    if (band.is_none()) return;
    Mask& mask = call.mask;
    mask.band = true;
    mask.low = nb::cast<i64>(band[0]);
    mask.high = nb::cast<i64>(band[1]);
    if (mask.low < -LIMIT || mask.high > LIMIT || mask.low > LIMIT || mask.high < -LIMIT)
        throw std::invalid_argument("the band is beyond any memory");
}

Call read_call(Arrays& arrays, int dtype, nb::handle q, nb::handle k, nb::handle v,
               nb::handle band, nb::handle spans, nb::handle dense, nb::handle bias, int bias_dtype,
               nb::handle sinks, int sinks_dtype, double scale, double softcap, nb::handle dropout) {
    Call call;
    const auto type = static_cast<Dtype>(dtype);
    call.q = arrays.view(q, type, 4, "query");
    call.k = arrays.view(k, type, 4, "key");
    call.v = arrays.view(v, type, 4, "value");
    check_sizes(call);
    read_band(call, band);
    call.mask.spans = arrays.view(spans, Dtype::i32, 5, "spans");
    if (call.mask.spans && call.mask.spans.shape[4] != 2) mismatch("spans");
    check_broadcast(call.mask.spans, call, 3, "spans");
    call.mask.dense = arrays.view(dense, Dtype::boolean, 4, "mask");
    check_broadcast(call.mask.dense, call, 4, "mask");
    call.bias = arrays.view(bias, static_cast<Dtype>(bias_dtype), 4, "bias");
    check_broadcast(call.bias, call, 4, "bias");
    call.sinks = arrays.view(sinks, static_cast<Dtype>(sinks_dtype), 1, "sinks");
    if (call.sinks && call.sinks.shape[0] != call.query_heads()) mismatch("sinks");
    call.scale = scale;
    call.softcap = softcap;
    if (!dropout.is_none()) {  // (own, common, seed, offset, scale)
        call.dropout.on = true;
        call.dropout.own = nb::cast<std::uint32_t>(dropout[0]);
        call.dropout.common = nb::cast<std::uint32_t>(dropout[1]);
        call.dropout.seed = nb::cast<std::uint64_t>(dropout[2]);
        call.dropout.offset = nb::cast<std::uint32_t>(dropout[3]);
        call.dropout.scale = nb::cast<float>(dropout[4]);
    }
    return call;
}

unsigned long main_thread = 0;  // the one in which Python handles signals

bool interrupted() {
    if (PyThread_get_thread_ident() != main_thread) return false;
    const nb::gil_scoped_acquire held;
    return PyErr_CheckSignals() != 0;
}

// Runs it without the GIL; the error that a signal's handler left, such as KeyboardInterrupt, is raised.
template <class Work>
void unlocked(Work work) {
    bool stopped = false;
    {
        const nb::gil_scoped_release release;
        try {
            work();
        } catch (const Interrupted&) {
            stopped = true;
        }
    }
    if (stopped) throw nb::python_error();
}

void check_edges(const i64* edges, i64 bins, i64 cells, const char* name) {
    bool fine = bins >= 1 && edges[0] >= 0 && edges[bins] <= cells;
    for (i64 i = 0; fine && i < bins; ++i) fine = edges[i] <= edges[i + 1];
    if (!fine) throw std::invalid_argument(std::string(name) + " must ascend within the matrix");
}

i64 rows_in(const Call& call) { return call.batch() * call.query_heads() * call.queries(); }

Result into(const Call& call, const View& output, float* stats, bool health) {
    Result out;
    for (int i = 0; i < 4; ++i)
        if (output.shape[i] != (i < 3 ? call.q.shape[i] : call.value_size())) mismatch("the output");
    out.output = const_cast<char*>(output.data);
    for (int i = 0; i < 3; ++i) out.stride[i] = output.stride[i];
    out.logsumexp = stats;
    if (health) {
        out.max_logit = stats + rows_in(call);
        out.entropy = out.max_logit + rows_in(call);
    }
    return out;
}

void run(const Call& call, const Result& out) {
    const int count = threads();
    unlocked([&] { isa().forward(call, out, count); });
}

void forward(int dtype, nb::handle q, nb::handle k, nb::handle v, nb::handle band, nb::handle spans,
             nb::handle dense, nb::handle bias, int bias_dtype, nb::handle sinks, int sinks_dtype,
             double scale, double softcap, nb::handle dropout, nb::handle output, nb::handle stats,
             bool health) {
    Arrays arrays;
    const Call call = read_call(arrays, dtype, q, k, v, band, spans, dense, bias, bias_dtype, sinks,
                                sinks_dtype, scale, softcap, dropout);
    const View target = arrays.writable(output, call.q.dtype, "output");
    float* const rows = arrays.target<float>(stats, rows_in(call) * (health ? 3 : 1), "statistics");
    run(call, into(call, target, rows, health));
}

// The same for float32 and nothing else: a call with few arguments that are never None is quicker.
void forward_plain(nb::handle q, nb::handle k, nb::handle v, double scale, nb::handle output,
                   nb::handle stats, bool health) {
    const nb::handle none = Py_None;
    forward(static_cast<int>(Dtype::f32), q, k, v, none, none, none, none, 0, none, 0, scale, 0.0, none,
            output, stats, health);
}

const DLExchange* exchange = nullptr;

// From now on tensors are read by the functions in this capsule; false where they are unknown here.
bool set_exchange(nb::handle capsule) {
    const void* const found = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
    if (!found) throw nb::python_error();
    const auto* api = static_cast<const DLExchange*>(found);
    while (api && api->version.major != 1) api = api->older;
    exchange = api && api->describe ? api : nullptr;
    return exchange != nullptr;
}

bool describe(nb::handle tensor, View& view) {
    DLArray array;
    if (exchange->describe(tensor.ptr(), &array) != 0) {  // sparse, nested, ...: not for here
        PyErr_Clear();
        return false;
    }
    return read(array, view);
}

// `forward` for tensors on the CPU, [B, H, N, D] of one float type, under a band or no mask. False,
// and nothing done, where they are not, or where query heads share key heads and `shared` is off.
bool forward_tensors(nb::handle q, nb::handle k, nb::handle v, nb::handle band, double scale,
                     double softcap, bool shared, nb::handle output, nb::handle stats, bool health) {
    Call call;
    View target;
    if (!exchange || !describe(q, call.q) || !describe(k, call.k) || !describe(v, call.v) ||
        !describe(output, target))
        return false;
    const View &a = call.q, &b = call.k, &c = call.v;
    if (a.dtype != b.dtype || a.dtype != c.dtype || a.dtype != target.dtype) return false;
    if (a.shape[3] < 1 || a.shape[3] != b.shape[3] || a.shape[0] != b.shape[0] ||
        a.shape[0] != c.shape[0] || b.shape[1] != c.shape[1] || b.shape[2] != c.shape[2] ||
        b.shape[1] < 1 || a.shape[1] % b.shape[1] || (!shared && a.shape[1] != b.shape[1]))
        return false;
    if (target.shape[3] != c.shape[3]) return false;
    if (target.shape[3] > 1 && target.stride[3] != item_size(target.dtype)) return false;
    check_sizes(call);
    read_band(call, band);
    call.scale = scale;
    call.softcap = softcap;
    Arrays arrays;
    float* const rows = arrays.target<float>(stats, rows_in(call) * (health ? 3 : 1), "statistics");
    run(call, into(call, target, rows, health));
    return true;
}

// `forward` over keys and values in pages: k and v are all rows there are, [1, heads, rows, size],
// table [batch, pages] of int32 says where the pages of 2^shift keys of each entry lie, and spans
// which of its keys each query sees.
void forward_paged(int dtype, nb::handle q, nb::handle k, nb::handle v, nb::handle table, int shift,
                   nb::handle spans, nb::handle sinks, int sinks_dtype, double scale, double softcap,
                   nb::handle output, nb::handle stats, bool health) {
    Arrays arrays;
    Call call;
    const auto type = static_cast<Dtype>(dtype);
    call.q = arrays.view(q, type, 4, "query");
    call.k = arrays.view(k, type, 4, "key");
    call.v = arrays.view(v, type, 4, "value");
    const View pages = arrays.view(table, Dtype::i32, 2, "table");
    if (!call.k || !call.v || !pages || shift < 0 || shift > 30) mismatch("the table");
    const i64 there = call.k.shape[2] >> shift, width = pages.shape[1];
    if (call.k.shape[0] != 1 || call.v.shape[0] != 1 || call.v.shape[2] != call.k.shape[2] ||
        pages.shape[0] != call.batch() || (width > 1 && pages.stride[1] != 4))
        mismatch("the table");
    if (width > (LIMIT >> shift)) throw std::invalid_argument("the sizes are beyond any memory");
    for (i64 i = 0; i < pages.shape[0]; ++i)
        for (i64 j = 0; j < width; ++j) {
            std::int32_t page;
            std::memcpy(&page, pages.data + i * pages.stride[0] + 4 * j, 4);
            if (page < 0 || page >= there) throw std::invalid_argument("the table names a page that is not there");
        }
    call.k.shape[0] = call.v.shape[0] = call.batch();
    call.k.shape[2] = call.v.shape[2] = width << shift;
    call.pages = Pages{pages.data, pages.stride[0], shift};
    check_sizes(call);
    call.mask.spans = arrays.view(spans, Dtype::i32, 5, "spans");
    if (!call.mask.spans || call.mask.spans.shape[4] != 2) mismatch("spans");
    check_broadcast(call.mask.spans, call, 3, "spans");
    call.sinks = arrays.view(sinks, static_cast<Dtype>(sinks_dtype), 1, "sinks");
    if (call.sinks && call.sinks.shape[0] != call.query_heads()) mismatch("sinks");
    call.scale = scale;
    call.softcap = softcap;
    const View target = arrays.writable(output, type, "output");
    float* const rows = arrays.target<float>(stats, rows_in(call) * (health ? 3 : 1), "statistics");
    run(call, into(call, target, rows, health));
}

void backward(int dtype, nb::handle q, nb::handle k, nb::handle v, nb::handle band,
              nb::handle spans, nb::handle dense, nb::handle bias, int bias_dtype, nb::handle sinks,
              int sinks_dtype, double scale, double softcap, nb::handle dropout, nb::handle output,
              nb::handle logsumexp,
              nb::handle entropy, nb::handle grad_output, nb::handle grad_logsumexp,
              nb::handle grad_entropy, nb::handle dq, nb::handle dk, nb::handle dv, nb::handle dbias,
              nb::handle dsinks) {
    Arrays arrays;
    const Call call = read_call(arrays, dtype, q, k, v, band, spans, dense, bias, bias_dtype, sinks,
                                sinks_dtype, scale, softcap, dropout);
    const i64 size = item_size(call.q.dtype), heads = call.batch() * call.query_heads();
    const i64 key_rows = call.batch() * call.key_heads() * call.keys();
    Backward out;
    out.output = arrays.view(output, call.q.dtype, 4, "output");
    out.grad_output = arrays.view(grad_output, call.q.dtype, 4, "the gradient of the output");
    for (const View* view : {&out.output, &out.grad_output})
        for (int i = 0; i < 4; ++i)
            if (view->shape[i] != (i < 3 ? call.q.shape[i] : call.value_size())) mismatch("the output");
    out.logsumexp = arrays.target<float>(logsumexp, heads * call.queries(), "logsumexp", false);
    const i64 rows = heads * call.queries();
    out.entropy = arrays.target<float>(entropy, rows, "entropy", false);
    out.grad_logsumexp = arrays.target<float>(grad_logsumexp, rows, "the gradient of logsumexp", false);
    out.grad_entropy = arrays.target<float>(grad_entropy, rows, "the gradient of the entropy", false);
    if (out.grad_entropy && !out.entropy) mismatch("a gradient of the entropy without the entropy");
    out.dq = arrays.target<char>(dq, heads * call.queries() * call.size() * size, "query gradient");
    out.dk = arrays.target<char>(dk, key_rows * call.size() * size, "key gradient");
    out.dv = arrays.target<char>(dv, key_rows * call.value_size() * size, "value gradient");
    if (call.bias) {
        i64 cells = 1;
        for (int i = 0; i < 4; ++i) cells *= out.bias_shape[i] = call.bias.shape[i];
        out.dbias = arrays.target<float>(dbias, cells, "bias gradient");
    }
    if (call.sinks) out.dsinks = arrays.target<float>(dsinks, call.query_heads(), "sink gradient");
    const int count = threads();
    unlocked([&] { isa().backward(call, out, count); });
}

void pool(int dtype, nb::handle q, nb::handle k, nb::handle v, nb::handle band, nb::handle spans,
          nb::handle dense, nb::handle bias, int bias_dtype, nb::handle sinks, int sinks_dtype,
          double scale, double softcap, nb::handle dropout, nb::handle logsumexp, nb::handle row_edges,
          nb::handle column_edges, int kind, nb::handle values) {
    Arrays arrays;
    const Call call = read_call(arrays, dtype, q, k, v, band, spans, dense, bias, bias_dtype, sinks,
                                sinks_dtype, scale, softcap, dropout);
    const i64 heads = call.batch() * call.query_heads();
    Pool out;
    out.logsumexp = arrays.target<float>(logsumexp, heads * call.queries(), "logsumexp", false);
    out.rows = static_cast<i64>(nb::len(row_edges)) - 1;
    out.columns = static_cast<i64>(nb::len(column_edges)) - 1;
    out.row_edges = arrays.target<i64>(row_edges, out.rows + 1, "row edges", false);
    out.column_edges = arrays.target<i64>(column_edges, out.columns + 1, "column edges", false);
    check_edges(out.row_edges, out.rows, call.queries(), "row edges");
    check_edges(out.column_edges, out.columns, call.keys(), "column edges");
    out.kind = static_cast<Pooling>(kind);
    out.values = arrays.target<float>(values, heads * out.rows * out.columns, "values");
    const int count = threads();
    unlocked([&] { isa().pool(call, out, count); });
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "The C++ kernels of the native engine; see limelight.engines.native.";
    // nanobind refuses None unless an argument says that it may come.
    const auto may = nb::arg().none();
    m.def("forward", &forward, may, may, may, may, may, may, may, may, may, may, may, may, may, may,
          may, may, may);
    m.def("forward_plain", &forward_plain);
    m.def("set_exchange", &set_exchange);
    m.def("forward_tensors", &forward_tensors, may, may, may, may, may, may, may, may, may, may);
    m.def("forward_paged", &forward_paged, may, may, may, may, may, may, may, may, may, may, may, may,
          may, may);
    m.def("backward", &backward, may, may, may, may, may, may, may, may, may, may, may, may, may, may,
          may, may, may, may, may, may, may, may, may, may, may);
    m.def("pool", &pool, may, may, may, may, may, may, may, may, may, may, may, may, may, may, may, may,
          may, may, may);
    m.def("isas", [] {
        std::vector<std::string> here;
        for (const Isa* const* one = isas(); *one; ++one)
            if ((*one)->here()) here.emplace_back((*one)->name);
        return here;
    });
    m.def("isa", [] { return std::string(isa().name); });
    m.def("set_isa", [](const std::string& name) { return set_isa(name.c_str()); });
    const nb::object main = nb::module_::import_("threading").attr("main_thread")();
    main_thread = nb::cast<unsigned long>(main.attr("ident"));
    set_asked(&interrupted);
    m.def("threads", &threads);
    m.def("set_threads", &set_threads);
    m.def("thread_runtime", [] { return std::string(thread_runtime()); });
}
