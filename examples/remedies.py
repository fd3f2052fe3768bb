"""What saves a run whose attention dies? A small GPT at learning rates that are too large.

    python examples/remedies.py --data tinyshakespeare.txt -o runs/ --workers 8

Each learning rate is trained with nothing, and with each remedy, over the same seeds and batches:
  none      as it is
  clip      QKClip at a largest logit of 100
  z_loss    1e-4 of the mean logsumexp² of every layer
  floor     1e-2 of what rows lack of an entropy of 0.5 nats
  norm      queries and keys normalised before they meet

A run is dead where its largest logit passes 1,000, the mean entropy of a head falls to 0, or its
loss is not a number or ends above where it began. Every run leaves its monitor's file (limelight
watch FILE), and all of them one remedies.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from text import Text, shakespeare
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from training import device
from transformer import Decoder

from limelight.health import Health
from limelight.torch import Monitor, QKClip, SelfAttention
from limelight.torch.losses import entropy_floor, z_loss

RATES = (1e-3, 1e-2, 3e-2, 1e-1)
REMEDIES = ("none", "clip", "z_loss", "floor", "norm")
PENALTIES: dict[str, Callable[[Health], Tensor]] = {
    "z_loss": lambda health: 1e-4 * z_loss(health),
    "floor": lambda health: 1e-2 * entropy_floor(health, nats=0.5),
}
SIZE = {"width": 256, "heads": 4, "layers": 4, "length": 256}
QUICK = {"width": 32, "heads": 2, "layers": 2, "length": 32}
LARGEST, NO_ENTROPY = 1000.0, 0.01


class Seen(SelfAttention):
    """Keeps the health of its last pass, for the loss."""

    health: Health

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        seen = self.inspect(x, **options)
        self.health = seen.health
        return seen.output


class Normalised(SelfAttention):
    """Queries and keys of size 1 in the root mean square, times learned weights."""

    def project(self, x: Tensor, cache: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = super().project(x, cache)
        return self.q_norm(query), self.k_norm(key), value


def build(alphabet: int, remedy: str, size: dict[str, int]) -> Decoder:
    model = Decoder(alphabet, **size)
    for layer in attention_of(model):
        if remedy in PENALTIES:
            layer.__class__ = Seen
        if remedy == "norm":
            layer.__class__ = Normalised
            layer.q_norm, layer.k_norm = (nn.RMSNorm(layer.head_size) for _ in range(2))
    return model


def attention_of(model: Decoder) -> list[Any]:
    return [block.attention for block in model.transformer.blocks]


def run(
    remedy: str, rate: float, seed: int, text: Text, options: argparse.Namespace
) -> dict[str, Any]:
    """One training run, and whether it died."""
    size, on = QUICK if options.quick else SIZE, device()
    torch.manual_seed(seed)
    model = build(len(text.alphabet), remedy, size).to(on).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99))
    generator = torch.Generator().manual_seed(seed)
    path = options.output / f"{remedy}-{rate:g}-{seed}.jsonl"
    path.unlink(missing_ok=True)
    every = max(1, options.steps // 100)
    losses, clipped, start = [], 0, time.perf_counter()
    with Monitor(model, path, every=every) as monitor:
        clip = QKClip(model, 100.0, monitor=monitor) if remedy == "clip" else None
        for _ in range(options.steps):
            given, wanted = text.batch(options.batch, size["length"], generator, on)
            with torch.autocast(on, torch.bfloat16, enabled=on == "cuda"):
                logits = model(given)
            loss = total = cross_entropy(logits.float().flatten(0, 1), wanted.flatten())
            if remedy in PENALTIES:
                total = loss + sum(PENALTIES[remedy](layer.health) for layer in attention_of(model))
            optimizer.zero_grad(set_to_none=True)
            total.backward()
            optimizer.step()
            if clip is not None:
                clipped += len(clip.step())
            losses.append(loss.detach())
            monitor.step(loss=float(losses[-1]) if monitor.recording else math.nan, lr=rate)
        if clip is not None:
            clip.close()
    curve = torch.stack(losses).tolist()
    tail = max(1, options.steps // 20)
    heads = [site for record in monitor.records for site in record["sites"]]
    # a logit that is not finite is None in a record
    largest = max(
        (x if x is not None else math.inf for s in heads for x in s["max_logit"]), default=0.0
    )
    entropy = min((x for s in heads for x in s["entropy"] if x is not None), default=0.0)
    end = sum(curve[-tail:]) / tail
    reasons = {
        "logit": largest > LARGEST,
        "entropy": entropy < NO_ENTROPY,
        "loss": not end < curve[0],
    }
    return {
        "remedy": remedy, "rate": rate, "seed": seed, "file": path.name,
        "seconds": round(time.perf_counter() - start, 2), "clipped": clipped,
        "loss": round(end, 4) if math.isfinite(end) else None,
        "held_out": _held_out(text, model, size["length"], on),
        "largest": largest if math.isfinite(largest) else None, "entropy": entropy,
        "died": [reason for reason, so in reasons.items() if so],
    }  # fmt: skip


def _held_out(text: Text, model: Decoder, length: int, on: str) -> float | None:
    loss = text.held_out_loss(model, length, on, rows=64)
    return round(loss, 4) if math.isfinite(loss) else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a text file")
    parser.add_argument("--steps", type=int, help="2000; 20 with --quick")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seeds", type=int, help="3; 1 with --quick")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--workers", type=int, default=1, help="runs side by side (1)")
    parser.add_argument("--quick", action="store_true", help="a smaller model, to try it")
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder for the runs")
    options = parser.parse_args()
    options.steps = options.steps or (20 if options.quick else 2000)
    seeds = range(options.seeds or (1 if options.quick else 3))
    text = Text.of(shakespeare(options.data))
    options.output.mkdir(parents=True, exist_ok=True)
    jobs = list(itertools.product(REMEDIES, options.rates, seeds))
    one = partial(_job, text=text, options=options)
    if options.workers == 1:
        done = [one(job) for job in track(jobs, "training")]
    else:
        with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
            done = list(track(pool.map(one, jobs), "training", len(jobs)))
    facts = {"steps": options.steps, "batch": options.batch, "device": device(),
             **(QUICK if options.quick else SIZE)}  # fmt: skip
    target = options.output / "remedies.json"
    target.write_text(json.dumps({"facts": facts, "runs": done}, indent=1))
    print(f"\n{len(done)} runs of {options.steps} steps: {target}")
    print(f"{'rate':>8} {'remedy':<8} {'died':>5} {'loss':>8} {'largest logit':>14} {'seconds':>8}")
    for rate, remedy in itertools.product(options.rates, REMEDIES):
        mine = [one for one in done if (one["rate"], one["remedy"]) == (rate, remedy)]
        print(f"{rate:>8g} {remedy:<8} {sum(bool(one['died']) for one in mine)}/{len(mine):<3} "
              f"{_mean(mine, 'loss'):>8} {_mean(mine, 'largest'):>14} "
              f"{_mean(mine, 'seconds'):>8}")  # fmt: skip


def _job(job: tuple[str, float, int], text: Text, options: argparse.Namespace) -> dict[str, Any]:
    return run(*job, text, options)


def _mean(runs: list[dict[str, Any]], name: str) -> str:
    values = [one[name] for one in runs]
    return "–" if None in values else f"{sum(values) / len(values):.3f}"


if __name__ == "__main__":
    main()
