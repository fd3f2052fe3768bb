"""Pooled pictures of the weights and column sums, against the reference's whole matrix."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
import torch

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.engines import find

triton = find("triton")


@pytest.mark.parametrize("kind", ["max", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pool(kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 4, 211, 32).to(dtype)
    k = torch.randn(2, 2, 307, 32).to(dtype)
    call = prepare(q.cuda(), k.cuda(), k.cuda(), mask=ll.Causal())
    exact = prepare(*(x.double().numpy() for x in (q, k, k)), mask=ll.Causal())
    steps = reference.steps(exact)
    state = triton.module.forward(call, health=False)
    rows, columns = [0, 1, 97, 98, 211], [0, 13, 200, 307]
    picture = triton.looking.pool(call, state.logsumexp, rows, columns, kind).cpu().numpy()
    for y in range(4):
        for x in range(3):
            part = np.s_[..., rows[y] : rows[y + 1], columns[x] : columns[x + 1]]
            cells = np.where(steps.allowed, steps.weights, np.nan)[part]
            with np.errstate(invalid="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of bins without a cell
                want = getattr(np, f"nan{kind}")(cells, axis=(-1, -2))
            assert np.allclose(picture[..., y, x], want, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_received() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, 211, 32), torch.randn(2, 2, 307, 32)
    call = prepare(q.cuda(), k.cuda(), k.cuda(), mask=ll.Causal())
    exact = prepare(*(x.double().numpy() for x in (q, k, k)), mask=ll.Causal())
    state = triton.module.forward(call, health=False)
    sums = triton.looking.received(call, state.logsumexp)
    want = reference.steps(exact).weights.sum(axis=2)
    assert np.allclose(sums.cpu().numpy(), want, rtol=1e-5, atol=1e-5)


def test_a_long_head_in_two_seconds() -> None:
    n = 131_072
    q, k = (torch.randn(1, 1, n, 64, device="cuda").bfloat16() for _ in range(2))
    call = prepare(q, k, k, mask=ll.Causal())
    engine = find("hopper") if find("hopper").missing() is None else triton
    state = engine.module.forward(call, health=False)
    edges = list(range(0, n + 1, n // 512))
    triton.looking.pool(call, state.logsumexp, edges[:3], edges[:3], "max")
    torch.cuda.synchronize()
    start = time.perf_counter()
    picture = triton.looking.pool(call, state.logsumexp, edges, edges, "max")
    torch.cuda.synchronize()
    assert time.perf_counter() - start < 2.0
    assert picture.shape == (1, 1, 512, 512)
    assert int(picture.isnan().sum()) == 512 * 511 // 2
