"""A model trained with limelight learns what it learns with torch's attention."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.torch.models import Language, batch


def curve(model: Language, steps: int) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        loss = model.loss(batch(step, words=11, size=3, length=13))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float64, 1e-9), (torch.float32, 2e-3)], ids=str
)
def test_loss_curves_agree(dtype: torch.dtype, bound: float) -> None:
    """To rounding: float64 to nine digits; float32 no further apart than two roundings of torch's own."""
    torch.manual_seed(0)
    ours = Language(words=11, size=16, heads=2).to(dtype)
    theirs = copy.deepcopy(ours)
    for block in theirs.blocks:
        block.torch_attention = True
    judge = copy.deepcopy(theirs).double()
    steps = 20 if dtype == torch.float64 else 60
    losses, same, exact = curve(ours, steps), curve(theirs, steps), curve(judge, steps)
    assert losses[-1] < 0.9 * losses[0]
    if dtype == torch.float64:
        assert max(abs(a - b) for a, b in zip(losses, same, strict=True)) < bound
        return
    # rounding grows along a run as training is sensitive: torch's own distance from float64 says how much
    floor = max(abs(a - b) for a, b in zip(same, exact, strict=True))
    assert max(abs(a - b) for a, b in zip(losses, exact, strict=True)) <= 4 * floor + 1e-6
    assert max(abs(a - b) for a, b in zip(losses, same, strict=True)) < bound
