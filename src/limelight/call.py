"""Call: one attention, checked and in canonical form. Every engine reads this and nothing else."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from limelight.arrays import (
    as_array,
    as_numpy,
    dtype_name,
    expand,
    index,
    is_torch,
    of_lists,
    pick,
)
from limelight.dropout import Dropout
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.masks import as_mask
from limelight.masks.allowed import Allowed, check_sides, flatten
from limelight.offers import offered
from limelight.records import lean
from limelight.writing.numbers import counted

FLOATS = ("float64", "float32", "bfloat16", "float16")
LARGEST_FLOAT32 = 3.4e38
LEAST_FLOAT32 = 2.0**-126  # of those with all their digits: kernels take what is smaller for 0


@lean
@dataclass(frozen=True, eq=False)
class Call:
    """What was asked, after checking: four axes, one dtype, one kind of array (NumPy or torch).

    Shapes: query [B, Hq, Nq, D], key [B, Hk, Nk, D], value [B, Hk, Nk, Dv]; bias broadcasts to
    [B, Hq, Nq, Nk]; sinks [Hq]. Strides are the caller's: zero and negative ones occur.
    """

    query: Any
    key: Any
    value: Any
    allowed: Allowed
    bias: Any
    scale: float
    softcap: float | None
    sinks: Any
    batch_shape: tuple[int, ...]
    headless: bool
    dropout: Dropout | None = None

    @property
    def batch(self) -> int:
        return int(self.query.shape[0])

    @property
    def query_heads(self) -> int:
        return int(self.query.shape[1])

    @property
    def key_heads(self) -> int:
        return int(self.key.shape[1])

    @property
    def group(self) -> int:
        """Query heads that share one key head: query head h reads key head h // group."""
        return self.query_heads // self.key_heads if self.key_heads else 1

    @property
    def queries(self) -> int:
        return int(self.query.shape[2])

    @property
    def keys(self) -> int:
        return int(self.key.shape[2])

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute: no rows, or no keys at all."""
        return not (self.keys and self.batch and self.query_heads and self.queries)

    @property
    def hides(self) -> bool:
        """Whether some cell may be masked, by the mask or by −inf in the bias."""
        return not self.allowed.everything or self.bias is not None

    @property
    def head_size(self) -> int:
        return int(self.query.shape[3])

    @property
    def value_size(self) -> int:
        return int(self.value.shape[3])

    @property
    def dtype(self) -> str:
        return dtype_name(self.query)

    @property
    def device(self) -> str:
        """The kind of device: cpu, cuda, …"""
        return "cpu" if isinstance(self.query, np.ndarray) else str(self.query.device.type)

    def row_keys(self) -> Any:
        """How many keys each row may attend to, int64 [B, Hq, Nq], as the call's kind of array."""
        rows = self.query.shape[:3]
        if is_torch(self.query):
            from limelight.masks.tensors import count_keys

            return expand(count_keys(self.allowed, self.bias, self.query.device), rows)
        if not self.hides:
            return np.full(rows, self.keys, np.int64)
        return expand(self.allowed.count(self.bias), rows)

    def numpy(self) -> Call:
        """The same call on NumPy arrays: views of tensors that are on the CPU."""
        names = ("query", "key", "value", "bias", "sinks")
        arrays = {name: as_numpy(getattr(self, name)) for name in names}
        allowed = self.allowed
        if is_torch(allowed.dense):
            allowed = replace(allowed, dense=as_numpy(allowed.dense))
        dropout = self.dropout
        if dropout is not None:
            dropout = replace(dropout, seed=as_numpy(dropout.seed))
        return replace(self, **arrays, allowed=allowed, dropout=dropout)

    def one_head(self, head: int, batch: int = 0) -> Call:
        """The call of one query head of one batch entry, whose results have neither axis."""
        batch = index(batch, self.batch, "batch entry")
        head = index(head, self.query_heads, "head")
        key_head, allowed = head // self.group, self.allowed
        return replace(
            self,
            query=pick(self.query, batch, head),
            key=pick(self.key, batch, key_head),
            value=pick(self.value, batch, key_head),
            allowed=replace(
                allowed,
                spans=pick(allowed.spans, batch, head),
                dense=pick(allowed.dense, batch, head),
            ),
            bias=pick(self.bias, batch, head),
            sinks=None if self.sinks is None else self.sinks[head : head + 1],
            batch_shape=(),
            headless=True,
        )

    def some_rows(self, start: int, stop: int) -> Call:
        """The call of the rows start..stop alone, against all keys."""
        if (start, stop) == (0, self.queries):
            return self

        def part(array: Any) -> Any:
            return array if array is None or array.shape[2] == 1 else array[:, :, start:stop]

        allowed = self.allowed
        band = None if allowed.band is None else (allowed.band[0] + start, allowed.band[1] + start)
        return replace(
            self,
            query=self.query[:, :, start:stop],
            allowed=Allowed(
                stop - start, self.keys, band, part(allowed.spans), part(allowed.dense)
            ),
            bias=part(self.bias),
        )

    def restore(self, array: Any) -> Any:
        """[B, Hq, Nq, …] back to the caller's axes."""
        if len(self.batch_shape) == 1 and not self.headless:
            return array
        lead = self.batch_shape if self.headless else (*self.batch_shape, self.query_heads)
        return array.reshape((*lead, *array.shape[2:]))


