"""What a Monitor adds to a training step: recorded steps against plain ones, in turns.

    python bench/monitor.py

Prints the extra time of a recorded step, and that spread over the steps from one record to the
next, for a small GPT (6 layers, 6 heads of 64, 512 tokens).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from limelight.torch import Monitor, SelfAttention

LAYERS, HEADS, SIZE, TOKENS, ROUNDS = 6, 6, 384, 512, 40


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp_norm = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.attention = SelfAttention(SIZE, HEADS)
        self.mlp = nn.Sequential(nn.Linear(SIZE, 4 * SIZE), nn.GELU(), nn.Linear(4 * SIZE, SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.mlp_norm(x))


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(LAYERS)))
    x = torch.randn(2, TOKENS, SIZE)

    def step() -> None:
        model(x).square().mean().backward()

    step()
    plain, recorded = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        Monitor(model, Path(folder) / "run.jsonl", every=1) as monitor,
    ):
        for _ in range(ROUNDS):
            start = time.perf_counter()
            with monitor.paused():
                step()
            plain.append(time.perf_counter() - start)
            start = time.perf_counter()
            step()
            monitor.step()
            recorded.append(time.perf_counter() - start)
    base = statistics.median(plain)
    extra = statistics.median(b - a for a, b in zip(plain, recorded, strict=True))
    print(f"plain step {1e3 * base:.1f} ms, recorded step {1e3 * extra:+.1f} ms; "
          f"one record in 50 steps: {extra / base / 50:+.2%}")  # fmt: skip


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    main()
