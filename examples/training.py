"""What the three trainers share: the loop, its progress, the monitor, and checkpoints."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from limelight.torch import Monitor

HERE = Path(__file__).parent
CHECKPOINTS = HERE / "checkpoints"


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def train(
    model: nn.Module,
    loss_of: Callable[[torch.Generator], Tensor],
    *,
    steps: int,
    rate: float,
    seed: int,
    journal: Path | None = None,
    every: int = 50,
) -> list[float]:
    """AdamW with warm-up and a cosine; returns the loss of every `every`-th step.

    `loss_of(generator)` draws a batch and gives its loss: the generator is the only chance in it.
    """
    torch.set_float32_matmul_precision("high")
    generator = torch.Generator().manual_seed(seed)
    wide = [p for p in model.parameters() if p.ndim >= 2]
    narrow = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": wide, "weight_decay": 0.1}, {"params": narrow, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99))
    warm = max(1, min(100, steps // 10))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, (step + 1) / warm)
            * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        ),
    )
    curve: list[float] = []
    model.train()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Monitor(model, journal, every=every) as monitor, Progress(*columns) as progress:
        bar = progress.add_task("training", total=steps)
        for step in range(steps):
            loss = loss_of(generator)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if step % every == 0 or step == steps - 1:
                curve.append(loss.item())
                progress.update(bar, description=f"loss {curve[-1]:.3f}")
            monitor.step(loss=curve[-1])
            progress.advance(bar)
    return curve


def save(name: str, model: nn.Module, facts: dict[str, Any]) -> Path:
    """Half-precision weights and plain facts in one safetensors file."""
    CHECKPOINTS.mkdir(exist_ok=True)
    weights = {key: value.half().cpu().contiguous() for key, value in model.state_dict().items()}
    path = CHECKPOINTS / f"{name}.safetensors"
    save_file(weights, path, {"facts": json.dumps(facts)})
    return path


def load(
    name: str, build: Callable[[dict[str, Any]], nn.Module]
) -> tuple[nn.Module, dict[str, Any]]:
    """The model that was saved, in float32, and its facts."""
    with safe_open(CHECKPOINTS / f"{name}.safetensors", "pt") as file:
        facts = json.loads(file.metadata()["facts"])
        weights = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
    model = build(facts["size"])
    model.load_state_dict(weights)
    return model.eval(), facts


def size_of(model: nn.Module) -> str:
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} million parameters"


class Stopwatch:
    def __init__(self) -> None:
        self.start = time.perf_counter()

    def __str__(self) -> str:
        return f"{time.perf_counter() - self.start:.0f} s"
