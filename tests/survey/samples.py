"""Surveys of numbers drawn at random, to merge, save and damage."""

from __future__ import annotations

import numpy as np

from limelight.heads import Kind
from limelight.health import MEANS
from limelight.survey import Survey, bins
from limelight.survey.tally import Measured, Tally, Text

SITES, COUNTS = ("layer.0", "layer.1"), (3, 2)
KINDS = (Kind("previous", "looks at the token before", 0.4), Kind("own", "looks elsewhere", 0.3))
WORDS = ("the", " cat", " sat", ".", "‮ it", "\n")


def text(seed: int) -> Text:
    draw = np.random.default_rng(seed)
    ids = draw.integers(0, len(WORDS), draw.integers(2, 9))
    return Text(f"text {seed}", ids, tuple(WORDS[i] for i in ids), cut=seed % 3 == 0)


def measured(seed: int, texts: list[Text], heads: int) -> Measured:
    """What a site might have done; every text's part follows from its name alone."""
    draws = [np.random.default_rng([seed, *one.name.encode()]) for one in texts]

    def each(*shape: int, whole: bool = False) -> np.ndarray:
        parts = [draw.integers(0, 9, shape) if whole else draw.random(shape) for draw in draws]
        return np.stack(parts)

    def total(*shape: int, whole: bool = False) -> np.ndarray:
        return each(*shape, whole=whole).sum(axis=0)

    places = len(bins.PLACE) - 1
    return Measured(
        rows=each(heads, whole=True) + 1, judged=each(heads, whole=True) + 1,
        not_a_number=each(heads, whole=True) * 0,
        figures=each(len(MEANS), heads).transpose(1, 0, 2),
        max_logit=each(heads).max(axis=0),
        kind_rows=each(len(KINDS), heads, whole=True).transpose(1, 0, 2),
        mass=each(len(KINDS), heads).transpose(1, 0, 2),
        chance=each(len(KINDS), heads).transpose(1, 0, 2),
        distances=total(heads, 2 * bins.BEHIND), pairs=total(heads, 2 * bins.BEHIND, whole=True),
        places=total(heads, places, places), place_rows=total(heads, places, whole=True) + 1,
        histograms={name: total(heads, bins.LEVELS, whole=True) for name in ("max_prob", "spread")},
        received=np.concatenate([draw.random((len(one.ids), heads))
                                 for draw, one in zip(draws, texts, strict=True)]),
    )  # fmt: skip


def made(seeds: range, together: int = 1) -> Survey:
    """A survey of the texts of these seeds, in batches of `together`."""
    tally = Tally(Survey.empty(SITES, (0, 1), COUNTS, KINDS, {"model": "drawn"}))
    for start in range(seeds.start, seeds.stop, together):
        texts = [text(seed) for seed in range(start, min(start + together, seeds.stop))]
        tally.add(texts, [measured(at, texts, heads) for at, heads in enumerate(COUNTS)])
    return tally.survey()
