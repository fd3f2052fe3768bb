"""What a pass says of each head, kept on the device, and the factor that brings it to the limit.

A logit is x + b: x is s = scale·q·k, or c·tanh(s/c) under a softcap c, and b its bias. Only s can
be scaled. With m the largest logit and b the largest bias of a head,

    γ = (limit − b)/(m − b)        and under a softcap    γ = atanh((limit − b)/c)/atanh((m − b)/c)

bring every logit to the limit or below.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from limelight.arrays import crop
from limelight.call import Call
from limelight.masks.tensors import cells_in_chunks

SLACK = 1.00001  # a head that was brought to the limit may lie above it by rounding
MOST = 1 - 2**-24  # the last number before 1 in float32
FLAT = 8.0  # from here on tanh is 1 but for the last bits


def figures(call: Call, max_logit: Tensor, text: Tensor | None, limit: float) -> Tensor:
    """[3, heads], each larger where more is asked: the largest logit, its s, and −γ.

    `text`, bool [batch, queries], says which rows are no padding. γ is 0 where nothing helps.
    """
    found = max_logit.detach().reshape(call.batch, call.query_heads, call.queries)
    if text is not None:
        found = torch.where(text[:, None], found, -math.inf)
    most = found.nan_to_num(nan=-math.inf, posinf=math.inf).amax((0, 2)).float()
    bias = _largest_bias(call, most)
    # x + b' ≤ m in every cell, so γ·x + b' ≤ γ·(m − b') + b' = γ·m + (1 − γ)·b' ≤ γ·m + (1 − γ)·b,
    # which is the limit; all that it takes is 0 ≤ γ ≤ 1, whatever the sign of x.
    room, used = (limit - bias).clamp_min(0), most - bias
    reach = used
    if call.softcap is not None:
        # tanh(γ·atanh(x)) is convex in x > 0 and 0 at 0: what lies below the largest comes down by
        # at least as much. A cell whose bias is below b may have a larger x, and take another step.
        cap = call.softcap
        room, used = (cap * (x / cap).clamp(0, MOST).atanh() for x in (room, used))
        reach = torch.where(used < FLAT * cap, used, math.inf)  # how far s went cannot be told
    factor = (room / used.clamp_min(torch.finfo(used.dtype).tiny)).clamp_max(1)
    over = (most > SLACK * limit) & (most < math.inf)
    return torch.stack([most, reach, torch.where(over, -factor, -1.0)])


def _largest_bias(call: Call, like: Tensor) -> Tensor:
    """The largest bias of each head among the cells that its mask leaves; 0 without one."""
    if call.bias is None:
        return torch.zeros_like(like)
    largest, bias = torch.full_like(like, -math.inf), call.bias.detach()
    if call.allowed.everything:
        largest = bias.amax((0, 2, 3)).float()
    else:
        for rows, cells in cells_in_chunks(call.allowed, bias, bias.device):
            seen = crop(bias, rows, slice(None)).float()
            seen = torch.where(cells, seen, -math.inf).amax((0, 2, 3))
            largest = torch.maximum(largest, seen)
    # −∞ masks and is no bias; what is no number hides what there is, so that nothing can help.
    return largest.nan_to_num(nan=math.inf, posinf=math.inf).expand_as(like)
