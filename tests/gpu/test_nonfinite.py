"""Infinity, NaN and overflow on the GPU engines: the same table as on the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from limelight.call import Call, prepare
from limelight.engines import find, hopper
from limelight.reference import State
from tests.nonfinite import SIZES, TABLE, Odd, judge

if find("triton").missing() is None:
    from limelight.engines.gpu import launch, portable

DTYPES = {"float32": np.float32, "float16": np.float16}


@pytest.fixture(autouse=True)
def own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each engine's own, where the portable ones would take calls as small as these."""
    if find("triton").missing() is None:
        monkeypatch.setattr(portable, "tiny", lambda call: False)
        monkeypatch.setattr(hopper, "PACKED_ROWS", 0)
        monkeypatch.setattr(launch, "_plans", {})


def on_gpu(odd: Odd, call: Call) -> Call:
    """The same call on tensors."""

    def tensor(array: Any) -> Any:
        return None if array is None else torch.from_numpy(np.ascontiguousarray(array)).cuda()

    arrays = (tensor(x) for x in (call.query, call.key, call.value))
    return prepare(*arrays, mask=odd.mask, bias=tensor(call.bias), sinks=tensor(call.sinks),
                   softcap=odd.softcap)  # fmt: skip


@pytest.mark.parametrize("engine", ["triton", "hopper"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("odd", TABLE, ids=str)
def test_every_case(odd: Odd, dtype: str, engine: str) -> None:
    chosen, tried = find(engine), 0
    if dtype not in chosen.dtypes:
        pytest.skip("not a type of this engine")
    for rows in SIZES.values():
        call = odd.call(rows, DTYPES[dtype])
        given = on_gpu(odd, call)
        if chosen.module.cannot(given) is not None:
            continue
        tried += 1
        found = chosen.module.forward(given, health=True)
        parts = (found.output, found.logsumexp, found.max_logit, found.entropy)
        judge(odd, call, State(*(x.cpu().numpy() for x in parts)), np.float32)
    if not tried:
        pytest.skip("not a call for this engine")
