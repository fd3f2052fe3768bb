"""Surveys beside the plain model: texts a second, memory, and whether padding changes a figure.

    python bench/survey.py TEXTS [--model smollm2] [--texts 500] [--tokens 512] [--alone 500]

Each batch of texts is run twice in turn: by the plain model on PyTorch's own attention, and by the
survey; so both meet the same machine. Then some of the texts are surveyed one at a time, without
padding, and the figures of both ways are compared.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch

from limelight import hf
from limelight.hf import surveying
from limelight.hf.loading import lean
from limelight.survey import Passage, Survey, passages


def megabytes() -> float:
    """What this process holds now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Timed(surveying.Runner):
    """A runner that lets the plain model run each batch first."""

    plain = own = 0.0
    held: ClassVar[list[float]] = []

    def run(self, texts: Any) -> Any:
        longest = max(len(text.ids) for text in texts)
        ids = torch.tensor([[*text.ids, *[0] * (longest - len(text.ids))] for text in texts])
        real = torch.arange(longest) < torch.tensor([[len(text.ids)] for text in texts])
        self.detach()
        self.model.set_attn_implementation("sdpa")
        begun = time.perf_counter()
        self.model(input_ids=ids, attention_mask=real.long(), **lean(self.model))
        Timed.plain += time.perf_counter() - begun
        self.model.set_attn_implementation("limelight")
        self.attach()
        begun = time.perf_counter()
        found = super().run(texts)
        Timed.own += time.perf_counter() - begun
        Timed.held.append(megabytes())
        return found


def worst(one: Survey, other: Survey) -> Iterator[tuple[str, float]]:
    """The largest difference of each figure, over all heads."""
    mine, theirs = one.health(), other.health()
    for figure in ("max_prob", "gradient", "entropy", "spread", "effective_keys", "saturated"):
        yield figure, float(np.nanmax(np.abs(mine[figure] - theirs[figure])))
    for kind in one.known:
        a, b = (found.heads.scores[kind.name] for found in (one, other))
        if not np.isnan(a).all():
            yield f"score of {kind.name}", float(np.nanmax(np.abs(a - b)))
        if not np.array_equal(one.heads.rows[kind.name], other.heads.rows[kind.name]):
            yield f"rows of {kind.name}", np.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", help="a file or a folder of texts")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--texts", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--characters", type=int, default=600)
    parser.add_argument("--alone", type=int, default=500)
    parser.add_argument("--output")
    asked = parser.parse_args()
    hf.quiet()
    loaded = hf.load(asked.model)
    how: Any = {"tokens": asked.tokens, "characters": asked.characters}

    def some(count: int) -> Iterator[Passage]:
        return itertools.islice(passages(asked.path, asked.characters), count)

    surveying.Runner = Timed  # type: ignore[misc]
    begun = time.perf_counter()
    found: Survey = hf.survey(loaded, some(asked.texts), batch=asked.batch, **how)
    took = time.perf_counter() - begun - Timed.plain
    first, last = Timed.held[len(Timed.held) // 10], Timed.held[-1]
    print(f"{found.texts} texts, {found.tokens:,} tokens, {torch.get_num_threads()} threads")
    print(f"plain model   {found.texts / Timed.plain:8.2f} texts a second")
    print(f"survey        {found.texts / took:8.2f} texts a second, all its work: "
          f"{Timed.plain / took:.2f} of the plain model")  # fmt: skip
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"memory        {first:,.0f} MB after a tenth of the batches, {last:,.0f} MB at the end, "
          f"{most:,.0f} MB at most")  # fmt: skip
    if asked.output:
        found.save(asked.output)
    if asked.alone:
        surveying.Runner = Timed.__base__  # type: ignore[misc]
        together = found if asked.alone >= asked.texts else hf.survey(
            loaded, some(asked.alone), batch=asked.batch, **how)  # fmt: skip
        alone = hf.survey(loaded, some(asked.alone), batch=1, **how)
        print(f"{alone.texts} texts one at a time; the largest difference of any head:")
        for name, gap in worst(together, alone):
            print(f"  {name:24} {gap:.1e}")


if __name__ == "__main__":
    main()
