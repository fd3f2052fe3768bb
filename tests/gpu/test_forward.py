"""Output and health of both engines over the table of cases, in every dtype."""

from __future__ import annotations

import pytest

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
