"""The C++ engine: one fused pass on any CPU, its kernels chosen by what the processor has.

The extension module `_native` takes addresses, shapes and strides; this file hands them over and
makes the arrays that it fills. LIMELIGHT_ISA forces one instruction set (avx512bf16, avx512, avx2,
neon, plain); `isas()` says which this machine has.
"""

from __future__ import annotations

import math
import os
import sys
from functools import cache
from typing import Any

import numpy as np

from limelight.arrays import consecutive, output_like
from limelight.call import LARGEST_FLOAT32, LEAST_FLOAT32, Call, beyond_float32
from limelight.dropout import Dropout
from limelight.engines import _numpy_pool
from limelight.engines._numpy_pool import strongest as strongest
from limelight.errors import EngineError
from limelight.reference import Gradients, State

try:
    from limelight.engines import _native
except ImportError as error:
    _native = None  # type: ignore[assignment]
    _WHY = f"its module could not be loaded ({error}): install limelight where a C++ compiler is"

FLOATS = {"float32": 0, "bfloat16": 1, "float16": 2, "float64": 3}
_FLOAT32 = np.dtype(np.float32)
POOLS = {"max": 0, "mean": 1}
_refused: str | None = None  # why the instruction set that LIMELIGHT_ISA names cannot be had
_CODES: dict[Any, int] = {}  # dtype objects of NumPy and torch as they turn up


def check_isa() -> None:
    """Raise where LIMELIGHT_ISA names an instruction set that is not here."""
    if _refused is not None:
        raise EngineError(_refused)


def missing() -> str | None:
    check_isa()
    return _WHY if _native is None else None


def cannot(call: Call) -> str | None:
    reason = beyond_float32(call)
    if reason is None and call.softcap is not None and not bends(call.scale, call.softcap):
        ratio = abs(call.scale) / call.softcap
        return f"it divides scale by softcap, and float32 has no {ratio:g} in all its digits"
    return reason


def bends(scale: float, softcap: float) -> bool:
    """Whether float32 has a softcap, and what the scores are multiplied with before their tanh."""
    fits = LEAST_FLOAT32 <= softcap <= LARGEST_FLOAT32
    return fits and (not scale or LEAST_FLOAT32 <= abs(scale) / softcap <= LARGEST_FLOAT32)


def isas() -> list[str]:
    """The instruction sets that this machine has kernels for, best first."""
    return _native.isas()


def isa() -> str:
    """The instruction set in use."""
    check_isa()
    return _native.isa()


def set_isa(name: str) -> None:
    """Use another instruction set from now on, for tests and comparisons."""
    if not _native.set_isa(name):
        raise EngineError(
            f"there is no instruction set {name!r} here: this machine runs {', '.join(isas())}"
        )
    global _refused
    _refused = None


def threads() -> int:
    """How many threads the next call will use."""
    return _native.threads()


def set_threads(count: int) -> None:
    """Use so many threads; 0 for the default."""
    _native.set_threads(count)


def forward(call: Call, *, health: bool) -> State:
    rows = call.query.shape[:3]
    output = output_like(call.query, call.value.shape[3])
    stats = _empty(call, (3, *rows) if health else rows, "float32")
    _native.forward(*_arguments(call), _array(output), _block(stats), health)
    return State(output, stats[0], stats[1], stats[2]) if health else State(output, stats)


def quick(query: Any, key: Any, value: Any, health: bool) -> State | None:
    """For a few rows all that is left out here would take as long as the kernel."""
    if not (
        _native is not None
        and _refused is None
        and type(query) is type(key) is type(value) is np.ndarray
        and query.dtype is key.dtype is value.dtype is _FLOAT32
        and query.ndim == value.ndim == 4
    ):
        return None
    b, h, n, d = query.shape
    output = np.empty((b, h, n, value.shape[3]), _FLOAT32)
    stats = np.empty((3, b, h, n) if health else (b, h, n), _FLOAT32)
    scale = 1.0 / math.sqrt(d) if d else 0.0
    try:
        _native.forward_plain(query, key, value, scale, output, stats, health)
    except ValueError:  # the sizes do not fit as they are
        return None
    return State(output, *stats) if health else State(output, stats)


@cache
def reads_tensors() -> bool:
    """Whether torch tensors can be read at once: recent versions of torch say how."""
    offered = getattr(sys.modules["torch"].Tensor, "__dlpack_c_exchange_api__", None)
    return _native is not None and offered is not None and _native.set_exchange(offered)


def forward_tensors(
    query: Any, key: Any, value: Any, band: tuple[int, int] | None, scale: float,
    softcap: float | None, shared: bool,
) -> Any:  # fmt: skip
    """The output alone, without a Call, for tensors on the CPU that fit as they are; else None.

    `shared` says whether query heads may share key heads.
    """
    if _refused is not None or not reads_tensors():
        return None
    output = sys.modules["torch"].empty_like(query)  # which fits unless a value has another size
    done = _native.forward_tensors(
        query, key, value, band, scale, softcap or 0.0, shared, output, None, False
    )
    return output if done else None