def prepare(
    query: Any,
    key: Any,
    value: Any = None,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    dropout: Dropout | None = None,
) -> Call:
    """Check what was meant and bring it to the canonical form.

    Without a value the call has values of size 0: enough for everything about the weights.
    """
    if _fits_already(query, key, value):
        batch: tuple[int, ...] = (query.shape[0],)
        headless = False
    else:
        query, key, value, batch, headless = _canonical(query, key, value)
    (_, heads, nq, size), nk = query.shape, key.shape[2]
    return Call(
        query,
        key,
        value,
        _everything(nq, nk) if mask is None else _allowed(mask, query, nk, batch),
        None if bias is None else _check_bias(bias, query, batch, heads, nq, nk),
        1.0 / math.sqrt(size) if scale is None else check_scale(scale),
        None if softcap is None else check_softcap(softcap),
        None if sinks is None else _check_sinks(sinks, query, heads),
        batch,
        headless,
        dropout,
    )


def _fits_already(query: Any, key: Any, value: Any) -> bool:
    """Whether three arrays are in the canonical form as they came: the quick way in."""
    if not (type(query) is type(key) is type(value)):
        return False
    if type(query) is np.ndarray:
        known = query.dtype.char in "fde" and query.dtype.isbuiltin == 1
    else:
        known = (
            is_torch(query)
            and dtype_name(query) in FLOATS
            and query.device == key.device == value.device
            and not (query.is_neg() or key.is_neg() or value.is_neg())
        )
    if not (known and query.dtype is key.dtype is value.dtype):
        return False
    q, k, v = query.shape, key.shape, value.shape
    if not len(q) == len(k) == len(v) == 4:
        return False
    (b, hq, _, d), (kb, hk, nk, kd), (vb, hv, nv, _) = q, k, v
    fits: bool = b == kb == vb and hk == hv and hk > 0 == hq % hk and nk == nv and d == kd and d > 0
    return fits


def _canonical(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any, tuple[int, ...], bool]:
    """Checked, of one kind and dtype, with four axes; and what the caller's axes were."""
    for name, array in (("query", query), ("key", key)):
        if array is None:
            raise ArgumentError(f"{name} is None: attention needs at least queries and keys")
    arrays = _one_kind({"query": query, "key": key, "value": value})
    query, key, value = arrays["query"], arrays["key"], arrays.get("value")
    for name, array in arrays.items():
        if array.ndim < 2:
            raise ShapeError(
                f"{name} has shape {tuple(array.shape)}: it needs at least two axes, [length, "
                f"size], and with heads and batch [..., heads, length, size]"
            )
    headless = query.ndim == 2
    query, key = _with_heads(query), _with_heads(key)
    value = key[..., :0] if value is None else _with_heads(value)
    batch = _check_shapes(query, key, value)
    query, key, value = (_four_axes(array, batch) for array in (query, key, value))
    return query, key, value, batch, headless


