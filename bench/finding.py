"""How long it takes to judge every head of a long capture by every kind.

    python bench/finding.py [--tokens 4096]
    python bench/finding.py --run      captured from the model itself

Time goes by the shapes and by the tokens, since targets are pairs of them, and not by the numbers.
So the capture has SmolLM2's shape (30 layers, 9 heads on 3 key heads of size 64), drawn numbers and
the pages of docs/ for a text, in pieces as a tokenizer cuts them; with --run the model reads that
text. Row statistics are at hand, as they are in any capture of a model's run.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from pathlib import Path

import numpy as np

from limelight import Capture, Causal, Site, heads

DOCS = Path(__file__).parents[1] / "docs"
LAYERS, HEADS, KEY_HEADS, SIZE = 30, 9, 3, 64
PIECES = re.compile(r" ?[A-Za-z]{1,7}|\d| ?[^\sA-Za-z\d]|\s")


def text(count: int) -> tuple[str, ...]:
    """The first pieces of the documentation, read again where it is short."""
    found = [piece for page in sorted(DOCS.rglob("*.md"))
             for piece in PIECES.findall(page.read_text(encoding="utf-8"))]  # fmt: skip
    return tuple((found * (1 + count // len(found)))[:count])


def drawn(tokens: tuple[str, ...]) -> Capture:
    rng = np.random.default_rng(0)
    sites = []
    for layer in range(LAYERS):
        query, key = (rng.standard_normal((1, count, len(tokens), SIZE), np.float32)
                      for count in (HEADS, KEY_HEADS))  # fmt: skip
        sites.append(Site(f"layer {layer}", layer, query, key, mask=Causal(), tokens=(tokens,)))
    return Capture(tuple(sites), (tokens,))


def captured(tokens: tuple[str, ...]) -> Capture:
    from limelight import live

    model = live.load("smollm2")
    ids = model.encode("".join(tokens))[: len(tokens)]
    return model.run(model.vocabulary.decode(ids)).capture


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--run", action="store_true", help="let SmolLM2 read the text")
    asked = parser.parse_args()
    capture = (captured if asked.run else drawn)(text(asked.tokens))
    for site in capture:
        site.statistics  # noqa: B018 (one pass over the keys, which a model's run leaves behind)
    for turn in range(3):
        wall, processor = time.perf_counter(), time.process_time()
        heads.find(capture)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(f"{turn + 1}: {len(capture)} layers of {capture[0].heads} heads, "
              f"{capture[0].keys:,} tokens, {len(heads.KINDS)} kinds: {wall:.2f} s, processor time "
              f"{processor:.2f} s on {os.cpu_count()} cores", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
