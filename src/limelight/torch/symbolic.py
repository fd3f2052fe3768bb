"""A call while torch.compile or torch.export trace it: sizes may be symbols, values are unknown.

The same canonical form as limelight.call.prepare makes, from tensor operations alone. Causal and
window masks become a band whose ends follow the traced sizes; boolean tensors stay tensors, and so
does what `|` and `~` make of them. Masks with numbers of their own (lengths, documents, prefixes)
are read once, at the sizes of the trace.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from limelight.arrays import a_type
from limelight.call import no_gradient
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.masks import Both, Either, Explicit, Mask, Not, Window
from limelight.torch import subclasses


class Arguments(NamedTuple):
    """A call as the operator takes it: canonical axes, the mask in its parts."""

    query: Tensor
    key: Tensor
    value: Tensor
    band: tuple[int, int] | None
    spans: Tensor | None
    dense: Tensor | None
    bias: Tensor | None
    sinks: Tensor | None
    scale: float
    softcap: float | None
    dropout: float = 0.0
    seed: Tensor | None = None


class Parts(NamedTuple):
    """A mask as tensors and integers; all parts that are present must agree."""

    band: tuple[int, int] | None = None
    spans: Tensor | None = None
    dense: Tensor | None = None


def trace(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Any, bias: Any, scale: float | None,
    softcap: float | None, sinks: Any, dropout: float, seed: Tensor | None,
) -> tuple[Arguments, Callable[[Tensor], Tensor]]:  # fmt: skip
    """The operator's arguments, and what brings [B, Hq, Nq, ...] back to the caller's axes."""
    subclasses.refuse(query=query, key=key, value=value, mask=mask, bias=bias, sinks=sinks)
    _check(query, key, value, bias, sinks)
    for name, number in (("scale", scale), ("softcap", softcap)):
        if isinstance(number, Tensor) and number.requires_grad and torch.is_grad_enabled():
            raise no_gradient(name)
    headless = query.ndim == 2
    query, key, value = (x.unsqueeze(0) if x.ndim == 2 else x for x in (query, key, value))
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    heads, nq, nk = query.shape[-3], query.shape[-2], key.shape[-2]
    parts = _parts(mask, nq, nk, query.device)
    arguments = Arguments(
        _four_axes(query, batch), _four_axes(key, batch), _four_axes(value, batch),
        parts.band,
        None if parts.spans is None else _shared(parts.spans, batch, 3),
        None if parts.dense is None else _shared(parts.dense, batch, 2),
        None if bias is None else _shared(bias, batch, 2),
        None if sinks is None else sinks.reshape(heads),
        1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale),
        None if softcap is None else float(softcap),
        dropout, seed,
    )  # fmt: skip
    lead = batch if headless else (*batch, heads)

    def restore(tensor: Tensor) -> Tensor:
        return tensor.reshape(*lead, *tensor.shape[2:])

    return arguments, restore


def _check(query: Tensor, key: Tensor, value: Tensor, bias: Any, sinks: Any) -> None:
    for name, given in (("bias", bias), ("sinks", sinks)):
        if given is not None and not isinstance(given, Tensor):
            raise DtypeError(
                f"{name} is {a_type(given)}: under torch.compile and "
                f"torch.export it must be a tensor"
            )
    if not query.dtype == key.dtype == value.dtype:
        raise DtypeError(
            f"the dtypes differ (query {query.dtype}, key {key.dtype}, value "
            f"{value.dtype}): cast them to one"
        )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value "
            f"{tuple(value.shape)} do not fit together: query and key share their "
            f"last size, key and value their length"
        )


def _four_axes(tensor: Tensor, batch: Any) -> Tensor:
    if tensor.shape[:-3] != batch:
        tensor = tensor.expand(*batch, *tensor.shape[-3:])
    return tensor if len(batch) == 1 else tensor.reshape(math.prod(batch), *tensor.shape[-3:])


def _shared(tensor: Tensor, batch: Any, tail: int) -> Tensor:
    """[..., H|1, *tail] with any leading axes to [B|1, H|1, *tail]."""
    while tensor.ndim < tail + 2:
        tensor = tensor.unsqueeze(0)
    shape = tensor.size()  # what was read from a mask has no .shape while sizes are symbols
    lead, rest = shape[: -tail - 1], shape[-tail - 1 :]
    if len(lead) == len(batch) == 1:
        return tensor
    if all(n == 1 for n in lead):
        return tensor.reshape(1, *rest)
    return tensor.expand(*batch, *rest).reshape(math.prod(batch), *rest)


def _parts(mask: Any, nq: int, nk: int, device: torch.device) -> Parts:
    if mask is None:
        return Parts()
    if isinstance(mask, Tensor):
        if mask.dtype != torch.bool:
            raise DtypeError(
                f"the mask has dtype {mask.dtype}: it must be boolean; numbers to add "
                f"to the logits go in bias=…"
            )
        return Parts(dense=mask)
    if isinstance(mask, Window):
        offset = nk - nq if mask.align == "bottom-right" else 0
        low = -nq if mask.left is None else offset - mask.left
        high = nk if mask.right is None else offset + mask.right
        return Parts(band=(low, high))
    if isinstance(mask, Explicit) and isinstance(mask.array, Tensor):
        return Parts(dense=mask.array)
    if isinstance(mask, Both):
        first, second = (_parts(side, nq, nk, device) for side in (mask.first, mask.second))
        if first.spans is None or second.spans is None:
            return _join(first, second)
    if isinstance(mask, Either):
        first, second = (_parts(side, nq, nk, device) for side in (mask.first, mask.second))
        if first.dense is not None or second.dense is not None:
            return Parts(dense=cells_of(first, nq, nk, device) | cells_of(second, nq, nk, device))
    if isinstance(mask, Not):
        parts = _parts(mask.mask, nq, nk, device)
        if parts.dense is not None:
            return Parts(dense=~cells_of(parts, nq, nk, device))
    if isinstance(mask, Mask):
        return _read(mask, operator.index(nq), operator.index(nk), device)
    raise ArgumentError(
        f"mask is {a_type(mask)}: under torch.compile and torch.export give "
        f"a mask object or a boolean tensor"
    )


def _join(first: Parts, second: Parts) -> Parts:
    band = second.band if first.band is None else first.band
    if first.band is not None and second.band is not None:
        band = (
            torch.sym_max(first.band[0], second.band[0]),
            torch.sym_min(first.band[1], second.band[1]),
        )
    dense = second.dense if first.dense is None else first.dense
    if first.dense is not None and second.dense is not None:
        dense = first.dense & second.dense
    return Parts(band, second.spans if first.spans is None else first.spans, dense)


def cells_of(parts: Parts, nq: int, nk: int, device: torch.device) -> Tensor:
    """Which cells are allowed, bool [..., Nq|1, Nk|1]."""
    cells = torch.ones((1, 1), dtype=torch.bool, device=device)
    column = torch.arange(nk, device=device)
    if parts.band is not None:
        distance = column - torch.arange(nq, device=device)[:, None]
        cells = cells & (distance >= parts.band[0]) & (distance <= parts.band[1])
    if parts.spans is not None:
        spans = parts.spans.to(device)
        cells = cells & ((column >= spans[..., :1]) & (column < spans[..., 1:])).any(-2)
    return cells if parts.dense is None else cells & parts.dense


@torch.compiler.assume_constant_result
def _read(mask: Mask, nq: int, nk: int, device: torch.device) -> Parts:
    try:
        allowed = mask.allowed(nq, nk)
    except AttributeError:  # an object that only the trace knows, and none that can be read
        raise ArgumentError(
            "the mask is a | or a ~ of masks that was made inside of what torch.compile traces, "
            "where its rows cannot be worked out: make it outside and pass it in"
        ) from None
    return Parts(
        allowed.band,
        None if allowed.spans is None else torch.from_numpy(allowed.spans),
        None if allowed.dense is None else torch.as_tensor(allowed.dense, device=device),
    )
