"""How many rows a head's kind must be judged by: names from few rows, held against all of them.

    python bench/kinds.py [--model smollm2] [--texts 4] [--draws 20]

A text of 100 random tokens that comes twice gives every head the same chance at each kind: each row
has a token before it, itself and a first token, and each row of the second half a place that
followed its token before. What all rows say counts as the truth. Then n rows are drawn at random,
and of the heads that those n name, the share is told that the truth names too. Last come the best
scores of each kind, so that it can be seen where a threshold parts heads that do a thing from the
others.

Random tokens have no words and no separators in their places: these two kinds are judged in the
same way on pages of docs/, as many tokens of them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from limelight import Capture, hf
from limelight.heads import KINDS, LEAST_ROWS, Kind, duplicates, repeats
from limelight.heads.places import pieces, separators

DOCS = Path(__file__).parents[1] / "docs"
HALF = 100
ROWS = (1, 2, 3, 4, LEAST_ROWS, 8, 12, 16, 24, 32, 48)
PLACE = np.arange(1, 2 * HALF)
TWICE = [str(token) for token in [*range(HALF)] * 2]
Places = dict[str, tuple[NDArray[Any], NDArray[Any]]]
WHERE: Places = {
    "previous": (PLACE, PLACE - 1),
    "diagonal": (PLACE, PLACE),
    "sink": (PLACE, 0 * PLACE),
    "induction": repeats(TWICE),
    "induction-2": repeats(TWICE, ahead=2),
    "duplicate": duplicates(TWICE),
}


NAMES = (*WHERE, "separator", "word")


def _named(kind: Kind, mass: NDArray[Any], even: NDArray[Any]) -> bool:
    """What these rows say, whether they are few or not."""
    return bool(mass.mean() >= max(kind.threshold, 2 * even.mean()))


def texts(loaded: Any, seed: int) -> Iterator[tuple[Capture, Places]]:
    """A drawn text and a page, as the model reads them, and where each kind looks in it."""
    draw = np.random.default_rng(seed)
    half = draw.integers(100, loaded.model.config.vocab_size, (1, HALF))
    with torch.no_grad(), hf.capture(loaded) as captured:
        loaded.model(torch.from_numpy(np.concatenate([half, half], axis=1)))
    yield captured, WHERE
    pages = sorted(DOCS.glob("*.md"))
    page = loaded.capture(pages[seed % len(pages)].read_text(encoding="utf-8"), tokens=2 * HALF)
    tokens = page.tokens[0]
    yield page, {"separator": separators(tokens), "word": pieces(tokens)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--texts", type=int, default=4)
    parser.add_argument("--draws", type=int, default=20)
    asked = parser.parse_args()
    hf.quiet()
    loaded = hf.load(asked.model)
    named: Counter[tuple[str, int]] = Counter()
    held: Counter[tuple[str, int]] = Counter()
    total: dict[str, dict[str, list[float]]] = {name: {} for name in NAMES}
    for seed in range(asked.texts):
        draw = np.random.default_rng(seed)
        for capture, where in texts(loaded, seed):
            for site in capture:
                for head in range(site.heads):
                    weights = site.weights(head=head)
                    for kind in (kind for kind in KINDS if kind.name in where):
                        rows, columns = where[kind.name]
                        past = columns <= rows  # a decoder sees no others
                        rows, columns = rows[past], columns[past]
                        judged = np.unique(rows)
                        if not judged.size:  # a page may have no word of three pieces
                            continue
                        mass = np.bincount(rows, weights[rows, columns], minlength=2 * HALF)[judged]
                        even = np.bincount(rows, minlength=2 * HALF)[judged] / (judged + 1)

                        total[kind.name].setdefault(f"L{site.layer}H{head}", []).append(mass.mean())
                        truth = _named(kind, mass, even)
                        for n in (n for n in ROWS if n <= len(judged)):
                            for _ in range(asked.draws):
                                at = draw.choice(len(judged), n, replace=False)
                                if _named(kind, mass[at], even[at]):
                                    named[kind.name, n] += 1
                                    held[kind.name, n] += truth
        print(f"text {seed + 1} of {asked.texts}", flush=True)
    print("rows       " + "".join(f"{n:6}" for n in ROWS))
    for name in NAMES:
        shares = ((held[name, n], named[name, n]) for n in ROWS)
        print(f"{name:11}" + "".join(f"{h / n:6.0%}" if n else "     –" for h, n in shares))
    for name, found in total.items():
        bound = next(kind.threshold for kind in KINDS if kind.name == name)
        scores = Counter({head: float(np.mean(means)) for head, means in found.items()})
        best = ", ".join(f"{head} {score:.2f}" for head, score in scores.most_common(10))
        print(f"{name:11} from {bound:.1f} on: {best}")


if __name__ == "__main__":
    main()
