"""What a mask allows, as arguments of a kernel: the band as two numbers, spans and dense as arrays.

Spans are made by the host in NumPy; they are uploaded once and kept, so that a mask that is used
again costs nothing and a captured CUDA graph finds it in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from limelight.call import Call
from limelight.engines.gpu.kept import remember
from limelight.masks.allowed import Allowed


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

    @cached_property
    def where(self) -> Any:
        """The same as one argument of the portable kernels."""
        from limelight.engines.gpu.cells import Where

        return Where(
            self.low, self.high, self.spans, *self.spans_strides, self.dense, *self.dense_strides
        )

    @property
    def everything(self) -> bool:
        return not self.band and self.spans is None and self.dense is None


def broadcast_strides(tensor: torch.Tensor, axes: int) -> tuple[int, ...]:
    """Strides of the leading axes, 0 where an axis has one element and stands for all."""
    return tuple(0 if tensor.shape[axis] == 1 else int(tensor.stride(axis)) for axis in range(axes))


def in_pairs(array: torch.Tensor) -> bool:
    """Whether two neighbours of an array [B|1, H|1, Nq|1, Nk|1] are one aligned load."""
    *strides, step = broadcast_strides(array, 4)
    return step == 1 and array.data_ptr() % 16 == 0 and all(n % 2 == 0 for n in strides)


def in_tiles(call: Call) -> bool:
    """Whether TMA can bring tiles of a bias [B|1, H|1, Nq|1, Nk|1]: a cell of its own for each.

    And whether dot products can be added to it, which a softcap forbids.
    """
    bias = call.bias
    if bias is None or call.softcap is not None:
        return False
    *leading, row, step = broadcast_strides(bias, 4)
    return (
        bias.element_size() == 2 and step == 1 and row > 0 and bias.data_ptr() % 16 == 0
        and all(n % 8 == 0 and n >= 0 for n in (*leading, row))
    )  # fmt: skip


def mask_arguments(allowed: Allowed, device: torch.device) -> MaskArguments:
    """The parts of `allowed`, on the device; remembered unless an array of the caller's is one."""
    host, spans = allowed.spans, None
    if host is not None:
        spans = remember(host, ("spans",), lambda: torch.tensor(host, device=device), device)
    if allowed.dense is not None:
        return _arguments(allowed, spans, allowed.dense.view(torch.uint8))
    known: MaskArguments | None = allowed.memory.get(("arguments", device))
    if known is None or known.spans is not spans:
        known = allowed.memory.keep(("arguments", device), _arguments(allowed, spans, None))
    return known


def _arguments(
    allowed: Allowed, spans: torch.Tensor | None, dense: torch.Tensor | None
) -> MaskArguments:
    low, high = allowed.band if allowed.band is not None else (-allowed.nq, allowed.nk)
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
