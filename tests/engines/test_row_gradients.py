"""The gradients of logsumexp and entropy: by formula, by finite differences, by dense autograd."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from limelight import reference
from limelight.call import Call, prepare
from limelight.engines import native
from tests.cases import CASES, HERE, Case, assert_close
from tests.engines.plain import plainly

NAMES = ("query", "key", "value", "bias", "sinks")
SMALL = [
    Case("plain", nq=3, nk=5, d=3, dv=2),
    Case("empty-rows", nq=5, nk=3, d=3, dv=2, sinks=True, bias=(3, 5, 1), mask=lambda rng: rng.random((5, 3)) < 0.4),
    Case("everything", heads=4, key_heads=2, nq=3, nk=5, d=3, dv=2, bias=(4, 1, 5), softcap=2.0,
         sinks=True, scale=0.7),
]  # fmt: skip
FLOAT32, BFLOAT16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)
needs_native = pytest.mark.skipif("native" not in HERE, reason="native is not built here")


def _drawn(call: Call, dtype: Any, which: str = "both") -> tuple[Any, Any, Any]:
    """Gradients of the output, and of logsumexp and entropy as far as asked for."""
    rng = np.random.default_rng(1)
    shape = call.batch, call.query_heads, call.queries
    wide = np.float64 if dtype == np.float64 else np.float32
    grad = rng.normal(size=(*shape, call.value_size)).astype(dtype)
    logsumexp, entropy = (rng.normal(size=shape).astype(wide) for _ in range(2))
    return (
        grad,
        None if which == "entropy" else logsumexp,
        None if which == "logsumexp" else entropy,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_numpy(case: Case) -> None:
    from limelight.engines import numpy as engine

    call = case.call()
    grad, by_logsumexp, by_entropy = _drawn(call, np.float64)
    rows = {"grad_logsumexp": by_logsumexp, "grad_entropy": by_entropy}
    exact = reference.gradients(call, grad, **rows)
    got = engine.backward(call, engine.forward(call, health=True), grad, **rows)
    for name in NAMES:
        if (truth := getattr(exact, name)) is None:
            assert getattr(got, name) is None
        else:
            # a weight rebuilt from the logsumexp is known to that number's own rounding
            size = max(1.0, np.abs(truth).max()) * max(1.0, reference.forward(call).max_logit.max())
            np.testing.assert_allclose(getattr(got, name), truth, atol=1e-13 * size, err_msg=name)


@needs_native
@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_native(case: Case, dtype: Any) -> None:
    _judge_native(case, dtype, "both")


def _judge_native(case: Case, dtype: Any, which: str) -> None:
    call = case.call(dtype)
    grad, by_logsumexp, by_entropy = _drawn(call, dtype, which)
    rows = {"grad_logsumexp": by_logsumexp, "grad_entropy": by_entropy}
    exact = reference.gradients(call, grad, **rows)
    _, plain = plainly(call, grad, dtype.type, by_logsumexp, by_entropy)
    got = native.backward(call, native.forward(call, health=True), grad, **rows)
    for name in NAMES:
        triple = [getattr(grads, name) for grads in (got, exact, plain)]
        if triple[1] is None:
            assert triple[0] is None
        else:
            assert_close(*triple, dtype, factor=3.0, what=f"{name} gradient")


@needs_native
@pytest.mark.parametrize("which", ["logsumexp", "entropy"])
@pytest.mark.parametrize("isa", native.isas() if "native" in HERE else [])
@pytest.mark.parametrize("case", CASES[::8] + SMALL, ids=str)
def test_every_instruction_set(case: Case, isa: str, which: str) -> None:
    before = native.isa()
    native.set_isa(isa)
    try:
        _judge_native(case, FLOAT32, which)
    finally:
        native.set_isa(before)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_finite_differences(case: Case) -> None:
    arrays, options = case.arrays()
    call = prepare(*arrays, **options)
    grad, by_logsumexp, by_entropy = _drawn(call, np.float64)
    found = reference.gradients(call, grad, by_logsumexp, by_entropy)

    def loss(inputs: dict[str, Any]) -> float:
        state = reference.forward(prepare(**{**options, **inputs}))
        seen = np.isfinite(state.logsumexp)
        total = (grad * state.output).sum() + (by_entropy * state.entropy).sum()
        return float(total + (by_logsumexp * state.logsumexp)[seen].sum())

    inputs = dict(zip(("query", "key", "value"), arrays, strict=True))
    inputs |= {name: options[name] for name in ("bias", "sinks") if options.get(name) is not None}
    for name, array in inputs.items():
        gradient = getattr(found, name).reshape(array.shape)
        for index in np.random.default_rng(3).permutation(array.size)[:12]:
            at = np.unravel_index(index, array.shape)
            ends = []
            for step in (1e-6, -1e-6):
                moved = array.copy()
                moved[at] += step
                ends.append(loss({**inputs, name: moved}))
            slope = (ends[0] - ends[1]) / 2e-6
            assert gradient[at] == pytest.approx(slope, rel=1e-5, abs=1e-8), (name, at)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_formula_is_that_of_dense_autograd(case: Case) -> None:
    torch = pytest.importorskip("torch")
    call = case.call()
    grad, by_logsumexp, by_entropy = map(torch.from_numpy, _drawn(call, np.float64))
    tensors = {name: torch.tensor(array, requires_grad=True) for name in NAMES
               if (array := getattr(call, name)) is not None}  # fmt: skip
    key, value = (tensors[n].repeat_interleave(call.group, 1) for n in ("key", "value"))
    logits = call.scale * tensors["query"] @ key.mT
    if call.softcap is not None:
        logits = call.softcap * torch.tanh(logits / call.softcap)
    allowed = torch.from_numpy(reference.steps(call).allowed)
    if call.bias is not None:
        logits = logits + tensors["bias"]
    shape = (call.batch, call.query_heads, call.queries, 1)
    sinks = torch.full(shape, -torch.inf, dtype=torch.float64)
    if call.sinks is not None:
        sinks = tensors["sinks"][:, None, None].expand(shape)
    there = torch.cat([allowed, sinks.detach() > -torch.inf], -1)
    some = there.any(-1)
    logits = torch.where(there, torch.cat([logits, sinks], -1), -1e300)
    log_p = torch.log_softmax(logits, -1)
    p = torch.where(there, log_p.exp(), 0.0)
    entropy = -(p * log_p).sum(-1)
    loss = (grad * (p[..., :-1] @ value)).sum()
    loss = (
        loss
        + (by_logsumexp * logits.logsumexp(-1))[some].sum()
        + (by_entropy * entropy)[some].sum()
    )
    loss.backward()
    found = reference.gradients(call, grad, by_logsumexp, by_entropy)
    for name, tensor in tensors.items():
        truth = tensor.grad.numpy()
        size = max(1.0, np.abs(truth).max()) * max(1.0, reference.forward(call).max_logit.max())
        np.testing.assert_allclose(getattr(found, name), truth, atol=1e-12 * size, err_msg=name)
