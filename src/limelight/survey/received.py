"""Received: how much attention each token of the vocabulary was given, by every head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Received:
    """ids [V] ascending, their texts, how often each came, and weights [V, sites, heads]."""

    ids: NDArray[np.int64]
    texts: tuple[str, ...]
    seen: NDArray[np.int64]
    weights: NDArray[np.int64]

    @classmethod
    def empty(cls, sites: int, heads: int) -> Received:
        none = np.zeros(0, np.int64)
        return cls(none, (), none, np.zeros((0, sites, heads), np.int64))

    def merge(self, other: Received) -> Received:
        ids = np.union1d(self.ids, other.ids)
        seen = np.zeros(len(ids), np.int64)
        weights = np.zeros((len(ids), *self.weights.shape[1:]), np.int64)
        texts: dict[int, str] = {}
        for part in (self, other):
            at = np.searchsorted(ids, part.ids)
            seen[at] += part.seen
            weights[at] += part.weights
            texts.update(zip(part.ids.tolist(), part.texts, strict=True))
        return Received(ids, tuple(texts[i] for i in ids.tolist()), seen, weights)


class Growing:
    """Received while it grows: rows are found by a token's id."""

    def __init__(self, begun: Received) -> None:
        self._row = {int(i): at for at, i in enumerate(begun.ids)}
        self._texts = list(begun.texts)
        self._seen = begun.seen.copy()
        self._weights = begun.weights.copy()

    def rows(self, ids: NDArray[np.int64], texts: dict[int, str]) -> NDArray[np.int64]:
        """The row of each id, new ones for new tokens; each is one occurrence more."""
        fresh = [i for i in np.unique(ids).tolist() if i not in self._row]
        for i in fresh:
            self._row[i] = len(self._texts)
            self._texts.append(texts[i])
        room = len(self._seen)
        if len(self._texts) > room:
            more = max(len(self._texts), 2 * room, 256) - room
            self._seen = np.concatenate([self._seen, np.zeros(more, np.int64)])
            shape = (more, *self._weights.shape[1:])
            self._weights = np.concatenate([self._weights, np.zeros(shape, np.int64)])
        found = np.array([self._row[i] for i in ids.tolist()], np.int64)
        np.add.at(self._seen, found, 1)
        return found

    def add(self, rows: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        """weights [tokens, sites, heads], each token's to its row."""
        order = np.argsort(rows, kind="stable")
        which, first = np.unique(rows[order], return_index=True)
        self._weights[which] += np.add.reduceat(weights[order], first, axis=0)

    def done(self) -> Received:
        ids = np.array(list(self._row), np.int64)
        order = np.argsort(ids)
        return Received(ids[order], tuple(self._texts[at] for at in order), self._seen[order],
                        self._weights[order])  # fmt: skip
