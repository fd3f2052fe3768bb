"""Small calls on the CPU: from three tensors to the kernel, with as little as can be in between.

A model that writes asks for one row a layer, and what Python does about such a call takes longer
than the call. Here everything that is plain goes the shortest way: three dense tensors of four
axes, no mask or a band, no gradient, nobody who looks on. Whatever else comes, or does not fit,
goes the long way round, which also knows what to say about it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from limelight.call import LARGEST_FLOAT32
from limelight.engines import tensor_path
from limelight.engines.native import bends
from limelight.masks import Causal, Window
from limelight.torch import bridge

_forward = tensor_path()
_transforms = torch._C._are_functorch_transforms_active
_modes = torch._C._len_torch_dispatch_stack
_tracing = torch._C._is_tracing
_autocast = torch.is_autocast_enabled
_grad = torch.is_grad_enabled


def run(
    query: Any, key: Any, value: Any, mask: Any, scale: Any, softcap: Any, shared: bool = True
) -> Tensor | None:
    """The output of a plain call; None where there is more to it.

    `shared` says whether query heads may share key heads.
    """
    if not (type(query) is type(key) is type(value) is Tensor) or torch.compiler.is_compiling():
        return None
    if not query.is_cpu or query.is_nested or key.is_nested or value.is_nested:
        return None
    if not plain(query, key, value) or _autocast("cpu"):
        return None
    if not query.ndim == key.ndim == value.ndim == 4:
        return None
    band = None
    if mask is not None:
        if type(mask) not in (Window, Causal):
            return None
        band = _band(mask, query.shape[2], key.shape[2])
    if scale is None:
        size = query.shape[3]
        scale = 1.0 / math.sqrt(size) if size else 0.0
    elif type(scale) is not float or not -LARGEST_FLOAT32 < scale < LARGEST_FLOAT32:
        return None
    if softcap is not None and (type(softcap) is not float or not bends(scale, softcap)):
        return None
    output: Tensor | None = _forward(query, key, value, band, scale, softcap, shared)
    return output


def plain(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether nothing is at work on tensors that is more than their numbers."""
    return not needs_graph(query, key, value) and bare(query, key, value)


def needs_graph(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether gradients are asked for."""
    return _grad() and (query.requires_grad or key.requires_grad or value.requires_grad)


def bare(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether nothing is at work on tensors but perhaps autograd."""
    return not (
        bridge.observers
        or _modes()
        or _transforms()
        or _tracing()
        or forward_ad._current_level >= 0
        or query.is_neg() or key.is_neg() or value.is_neg()
    )  # fmt: skip


def _band(mask: Window, nq: int, nk: int) -> tuple[int, int] | None:
    """The mask as low ≤ j − i ≤ high; None where that hides nothing."""
    offset = nk - nq if mask.align == "bottom-right" else 0
    low = -nq if mask.left is None else offset - mask.left
    high = nk if mask.right is None else offset + mask.right
    return None if low <= 1 - nq and high >= nk - 1 else (max(low, -nq), min(high, nk))
