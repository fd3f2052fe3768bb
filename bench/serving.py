"""Continuous batching on limelight and on sdpa, in turns: the same tokens, and how many a second.

    python bench/serving.py [--model smollm2] [--device cpu] [--requests 32] [--tokens 16]
                            [--longest 120] [--rounds 5] [--threads 2]

Requests of mixed lengths go to Transformers' `generate_batch`, greedily, and share one paged cache.
sdpa gathers each step's keys and hides what is not a sequence's own by a mask; limelight's kernels
read the table of pages. Each round runs both ways; the median of the rounds' own ratios counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from contextlib import nullcontext
from typing import Any

import torch
import transformers

from limelight import hf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2", help="or random: a Llama that learnt nothing")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--longest", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    warnings.filterwarnings("ignore")
    hf.quiet()
    model = random() if asked.model == "random" else hf.load(asked.model).model
    model.to(asked.device).eval()
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(4, asked.longest + 1, (asked.requests,), generator=draw).tolist()
    prompts = [torch.randint(100, 10_000, (n,), generator=draw).tolist() for n in lengths]
    greedy = transformers.GenerationConfig(
        max_new_tokens=asked.tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
    )

    def write(way: str) -> tuple[float, list[Any]]:
        """The seconds that it took, and what was written after each prompt."""
        # What continuous batching makes of a name stays in the config: each turn sets it anew.
        model.set_attn_implementation("sdpa")
        with hf.serving(model) if way == "limelight" else nullcontext():
            start = time.perf_counter()
            found = model.generate_batch(
                prompts, generation_config=greedy, progress_bar=False,
                continuous_batching_config=transformers.ContinuousBatchingConfig(
                    num_blocks=256, max_batch_tokens=512
                ),
            )  # fmt: skip
            took = time.perf_counter() - start
        return took, sorted((one.prompt_ids, one.generated_tokens) for one in found.values())

    taken: dict[str, list[float]] = {"sdpa": [], "limelight": []}
    written = {way: write(way)[1] for way in taken}
    same = sum(a == b for a, b in zip(*written.values(), strict=True))
    print(f"{len(prompts)} requests of {min(lengths)} to {max(lengths)} tokens, {asked.tokens} "
          f"more each: {same} of {len(written['sdpa'])} written alike", flush=True)  # fmt: skip
    for _ in range(asked.rounds):
        for way, times in taken.items():
            times.append(write(way)[0])
    for way, times in taken.items():
        speed = len(prompts) * asked.tokens / statistics.median(times)
        print(f"{way:10} {speed:7.1f} tokens a second")
    ratios = [a / b for a, b in zip(taken["sdpa"], taken["limelight"], strict=True)]
    ratio, won = statistics.median(ratios), sum(ratio > 1 for ratio in ratios)
    print(f"limelight at {ratio:.2f} x sdpa's speed, ahead in {won} of {len(ratios)}")


def random() -> Any:
    """A model for machines to which no weights come."""
    torch.manual_seed(0)
    size = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 10_000}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**size, **heads))


if __name__ == "__main__":
    main()
