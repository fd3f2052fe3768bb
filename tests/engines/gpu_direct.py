"""One launch by Triton's launcher and by limelight's, and what CUDA was handed each time.

Run by test_gpu_direct.py in a process of its own, with libcuda_stub.c in the driver's place.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from triton.backends.nvidia import driver
from triton.runtime.build import compile_module_from_src

from limelight.engines.gpu import direct

SIGNATURE: dict[str, Any] = {
    "rows": "tensordesc<bf16[1,1,64,128],NVMMAShared>", "output": "*fp32", "missing": "*i32",
    "array": ("*bf16", "i32", "i64", ("constexpr", "fp32", "i1")), "count": "i64", "scale": "fp32",
    "wide": "fp64", "flag": "i1", "short": "i16", "bias": "constexpr", "BLOCK": "constexpr",
}  # fmt: skip
TILE = {"swizzle": 3, "elem_size": 2, "elem_type": 8, "block_size": [1, 1, 64, 128],
        "fp4_padded": False}  # fmt: skip
SIZES = {"p": 8, "T": 128, "b": 1, "h": 2, "i": 4, "l": 8, "f": 4, "d": 8}
FUNCTION, STREAM, DEVICE, PROGRAMS, SHARED = 0x1234, 77, 0, 5, 4096


class Tensor:
    """What the launchers ask of a tensor."""

    shape, dtype = (2, 3, 500, 128), "bf16"

    def __init__(self, address: int) -> None:
        self.address = address

    def stride(self) -> tuple[int, ...]:
        return 192_000, 64_000, 128, 1

    def data_ptr(self) -> int:
        return self.address


def handed(cuda: Any) -> bytes:
    length = ctypes.c_int()
    cuda.handed.restype = ctypes.c_void_p
    return ctypes.string_at(cuda.handed(ctypes.byref(length)), length.value)


def refused(kind: type[Exception], *given: Any) -> str:
    try:
        direct._launcher()(*given)
    except kind as error:
        return str(error)
    raise AssertionError(f"launched with {given}")


def main() -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    driver.triton.runtime.driver.set_active(driver.CudaDriver())
    theirs = compile_module_from_src(
        src=driver.make_launcher({}, SIGNATURE, [TILE]), name="__triton_launcher",
        library_dirs=driver.library_dirs(), include_dirs=driver.include_dirs,
        libraries=driver.libraries,
    )  # fmt: skip
    tensor = Tensor(0x7F00_0000_1000)
    arguments = (
        *direct.descriptor(tensor, TILE), tensor, None,
        (0x7F00_0000_2000, -7, 1 << 40, ("anything", 0.1, True)), -(1 << 35), 0.3, 0.7, False, -3,
        None,
    )  # fmt: skip
    word = direct._word(list(SIGNATURE.values())[:-1])
    sizes = [SIZES[letter] for letter in word if letter in SIZES] + [8, 8]
    cuda.expect((ctypes.c_int * len(sizes))(*sizes), len(sizes))
    for early in (False, True):
        theirs.launch(
            PROGRAMS, 1, 1, STREAM, FUNCTION, False, early, None, None, (4, 1, SHARED), None, None,
            None, *arguments, "BLOCK",
        )  # fmt: skip
        want = handed(cuda)
        before = FUNCTION, 128, SHARED, early, word
        direct._launcher()(*before, DEVICE, STREAM, PROGRAMS, *arguments)
        assert handed(cuda) == want
        assert len(want) > sum(sizes)
    assert np.float32(0.3).tobytes() in want
    place = *before, DEVICE, STREAM, PROGRAMS
    assert "compiled for" in refused(TypeError, *place, *arguments[:-1])
    assert "compiled for" in refused(TypeError, *place, *arguments, 1)
    assert "at least 8" in refused(TypeError, *before)
    assert "no descriptor" in refused(TypeError, *place, tensor, *arguments[1:])
    refused(OverflowError, *place, *arguments[:12], 1 << 70, *arguments[13:])
    refused(AttributeError, *place, *arguments[:9], "text", *arguments[10:])
    cuda.fail(1)
    assert "could not start a kernel: stub" in refused(RuntimeError, *place, *arguments)
    print("the same")


if __name__ == "__main__":
    main()
