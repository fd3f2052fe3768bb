"""Calls that are run as one like them was: the same bits, and only where they are plain."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import limelight as ll
from limelight.torch import Monitor, SelfAttention, remembered

MASKS: dict[str, Any] = {"none": None, "causal": ll.Causal(), "window": ll.Window(70, 5)}


def drawn(*shape: int, count: int = 3) -> list[torch.Tensor]:
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(count)]


@pytest.mark.parametrize("length", [1, 100, 300, 517])
@pytest.mark.parametrize("mask", MASKS)
def test_again_is_the_same(mask: str, length: int) -> None:
    given = drawn(2, 4, length, 64)
    first = ll.inspect(*given, mask=MASKS[mask])
    again = ll.inspect(*given, mask=MASKS[mask])
    assert torch.equal(first.output, again.output)
    assert torch.equal(
        ll.attention(*given, mask=MASKS[mask]), ll.attention(*given, mask=MASKS[mask])
    )
    for figure in ("max_logit", "logsumexp", "entropy", "keys"):
        assert torch.equal(getattr(first.health, figure), getattr(again.health, figure)), figure


def test_other_numbers_and_options_are_not_mixed_up() -> None:
    q, k, v = drawn(1, 2, 130, 64)
    seen = [ll.attention(q, k, v, mask=mask, scale=scale, softcap=cap)
            for _ in range(2) for mask in MASKS.values() for scale in (None, 0.5)
            for cap in (None, 3.0)]  # fmt: skip
    half = len(seen) // 2
    for first, again in zip(seen[:half], seen[half:], strict=True):
        assert torch.equal(first, again)
    assert all(not torch.equal(a, b) for i, a in enumerate(seen[:half]) for b in seen[:i])


def test_only_plain_calls() -> None:
    q, k, v = drawn(1, 2, 130, 64)

    def known(*given: Any, **options: Any) -> bool:
        rule = {"mask": None, "scale": None, "softcap": None, "health": False, "more": False}
        return remembered.run(*given, **{**rule, **options}) is not None

    ll.attention(q, k, v)
    assert known(q, k, v)
    assert not known(q, k, v, more=True)
    assert not known(q, k, v, scale=torch.ones(()))
    assert not known(q, k, v, mask=torch.ones(130, 130, dtype=torch.bool, device="cuda"))
    assert not known(q.clone().requires_grad_(), k, v)
    with torch.autocast("cuda", dtype=torch.float16):
        assert not known(q, k, v)
    with torch.no_grad(), Monitor(SelfAttention(64, heads=1).cuda(), every=1):
        assert not known(q, k, v)
