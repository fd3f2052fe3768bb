"""Dropout on a GPU: the cells of the definition, forward and backward, and all that torch does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import limelight as ll
from limelight.call import Call, prepare
from limelight.dropout import Dropout, kept
from limelight.engines import find
from limelight.torch import attention, inspect, scaled_dot_product_attention
from tests.cases import CASES, Case
from tests.gpu.judge import LARGE, calls, judge_state
from tests.gpu.test_backward import ROWS, check
from tests.gpu.test_torch import drawn, nothing_waits, recorded

# autograd's threads start without a CUDA context, and cuBLAS remarks on it
pytestmark = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
ENGINES = ["triton", "hopper"]
SOME = [case for case in LARGE if case.name.removeprefix("large-") in (
    "plain", "causal", "causal-128", "window", "documents", "bias", "softcap-sinks", "sparse",
    "grouped", "256", "96", "64-128", "steep", "decode", "decode-sinks",
)] + [case for case in CASES if case.name in ("plain", "one-token", "everything")]  # fmt: skip


def cells_of(dropout: Dropout, call: Call) -> Any:
    heads = np.arange(call.batch * call.query_heads).reshape(call.batch, call.query_heads)
    return kept(dropout, heads, np.arange(call.queries), np.arange(call.keys))


def dropping(size: int, key_heads: int = 8, p: float = 0.3) -> Call:
    """Large enough for the kernels of large calls; every weight is well above 0."""
    torch.manual_seed(0)
    q, k, v = (0.1 * torch.randn(2, h, 512, size, device="cuda") for h in (8, key_heads, key_heads))
    seed = torch.tensor([(7 << 40) + 5, -9], device="cuda")
    return prepare(*(x.bfloat16() for x in (q, k, v)), dropout=Dropout(p, seed))


def units(call: Call, start: int) -> torch.Tensor:
    """[512, size]: of the rows from `start` on the unit vectors, else 0."""
    found = torch.zeros(512, call.value_size, device="cuda", dtype=call.query.dtype)
    found[start : start + call.value_size] = torch.eye(call.value_size)
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("size", "key_heads"), [(64, 8), (64, 2), (128, 8), (256, 8)])
def test_cell_by_cell(engine: str, size: int, key_heads: int) -> None:
    """With unit vectors as values the output is the weights."""
    call, module = dropping(size, key_heads), find(engine).module
    seen = []
    for start in range(0, 512, size):
        value = units(call, start).expand(call.value.shape)
        state = module.forward(replace(call, value=value), health=False)
        seen.append((state.output != 0).cpu().numpy())
    found = np.concatenate(seen, -1)
    np.testing.assert_array_equal(found, cells_of(call.dropout, call))
    assert abs(found.mean() - 0.7) < 5 * (0.3 * 0.7 / found.size) ** 0.5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [64, 128, 256])
def test_cell_by_cell_backward(engine: str, size: int) -> None:
    """With unit vectors as the output's gradient the value's is the weights, turned."""
    call, module = dropping(size), find(engine).module
    state = module.forward(call, health=False)
    seen = []
    for start in range(0, 512, size):
        grad = units(call, start).expand(state.output.shape).contiguous()
        by_value = module.backward(call, state, grad).value
        seen.append((by_value != 0).transpose(-1, -2).cpu().numpy())
    np.testing.assert_array_equal(np.concatenate(seen, 2), cells_of(call.dropout, call))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", SOME, ids=str)
def test_forward(case: Case, engine: str) -> None:
    for dtype in ("bfloat16", "float16", "float32"):
        call, exact = calls(case, dtype, drops=0.3)
        module = find(engine).module
        if dtype in find(engine).dtypes and module.cannot(call) is None:
            for health in (True, False):
                state = module.forward(call, health=health)
                judge_state(state, call, exact, dtype, health=health)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", SOME, ids=str)
def test_gradients(case: Case, engine: str) -> None:
    check(case, "bfloat16", engine, drops=0.3)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", [SOME[0], SOME[2]], ids=str)
def test_gradients_of_health_too(case: Case, engine: str) -> None:
    check(case, "bfloat16", engine, ROWS, drops=0.3)
    check(case, "float16", engine, drops=0.6)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [64, 128])
def test_care_drops_the_same_cells(engine: str, size: int) -> None:
    """A masked infinity has its tiles computed again."""
    module = find(engine).module
    q, k, v = drawn(2, 80, 300, size)
    grad = torch.randn_like(q)
    seed = torch.tensor([1, 2], device="cuda")
    call = prepare(q, k, v, mask=ll.Causal(), dropout=Dropout(0.3, seed))
    clean = module.forward(call, health=True)
    by = module.backward(call, clean, grad)
    v[:, :, 200] = float("inf")
    state = module.forward(call, health=True)
    by_spoilt = module.backward(call, state, grad)
    for found, right, limit in (
        (state.output, clean.output, 0.02), (by_spoilt.query, by.query, 0.02),
        (state.entropy, clean.entropy, 1e-4),
    ):  # fmt: skip
        error = (found - right)[:, :, :200].abs().max()
        assert error < limit * right.abs().max()


@pytest.mark.parametrize("engine", ENGINES)
def test_none_and_all(engine: str) -> None:
    module, none = find(engine).module, dropping(64, p=0.0)
    want = module.forward(replace(none, dropout=None), health=True)
    assert torch.equal(module.forward(none, health=True).output, want.output)
    all_of_it = dropping(64, p=1.0)
    state = module.forward(all_of_it, health=True)
    assert not state.output.any()
    torch.testing.assert_close(state.entropy, want.entropy, rtol=0, atol=1e-4)
    grads = module.backward(all_of_it, state, torch.ones_like(state.output))
    for gradient in (grads.query, grads.key, grads.value):
        assert not gradient.any()


def trained(run: Any, given: list[torch.Tensor], seed: int = 3) -> tuple[torch.Tensor, ...]:
    """Output and gradients of a run after that seed."""
    leaves = [x.detach().clone().requires_grad_() for x in given]
    torch.manual_seed(seed)
    output = run(*leaves)
    return output.detach(), *torch.autograd.grad(output.float().square().sum(), leaves)


def same(first: tuple[torch.Tensor, ...], second: tuple[torch.Tensor, ...]) -> None:
    """Equal; the query's gradient is summed in any order."""
    assert torch.equal(first[0], second[0])
    for one, other in zip(first[1:], second[1:], strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02 * float(one.abs().max()))


