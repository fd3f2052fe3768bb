"""Which layers of a model run on which of two ranks, step by step: not the same, or none."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from limelight.torch import SelfAttention

Plan = list[list[list[int]]]  # for each step, for each rank: the layers that run

DROPPED: Plan = [[[0, 1], [0, 2]], [[0, 1, 2], [0, 1, 2]], [[2], [0]]]
PLANS: dict[str, Plan] = {
    "each another layer": DROPPED,
    "one nothing": [[[0, 1, 2], []], [[0, 1], []], [[], [0, 2]]],
    "one more": [[[0, 1], [0]], [[0, 1], [0]], [[0], [0, 1, 2]]],
    "nothing at first": [[[], []], [[1], []], [[], []], [[0, 2], [1]]],
    "always the same": [[[0, 1, 2], [0, 1, 2]]] * 3,
}


def model() -> nn.ModuleList:
    torch.manual_seed(0)
    return nn.ModuleList(SelfAttention(16, 4, key_heads=2) for _ in range(3))


def given(step: int, rank: int, layer: int) -> Tensor:
    torch.manual_seed(100 * step + 10 * rank + layer)
    return (1 + 3 * rank) * torch.randn(2, 5, 16)
