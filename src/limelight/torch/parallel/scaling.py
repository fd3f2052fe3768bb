"""What context parallelism costs: bytes, memory and time, as formulas and as a forecast.

    python -m limelight.torch.parallel.scaling                       a table for H200s
    python -m limelight.torch.parallel.scaling --plot scaling.png    the same as a picture
    torchrun --nproc-per-node 4 -m limelight.torch.parallel.scaling --measure
                                                                     against the ranks at hand

docs/scaling.md derives the formulas. A forecast needs two measured speeds: how fast one rank
computes attention, and how fast it can send to the next.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from limelight.errors import ArgumentError


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
    """Time of forward and backward over ranks, one line a length; ring solid, gather dashed."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    ranks = [2**i for i in range(3, 11)]
    figure, (times, waits) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    colours = plt.get_cmap("viridis")
    for i, positions in enumerate(POSITIONS):
        colour = colours(i / (len(POSITIONS) - 0.5))
        for exchange, style in (("ring", "-"), ("gather", "--")):
            passes = [forecast(Job(positions, n), machine, exchange) for n in ranks]
            total = [forward.total + backward.total for forward, backward in passes]
            waiting = [(forward.waiting + backward.waiting) / t
                       for (forward, backward), t in zip(passes, total, strict=True)]  # fmt: skip
            label = _length(positions) if exchange == "ring" else None
            times.plot(ranks, total, style, color=colour, label=label)
            waits.plot(ranks, [100 * share for share in waiting], style, color=colour)
    for axis in (times, waits):
        axis.set_xscale("log", base=2)
        axis.set_xticks(ranks, [f"{n:,}" for n in ranks])
        axis.set_xlabel("GPUs")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    times.set_yscale("log")
    times.set_title("one layer, forward and backward, seconds", loc="left", fontsize=10)
    waits.set_title("share of that spent waiting for keys, %", loc="left", fontsize=10)
    times.legend(title="positions", fontsize=8, frameon=False)
    waits.plot([], [], "-", color="grey", label="ring")
    waits.plot([], [], "--", color="grey", label="gather")
    waits.legend(fontsize=8, frameon=False)
    figure.savefig(target, dpi=130)
    plt.close(figure)


def _length(positions: int) -> str:
    return f"{positions / 1e6:.3g}M" if positions >= 10**6 else f"{positions >> 10}k"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m limelight.torch.parallel.scaling",
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
        from limelight.torch.parallel import measuring

        measuring.main()
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
