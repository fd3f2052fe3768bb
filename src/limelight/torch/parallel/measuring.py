"""The forecast of limelight.torch.parallel.scaling against the ranks at hand, under torchrun.

Measures on all ranks at once how fast one computes attention and how fast it sends to the next,
forecasts from these two what context_parallel takes, and times it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import limelight as ll
from limelight.torch.functional import attention
from limelight.torch.parallel.attention import ContextParallel
from limelight.torch.parallel.exchange import Ring
from limelight.torch.parallel.scaling import Forecast, Job, Machine, forecast

LENGTHS = (1024, 2048, 4096, 8192)
SHAPE: dict[str, Any] = {"heads": 4, "key_heads": 2, "head_size": 64}


def timed(run: Callable[[], object], repeats: int = 8) -> float:
    """The slowest rank's seconds, in the repeat that other programs disturbed least."""
    seconds = []
    run()
    for _ in range(repeats):
        dist.barrier()
        start = time.perf_counter()
        run()
        took = torch.tensor(time.perf_counter() - start)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        seconds.append(float(took))
    return min(seconds)


def tensors(job: Job) -> list[Tensor]:
    """This rank's query, key and value."""
    n = job.positions // job.ranks
    heads = (job.heads, job.key_heads, job.key_heads)
    return [torch.randn(1, h, n, job.head_size, requires_grad=True) for h in heads]


def measure(job: Job) -> Machine:
    """Speeds of one rank while all of them work, on pieces of the size the ring works with."""
    query, key, value = tensors(job)
    alone = Job(
        **{**vars(job), "positions": job.positions // job.ranks, "ranks": 1, "causal": False}
    )
    direction = torch.randn_like(query)
    # So many in a row that ranks which share cores do work at the same time.
    stretch = max(1, (8 * LENGTHS[0] // job.positions) ** 2)

    def forward() -> None:
        for _ in range(stretch):
            attention(query, key, value)

    def both_passes() -> None:
        for _ in range(stretch):
            torch.autograd.grad(attention(query, key, value), (query, key, value), direction)

    seconds, both = timed(forward, 3) / stretch, timed(both_passes, 3) / stretch
    ring = Ring.of(dist.group.WORLD)
    sent = torch.zeros(int(job.shard_bytes) // 4)
    received = torch.empty_like(sent)
    link = timed(lambda: ring.start(sent, received).wait())  # at this size, latency and all
    return Machine(
        forward=alone.operations / seconds, backward=2.5 * alone.operations / (both - seconds),
        link=job.shard_bytes / link, latency=0.0,
    )  # fmt: skip


def main() -> None:
    torch.set_num_threads(
        max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    )
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print(f"{ranks} ranks, {SHAPE['heads']} query heads on {SHAPE['key_heads']} key heads of "
              f"size {SHAPE['head_size']}, float32, causal, zigzag")  # fmt: skip
        print(f"{'positions':>9} {'exchange':<8} {'pass':<8} {'forecast ms':>11} "
              f"{'measured ms':>11} {'ratio':>6}   speeds of one rank")  # fmt: skip
    for positions in LENGTHS:
        job = Job(positions, ranks, itemsize=4, **SHAPE)
        machine = measure(job)
        for exchange in ("ring", "gather"):
            passes = forecast(job, machine, exchange)
            for name, expected, seconds in zip(
                ("forward", "backward"), passes, _time(job, exchange), strict=True
            ):
                _report(rank, job, machine, exchange, name, expected, seconds)
    dist.destroy_process_group()


def _time(job: Job, exchange: str) -> tuple[float, float]:
    query, key, value = tensors(job)
    cp = ContextParallel(exchange=exchange)

    def forward() -> Tensor:
        return cp.attention(query, key, value, mask=ll.Causal())

    direction = torch.randn_like(forward())
    seconds = timed(forward)
    both = timed(lambda: torch.autograd.grad(forward(), (query, key, value), direction))
    return seconds, both - seconds


def _report(
    rank: int,
    job: Job,
    machine: Machine,
    exchange: str,
    name: str,
    expected: Forecast,
    seconds: float,
) -> None:
    if rank == 0:
        print(f"{job.positions:>9} {exchange:<8} {name:<8} {1e3 * expected.total:>11.2f} "
              f"{1e3 * seconds:>11.2f} {seconds / expected.total:>6.2f}   "
              f"{machine.forward / 1e9:.1f} and {machine.backward / 1e9:.1f} GFLOP/s, "
              f"{machine.link / 1e9:.2f} GB/s")  # fmt: skip