def forward_paged(
    query: Any, key: Any, value: Any, table: Any, page: int, spans: Any, sinks: Any, scale: float,
    softcap: float | None, health: bool,
) -> State:  # fmt: skip
    """`forward` over keys and values in pages, which the table names (see torch/paged.py).

    query [B, Hq, Nq, D]; key and value [Hk, rows, D], all rows there are; table int32 [B, pages];
    a page has `page` rows, a power of two; spans int32 [B, 1, Nq, 1, 2], the keys of each query.
    """
    rows = query.shape[:3]
    torch = sys.modules["torch"]
    output = output_like(query, value.shape[2])
    stats = torch.empty((3, *rows) if health else rows, dtype=torch.float32)
    _native.forward_paged(
        _code(query.dtype), _array(query), _array(key[None]), _array(value[None]), _array(table),
        page.bit_length() - 1, _array(spans), None if sinks is None else _array(sinks),
        0 if sinks is None else _code(sinks.dtype), scale, softcap or 0.0, _array(output),
        _block(stats), health,
    )  # fmt: skip
    return State(output, *stats) if health else State(output, stats)


def backward(
    call: Call,
    state: State,
    grad_output: Any,
    *,
    grad_logsumexp: Any = None,
    grad_entropy: Any = None,
    with_bias: bool = True,
) -> Gradients:
    grads = [_empty(call, array.shape) for array in (call.query, call.key, call.value)]
    extras = [
        None if array is None else _empty(call, array.shape, "float32")
        for array in (call.bias if with_bias else None, call.sinks)
    ]
    entropy = None if grad_entropy is None else state.entropy
    rows = [  # in a list: a copy must outlive its address
        None if figure is None else _contiguous(figure)
        for figure in (state.logsumexp, entropy, grad_logsumexp, grad_entropy)
    ]
    logsumexp, entropy, *by_rows = (None if array is None else _block(array) for array in rows)
    _native.backward(
        *_arguments(call),
        _array(state.output),
        logsumexp,
        entropy,
        _array(grad_output),
        *by_rows,
        *(None if array is None else _block(array) for array in (*grads, *extras)),
    )
    bias, sinks = (
        None if array is None else _cast(array, given.dtype)
        for array, given in zip(extras, (call.bias, call.sinks), strict=True)
    )
    query, key, value = grads
    return Gradients(query, key, value, bias, sinks)


def pool(call: Call, logsumexp: Any, row_edges: Any, column_edges: Any, kind: str) -> Any:
    return _pool(call, logsumexp, row_edges, column_edges, POOLS[kind])


def received(call: Call, logsumexp: Any) -> Any:
    rows, columns = np.array([0, call.queries]), np.arange(call.keys + 1)
    return _pool(call, logsumexp, rows, columns, 2)[:, :, 0]


def block(call: Call, logsumexp: Any, rows: Any, columns: Any) -> Any:
    """A region is a picture whose bins are single cells; those not allowed weigh nothing."""
    if not (consecutive(rows) and consecutive(columns)):
        return _numpy_pool.block(call, logsumexp, rows, columns)
    rows, columns = (np.append(at, at[-1] + 1) for at in (rows, columns))
    values = _pool(call, logsumexp, rows, columns, POOLS["max"])
    hidden = call.allowed.count_in(rows, columns, call.bias) == 0
    values[np.broadcast_to(hidden, values.shape)] = 0.0
    return values


def _pool(call: Call, logsumexp: Any, row_edges: Any, column_edges: Any, kind: int) -> Any:
    edges = [np.ascontiguousarray(given, np.int64) for given in (row_edges, column_edges)]
    shape = call.batch, call.query_heads, len(edges[0]) - 1, len(edges[1]) - 1
    values = np.empty(shape, np.float32)
    statistics = np.ascontiguousarray(logsumexp, np.float32)
    _native.pool(*_arguments(call), statistics, *edges, kind, values)
    return values


def _arguments(call: Call) -> tuple[Any, ...]:
    """A call as `_native` takes it."""
    query, key, value, allowed = call.query, call.key, call.value, call.allowed
    bias, sinks = call.bias, call.sinks
    return (
        _code(query.dtype), _array(query), _array(key), _array(value), allowed.band, allowed.spans,
        None if allowed.dense is None else _array(allowed.dense),
        None if bias is None else _array(bias), 0 if bias is None else _code(bias.dtype),
        None if sinks is None else _array(sinks), 0 if sinks is None else _code(sinks.dtype),
        call.scale, call.softcap or 0.0, _drops(call.dropout),
    )  # fmt: skip


def _drops(dropout: Dropout | None) -> tuple[int, int, int, int, float] | None:
    if dropout is None:
        return None
    return *dropout.bounds, *dropout.numbers, dropout.scale


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


def _block(array: Any) -> Any:
    """Contiguous memory for `_native` to fill: an object with a buffer, or (address, bytes)."""
    if type(array) is np.ndarray:
        return _array(array)
    return array.data_ptr(), array.nbytes


def _empty(call: Call, shape: tuple[int, ...], dtype: str | None = None) -> Any:
    """A fresh array of the call's kind, and of its dtype unless told otherwise."""
    query = call.query
    if type(query) is np.ndarray:
        return np.empty(shape, _FLOAT32 if dtype else query.dtype)
    torch = sys.modules["torch"]
    return torch.empty(shape, dtype=getattr(torch, dtype) if dtype else query.dtype)


def _contiguous(array: Any) -> Any:
    return np.ascontiguousarray(array) if type(array) is np.ndarray else array.contiguous()


def _cast(array: Any, dtype: Any) -> Any:
    return array.astype(dtype, copy=False) if type(array) is np.ndarray else array.to(dtype)


if _native is not None and os.environ.get("LIMELIGHT_ISA"):
    try:
        set_isa(os.environ["LIMELIGHT_ISA"])
    except EngineError as error:  # raised at the first use, where a caller can catch it
        _refused = f"LIMELIGHT_ISA: {error}"