def _one_kind(arrays: dict[str, Any]) -> dict[str, Any]:
    """All as NumPy arrays of one float type, or all as torch tensors of one type and device."""
    arrays = {name: array for name, array in arrays.items() if array is not None}
    tensors = [name for name, array in arrays.items() if is_torch(array)]
    if tensors and len(tensors) < len(arrays):
        others = [name for name in arrays if name not in tensors]
        raise DtypeError(
            f"{', '.join(tensors)} came as torch tensors but {', '.join(others)} did not: give all "
            f"of them as tensors, or all as NumPy arrays"
        )
    arrays = {name: as_float(array, name) for name, array in arrays.items()}
    dtypes = {name: dtype_name(array) for name, array in arrays.items()}
    if len(set(dtypes.values())) > 1:
        if tensors or {"float16", "bfloat16"} <= set(dtypes.values()):
            raise DtypeError(f"the dtypes differ ({_listing(dtypes)}): cast them to one")
        widest = np.result_type(*(array.dtype for array in arrays.values()))
        arrays = {name: array.astype(widest, copy=False) for name, array in arrays.items()}
    if tensors:
        devices = {name: str(array.device) for name, array in arrays.items()}
        if len(set(devices.values())) > 1:
            raise DtypeError(f"the devices differ ({_listing(devices)}): move them to one")
    return arrays


def beyond_float32(call: Call) -> str | None:
    """Why an engine that computes in float32 cannot do a call: a number that float32 has not."""
    for name, number in (("scale", call.scale), ("softcap", call.softcap or 0.0)):
        if abs(number) > LARGEST_FLOAT32:
            return f"it computes in float32, and {name}={number:g} is beyond that"
    if call.softcap is not None and call.softcap < LEAST_FLOAT32:
        return f"it computes in float32, and softcap={call.softcap:g} is too small for that"
    return None


def as_float(array: Any, name: str) -> Any:
    """A NumPy array or torch tensor of a float type; integers and lists become float64."""
    if is_torch(array):
        if type(array) is not sys.modules["torch"].Tensor:
            offered("subclasses").refuse(**{name: array})
        array = array.resolve_neg()
    elif isinstance(array, np.ma.MaskedArray):
        raise DtypeError(
            f"{name} is a masked array: pass its data, and as mask=… which cells may be attended to"
        )
    else:  # subclasses too, such as what np.load maps into memory
        array = of_lists(array, name)
    kind = dtype_name(array)
    if kind in FLOATS:
        return array
    if kind.startswith(("int", "uint")):
        return array.double() if is_torch(array) else array.astype(np.float64)
    raise DtypeError(
        f"{name} has dtype {kind}: attention takes {', '.join(FLOATS)}, and integers, which become "
        f"float64"
    )


def _with_heads(array: Any) -> Any:
    """[N, D] is one head: [1, N, D]."""
    return array[None] if array.ndim == 2 else array


def _check_shapes(query: Any, key: Any, value: Any) -> tuple[int, ...]:
    """The sizes must fit; returns the batch axes."""
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"a query of size {query.shape[-1]} has no dot product with a key of size "
            f"{key.shape[-1]}: the last axes must be equal ({shapes})"
        )
    if query.shape[-1] == 0:
        raise ShapeError(f"queries and keys have size 0: they need at least one number ({shapes})")
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"{counted(key.shape[-2], 'key')} but {counted(value.shape[-2], 'value')}: each "
            f"key goes with one value ({shapes})"
        )
    hq, hk = query.shape[-3], key.shape[-3]
    if value.shape[-3] != hk:
        raise ShapeError(
            f"{counted(hk, 'key head')} but {counted(value.shape[-3], 'value head')}: they must be "
            f"equal ({shapes})"
        )
    if hq and (hk == 0 or hq % hk):
        raise ShapeError(
            f"{counted(hq, 'query head')} cannot share {counted(hk, 'key head')}: the first must "
            f"be a multiple of the second ({shapes})"
        )
    try:
        return np.broadcast_shapes(*(tuple(array.shape[:-3]) for array in (query, key, value)))
    except ValueError:
        raise ShapeError(f"the batch axes do not fit together ({shapes})") from None


def _four_axes(array: Any, batch: tuple[int, ...]) -> Any:
    tail = tuple(array.shape[-3:])
    if tuple(array.shape[:-3]) != batch:
        array = expand(array, (*batch, *tail))
    return array if len(batch) == 1 else array.reshape((math.prod(batch), *tail))


@lru_cache(maxsize=256)
def _everything(nq: int, nk: int) -> Allowed:
    check_sides(nq, nk)
    return Allowed(nq, nk)


def _allowed(mask: Any, query: Any, nk: int, batch: tuple[int, ...]) -> Allowed:
    heads, nq = query.shape[1:3]
    allowed = as_mask(mask).allowed(nq, nk)
    return _beside_query(allowed, query).flatten(batch, heads)


