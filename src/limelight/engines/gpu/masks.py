"""What a mask allows, as arguments of a kernel: the band as two numbers, spans and dense as arrays.

Spans are made by the host in NumPy; they are uploaded once and kept, so that a mask that is used
again costs nothing and a captured CUDA graph finds it in place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from limelight.allowed import Allowed

KEPT = 32  # uploaded masks and plans that are kept
_kept: OrderedDict[tuple[Any, ...], tuple[Any, Any]] = OrderedDict()


@dataclass(frozen=True, eq=False)
class MaskArguments:
    """The parts of a mask on the device. A missing part has no tensor and zero strides."""

    band: bool
    low: int
    high: int
    spans: torch.Tensor | None  # int32 [B|1, H|1, Nq|1, R, 2], contiguous
    spans_strides: tuple[int, int, int]
    slots: int  # R, 0 without spans
    dense: torch.Tensor | None  # uint8 [B|1, H|1, Nq|1, Nk|1]
    dense_strides: tuple[int, int, int, int]

    @property
    def everything(self) -> bool:
        return not self.band and self.spans is None and self.dense is None


def remember(owner: Any, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """What `make` gives, kept while it is among the last used; `owner` lives as long."""
    full = (id(owner), *key)
    if full in _kept:
        _kept.move_to_end(full)
        return _kept[full][1]
    made = make()
    _kept[full] = (owner, made)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return made


def broadcast_strides(tensor: torch.Tensor, axes: int) -> tuple[int, ...]:
    """Strides of the leading axes, 0 where an axis has one element and stands for all."""
    return tuple(
        0 if tensor.shape[axis] == 1 else int(tensor.stride(axis)) for axis in range(axes)
    )


def mask_arguments(allowed: Allowed, device: torch.device) -> MaskArguments:
    """The parts of `allowed`, on the device."""
    low, high = allowed.band if allowed.band is not None else (-allowed.nq, allowed.nk)
    spans = None
    if allowed.spans is not None:
        host = allowed.spans
        spans = remember(host, ("spans", device), lambda: torch.tensor(host, device=device))
    dense = allowed.dense
    if dense is not None:
        dense = dense.view(torch.uint8)
    return MaskArguments(
        band=allowed.band is not None,
        low=max(low, -allowed.nq),
        high=min(high, allowed.nk),
        spans=spans,
        spans_strides=(0, 0, 0) if spans is None else broadcast_strides(spans, 3),  # type: ignore[arg-type]
        slots=0 if spans is None else int(spans.shape[3]),
        dense=dense,
        dense_strides=(0, 0, 0, 0) if dense is None else broadcast_strides(dense, 4),  # type: ignore[arg-type]
    )