def test_the_generator_rules_it() -> None:
    given = drawn(2, 4, 300, 64)

    def run(*x: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(*x, dropout_p=0.2)

    first = trained(run, given)
    same(first, trained(run, given))
    assert not torch.equal(first[0], trained(run, given, seed=4)[0])


@pytest.mark.parametrize("engine", ENGINES)
def test_the_host_does_not_wait(engine: str) -> None:
    given = [x.requires_grad_() for x in drawn(2, 4, 300, 64)]

    def step() -> None:
        output = attention(*given, mask=ll.Causal(), dropout=0.1, engine=engine)
        torch.autograd.grad(output.sum(), given)

    step()
    torch.cuda.synchronize()
    with nothing_waits():
        step()


def test_health_is_that_of_the_weights_before() -> None:
    given = drawn(2, 4, 300, 64)
    dropped, plain = inspect(*given, dropout=0.5), inspect(*given)
    assert not torch.equal(dropped.output, plain.output)
    for name in ("max_logit", "logsumexp", "entropy", "keys"):
        found, right = getattr(dropped.health, name), getattr(plain.health, name)
        torch.testing.assert_close(found, right, rtol=0, atol=1e-4)


def test_a_checkpointed_part_repeats_itself() -> None:
    given = drawn(2, 4, 300, 64)

    def run(*x: torch.Tensor) -> torch.Tensor:
        return attention(*x, mask=ll.Causal(), dropout=0.3)

    same(trained(run, given), trained(lambda *x: checkpoint(run, *x, use_reentrant=False), given))


@pytest.mark.filterwarnings("ignore")  # inductor has much to say: TF32, its own deprecations
def test_compiled() -> None:
    torch.compiler.reset()
    given = drawn(2, 4, 300, 64)

    def run(*x: torch.Tensor) -> torch.Tensor:
        return attention(*x, mask=ll.Causal(), dropout=0.3)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    same(trained(run, given), trained(compiled, given))
    with torch.no_grad():
        assert not torch.equal(compiled(*given), compiled(*given))  # drawn anew each time


def test_a_graph_draws_anew() -> None:
    given = drawn(2, 4, 300, 64)
    graph, found = recorded(lambda: attention(*given, dropout=0.3))
    seen = []
    for seed in (None, None, 5, 5):
        if seed is not None:
            torch.manual_seed(seed)
        graph.replay()
        seen.append(found.clone())
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[2], seen[3])


@pytest.mark.parametrize("kind", ["bert", "gpt2", "vit"])
def test_models_learn_with_their_default_configs(kind: str) -> None:
    pytest.importorskip("transformers")
    from tests.hf.test_default_training import build, given

    model = build(kind, "limelight").cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(40):
        loss = model(**{name: x.cuda() for name, x in given(kind, step).items()}).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all()
    assert np.mean(losses[-5:]) < 0.75 * np.mean(losses[:3])
