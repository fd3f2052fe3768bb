"""Dropout through torch: its generator rules it, and every way through torch repeats itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import limelight as ll
from limelight.dropout import Dropout, kept
from limelight.errors import ArgumentError
from limelight.torch import SelfAttention, attention, inspect, scaled_dot_product_attention
from tests.cases import HERE


def double(*shape: int, train: bool = True) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=train)


def seeded(run: Any, seed: int = 3) -> Any:
    torch.manual_seed(seed)
    return run()


def seed_of(seed: int) -> Dropout:
    """What a call draws first after torch.manual_seed(seed)."""
    torch.manual_seed(seed)
    low, high = -(1 << 63), (1 << 63) - 1
    return Dropout(0.3, torch.randint(low, high, (2,), dtype=torch.int64))


@pytest.mark.parametrize("engine", HERE)
def test_the_seed_says_which_cells(engine: str) -> None:
    query, key = torch.randn(2, 3, 7, 16), torch.randn(2, 3, 90, 16)
    units = torch.eye(90).expand(2, 3, 90, 90)
    output = seeded(lambda: attention(query, key, units, dropout=0.3, engine=engine))
    stay = kept(seed_of(3), np.arange(6).reshape(2, 3), np.arange(7), np.arange(90))
    np.testing.assert_array_equal(output.numpy() != 0, stay)
    weights = attention(query, key, units, engine=engine)
    torch.testing.assert_close(output, torch.where(torch.from_numpy(stay), weights / 0.7, 0.0))


def test_manual_seed_and_generator_state_rule_it() -> None:
    tensors = [double(2, 5, 8, train=False) for _ in range(3)]

    def run() -> Tensor:
        return scaled_dot_product_attention(*tensors, dropout_p=0.4)

    first, second = seeded(run), run()
    assert not torch.equal(first, second)
    assert torch.equal(seeded(run), first)
    state = torch.get_rng_state()
    third = run()
    torch.set_rng_state(state)
    assert torch.equal(run(), third)
    before = torch.get_rng_state()
    scaled_dot_product_attention(*tensors)
    assert torch.equal(torch.get_rng_state(), before)  # without dropout nothing is drawn


def test_in_expectation_it_changes_nothing() -> None:
    query, key, value = (torch.randn(1, 1, n, 8) for n in (4, 40, 40))
    torch.manual_seed(0)
    many = attention(query.expand(4000, -1, -1, -1), key.expand(4000, -1, -1, -1),
                     value.expand(4000, -1, -1, -1), dropout=0.2)  # fmt: skip
    want = attention(query, key, value)
    spread = many.std(0, keepdim=True) / 4000**0.5
    assert ((many.mean(0, keepdim=True) - want).abs() < 5 * spread).all()


def test_gradients_with_the_cells_fixed() -> None:
    tensors = (double(1, 2, 3, 4), double(1, 2, 5, 4), double(1, 2, 5, 3))
    for mask in (None, ll.Causal()):
        assert torch.autograd.gradcheck(
            lambda *x, mask=mask: seeded(lambda: attention(*x, mask=mask, dropout=0.3)), tensors
        )


def test_health_is_that_of_the_weights_before() -> None:
    tensors = [double(2, 5, 8) for _ in range(3)]
    dropped, plain = inspect(*tensors, dropout=0.5), inspect(*tensors)
    assert not torch.equal(dropped.output, plain.output)
    for name in ("max_logit", "logsumexp", "entropy", "keys"):
        assert torch.equal(getattr(dropped.health, name), getattr(plain.health, name)), name
    grads = [torch.autograd.grad(x.health.entropy.sum(), tensors[:2]) for x in (dropped, plain)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)


def test_a_checkpointed_part_repeats_itself() -> None:
    tensors = [double(2, 5, 8) for _ in range(3)]

    def run(*x: Tensor) -> Tensor:
        return attention(*x, dropout=0.4).square().sum()

    plain = torch.autograd.grad(seeded(lambda: run(*tensors)), tensors)
    again = torch.autograd.grad(
        seeded(lambda: checkpoint(run, *tensors, use_reentrant=False)), tensors
    )
    for one, other in zip(plain, again, strict=True):
        assert torch.equal(one, other)


def test_compiled() -> None:
    torch.compiler.reset()
    tensors = [double(2, 5, 8) for _ in range(3)]

    def run(*x: Tensor) -> Tensor:
        return attention(*x, dropout=0.4)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    first = seeded(lambda: compiled(*tensors))
    assert torch.equal(first, seeded(lambda: run(*tensors)))
    assert not torch.equal(compiled(*tensors), first)  # drawn anew each time
    grads = torch.autograd.grad(first.sum(), tensors)
    plain = torch.autograd.grad(seeded(lambda: run(*tensors)).sum(), tensors)
    for one, other in zip(grads, plain, strict=True):
        torch.testing.assert_close(one, other)


def test_vmap() -> None:
    tensors = [double(3, 2, 5, 8, train=False) for _ in range(3)]

    def loss(*x: Tensor) -> Tensor:
        return attention(*x, dropout=0.4).square().sum()

    same = torch.func.vmap(loss, randomness="same")(*(x[:1].expand(3, -1, -1, -1) for x in tensors))
    assert torch.equal(same, same[:1].expand(3))
    other = torch.func.vmap(loss, randomness="different")(
        *(x[:1].expand(3, -1, -1, -1) for x in tensors)
    )
    assert not torch.equal(other, other[:1].expand(3))
    slopes = torch.func.vmap(torch.func.grad(loss), randomness="different")(*tensors)
    assert slopes.shape == tensors[0].shape
    with pytest.raises(RuntimeError, match="randomness"):
        torch.func.vmap(loss)(*tensors)


def test_modules_drop_in_training_alone() -> None:
    layer, x = SelfAttention(16, heads=4, dropout=0.3), torch.randn(2, 6, 16)
    assert "dropout 0.3" in repr(layer)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(seeded(lambda: layer(x)), seeded(lambda: layer(x)))
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    theirs = nn.MultiheadAttention(16, 4, dropout=0.2, batch_first=True)
    ours = SelfAttention.from_torch(theirs)
    assert ours.dropout == 0.2
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x, x, x)[0])


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan"), "some", "0.1"])
def test_a_share_that_is_none(p: Any) -> None:
    x = torch.randn(3, 4)
    with pytest.raises(ArgumentError, match=r"dropout_p=.* from 0 to 1"):
        scaled_dot_product_attention(x, x, x, dropout_p=p)
    with pytest.raises(ArgumentError, match="from 0 to 1"):
        attention(x, x, x, dropout=p)
    with pytest.raises(ArgumentError, match="from 0 to 1"):
        SelfAttention(8, heads=2, dropout=p)
