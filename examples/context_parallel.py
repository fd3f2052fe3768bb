"""SmolLM2 on a long text, its positions cut over several ranks, and the health of every head.

    torchrun --nproc-per-node 4 examples/context_parallel.py
    torchrun --nproc-per-node 4 examples/context_parallel.py --tokens 8192 --save run.safetensors
    python examples/context_parallel.py                       the same on one rank, to compare

Each rank runs the whole model on its own positions; only attention looks beyond them, through
limelight.torch.ContextParallel. Everything the ranks learn about the heads gathers into one table
and, with --save, into one capture that the studio opens.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

if os.environ.get("RANK", "0") != "0":  # one progress bar is enough
    os.environ["TQDM_DISABLE"] = "1"

import torch
import torch.distributed as dist
from transformers import AttentionInterface, AttentionMaskInterface

import limelight as ll
import limelight.hf
from limelight.capture import Capture, HealthTables, Rows, Site
from limelight.torch import ContextParallel, gather_capture, positions, shard

NAME = "limelight_context_parallel"


class Across:
    """The attention of a Transformers model whose positions are cut over the ranks of a group."""

    def __init__(self, cp: ContextParallel) -> None:
        self.cp = cp
        self.sites: list[Site] = []

    def __call__(
        self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any,
        scaling: float | None = None, **_: Any,
    ) -> tuple[torch.Tensor, None]:  # fmt: skip
        seen = self.cp.inspect(query, key, value, mask=ll.Causal(), scale=scaling)
        health = seen.health
        rows = Rows(*(x.numpy() for x in (health.logsumexp, health.max_logit, health.entropy)))
        layer = int(module.layer_idx)
        self.sites.append(Site(f"layers.{layer}", layer, query.numpy(), key.numpy(),
                               scale=scaling, mask=ll.Causal(), rows=rows))  # fmt: skip
        return seen.output.transpose(1, 2), None


def text(path: Path | None) -> str:
    """The file's text, or this repository's own documents one after the other."""
    if path is not None:
        return path.read_text(encoding="utf-8")
    folder = Path(__file__).resolve().parents[1]
    return "\n\n".join(
        p.read_text(encoding="utf-8") for p in sorted((folder / "docs").glob("*.md"))
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--file", type=Path, help="a text; the repository's documents if left out")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--exchange", default="ring", choices=("ring", "gather", "auto"))
    parser.add_argument("--save", type=Path, help="write the capture of all ranks to this file")
    given = parser.parse_args()
    words = text(given.file)
    if not words.strip():
        parser.error(f"no text in {given.file or 'docs/ beside this script'}: give one by --file")

    if "RANK" not in os.environ:  # started without torchrun: a group of one
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    ranks = int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    dist.init_process_group("gloo")

    across = Across(ContextParallel(exchange=given.exchange))
    AttentionInterface.register(NAME, across)
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)  # the rule is causal, and global
    loaded = limelight.hf.load(given.model)
    loaded.model.set_attn_implementation(NAME)
    ids = loaded.tokenizer(words, return_tensors="pt").input_ids[:, : given.tokens]
    length = ids.shape[1]
    own, places = shard(ids, 1), positions(length)

    dist.barrier()
    start = time.perf_counter()
    with torch.inference_mode():
        logits = loaded.model(input_ids=own, position_ids=places[None], use_cache=False).logits
    dist.barrier()
    seconds = time.perf_counter() - start

    tokens = tuple(loaded.tokenizer.decode([token]) for token in own[0].tolist())
    source = {"model": given.model, "positions": length, "ranks": ranks}
    capture = gather_capture(
        Capture(tuple(across.sites), (tokens,), source=source), mask=ll.Causal()
    )
    surprise = next_token_loss(logits, ids, places)
    if capture is not None:
        print(f"{given.model}, {length:,} tokens over {ranks} {'ranks' if ranks > 1 else 'rank'}: "
              f"{seconds:.1f} s, {surprise:.4f} nats a token")  # fmt: skip
        print(HealthTables.of(capture.sites))
        if given.save is not None:
            capture.save(given.save)
            print(f"wrote {given.save}")
    dist.destroy_process_group()


def next_token_loss(logits: torch.Tensor, ids: torch.Tensor, places: torch.Tensor) -> float:
    """The mean over all ranks; each position knows its next token from the whole text."""
    known = places < ids.shape[1] - 1
    loss = torch.nn.functional.cross_entropy(
        logits[0][known], ids[0, places[known] + 1], reduction="sum"
    )
    both = torch.stack([loss.double(), known.sum().double()])
    dist.all_reduce(both)
    return float(both[0] / both[1])


if __name__ == "__main__":
    main()
