"""Infinity, NaN and overflow on the GPU engines: the same table as on the CPU's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from limelight.call import Call, prepare
from limelight.engines import find
from limelight.reference import State
from tests.nonfinite import SIZES, TABLE, Odd, judge

DTYPES = {"float32": np.float32, "float16": np.float16}


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
    module, tried = find(engine).module, 0
    for rows in SIZES.values():
        call = odd.call(rows, DTYPES[dtype])
        given = on_gpu(odd, call)
        if module.cannot(given) is not None:
            continue
        tried += 1
        found = module.forward(given, health=True)
        parts = (found.output, found.logsumexp, found.max_logit, found.entropy)
        judge(odd, call, State(*(x.cpu().numpy() for x in parts)), np.float32)
    if not tried:
        pytest.skip("not a call for this engine")