def _beside_query(allowed: Allowed, query: Any) -> Allowed:
    """With its dense part, if any, of the query's kind and on its device."""
    if allowed.dense is None:
        return allowed
    if is_torch(allowed.dense) != is_torch(query):
        if not is_torch(query):
            raise DtypeError("the mask is a torch tensor but the query is not: pass mask.numpy()")
        torch = sys.modules["torch"]
        dense = torch.as_tensor(np.array(allowed.dense), device=query.device)
        return replace(allowed, dense=dense)
    if is_torch(query) and allowed.dense.device != query.device:
        raise DtypeError(
            f"the mask is on {allowed.dense.device} and the query on {query.device}: "
            f"move it with mask.to(query.device)"
        )
    return allowed


def _check_bias(bias: Any, query: Any, batch: tuple[int, ...], heads: int, nq: int, nk: int) -> Any:
    if str(getattr(bias, "dtype", "")).endswith("bool"):
        raise DtypeError(
            "the bias is boolean: pass what may be attended to as mask=…; a bias holds "
            "numbers that are added to the logits"
        )
    bias = _beside(bias, query, "bias")
    if bias.ndim < 2:
        bias = bias.reshape((1,) * (2 - bias.ndim) + tuple(bias.shape))
    if bias.shape[-2] not in (1, nq) or bias.shape[-1] not in (1, nk):
        raise ShapeError(
            f"the bias has shape {tuple(bias.shape)} for {counted(nq, 'query')} and "
            f"{counted(nk, 'key')}: its last two axes must be {nq} (or 1) and {nk} (or 1)"
        )
    return flatten(bias, batch, heads, "bias")


def _check_sinks(sinks: Any, query: Any, heads: int) -> Any:
    sinks = _beside(sinks, query, "sinks")
    if tuple(sinks.shape) not in ((heads,), ()) or (sinks.ndim == 0 and heads != 1):
        raise ShapeError(
            f"sinks has shape {tuple(sinks.shape)}: it needs one number for each query head, "
            f"shape ({heads},)"
        )
    return sinks.reshape(heads)


def _beside(array: Any, query: Any, name: str) -> Any:
    """An extra array of the same kind and on the same device as the query."""
    if is_torch(array) and not is_torch(query):
        raise DtypeError(f"{name} is a torch tensor but the query is not: pass {name}.numpy()")
    found = as_float(array, name)
    if is_torch(query) and not is_torch(array):
        return sys.modules["torch"].as_tensor(np.array(as_array(found)), device=query.device)
    if is_torch(query) and found.device != query.device:
        raise DtypeError(
            f"{name} is on {found.device} and the query on {query.device}: move it "
            f"with {name}.to(query.device)"
        )
    return found


def check_value(value: Any) -> None:
    """Weights can be had without values, an output cannot."""
    if value is None:
        raise ArgumentError(
            "value is None: attention mixes values; weights() and heatmap() need none of them"
        )


def no_gradient(name: str) -> ArgumentError:
    return ArgumentError(
        f"{name} is a tensor that needs gradients, and attention has none for it: detach it; "
        f"a scale that is learnt goes into the query, attention(scale * query, …, scale=1.0)"
    )


def _number(value: Any, name: str, meaning: str) -> float:
    if is_torch(value) and value.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise no_gradient(name)
    try:
        if isinstance(value, (str, bytes)):  # float() reads texts too
            raise TypeError
        number = float(value)
    except OverflowError:
        raise ArgumentError(f"{name} is a whole number beyond float64: {meaning}") from None
    except (RuntimeError, TypeError, ValueError):  # of torch, NumPy and Python
        raise ArgumentError(f"{name}={value!r} is not a number: {meaning}") from None
    if not math.isfinite(number):
        raise ArgumentError(f"{name}={number} is not finite: {meaning}")
    return number


def check_scale(scale: float) -> float:
    return _number(scale, "scale", "it multiplies the dot products; None means 1/√D, 1.0 none")


def check_softcap(softcap: float) -> float:
    meaning = "it bounds the logits to ±softcap and must be a positive number; None means no cap"
    number = _number(softcap, "softcap", meaning)
    if number <= 0:
        raise ArgumentError(f"softcap={softcap}: {meaning}")
    return number


def _listing(named: dict[str, str]) -> str:
    return ", ".join(f"{name} {what}" for name, what in named.items())
