"""Looking at weights on a GPU: right for the table of cases, and quick at 131,072 × 131,072.

    python -m tests.engines.gpu_looking

Run by hand where there is a GPU; it prints errors against the float64 definition, then seconds.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.engines import find
from limelight.looking.heatmap import heatmap
from limelight.looking.weights import received, top, weights
from tests.cases import CASES

SOME = ("grouped", "window-causal", "array", "sinks-masked", "everything")  # each compiles anew


def check(engine: str, dtype: torch.dtype) -> None:
    worst: dict[str, tuple[float, str]] = {}
    skipped = 0
    for case in (case for case in CASES if case.name in SOME):
        arrays, options = case.arrays(np.float32)
        query, key = (torch.as_tensor(x).to("cuda", dtype) for x in arrays[:2])
        given = {name: torch.as_tensor(v).cuda() if isinstance(v, np.ndarray) else v
                 for name, v in options.items()}  # fmt: skip
        exact = prepare(*(x.double().cpu().numpy() for x in (query, key)), **options)
        if find(engine).cannot(prepare(query, key, key, **given)) is not None:
            skipped += 1
            continue
        done = reference.steps(exact)
        reach = max(1.0, np.abs(done.logsumexp[np.isfinite(done.logsumexp)]).max(initial=0.0))
        cells = exact.restore(np.where(done.allowed, done.weights, 0.0))
        views = {
            "weights": (weights(query, key, engine=engine, **given), cells),
            "some": (weights(query, key, rows=[0, -1], engine=engine, **given), cells[..., [0, -1], :]),
            "received": (received(query, key, engine=engine, **given), cells.sum(-2)),
            "top": (top(query, key, k=3, engine=engine, **given).weights[..., :1],
                    np.sort(cells, -1)[..., -1:]),
        }  # fmt: skip
        for pool in ("max", "mean"):
            got = heatmap(query, key, shape=(5, 7), pool=pool, engine=engine, **given).values
            same = heatmap(*(x.double().cpu().numpy() for x in (query, key)), shape=(5, 7),
                           pool=pool, engine="reference", **options).values  # fmt: skip
            assert np.array_equal(np.isnan(got), np.isnan(same)), (engine, case.name, pool)
            views[pool] = np.nan_to_num(got), np.nan_to_num(same)
        for name, (got, right) in views.items():
            error = float(np.abs(got - right).max(initial=0.0)) / reach
            worst[name] = max(worst.get(name, (0.0, "")), (error, case.name))
    print(engine, str(dtype).removeprefix("torch."), f"{len(SOME) - skipped} cases;", "error over "
          "max(1, |logsumexp|):", {name: f"{e:.1e} ({c})" for name, (e, c) in worst.items()})  # fmt: skip


def measure(length: int, dtype: torch.dtype) -> None:
    query, key = (torch.randn(length, 64, device="cuda", dtype=dtype) for _ in range(2))

    def timed(what: str, do: Any) -> Any:
        do()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        result = do()
        torch.cuda.synchronize()
        spent, peak = time.perf_counter() - start, torch.cuda.max_memory_allocated() / 2**20
        print(
            f"{length:,} {str(dtype).removeprefix('torch.')} {what:<28} {spent:8.4f} s {peak:8.0f} MB"
        )
        return result

    same: dict[str, Any] = {"mask": ll.Causal()}
    timed("overview 512² from nothing", lambda: heatmap(query, key, shape=(512, 512), **same))
    seen = ll.inspect(query[None, None], key[None, None], key[None, None], **same).health
    same["logsumexp"] = seen.logsumexp[0, 0]
    for pool in ("max", "mean"):
        timed(
            f"overview 512² {pool}",
            lambda pool=pool: heatmap(query, key, shape=(512, 512), pool=pool, **same),
        )
    timed("received", lambda: received(query, key, **same))
    timed(
        "tile 256²",
        lambda: weights(query, key, rows=(length - 300, length - 44), columns=(9, 265), **same),
    )
    timed("top 8 of 16 rows", lambda: top(query, key, rows=(length - 16, length), **same))


if __name__ == "__main__":
    for kind in (torch.bfloat16, torch.float32):
        measure(131_072, kind)
    for name, kind in (("triton", torch.float32), ("hopper", torch.bfloat16)):
        check(name, kind)
