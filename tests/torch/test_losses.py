"""The small losses over differentiable health."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch

import limelight as ll
from limelight.errors import ArgumentError
from limelight.torch.losses import entropy_floor, z_loss


def health(scale: float = 1.0, mask: object = None) -> ll.Health:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 5, dtype=torch.float64, requires_grad=True)
    return ll.inspect(scale * x, x, x, mask=mask).health


def test_z_loss_is_the_mean_square_over_rows_with_keys() -> None:
    rows = torch.ones(7, 7, dtype=torch.bool)
    rows[2] = False
    seen = health(mask=rows)
    kept = [i for i in range(7) if i != 2]
    want = seen.logsumexp[..., kept].square().mean()
    torch.testing.assert_close(z_loss(seen), want)
    z_loss(seen).backward()


def test_entropy_floor_counts_what_lies_below_and_can_reach_it() -> None:
    seen = health(scale=4.0, mask=ll.Causal())
    reach = seen.entropy[..., 2:]  # with e^1 keys or more
    want = (1.0 - reach).clamp_min(0).mean()
    assert 0 < want.item() < 1
    torch.testing.assert_close(entropy_floor(seen, 1.0), want)
    assert entropy_floor(health(scale=0.0), math.log(7) - 1e-6).item() == 0.0


def test_rows_without_keys_leave_finite_gradients() -> None:
    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    seen = ll.inspect(x, x, x, mask=torch.zeros(3, 3, dtype=torch.bool)).health
    (z_loss(seen) + entropy_floor(seen, 0.5)).backward()
    assert x.grad is not None
    assert x.grad.eq(0).all()


@pytest.mark.parametrize("n", [2, 11, 12, 13, 59, 100, 1000])
def test_a_floor_that_only_even_weights_reach_counts_all_its_rows(n: int) -> None:
    """Though e^(ln n) is a little more than n for some n."""
    key = torch.randn(n, 4, dtype=torch.float64)
    seen = ll.inspect(100 * key[:1], key, key).health
    assert entropy_floor(seen, math.log(n)).item() > 0.5 * math.log(n)


def test_a_sink_is_an_outcome_of_the_floor() -> None:
    """One key and a sink make up to ln 2; a sink of −∞ is none."""
    x = torch.ones(1, 1, 1, 4)
    for sink, short in ((-30.0, 0.5), (-math.inf, 0.0)):
        seen = ll.inspect(x, x, x, sinks=torch.tensor([sink])).health
        assert entropy_floor(seen, 0.5).item() == pytest.approx(short, abs=1e-6)


@pytest.mark.parametrize("loss", [z_loss, partial(entropy_floor, nats=1.9)])
def test_padding_is_left_out(loss: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 5)
    text = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]])
    mask = text[:, None, None].bool()
    found = loss(ll.inspect(x, x, x, mask=mask).health, rows=text[:, None].bool())
    apart = [loss(ll.inspect(*[x[i : i + 1, :, :n]] * 3).health) for i, n in enumerate((7, 4))]
    assert loss is not z_loss or apart[1] > 0
    sizes = torch.tensor([7.0, 4.0 if loss is z_loss else 0.0])  # four keys reach no 1.9 nats
    torch.testing.assert_close(found, (torch.stack(apart) * sizes).sum() / sizes.sum())


def test_rows_that_are_none() -> None:
    for rows, told in ((torch.ones(2, 7), r"torch.float32 \[2, 7\]"),
                       (torch.ones(2, 7, dtype=torch.bool), r"torch.bool \[2, 7\]"),
                       ([True], "list")):  # fmt: skip
        with pytest.raises(ArgumentError, match=rf"rows={told}: give .* to \[2, 3, 7\], True for"):
            z_loss(health(), rows=rows)  # type: ignore[arg-type]


def test_errors() -> None:
    seen, x = health(), np.eye(3)
    for nats in (0.0, -1.0, math.nan, math.inf, "a", None, True, torch.ones(2)):
        with pytest.raises(ArgumentError, match=r"nats=.*no row should fall below, .*above 0"):
            entropy_floor(seen, nats)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"nats=800: .*e\^800 keys.*below the logarithm"):
        entropy_floor(seen, 800.0)
    with pytest.raises(ArgumentError, match="inspect torch tensors"):
        z_loss(ll.inspect(x, x, x).health)
    with pytest.raises(ArgumentError, match="inspect torch tensors"):
        z_loss(ll.inspect(x, x, x).health, rows=torch.ones(3, dtype=torch.bool))
    for given, way in ((ll.inspect(x, x, x), r"Inspection: give its \.health"),
                       (None, r"NoneType: give what inspect"),
                       (seen.entropy, r"Tensor: give what inspect")):  # fmt: skip
        with pytest.raises(ArgumentError, match="z_loss takes a Health, and got " + way):
            z_loss(given)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="entropy_floor takes a Health, and got " + way):
            entropy_floor(given, 0.5)  # type: ignore[arg-type]


def test_in_a_compiled_step() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        seen = ll.inspect(x, x, x).health
        return z_loss(seen) + entropy_floor(seen, 0.5)

    x = torch.randn(1, 2, 5, 4)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), loss(x))


def test_each_does_what_it_is_for() -> None:
    """Descent on the loss alone brings the logsumexp to 0, and rows up to the floor."""
    for loss, reached in (
        (z_loss, lambda seen: seen.logsumexp.abs().max() < 0.3),
        (lambda seen: entropy_floor(seen, 1.5), lambda seen: seen.entropy.min() > 1.45),
    ):
        torch.manual_seed(1)
        query = (3 * torch.randn(1, 1, 4, 8)).requires_grad_()
        key = torch.randn(1, 1, 9, 8)
        assert not reached(ll.inspect(query, key, key).health)
        optimizer = torch.optim.Adam([query], lr=0.3)
        for _ in range(300):
            seen = ll.inspect(query, key, key).health
            optimizer.zero_grad()
            loss(seen).backward()
            optimizer.step()
        assert reached(ll.inspect(query, key, key).health)
