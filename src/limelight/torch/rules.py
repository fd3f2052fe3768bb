"""Rules: what hides and what is added in a call on tensors, as a capture keeps it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limelight.arrays import as_numpy
from limelight.masks import Explicit, Mask
from limelight.masks import spans as sp
from limelight.masks.allowed import Allowed
from limelight.masks.measured import Intervals, measure, simplify

Array = NDArray[Any]


def split(bias: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """An additive mask: which cells it shows (None for all), and what it adds (None for nothing).

    Models write "minus infinity" as −inf or as the least float.
    """
    hidden = bias <= torch.finfo(bias.dtype).min / 2
    if not hidden.any():
        return None, bias if bias.requires_grad or bias.any() else None
    rest = torch.where(hidden, 0.0, bias)
    return ~hidden, rest if rest.requires_grad or rest.any() else None


class Rules:
    """Masks and biases of calls, read once for all layers that share a tensor."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Any, Any]] = {}

    def read(
        self, allowed: Allowed, bias: Tensor | None
    ) -> tuple[Mask | None, Array | None, Array | None]:
        """The plainest mask with these cells, the bias that is left, and which keys are text.

        The last is [B, Nk], False at keys that look like padding; None where nothing does.
        """
        key = (_place(allowed.spans), _place(allowed.dense), allowed.band, allowed.nq, allowed.nk,
               _place(bias))  # fmt: skip
        if key not in self._known:  # what is looked at is kept, so that its place is not used again
            shown, rest = (None, None) if bias is None else split(bias.detach())
            found = (*_mask(allowed, shown), None if rest is None else np.array(as_numpy(rest)))
            self._known[key] = ((allowed, bias), found)
        mask, real, rest = self._known[key][1]
        return mask, rest, real


def _mask(allowed: Allowed, shown: Tensor | None) -> tuple[Mask | None, Array | None]:
    dense = None if allowed.dense is None else np.array(as_numpy(allowed.dense))
    if shown is not None:
        cells = as_numpy(shown)
        cells = cells.reshape((1,) * (4 - cells.ndim) + cells.shape)
        dense = cells if dense is None else dense & cells
    allowed = replace(allowed, dense=dense)
    if allowed.everything:
        return None, None
    spans = measure(allowed)
    if spans is not None:
        mask = simplify(Intervals(spans, allowed.nk))
    elif allowed.band is None and allowed.spans is None:
        mask = Explicit(dense)
    else:
        mask = Explicit(allowed.tile(np.arange(allowed.nq), np.arange(allowed.nk)))
    return mask, _real(allowed, dense, spans)


def _real(allowed: Allowed, dense: Array | None, spans: sp.Spans | None) -> Array | None:
    """Keys that some query of their entry sees, where the others look like padding: [B, Nk].

    Padding is what a flag a key hides, or what is hidden from all queries of one entry and not of
    another. Keys that every entry leaves unseen are the mask's own: a rule may be strict.
    """
    if dense is not None and dense.shape[2] == 1 and dense.shape[3] == allowed.nk:
        flags = np.asarray(dense[:, :, 0].any(axis=1))
        if not flags.all():
            return flags
    if spans is None:
        cells = allowed.tile(np.arange(allowed.nq), np.arange(allowed.nk))
        seen = None if cells is None else np.asarray(cells.any(axis=(1, 2)))
    else:
        seen = _seen(spans, allowed.nk)
    return None if seen is None or (seen == seen[:1]).all() else seen


def _seen(spans: sp.Spans, nk: int) -> Array:
    """Which keys lie in an interval of some row of their entry, [B|1, Nk]."""
    steps = np.zeros((len(spans), nk + 1), np.int64)
    used = spans[..., 0] < spans[..., 1]
    entry = np.broadcast_to(np.arange(len(spans))[:, None, None, None], used.shape)[used]
    for side, step in ((0, 1), (1, -1)):
        np.add.at(steps, (entry, spans[..., side][used]), step)
    return np.asarray(steps.cumsum(axis=1)[:, :nk] > 0)


def _place(part: Any) -> Any:
    """Where an array lies and how it is read: the same for every view of it that looks alike."""
    if not isinstance(part, Tensor):
        return id(part)
    return part.data_ptr(), tuple(part.shape), part.stride(), part.dtype, part._version
