"""What a small call costs, and SmolLM2 writing on limelight and on sdpa, in turns.

    python bench/call.py [--threads 1] [--rounds 10] [--tokens 32] [--contexts 8 256 1500]

A call is [1, 4, 8, 16], too small for its arithmetic to count. Writing is greedy, a token at a time
after a context of so many; both ways write every token in turn, and the median counts.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention as theirs

from limelight import hf
from limelight.torch import scaled_dot_product_attention as ours

CALLS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--contexts", type=int, nargs="*", default=[8, 256, 1500])
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    calls(asked.rounds)
    if asked.contexts:
        writing(asked.rounds, asked.tokens, asked.contexts)


def in_turns(rounds: int, **ways: Callable[[], Any]) -> dict[str, list[float]]:
    """The seconds of each way in each round."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - start)
    return taken


def compare(taken: dict[str, list[float]]) -> str:
    """The median of the rounds' own ratios, and how many of them limelight won."""
    pairs = list(zip(taken["sdpa"], taken["limelight"], strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    return f"{ratio:.2f} x sdpa's time, quicker in {sum(b < a for a, b in pairs)} of {len(pairs)}"


def calls(rounds: int) -> None:
    x = torch.randn(1, 4, 8, 16)
    for name, more in (("plain", {}), ("causal", {"is_causal": True})):

        def many(way: Any, more: Any = more) -> None:
            for _ in range(CALLS):
                way(x, x, x, **more)

        taken = in_turns(10 * rounds, sdpa=lambda: many(theirs), limelight=lambda: many(ours))
        least = {way: min(times) / CALLS * 1e6 for way, times in taken.items()}
        print(
            f"a {name} call: limelight {least['limelight']:.1f} us, torch {least['sdpa']:.1f} at "
            f"best; {compare(taken)}",
            flush=True,
        )


def writing(rounds: int, tokens: int, contexts: list[int]) -> None:
    loaded = hf.load("smollm2")
    model = loaded.model.eval()
    hf.register()
    for length in contexts:
        ids = torch.randint(100, 10_000, (1, length), generator=torch.Generator().manual_seed(0))

        model.set_attn_implementation("sdpa")
        with torch.no_grad():
            context = model(ids, use_cache=True)

        taken: dict[str, list[float]] = {"sdpa": [], "limelight": []}
        for _ in range(rounds):
            caches = {way: copy.deepcopy(context.past_key_values) for way in taken}
            newest = context.logits[:, -1:].argmax(-1)
            for each in range(tokens):
                for way in sorted(taken, reverse=each % 2 == 0):
                    model.set_attn_implementation(way)
                    start = time.perf_counter()
                    with torch.no_grad():
                        seen = model(newest, past_key_values=caches[way], use_cache=True)
                    if each > 0:  # the first after a change of caches is slow either way
                        taken[way].append(time.perf_counter() - start)
                newest = seen.logits[:, -1:].argmax(-1)
        speed = {way: 1 / statistics.median(times) for way, times in taken.items()}
        print(
            f"SmolLM2 after {length} tokens: limelight {speed['limelight']:.1f} tokens a second, "
            f"sdpa {speed['sdpa']:.1f}; {compare(taken)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
