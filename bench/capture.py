"""How much it costs to see every head of a real model, beside running it on plain sdpa.

    python bench/capture.py smollm2 --tokens 8192

Captures a text of that length (queries and keys of every layer, and the health of every row in the
same pass), then runs the same pass on Transformers' sdpa. Memory is the most that the process has
held up to the end of the capture, model and all.
"""

from __future__ import annotations

import argparse
import json
import os
import pydoc_data.topics
import resource
import sys
import time
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from limelight import hf


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("model")
    options.add_argument("--tokens", type=int, default=8192)
    options.add_argument("--threads", type=int, default=None)
    options.add_argument("--rounds", type=int, default=1, help="the fastest of so many counts")
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    seen = measure(asked.model, asked.tokens, asked.rounds)
    if asked.json:
        print(json.dumps(seen, indent=2))
        return
    print(f"{seen['model']}: {seen['tokens']:,} tokens, {seen['heads']} heads, "
          f"{torch.get_num_threads()} threads")  # fmt: skip
    for name, key in (("plain sdpa", "sdpa_seconds"), ("limelight", "limelight_seconds"),
                      ("limelight with capture and health", "capture_seconds"),
                      ("the tables of all heads", "tables_seconds")):  # fmt: skip
        print(f"  {name:<36} {seen[key]:8.2f} s")
    print(f"  {'memory, process and all':<36} {seen['peak_memory_bytes'] / 1e9:8.2f} GB")
    print(f"  {'of it the capture':<36} {seen['capture_bytes'] / 1e9:8.2f} GB")
    print(f"  {'eager weights would take':<36} {seen['eager_attentions_bytes'] / 1e9:8.2f} GB")


def measure(name: str, tokens: int, rounds: int) -> dict[str, Any]:
    loaded = hf.load(name)
    text = "\n".join(pydoc_data.topics.topics.values())  # English prose that every Python has
    loaded.capture(text, tokens=64)  # warm
    inputs = loaded.inputs(text, tokens=tokens)
    facts: dict[str, Any] = {"model": loaded.name, "peak_memory_bytes": 0}
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        started = time.perf_counter()
        found = loaded.capture(text, tokens=tokens)
        seconds.setdefault("capture", []).append(time.perf_counter() - started)
        started = time.perf_counter()
        tables = found.health()
        seconds.setdefault("tables", []).append(time.perf_counter() - started)
        facts["peak_memory_bytes"] = facts["peak_memory_bytes"] or peak()
        facts |= {
            "tokens": found.sites[0].keys, "heads": sum(site.heads for site in found),
            "capture_bytes": sum(part.nbytes for site in found for part in (site.query, site.key)),
            "saturated_heads": int((tables.verdict == "saturated").sum()),
        }  # fmt: skip
        del found, tables
        for implementation in ("limelight", "sdpa"):
            loaded.model.set_attn_implementation(implementation)
            started = time.perf_counter()
            with torch.no_grad():
                loaded.model(**inputs, use_cache=False, logits_to_keep=1)
            seconds.setdefault(implementation, []).append(time.perf_counter() - started)
    facts["eager_attentions_bytes"] = facts["heads"] * facts["tokens"] ** 2 * 4
    return facts | {f"{name}_seconds": min(taken) for name, taken in seconds.items()}


def peak() -> int:
    """The most memory that the process has held so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
