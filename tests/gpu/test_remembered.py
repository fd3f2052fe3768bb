"""Calls that are run as one like them was: the same bits, and only where they are plain."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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


def test_keys_that_all_entries_share_are_the_same_again() -> None:
    (q,), (k, v) = drawn(3, 4, 700, 64, count=1), drawn(1, 4, 700, 64, count=2)
    want = ll.attention(q, k.expand(3, -1, -1, -1), v.expand(3, -1, -1, -1))
    for _ in range(3):
        assert torch.equal(ll.attention(q, k, v), want)


def test_health_that_is_held_is_not_written_to_again() -> None:
    """Figures of few rows are pieces of one tensor: here of more than one after the other."""
    given = [(*drawn(1, 64, 1, 64, count=1), *drawn(1, 8, 600, 64, count=2)) for _ in range(2)]
    want = [ll.inspect(*x, engine="triton").health for x in given]
    held = [ll.inspect(*given[i % 2]).health for i in range(1500)]
    held[0].entropy.zero_()  # its own alone
    torch.cuda.synchronize()
    for i, health in list(enumerate(held))[1::37]:
        for figure in ("max_logit", "logsumexp", "entropy"):
            found = getattr(health, figure)
            assert found.shape == (1, 64, 1)
            assert (found - getattr(want[i % 2], figure)).abs().max() < 1e-3, (i, figure)


def test_threads_do_not_disturb_each_other() -> None:
    given = [(*drawn(1, 16, 1, 64, count=1), *drawn(1, 4, 3000, 64, count=2)) for _ in range(4)]
    want = [ll.inspect(*x) for x in given]

    def many(i: int) -> bool:
        seen = [ll.inspect(*given[i]) for _ in range(200)]
        torch.cuda.synchronize()
        return all(
            torch.equal(x.output, want[i].output)
            and torch.equal(x.health.entropy, want[i].health.entropy)
            for x in seen
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(many, range(4)))


def test_other_numbers_and_options_are_not_mixed_up() -> None:
    q, k, v = drawn(1, 2, 130, 64)
    seen = [ll.attention(q, k, v, mask=mask, scale=scale, softcap=cap)
            for _ in range(2) for mask in MASKS.values() for scale in (None, 0.5)
            for cap in (None, 3.0)]  # fmt: skip
    half = len(seen) // 2
    for first, again in zip(seen[:half], seen[half:], strict=True):
        assert torch.equal(first, again)
    assert all(not torch.equal(a, b) for i, a in enumerate(seen[:half]) for b in seen[:i])


RULES: dict[str, Any] = MASKS | {
    "documents": ll.Documents([i // 60 for i in range(300)]) & ll.Causal(),
    "other documents": ll.Documents([i // 90 for i in range(300)]) & ll.Causal(),
}


@pytest.mark.parametrize("mask", RULES)
@pytest.mark.parametrize("health", [False, True])
def test_gradients_again_are_those_of_the_formula(mask: str, health: bool) -> None:
    rule = RULES[mask]
    allowed = torch.ones(300, 300, dtype=torch.bool)
    if rule is not None:
        allowed = torch.from_numpy(rule.dense(300, 300))
    for _ in range(3):
        given = [x.requires_grad_() for x in drawn(1, 2, 300, 64)]
        grad = torch.randn_like(given[0])
        wide = [x.detach().cpu().double().requires_grad_() for x in given]
        s = (wide[0] @ wide[1].mT / 8.0).masked_fill(~allowed, float("-inf"))
        want = torch.autograd.grad(s.softmax(-1) @ wide[2], wide, grad.cpu().double())
        if health:
            seen = ll.inspect(*given, mask=rule)
            output = seen.output
            assert (seen.health.logsumexp.cpu() - s.logsumexp(-1)).abs().max() < 1e-3
        else:
            output = ll.attention(*given, mask=rule)
        for got, right in zip(torch.autograd.grad(output, given, grad), want, strict=True):
            assert (got.cpu() - right).abs().max() < 0.02 * right.abs().max()


def test_health_has_gradients_when_it_is_run_again() -> None:
    for _ in range(3):
        q, k, v = (x.requires_grad_() for x in drawn(1, 2, 300, 64))
        health = ll.inspect(q, k, v, mask=ll.Causal()).health
        (health.entropy.sum() + health.logsumexp.square().mean()).backward()
        assert q.grad.isfinite().all()
        assert q.grad.abs().max() > 0


def test_a_mask_is_known_by_itself_and_not_by_its_place_in_memory() -> None:
    q, k, v = drawn(1, 2, 300, 64)
    for width in range(20, 120):  # each mask is gone when the next one is made
        mask = ll.Documents([i // width for i in range(300)])
        allowed = torch.from_numpy(mask.dense(300, 300)).cuda()
        want = torch.nn.functional.scaled_dot_product_attention(
            q.float(), k.float(), v.float(), attn_mask=allowed
        )
        for _ in range(2):
            assert (ll.attention(q, k, v, mask=mask) - want).abs().max() < 0.02


def test_streams_do_not_disturb_each_other() -> None:
    given = drawn(4, 8, 1, 64), drawn(4, 8, 1, 64)
    caches = drawn(4, 8, 5000, 64, count=2), drawn(4, 8, 5000, 64, count=2)
    alone = [ll.attention(given[i][0], *caches[i]) for i in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    found: list[list[torch.Tensor]] = [[], []]
    for _ in range(50):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[i].append(ll.attention(given[i][0], *caches[i]))
    torch.cuda.synchronize()
    for i in range(2):
        assert all(torch.equal(x, alone[i]) for x in found[i])


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
    assert not known(q.clone().requires_grad_(), k, v)  # that is another layout, not seen before
    with torch.autocast("cuda", dtype=torch.float16):
        assert not known(q, k, v)
    with torch.no_grad(), Monitor(SelfAttention(64, heads=1).cuda(), every=1):
        assert not known(q, k, v)
