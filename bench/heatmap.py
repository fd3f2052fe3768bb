"""What looking costs: overview, tile and cell of one causal head at 32,768 × 32,768, head size 64.

    python bench/heatmap.py [length] [engine]

Prints time and peak memory. Processor time, all threads together, tells on a busy machine what the
wall clock would say on a quiet one.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import limelight as ll
from limelight.call import Call, prepare
from limelight.capture import Site
from limelight.engines import choose
from limelight.looking.heatmap import heatmap_of
from limelight.looking.pyramid import Pyramid
from limelight.looking.weights import received_of, top_of, weights_of


def main(length: int, engine: str) -> None:
    rng = np.random.default_rng(0)
    query, key = (rng.normal(size=(1, 1, length, 64)).astype(np.float32) for _ in range(2))
    mask = ll.Causal()
    call = prepare(query, key, mask=mask)

    def statistics(call: Call) -> Any:
        return choose(call, engine).module.forward(call, health=False).logsumexp

    statistics(prepare(query[:, :, :512], key[:, :, :512]))  # load what is needed
    before = _peak()

    def timed(what: str, do: Callable[[], Any], times: int = 1) -> Any:
        do() if times > 1 else None
        spent = []
        for _ in range(times):
            start = time.perf_counter(), time.process_time()
            result = do()
            spent.append((time.perf_counter() - start[0], time.process_time() - start[1]))
        wall, cpu = (1e3 * float(np.median(side)) for side in zip(*spent, strict=True))
        print(f"{what:<46} {wall:8.2f} ms, {cpu:8.2f} ms of processor time")
        return result

    print(f"{length:,} × {length:,}, one causal head, d 64, engine {engine}")
    shape = (512, 512)
    timed("overview 512 × 512, from nothing", lambda: heatmap_of(call, shape=shape, engine=engine))
    print(f"{'peak memory of the process, and what it added':<46} {_peak() / 2**20:8.1f} MB, "
          f"{(_peak() - before) / 2**20:.1f} MB")  # fmt: skip
    known = {"engine": engine, "logsumexp": statistics(call)}
    timed("row statistics", lambda: statistics(call))
    for pool in ("max", "mean"):
        timed(f"overview 512 × 512, {pool}, statistics at hand",
              lambda pool=pool: heatmap_of(call, shape=shape, pool=pool, **known))  # fmt: skip
    timed("received", lambda: received_of(call, **known))
    rows, columns = (length - 500, length - 244), (101, 357)
    timed("exact tile 256 × 256 (weights)",
          lambda: weights_of(call, rows=rows, columns=columns, **known), 9)  # fmt: skip
    site = Site("bench", 0, query, key, mask=mask)
    _ = site.statistics
    timed("exact tile 256 × 256 (pyramid, cold)",
          lambda: Pyramid(site, 0, engine=engine).tile(0, length // 256 - 1, 3), 9)  # fmt: skip
    timed("cell", lambda: site.cell(length - 7, 11), 9)
    timed("top 8 of 16 rows", lambda: top_of(call, rows=(length - 16, length), **known), 5)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("length", nargs="?", type=int, default=32_768)
    parser.add_argument("engine", nargs="?", default="auto")
    given = parser.parse_args()
    main(given.length, given.engine)
