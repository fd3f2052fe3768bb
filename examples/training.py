"""What the three trainers share: options, the loop with progress and monitor, checkpoints."""

from __future__ import annotations

import argparse
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

from limelight.live.small import SHIPPED
from limelight.torch import Monitor

CHECKPOINTS = Path(__file__).parent / "checkpoints"
LIVE = ("gpt", "code")  # come along in the package: limelight.live.load("gpt")


def asked(
    words: str, kind: str, *, steps: tuple[int, int], batch: tuple[int, int], data: str = ""
) -> argparse.Namespace:
    """What a trainer is told on the command line; steps and batch are (in full, quick).

    `data` says what is learned from, where that does not come along.
    """
    parser = argparse.ArgumentParser(
        description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if data:
        parser.add_argument("--data", type=Path, required=True, help=data)
    parser.add_argument("--quick", action="store_true", help="a smaller model, fewer steps")
    parser.add_argument("--steps", type=int, help=f"{steps[0]}; {steps[1]} with --quick")
    parser.add_argument("--batch", type=int, help=f"{batch[0]}; {batch[1]} with --quick")
    parser.add_argument("--seed", type=int, default=0, help="0 unless told")
    parser.add_argument("--name", help=f"of the checkpoint: {kind}; {kind}-quick with --quick")
    parser.add_argument("--journal", type=Path, help="a file for the monitor: limelight watch FILE")
    found = parser.parse_args()
    found.steps = found.steps or steps[found.quick]
    found.batch = found.batch or batch[found.quick]
    found.name = found.name or (f"{kind}-quick" if found.quick else kind)
    return found


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def train(
    model: nn.Module,
    loss_of: Callable[[torch.Generator], Tensor],
    options: argparse.Namespace,
    *,
    rate: float,
    every: int = 50,
) -> list[float]:
    """AdamW with warm-up and a cosine; returns the loss of every `every`-th step.

    `loss_of(generator)` draws a batch and gives its loss: the generator is the only chance in it.
    """
    torch.set_float32_matmul_precision("high")
    steps, generator = options.steps, torch.Generator().manual_seed(options.seed)
    wide = [p for p in model.parameters() if p.ndim >= 2]
    narrow = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": wide, "weight_decay": 0.1}, {"params": narrow, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99))
    warm = max(1, min(100, steps // 10))

    def share(step: int) -> float:
        return min(1.0, (step + 1) / warm) * (0.525 + 0.475 * math.cos(math.pi * step / steps))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
    curve: list[float] = []
    model.train()
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Monitor(model, options.journal, every=every) as monitor, Progress(*columns) as progress:
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
                if not progress.console.is_terminal:
                    print(f"step {step}: loss {curve[-1]:.3f}", flush=True)
            monitor.step(loss=curve[-1])
            progress.advance(bar)
    return curve


def save(name: str, model: nn.Module, facts: dict[str, Any], **along: Tensor) -> Path:
    """Half-precision weights, plain facts and what else goes along in one safetensors file."""
    weights = {key: value.half().cpu().contiguous() for key, value in model.state_dict().items()}
    path = place(name)
    path.parent.mkdir(exist_ok=True)
    along = {key: value.cpu().contiguous() for key, value in along.items()}
    save_file(weights | along, path, {"facts": json.dumps(facts)})
    return path


def place(name: str) -> Path:
    """Where the checkpoint of that name is."""
    return (SHIPPED if name in LIVE else CHECKPOINTS) / f"{name}.safetensors"


def load(
    name: str, build: Callable[[dict[str, Any]], nn.Module]
) -> tuple[nn.Module, dict[str, Any]]:
    """The model that was saved, in float32, and its facts."""
    with safe_open(place(name), "pt") as file:
        facts = json.loads(file.metadata()["facts"])
        model = build(facts["size"])
        model.load_state_dict({key: file.get_tensor(key).float() for key in model.state_dict()})
    return model.eval(), facts


def along(name: str, part: str) -> Tensor:
    """What was saved along with a model under that name."""
    with safe_open(place(name), "pt") as file:
        return file.get_tensor(part)


def size_of(model: nn.Module) -> str:
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} million parameters"


class Stopwatch:
    def __init__(self) -> None:
        self.start = time.perf_counter()

    def __str__(self) -> str:
        return f"{time.perf_counter() - self.start:.0f} s"
