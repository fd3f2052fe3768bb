"""Health that can be trained on: gradients of logsumexp and entropy by every way through torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import limelight as ll
from limelight import reference
from limelight.call import prepare
from tests.cases import CASES, HERE, Case

NAMES = ("query", "key", "value", "bias", "sinks")
SOME = [CASES[i] for i in (0, 4, 13, 31, 32, 36, -1)]


def double(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def figures(health: ll.Health) -> Tensor:
    """A loss of the health alone, with a weight of its own for every row."""
    seen = torch.isfinite(health.logsumexp)
    rows = torch.arange(1.0, seen.numel() + 1).reshape(seen.shape).cos().to(health.entropy.dtype)
    return (rows * torch.where(seen, health.logsumexp, 0.0) + rows.flip(-1) * health.entropy).sum()


def inputs(case: Case) -> tuple[list[Tensor], dict[str, Any]]:
    arrays, options = case.arrays()
    for name in ("bias", "sinks"):
        if options.get(name) is not None:
            options[name] = torch.tensor(options[name], requires_grad=True)
    if isinstance(options["mask"], np.ndarray):
        options["mask"] = torch.from_numpy(options["mask"])
    return [torch.tensor(x, requires_grad=True) for x in arrays], options


@pytest.mark.parametrize("engine", [name for name in HERE if name != "native"])
@pytest.mark.parametrize("case", SOME, ids=str)
def test_the_formula(case: Case, engine: str) -> None:
    tensors, options = inputs(case)
    seen = ll.inspect(*tensors, **options, engine=engine)
    given = [*tensors, *(options[n] for n in ("bias", "sinks") if options.get(n) is not None)]
    weight = torch.randn_like(seen.output)
    figures(seen.health).backward(retain_graph=True)
    (weight * seen.output).sum().backward()
    arrays, plain = case.arrays()
    call = prepare(*arrays, **plain)
    health = ll.Health(*(torch.tensor(x, requires_grad=x.dtype.kind == "f")
                         for x in (lambda h: (h.max_logit, h.logsumexp, h.entropy, h.keys))(ll.inspect(*arrays, **plain, engine="reference").health)))  # fmt: skip
    figures(health).backward()
    rows = (call.batch, call.query_heads, call.queries)
    exact = reference.gradients(
        call,
        weight.detach().numpy().reshape(*rows, -1),
        health.logsumexp.grad.numpy().reshape(rows),
        health.entropy.grad.numpy().reshape(rows),
    )
    names = [n for n in NAMES if n in NAMES[:3] or options.get(n) is not None]
    for name, tensor in zip(names, given, strict=True):
        truth = getattr(exact, name).reshape(tensor.shape)
        np.testing.assert_allclose(tensor.grad.numpy(), truth, atol=1e-12, err_msg=name)


def test_gradcheck() -> None:
    q, k, v, bias, sinks = (
        double(1, 4, 3, 5),
        double(1, 2, 7, 5),
        double(1, 2, 7, 2),
        double(4, 3, 7),
        double(4),
    )

    def health(*tensors: Tensor) -> tuple[Tensor, ...]:
        q, k, v, bias, sinks = tensors
        seen = ll.inspect(q, k, v, bias=bias, sinks=sinks, softcap=3.0, mask=ll.Causal()).health
        return seen.logsumexp, seen.entropy, seen.spread, seen.effective_keys

    assert torch.autograd.gradcheck(health, (q, k, v, bias, sinks))


def test_spread_is_as_exact_as_its_type() -> None:
    x = torch.randn(1, 2, 9, 4, dtype=torch.float64)
    seen = ll.inspect(x, x, x, mask=ll.Window(3, 1), sinks=torch.zeros(2, dtype=torch.float64))
    health = seen.health
    want = health.entropy.numpy() / np.log(health.keys.numpy() + 1.0)
    np.testing.assert_allclose(health.spread.numpy(), want, rtol=1e-14)
    assert ll.inspect(*[x.float()] * 3).health.spread.dtype == torch.float32


def test_what_depends_on_the_largest_logit_carries_none() -> None:
    seen = ll.inspect(double(3, 4), double(3, 4), double(3, 4)).health
    for name in ("max_logit", "keys", "max_prob", "gradient"):
        assert not getattr(seen, name).requires_grad, name
    for name in ("logsumexp", "entropy", "spread", "effective_keys"):
        assert getattr(seen, name).requires_grad, name


def test_attention_alone_asks_no_engine_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unused, it is free: the engine gets no gradient of a row statistic."""
    from limelight.engines import numpy as engine

    asked: list[tuple[Any, Any]] = []
    backward = engine.backward

    def spy(*arguments: Any, grad_logsumexp: Any, grad_entropy: Any, **rest: Any) -> Any:
        asked.append((grad_logsumexp, grad_entropy))
        given = {"grad_logsumexp": grad_logsumexp, "grad_entropy": grad_entropy}
        return backward(*arguments, **given, **rest)

    monkeypatch.setattr(engine, "backward", spy)
    ll.inspect(double(3, 4), double(3, 4), double(3, 4)).output.sum().backward()
    assert asked == [(None, None)]
    ll.inspect(double(3, 4), double(3, 4), double(3, 4)).health.entropy.sum().backward()
    assert asked[1][0] is None
    assert asked[1][1] is not None


def test_ways_through_torch_agree() -> None:
    tensors = (double(2, 4, 5, 3), double(2, 2, 7, 3), double(2, 2, 7, 2))

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen = ll.inspect(q, k, v, mask=ll.Causal())
        return figures(seen.health) + seen.output.square().sum()

    plain = torch.autograd.grad(loss(*tensors), tensors)
    compiled = torch.autograd.grad(torch.compile(loss, backend="aot_eager")(*tensors), tensors)
    again = torch.autograd.grad(checkpoint(loss, *tensors, use_reentrant=False), tensors)
    functional = torch.func.grad(loss, argnums=(0, 1, 2))(*(x.detach() for x in tensors))
    for way in (compiled, again, functional):
        for one, other in zip(plain, way, strict=True):
            torch.testing.assert_close(one, other)


def test_vmap_gives_each_its_own() -> None:
    q, k, v = (torch.randn(3, 2, 5, 4, dtype=torch.float64) for _ in range(3))

    def loss(*tensors: Tensor) -> Tensor:
        return figures(ll.inspect(*tensors).health)

    together = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(q, k, v)
    for i in range(3):
        for one, many in zip(
            torch.func.grad(loss, argnums=(0, 1))(q[i], k[i], v[i]), together, strict=True
        ):
            torch.testing.assert_close(one, many[i])


def test_second_derivatives_stay_an_error() -> None:
    q, k, v = (double(3, 4) for _ in range(3))
    (slope,) = torch.autograd.grad(ll.inspect(q, k, v).health.entropy.sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivative"):
        slope.sum().backward()


@pytest.mark.parametrize("engine", HERE)
def test_a_loss_of_entropy_alone_trains_a_head(engine: str) -> None:
    torch.manual_seed(0)
    query, key = torch.randn(1, 1, 12, 8), torch.randn(1, 1, 40, 8)
    query.requires_grad_()
    wanted = 1.5
    optimizer = torch.optim.Adam([query], lr=0.1)
    before = ll.inspect(query, key, key, engine=engine).health.entropy
    assert (before - wanted).abs().max() > 0.5
    for _ in range(120):
        optimizer.zero_grad()
        entropy = ll.inspect(query, key, key, engine=engine).health.entropy
        (entropy - wanted).square().mean().backward()
        optimizer.step()
    assert (entropy - wanted).abs().max() < 0.05
