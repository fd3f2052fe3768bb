"""Examples: for every kind and head, the texts in which it is strongest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.survey.passages import Passage

Array = NDArray[Any]
KEPT = 3  # texts of each kind and head
NONE = -1.0


@dataclass(frozen=True, eq=False)
class Examples:
    """score and text [kinds, sites, heads, KEPT], the best first; a score of −1 is none.

    `text` is a digest of the whole text, by which `passages` are found. Among equals the smaller
    digest comes first and a text stands once, so that the order of merging tells nothing.
    """

    score: NDArray[np.float64]
    text: NDArray[np.int64]
    passages: Mapping[int, Passage]

    @classmethod
    def empty(cls, kinds: int, sites: int, heads: int) -> Examples:
        shape = (kinds, sites, heads, KEPT)
        return cls(np.full(shape, NONE), np.zeros(shape, np.int64), {})

    def merge(self, other: Examples) -> Examples:
        score, text = best(np.concatenate([self.score, other.score], axis=-1),
                           np.concatenate([self.text, other.text], axis=-1))  # fmt: skip
        return Examples(score, text, kept({**self.passages, **other.passages}, score, text))


def best(score: Array, text: Array) -> tuple[Array, Array]:
    """The best KEPT of the last axis, each text once."""
    order = np.lexsort((text, -score), axis=-1)
    score, text = (np.take_along_axis(table, order, axis=-1) for table in (score, text))
    for at in range(1, score.shape[-1]):
        before = (text[..., :at] == text[..., at : at + 1]) & (score[..., :at] > NONE)
        again = before.any(axis=-1)
        score[..., at] = np.where(again, NONE, score[..., at])
        text[..., at] = np.where(again, 0, text[..., at])
    text = np.where(score > NONE, text, 0)
    order = np.lexsort((text, -score), axis=-1)[..., :KEPT]
    score, text = (np.take_along_axis(table, order, axis=-1) for table in (score, text))
    return score, text


def kept(passages: Mapping[int, Passage], score: Array, text: Array) -> dict[int, Passage]:
    """Those that stand somewhere, in the order of their digests."""
    wanted = np.unique(text[score > NONE]).tolist()
    return {digest: passages[digest] for digest in wanted}
