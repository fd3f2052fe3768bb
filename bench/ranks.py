"""What context parallelism costs: bytes, memory and time, as formulas and as a forecast.

    python bench/ranks.py                                           a table for H200s
    python bench/ranks.py --plot ranks.png                          the same as a picture
    torchrun --nproc-per-node 4 bench/ranks.py --measure            against the ranks at hand

docs/context-parallel.md derives the formulas. A forecast needs two measured speeds: how fast one
rank computes attention, and how fast it can send to the next. --measure finds both on all ranks at
once, forecasts from them what context_parallel takes, and times it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

import limelight as ll
from limelight.errors import ArgumentError
from limelight.pictures.chart import Line, Panel, chart
from limelight.torch.functional import attention
from limelight.torch.parallel.attention import ContextParallel
from limelight.torch.parallel.exchange import Ring


@dataclass(frozen=True)
class Job:
    """One attention over a sequence that is cut across ranks."""

    positions: int
    ranks: int
    heads: int = 32
    key_heads: int = 8
    head_size: int = 128
    batch: int = 1
    itemsize: int = 2
    causal: bool = True

    @property
    def shard_bytes(self) -> float:
        """S: one rank's keys and values."""
        per_position = 2 * self.batch * self.key_heads * self.head_size * self.itemsize
        return self.positions / self.ranks * per_position

    @property
    def gradient_bytes(self) -> float:
        """G: their gradients, summed in float32 (float64 for float64)."""
        return self.shard_bytes * max(4, self.itemsize) / self.itemsize

    @property
    def operations(self) -> float:
        """Multiplications and additions of the forward pass on one rank; causal needs half."""
        cells = self.batch * self.heads * self.positions**2 / self.ranks
        return 4 * self.head_size * cells * (0.5 if self.causal else 1.0)

    def memory(self, exchange: str) -> tuple[float, float]:
        """Bytes beyond the rank's own tensors in the forward and in the backward pass."""
        query = self.positions / self.ranks * self.batch * self.heads * self.head_size * 4
        if exchange == "ring":  # what is here and what is coming, of keys and of gradients
            return 2 * self.shard_bytes, 2 * self.shard_bytes + 3 * self.gradient_bytes + query
        # what was gathered, in the order of ranks and in that of positions; gradients likewise
        whole, gradients = self.ranks * self.shard_bytes, self.ranks * self.gradient_bytes
        return 2 * whole + self.shard_bytes, whole + 2 * gradients + query


@dataclass(frozen=True)
class Machine:
    """Speeds of one rank: attention in operations a second, links in bytes a second, seconds."""

    forward: float
    backward: float
    link: float
    latency: float = 10e-6
    near: int = 1  # ranks in one node, whose links are faster
    near_link: float | None = None

    def bandwidth(self, ranks: int) -> float:
        """A ring is as fast as its slowest link."""
        return self.near_link if self.near_link and ranks <= self.near else self.link


# One H200 as bench/results/h200.md has it for 16,384 positions, size 128, causal, output alone;
# NVLink 4 and one 400 Gb/s port a GPU as specified by their makers, at 80 %.
H200 = Machine(forward=738e12, backward=551e12, link=0.8 * 50e9, near=8, near_link=0.8 * 450e9)


@dataclass(frozen=True)
class Forecast:
    """Seconds of one pass: computing, and waiting for keys that are not there yet."""

    compute: float
    waiting: float

    @property
    def total(self) -> float:
        return self.compute + self.waiting


def forecast(job: Job, machine: Machine, exchange: str) -> tuple[Forecast, Forecast]:
    """The forward and the backward pass.

    In a ring each hop takes as long as the slower of computing and sending; with gather all
    sending comes first.

    >>> fast = Machine(forward=1e12, backward=1e12, link=1e30, latency=0.0)
    >>> [round(f.total / f.compute, 6) for f in forecast(Job(1 << 20, 8), fast, "ring")]
    [1.0, 1.0]
    """
    if exchange not in ("ring", "gather"):
        raise ArgumentError(f"exchange={exchange!r}: a forecast is for ring or gather")
    link, others = machine.bandwidth(job.ranks), job.ranks - 1
    keys = job.shard_bytes / link + machine.latency
    gradients = job.gradient_bytes / link + machine.latency
    forward = job.operations / machine.forward
    backward = 2.5 * job.operations / machine.backward  # five matrix products instead of two
    if job.ranks == 1:
        return Forecast(forward, 0.0), Forecast(backward, 0.0)
    if exchange == "gather":
        return Forecast(forward, others * keys), Forecast(backward, others * (keys + gradients))
    hop, hop_back = forward / job.ranks, backward / job.ranks
    return (
        Forecast(forward, others * max(0.0, keys - hop)),
        Forecast(backward, others * max(0.0, keys + gradients - hop_back) + gradients),
    )


