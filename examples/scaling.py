"""Does 1/√d_k matter? The same small model trained with it, without scaling, and with 1/d_k.

    python examples/scaling.py --data tinyshakespeare.txt --jobs 8

Three settings, because the answer depends on them:
  unit        queries and keys start with entries of variance 1, as the textbooks assume; Adam
  small       every weight starts at a standard deviation of 0.02, as in GPT-2; Adam
  unit-sgd    as unit, with plain gradient descent with momentum, which does not rescale gradients
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from text import Text, shakespeare
from torch import nn
from torch.nn.functional import cross_entropy
from training import Stopwatch, device
from transformer import Decoder

from limelight.torch import Monitor

RESULTS = Path(__file__).parents[1] / "src" / "limelight" / "learn" / "experiments" / "scaling.json"
SETTINGS = ("unit", "small", "unit-sgd")
SCALES = ("1/√d_k", "none", "1/d_k")
SIZES = (16, 32, 64, 128, 256)
WIDTH, HEADS, LAYERS, LENGTH, BATCH = 128, 2, 2, 64, 32


def build(alphabet: int, d_k: int, scale: str, setting: str) -> Decoder:
    factor = {"1/√d_k": d_k**-0.5, "none": 1.0, "1/d_k": 1.0 / d_k}[scale]
    model = Decoder(alphabet, WIDTH, HEADS, LAYERS, LENGTH, head_size=d_k, scale=factor)
    if setting != "small":
        for block in model.transformer.blocks:
            for linear in (block.attention.W_Q, block.attention.W_K):
                nn.init.normal_(linear.weight, std=WIDTH**-0.5)  # entries of x have variance 1
    return model


def run(job: tuple[str, str, int, int, int, str]) -> dict[str, Any]:
    """One training run, with its figures at about thirty steps."""
    setting, scale, d_k, seed, steps, path = job
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    text, on = Text.of(shakespeare(Path(path))), device()
    model = build(len(text.alphabet), d_k, scale, setting).to(on)
    if setting == "unit-sgd":
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scored = [
        linear.weight
        for block in model.transformer.blocks
        for linear in (block.attention.W_Q, block.attention.W_K)
    ]
    generator = torch.Generator().manual_seed(seed)
    every = max(1, steps // 30)
    figures: dict[str, list[Any]] = {name: [] for name in ("steps", "loss", "score_gradient")}
    with Monitor(model, None, every=every) as monitor:
        for step in range(steps):
            given, wanted = text.batch(BATCH, LENGTH, generator, on)
            loss = cross_entropy(model(given).flatten(0, 1), wanted.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if step % every == 0:
                norm = torch.stack([weight.grad.norm() for weight in scored]).norm()
                figures["steps"].append(step)
                figures["loss"].append(round(loss.item(), 4))
                figures["score_gradient"].append(float(f"{norm.item():.4g}"))
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            monitor.step()
        records = [record for record in monitor.records if "sites" in record]
    held_out = round(text.held_out_loss(model, LENGTH, on), 4)
    return {"setting": setting, "scale": scale, "d_k": d_k, "held_out": held_out, **figures,
            **health(records[: len(figures["steps"])])}  # fmt: skip


def health(records: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Spread and share of saturated rows of each recorded step, the mean over layers and heads."""

    def mean(record: dict[str, Any], name: str) -> float:
        heads = [figure for site in record["sites"] for figure in site[name]]
        return round(sum(heads) / len(heads), 4)

    return {"spread": [mean(r, "spread") for r in records],
            "saturated": [mean(r, "saturated") for r in records]}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="a text file")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--quick", action="store_true", help="one seed, two sizes, 60 steps")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    shakespeare(Path(options.data))  # ends here, and not in every worker, where it cannot be read
    sizes = SIZES[::3] if options.quick else SIZES
    seeds = 1 if options.quick else options.seeds
    steps = 60 if options.quick else options.steps
    settings = list(itertools.product(SETTINGS, SCALES, sizes))
    jobs = [(*setting, seed, steps, options.data) for setting in settings for seed in range(seeds)]
    watch = Stopwatch()
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        done = list(track(pool.imap(run, jobs), "training", total=len(jobs)))
    runs = []
    for i, (setting, scale, d_k) in enumerate(settings):
        mine = done[i * seeds : (i + 1) * seeds]
        names = ("loss", "score_gradient", "spread", "saturated", "held_out")
        runs.append({"setting": setting, "scale": scale, "d_k": d_k, "steps": mine[0]["steps"],
                     **{name: [one[name] for one in mine] for name in names}})  # fmt: skip
    facts = {"steps": steps, "seeds": seeds, "width": WIDTH, "heads": HEADS, "layers": LAYERS,
             "length": LENGTH, "batch": BATCH}  # fmt: skip
    options.output.write_text(json.dumps({"facts": facts, "runs": runs}, separators=(",", ":")))
    print(f"{len(jobs)} runs of {steps} steps in {watch}: {options.output.name}\n")
    for setting in SETTINGS:
        print(f"{setting}: held-out loss at the end, mean over seeds")
        print("  d_k     " + "".join(f"{scale:>9}" for scale in SCALES))
        for d_k in sizes:
            rows = [r for r in runs if (r["setting"], r["d_k"]) == (setting, d_k)]
            means = [sum(r["held_out"]) / len(r["held_out"]) for r in rows]
            print(f"  {d_k:<8}" + "".join(f"{mean:9.3f}" for mean in means))


if __name__ == "__main__":
    main()
