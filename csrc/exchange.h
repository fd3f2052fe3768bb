// Tensors of another library, read where they lie: DLPack's exchange by function pointers.
//
// Recent versions of torch offer a capsule with functions that describe a tensor in some 50 ns, where
// asking it for address, shape and strides in Python takes microseconds: for a small call most of
// its time. Declared here is what is read of it, in the layout that DLPack's version 1 fixes.
#pragma once
#include <cstdint>

#include "types.h"

namespace limelight {

struct DLVersion {
    std::uint32_t major, minor;
};

struct DLArray {  // DLTensor
    void* data;
    std::int32_t device_type, device_id;
    std::int32_t ndim;
    std::uint8_t code, bits;
    std::uint16_t lanes;
    std::int64_t *shape, *strides;  // strides in items
    std::uint64_t byte_offset;
};

struct DLExchange {  // DLPackExchangeAPI
    DLVersion version;
    DLExchange* older;
    int (*allocate)(DLArray*, void**, void*, void (*)(void*, const char*, const char*));
    int (*own)(void*, void**);
    int (*to_object)(void*, void**);
    int (*describe)(void*, DLArray*);  // borrowed: the object stays alive, and so do its strides
    int (*stream)(std::int32_t, std::int32_t, void**);
};

constexpr std::int32_t DL_CPU = 1;

// A float tensor on the CPU with four axes; false for any other.
inline bool read(const DLArray& given, View& view) {
    if (given.device_type != DL_CPU || given.ndim != 4 || given.lanes != 1) return false;
    if (given.code == 2 && given.bits == 32) view.dtype = Dtype::f32;
    else if (given.code == 4 && given.bits == 16) view.dtype = Dtype::bf16;
    else if (given.code == 2 && given.bits == 16) view.dtype = Dtype::f16;
    else return false;
    static const char nothing = 0;
    view.data = static_cast<const char*>(given.data);
    view.data = view.data ? view.data + given.byte_offset : &nothing;
    for (int i = 0; i < 4; ++i) {
        view.shape[i] = given.shape[i];
        view.stride[i] = given.shape[i] <= 1 ? 0 : given.strides[i] * item_size(view.dtype);
    }
    return true;
}

}  // namespace limelight