POSITIONS = (1 << 17, 1 << 18, 1 << 20, 1 << 22, 10_000_000)
RANKS = (8, 32, 128, 512, 1024)


def table(machine: Machine = H200) -> list[dict[str, float | int | str]]:
    """One row for each length, number of ranks and exchange: seconds and gigabytes a rank."""
    rows: list[dict[str, float | int | str]] = []
    for positions in POSITIONS:
        for ranks in RANKS:
            job = Job(positions, ranks)
            for exchange in ("ring", "gather"):
                forward, backward = forecast(job, machine, exchange)
                rows.append({
                    "positions": positions, "ranks": ranks, "exchange": exchange,
                    "forward": forward.total, "backward": backward.total,
                    "waiting": (forward.waiting + backward.waiting)
                    / (forward.total + backward.total),
                    "memory": job.memory(exchange)[1] / 1e9,
                })  # fmt: skip
    return rows


def draw(target: Path, machine: Machine = H200) -> None:
    """Seconds of both passes over ranks, and the share spent waiting: a line a length."""
    ranks = np.array([2**i for i in range(3, 11)], np.float64)
    rows = []
    for exchange in ("ring", "gather"):
        times, waits = [], []
        for positions in POSITIONS:
            passes = [forecast(Job(positions, int(n)), machine, exchange) for n in ranks]
            total = np.array([forward.total + backward.total for forward, backward in passes])
            waiting = [forward.waiting + backward.waiting for forward, backward in passes]
            name = f"{_length(positions)} positions"
            times.append(Line(name, ranks, total[None]))
            waits.append(Line(name, ranks, 100 * np.array(waiting)[None] / total))
        ticks = tuple(ranks[::2])
        rows.append([
            Panel(f"{exchange}: seconds", tuple(times), "GPUs", "xy", ticks=ticks),
            Panel(f"{exchange}: waiting for keys, %", tuple(waits), "GPUs", "x", 0.0, 100.0,
                  ticks=ticks),
        ])  # fmt: skip
    chart(rows, title="One layer, forward and backward, over the GPUs that share it").save(target)


def _length(positions: int) -> str:
    return f"{positions / 1e6:.3g}M" if positions >= 10**6 else f"{positions >> 10}k"


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


def measured() -> None:
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
                ("forward", "backward"), passes, _times(job, exchange), strict=True
            ):
                _report(rank, job, machine, exchange, name, expected, seconds)
    dist.destroy_process_group()


def _times(job: Job, exchange: str) -> tuple[float, float]:
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--plot", type=Path, help="draw the forecast to this file")
    parser.add_argument("--forward", type=float, default=H200.forward / 1e12, help="TFLOP/s")
    parser.add_argument("--backward", type=float, default=H200.backward / 1e12, help="TFLOP/s")
    parser.add_argument("--link", type=float, default=H200.link / 1e9, help="GB/s between nodes")
    parser.add_argument("--near-link", type=float, default=(H200.near_link or 0) / 1e9,
                        help="GB/s inside a node of 8")  # fmt: skip
    parser.add_argument("--measure", action="store_true", help="on the ranks of torchrun")
    given = parser.parse_args(arguments)
    if given.measure:
        measured()
        return
    machine = replace(H200, forward=given.forward * 1e12, backward=given.backward * 1e12,
                      link=given.link * 1e9, near_link=given.near_link * 1e9)  # fmt: skip
    if given.plot is not None:
        draw(given.plot, machine)
        print(f"drew {given.plot}")
        return
    print(f"{'positions':>10} {'GPUs':>5} {'exchange':<8} {'forward s':>10} {'backward s':>10} "
          f"{'waiting':>8} {'extra GB':>9}")  # fmt: skip
    for row in table(machine):
        print(f"{_length(int(row['positions'])):>10} {row['ranks']:>5} {row['exchange']:<8} "
              f"{row['forward']:>10.4g} {row['backward']:>10.4g} {row['waiting']:>8.0%} "
              f"{row['memory']:>9.3g}")  # fmt: skip


if __name__ == "__main__":
    main()
