"""Edge cases for the sanitizers: every pass, instruction set and dtype at the sizes where loops end.

Run by asan.sh with the path of a sanitised extension module, and the instruction sets if not all.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from typing import Any

import numpy as np

NAME = "limelight.engines._native"


def _load(path: str) -> None:
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module


def _shapes() -> Any:
    yield from itertools.product([1, 12, 13, 99], [1, 31, 33, 400], [1, 15, 64], [1, 33])
    yield from [
        (2, 2100, 64, 64),
        (7, 1030, 16, 16),
        (100, 1025, 8, 8),
        (0, 5, 3, 3),
        (5, 0, 3, 3),
        (3, 3, 700, 300),
        (8, 8, 64, 64),
    ]


def _run(dtype: Any, shape: tuple[int, int, int, int]) -> None:
    import limelight as ll
    from limelight.call import prepare
    from limelight.dropout import Dropout
    from limelight.engines import native

    nq, nk, d, dv = shape
    rng = np.random.default_rng(0)
    heads = 4 if nq == 8 else 2  # 8 rows of a head of its own are read where they are
    query, key, value = (
        rng.normal(size=s).astype(dtype)
        for s in ((1, 4, nq, d), (1, heads, nk, d), (1, heads, nk, dv))
    )
    if dtype is np.float32:
        ll.inspect(query, key, value)
    value[..., -1:, :] = np.nan
    dense = rng.random((4, nq, nk)) < 0.5
    bias = rng.normal(size=(4, 1, nk)).astype(np.float64)
    bias[..., ::3] = -np.inf
    for options in (
        {},
        {"mask": ll.Causal()},
        {"mask": ~ll.Window(5, 3), "softcap": 2.0},
        {"mask": dense, "sinks": [0.5] * 4},
        {"bias": bias, "scale": -0.4},
        {"mask": ll.Window(70, 0), "dropout": Dropout(0.3, np.array([1, 2]))},
    ):
        call = prepare(query, key, value, **options)
        state = native.forward(call, health=True)
        native.backward(call, state, np.ones_like(state.output))
        if nq and nk:
            edges = [np.unique(np.linspace(0, n, 7).astype(int)) for n in (nq, nk)]
            native.pool(call, state.logsumexp, *edges, "mean")
            native.pool(call, state.logsumexp, *edges, "max")
            native.received(call, state.logsumexp)


def main() -> None:
    _load(sys.argv[1])
    import ml_dtypes

    from limelight.engines import native

    assert native._native.__file__ == sys.argv[1], "not the sanitised module"
    for isa in sys.argv[2:] or native.isas():
        native.set_isa(isa)
        for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
            for shape in _shapes():
                with np.errstate(all="ignore"):
                    _run(dtype, shape)
        print(f"{isa}: clean", flush=True)


if __name__ == "__main__":
    main()
