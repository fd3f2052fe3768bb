"""flex_attention in limelight's terms: block masks and score functions read as rules.

A block mask is a function of (batch, head, query, key) and the blocks in which it is asked; it is
evaluated a few rows at a time and kept as intervals. A score function is read by trying it: what it
adds to every cell is a bias, c·tanh(s/c) is a softcap. One that does something else is let run as
it is, and then only the weights are known.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from limelight.arrays import as_numpy
from limelight.masks import Mask
from limelight.masks.allowed import CHUNK, Allowed
from limelight.masks.measured import compress, measure, simplify, stack
from limelight.torch import functional

MODULE = "torch.nn.attention.flex_attention"
TRIED = (1.0, -3.0, 37.0)  # scores at which a score function is tried
FAR = 1e30  # one so large that a softcap gives its cap
CLOSE = 1e-5


def is_flex(func: Any) -> bool:
    """Whether it is torch's operator; where its module was never imported, nothing is."""
    module = sys.modules.get(MODULE)
    return module is not None and func is module.flex_attention_hop


def attention(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    keep: Callable[[Tensor, Tensor], None],
    room: Callable[[int], None],
) -> tuple[Tensor, Tensor, Tensor]:
    """What torch's operator gives: output, and logsumexp and largest logit in units of ln 2.

    `keep` gets the weights and values of a call whose score function cannot be read; `room` is
    asked before as many numbers are held.
    """
    query, key, value, score, blocks, scale = args[:6]
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    read = _score(score, shape, query.device, room)
    if read is None:
        room(math.prod(shape))
        keep(_weights(query, key, score, blocks, scale), value)
        out: tuple[Tensor, Tensor, Tensor] = func(*args)
        return out
    seen = functional.inspect(query, key, value, mask=_mask(blocks, *shape[2:], query.device),
                              scale=scale, **read)  # fmt: skip
    ln2 = math.log(2.0)
    return seen.output, seen.health.logsumexp / ln2, seen.health.max_logit / ln2


def _mask(blocks: tuple[Any, ...], nq: int, nk: int, device: Any) -> Mask | None:
    """The plainest mask that shows what the block mask shows."""
    step = max(1, CHUNK // max(1, math.prod(blocks[2].shape[:2]) * nk))
    parts, kept = [], []
    for start in range(0, nq, step):
        rows = torch.arange(start, min(start + step, nq), device=device)
        cells = as_numpy(_cells(blocks, rows, nk))
        kept.append(cells)
        spans = measure(Allowed(len(rows), nk, dense=cells))
        if spans is not None:
            parts.append(spans)
    if len(parts) < len(kept):
        return compress(np.concatenate(kept, axis=2))
    return simplify(stack(parts, nk)) if parts else None


def _cells(blocks: tuple[Any, ...], rows: Tensor, nk: int) -> Tensor:
    """The cells of some rows, [B|1, H|1, rows, nk]: in full blocks, or where the function says."""
    (number, places, full_number, full_places), (high, wide) = blocks[2:6], blocks[-3:-1]
    lead, function = number.shape[:2], blocks[-1]
    columns = torch.arange(nk, device=rows.device)

    def inside(number: Tensor, places: Tensor) -> Tensor:
        used = torch.arange(places.shape[3], device=rows.device) < number[..., None]
        there = torch.zeros((*number.shape, places.shape[3] + 1), device=rows.device)
        there.scatter_(3, torch.where(used, places, places.shape[3]).long(), 1.0)
        return there.bool()[:, :, rows // high][..., columns // wide]

    asked = _each(function, rows, columns, lead)
    partly = inside(number, places) & asked
    return partly if full_number is None else partly | inside(full_number, full_places)


def _each(
    function: Callable[..., Tensor], rows: Tensor, columns: Tensor, lead: Any, *scores: Tensor
) -> Tensor:
    """A function of (batch, head, query, key) at every cell: [*lead, rows, columns]."""
    batch, heads = (torch.arange(n, device=rows.device) for n in lead)
    # Innermost first: keys, queries, heads, batch.
    given = 0 if scores else ()
    for axes in ((None,) * 3 + (0,), (None, None, 0, None), (None, 0, None, None),
                 (0, None, None, None)):  # fmt: skip
        dims = (given, *axes) if scores else axes
        function = torch.vmap(function, in_dims=dims)
    found = function(*scores, batch, heads, rows, columns)
    return found.expand(*lead, len(rows), len(columns))


def _score(
    function: Any, shape: tuple[int, int, int, int], device: Any, room: Callable[[int], None]
) -> dict[str, Any] | None:
    """bias and softcap of a score function; None where it is neither.

    It is tried a few rows at a time, and only a bias that adds something is held: `room` is asked
    for its numbers first.
    """
    if function is getattr(sys.modules[MODULE], "_identity", None):
        return {}
    batch, heads, nq, nk = shape
    columns = torch.arange(nk, device=device)
    step, bias, caps = max(1, CHUNK // max(1, batch * heads * nk)), None, set()
    for start in range(0, nq, step):
        rows = torch.arange(start, min(start + step, nq), device=device)
        found = _tried(function, rows, columns, (batch, heads))
        if found is None:
            return None
        added, cap = found
        caps.add(cap)
        if bias is None and added.any():
            room(math.prod(shape))
            bias = torch.zeros(shape, device=device)
        if bias is not None:
            bias[:, :, rows] = added.float()
    if len(caps) > 1:
        return None
    for axis in (0, 1):
        if bias is not None and shape[axis] > 1 and (bias == bias.narrow(axis, 0, 1)).all():
            bias = bias.narrow(axis, 0, 1)
    return {"bias": bias, "softcap": next(iter(caps), None)}


def _tried(
    function: Any, rows: Tensor, columns: Tensor, lead: Any
) -> tuple[Tensor, float | None] | None:
    """What a score function adds to the cells of some rows, and its cap; None if it does more."""

    def at(score: float) -> Tensor:
        scores = torch.full((*lead, len(rows), len(columns)), score, device=rows.device,
                            dtype=torch.float64)  # fmt: skip
        return _each(function, rows, columns, lead, scores).double()

    bias = at(0.0)
    hidden = bias == -torch.inf
    shown = torch.where(hidden, 0.0, bias)
    cap = float(torch.where(hidden, 0.0, at(FAR) - shown).max()) if bias.numel() else FAR
    if not 0 < cap < math.inf:
        return None
    softcap = (
        None if cap > FAR / 2 else float(f"{cap:.7g}")
    )  # as it was written, not as it came out
    for score in TRIED:
        want = score if softcap is None else softcap * math.tanh(score / softcap)
        got = torch.where(hidden, want, at(score) - shown)
        if not torch.allclose(got, torch.full_like(got, want), rtol=CLOSE, atol=CLOSE):
            return None
    return bias, softcap


def _weights(
    query: Tensor, key: Tensor, score: Any, blocks: tuple[Any, ...], scale: float
) -> Tensor:
    """The weights as the score function makes them, [B, H, Nq, Nk]."""
    rows, columns = (torch.arange(x.shape[2], device=query.device) for x in (query, key))
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    logits = (query @ key.mT).float() * scale
    logits = _each(score, rows, columns, query.shape[:2], logits)
    shown = _cells(blocks, rows, key.shape[2])
    return torch.where(shown, logits, -torch.inf).softmax(-1).nan_to_num(0.0)
