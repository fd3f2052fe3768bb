"""Output and health of both engines over the table of cases, in every dtype."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.engines import find
from tests.cases import Case
from tests.gpu.judge import ALL, LARGE, WIDE, calls, judge_state


@pytest.mark.parametrize("engine", ["triton"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("case", ALL, ids=str)
def test_triton(case: Case, dtype: str, engine: str) -> None:
    call, exact = calls(case, dtype)
    module = find(engine).module
    judge_state(module.forward(call, health=True), call, exact, dtype, health=True)


@pytest.mark.parametrize("engine", ["hopper"])
@pytest.mark.parametrize("health", [True, False], ids=["health", "output"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", [*LARGE, *WIDE], ids=str)
def test_hopper(case: Case, dtype: str, health: bool, engine: str) -> None:
    call, exact = calls(case, dtype)
    module = find(engine).module
    reason = module.cannot(call)
    if reason is not None:
        pytest.skip(reason)
    judge_state(module.forward(call, health=health), call, exact, dtype, health=health)


@pytest.mark.parametrize("engine", ["hopper"])
@pytest.mark.parametrize("health", [True, False], ids=["health", "output"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("softcap", [2.0, 20.0, 64.0])
@pytest.mark.parametrize("reach", [0.05, 0.15, 0.5, 3.0])
def test_ways_of_tanh(reach: float, softcap: float, dtype: str, health: bool, engine: str) -> None:
    """Rows whose largest logits are so many softcaps; they go the way of the largest in a warp."""
    case = Case("ways", batch=(1,), heads=2, nq=389, nk=1031, d=128, dv=128, mask=ll.Causal(),
                softcap=softcap, spread=reach * softcap / 3.5)  # fmt: skip
    for one in (case, replace(case, d=64, dv=64, mask=None), replace(case, scale=-0.07)):
        call, exact = calls(one, dtype)
        found = find(engine).module.forward(call, health=health)
        judge_state(found, call, exact, dtype, health=health, tanh=3e-7)


@pytest.mark.parametrize("engine", ["hopper"])
@pytest.mark.parametrize("softcap", [None, 20.0, 64.0])
@pytest.mark.parametrize("below", [-1e5, -1e9, -1e30, float("-inf")])
def test_entropy_beside_a_product_far_below(
    below: float, softcap: float | None, engine: str
) -> None:
    """A weight of 0 whose exponent is beyond any number."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, n, 128) for n in (389, 640, 640))
    query[..., 0], key[..., 0], key[:, :, 300, 0] = 1.0, 0.0, below
    tensors = [x.to(torch.bfloat16) for x in (query, key, value)]
    found = find(engine).module.forward(
        prepare(*(x.cuda() for x in tensors), softcap=softcap), health=True
    )
    with np.errstate(invalid="ignore"):
        exact = reference.forward(prepare(*(x.double().numpy() for x in tensors), softcap=softcap))
    for name in ("logsumexp", "max_logit", "entropy"):
        got = getattr(found, name).cpu().double().numpy()
        np.testing.assert_allclose(got, getattr(exact, name), atol=1e-4)
