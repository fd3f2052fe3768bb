"""Gradients of both engines over the table of cases, and their determinism."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import limelight as ll
from limelight import reference
from limelight.engines import find
from tests.cases import Case
from tests.gpu.judge import ALL, DTYPES, EPS, LARGE, WIDE, assert_close, calls, plain_gradients

SOME = [case for case in LARGE if case.name.removeprefix("large-") in (
    "plain", "causal-128", "more-queries", "documents", "bias", "softcap-sinks", "sparse"
)]  # fmt: skip

# autograd's threads start without a CUDA context, and cuBLAS remarks on it
pytestmark = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")


def check(
    case: Case, dtype: str, engine: str, rows: tuple[str, ...] = (), drops: float | None = None
) -> None:
    call, exact = calls(case, dtype, drops=drops)
    module = find(engine).module
    reason = module.cannot(call)
    if reason is not None:
        pytest.skip(reason)
    state = module.forward(call, health=bool(rows))
    torch.manual_seed(1)
    grad = torch.randn(state.output.shape).to(DTYPES[dtype])
    figures = {name: torch.randn(state.logsumexp.shape) for name in rows}
    there = {name: figure.cuda() for name, figure in figures.items()}
    got = module.backward(call, state, grad.cuda(), **there)
    exactly = {name: figure.double().numpy() for name, figure in figures.items()}
    truth = reference.gradients(exact, grad.double().numpy(), **exactly)
    rough = plain_gradients(call, exact, grad.cuda(), *(there.get(name) for name in ROWS))
    for name in ("query", "key", "value", "bias", "sinks"):
        if getattr(truth, name) is None:
            assert getattr(got, name) is None
            continue
        assert getattr(got, name).dtype == getattr(call, name).dtype
        assert_close(
            getattr(got, name), getattr(truth, name), getattr(rough, name), EPS[dtype], name, 3.0
        )


ROWS = ("grad_logsumexp", "grad_entropy")


@pytest.mark.parametrize("engine", ["triton", "hopper"])
@pytest.mark.parametrize("rows", [ROWS[:1], ROWS[1:], ROWS], ids=["logsumexp", "entropy", "both"])
@pytest.mark.parametrize("case", SOME, ids=str)
def test_gradients_of_health(case: Case, rows: tuple[str, ...], engine: str) -> None:
    check(case, "bfloat16", engine, rows)


@pytest.mark.parametrize("engine", ["triton"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", ALL, ids=str)
def test_triton(case: Case, dtype: str, engine: str) -> None:
    check(case, dtype, engine)


@pytest.mark.parametrize("engine", ["hopper"])
@pytest.mark.parametrize("case", [*LARGE, *WIDE], ids=str)
def test_hopper(case: Case, engine: str) -> None:
    check(case, "bfloat16", engine)


@pytest.mark.parametrize("taken", [1, 2])
@pytest.mark.parametrize(("heads", "key_heads"), [(6, 2), (4, 1)])
@pytest.mark.parametrize(("d", "dv"), [(64, 64), (128, 128), (128, 64)])
def test_grouped_heads_in_parts(
    d: int, dv: int, heads: int, key_heads: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What heads add to a key's gradients is summed in memory, three heads in one and two too."""
    from limelight.engines.gpu import hopper_gradients, launch

    monkeypatch.setattr(hopper_gradients, "heads_taken", lambda *given: taken)
    monkeypatch.setattr(launch, "_plans", {})
    case = Case("grouped", batch=(2,), heads=heads, key_heads=key_heads, nq=389, nk=517, d=d, dv=dv,
                mask=ll.Causal())  # fmt: skip
    for rows in ((), ROWS):
        check(case, "bfloat16", "hopper", rows)
    check(case, "bfloat16", "hopper", drops=0.2)


def gradients(engine: str, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    case = replace(LARGE[1], nq=773)
    call, _ = calls(case, "bfloat16")
    module = find(engine).module
    state = module.forward(call, health=False)
    return module.backward(call, state, torch.randn_like(state.output))


@pytest.mark.parametrize("engine", ["triton", "hopper"])
def test_deterministic_when_asked(engine: str) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        first = gradients(engine)
        for _ in range(20):
            again = gradients(engine)
            assert torch.equal(first.query, again.query)
            assert torch.equal(first.key, again.key)
            assert torch.equal(first.value, again.value)
    finally:
        torch.use_deterministic_algorithms(False)
