"""The C++ engine: one fused pass on any CPU, its kernels chosen by what the processor has.

The extension module `_native` takes addresses, shapes and strides; this file hands them over and
makes the arrays that it fills. LIMELIGHT_ISA forces one instruction set (avx512bf16, avx512, avx2,
neon, plain); `isas()` says which this machine has.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from limelight.call import Call
from limelight.errors import EngineError
from limelight.reference import State

try:
    from limelight.engines import _native
except ImportError as error:
    _native = None  # type: ignore[assignment]
    _WHY = f"its extension module could not be loaded ({error}): install limelight with a C++ compiler"

FLOATS = {"float32": 0, "bfloat16": 1, "float16": 2, "float64": 3}
_CODES: dict[Any, int] = {}  # dtype objects of NumPy and torch as they turn up


def missing() -> str | None:
    return _WHY if _native is None else None


def cannot(call: Call) -> str | None:
    return None


def isas() -> list[str]:
    """The instruction sets that this machine has kernels for, best first."""
    return list(_native.isas())


def isa() -> str:
    """The instruction set in use."""
    return str(_native.isa())


def set_isa(name: str) -> None:
    """Use another instruction set from now on, for tests and comparisons."""
    if not _native.set_isa(name):
        raise EngineError(
            f"there is no instruction set {name!r} here: this machine runs {', '.join(isas())}"
        )


def forward(call: Call, *, health: bool) -> State:
    query = call.query
    value_size = call.value.shape[3]
    rows = query.shape[:3]
    if type(query) is np.ndarray:
        output = np.empty((*rows, value_size), query.dtype)
        stats = np.empty((3 if health else 1, *rows), np.float32)
    else:
        output = query.new_empty((*rows, value_size))
        stats = query.new_empty((3 if health else 1, *rows), dtype=_torch().float32)
    _native.forward(*_arguments(call), _target(output), _target(stats), health)
    return State(output, *stats)


def _arguments(call: Call) -> tuple[Any, ...]:
    allowed, bias, sinks = call.allowed, call.bias, call.sinks
    return (
        _code(call.query.dtype),
        _array(call.query),
        _array(call.key),
        _array(call.value),
        allowed.band,
        allowed.spans,
        None if allowed.dense is None else _array(allowed.dense),
        None if bias is None else _array(bias),
        0 if bias is None else _code(bias.dtype),
        None if sinks is None else _array(sinks),
        0 if sinks is None else _code(sinks.dtype),
        call.scale,
        call.softcap or 0.0,
    )


def _code(dtype: Any) -> int:
    code = _CODES.get(dtype)
    if code is None:
        code = _CODES[dtype] = FLOATS[str(dtype).removeprefix("torch.")]
    return code


def _array(array: Any) -> Any:
    """What `_native` reads: an object with a buffer, or (address, shape, strides)."""
    if type(array) is np.ndarray:
        # NumPy exports no buffer of a dtype that is not its own, such as ml_dtypes.bfloat16.
        return array if array.dtype.isbuiltin == 1 else array.view(np.uint16)
    return array.data_ptr(), array.shape, array.stride()


def _target(array: Any) -> Any:
    """What `_native` writes to: an object with a buffer, or (address, bytes)."""
    if type(array) is np.ndarray:
        return array if array.dtype.isbuiltin == 1 else array.view(np.uint16)
    return array.data_ptr(), array.nbytes


def _torch() -> Any:
    import torch

    return torch


if _native is not None and os.environ.get("LIMELIGHT_ISA"):
    set_isa(os.environ["LIMELIGHT_ISA"])
