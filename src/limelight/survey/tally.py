"""Tally: a survey while it is made, one batch of texts after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError
from limelight.heads import LEAST_ROWS
from limelight.survey import sums
from limelight.survey.examples import NONE, Examples, best, kept
from limelight.survey.passages import Passage
from limelight.survey.received import Growing
from limelight.survey.survey import HISTOGRAMS, MOMENTS, Survey

Array = NDArray[Any]
EXCERPT = 280  # characters of a text that are kept as an example
MOST_PASSAGES = 20_000  # from which those that no head needs any more are dropped


@dataclass(frozen=True, eq=False)
class Text:
    """One text as the model read it: `ids` [n] and what each of them says."""

    name: str
    ids: NDArray[np.int64]
    tokens: tuple[str, ...]
    cut: bool

    @property
    def digest(self) -> int:
        data = hashlib.blake2b(self.ids.astype("<i8").tobytes(), digest_size=8).digest()
        return int.from_bytes(data, "little", signed=True)

    @property
    def passage(self) -> Passage:
        text = "".join(self.tokens[:EXCERPT])
        short = text if len(text) <= EXCERPT else f"{text[: EXCERPT - 1]}…"
        return Passage(self.name, short)


@dataclass(frozen=True, eq=False)
class Measured:
    """What one site did in a batch of B texts; H heads, K kinds.

    rows, judged, not_a_number [B, H], kind_rows [K, B, H] count; figures [figures, B, H], mass and
    chance [K, B, H] are sums over a text's rows; max_logit [H]; distances and pairs [H, bins],
    places [H, bins, bins], place_rows [H, bins] and histograms [H, bins] are over the whole batch;
    received [tokens, H] has the tokens of all texts, one after the other.
    """

    rows: Array
    judged: Array
    not_a_number: Array
    figures: Array
    max_logit: Array
    kind_rows: Array
    mass: Array
    chance: Array
    distances: Array
    pairs: Array
    places: Array
    place_rows: Array
    histograms: dict[str, Array]
    received: Array


class Tally:
    """Adds to a survey that has begun, in place, what batches of texts say."""

    def __init__(self, begun: Survey) -> None:
        self._begun = begun
        self._tables = {name: table.copy() for name, table in begun.tables.items()}
        self._max_logit = begun.max_logit.copy()
        self._given = Growing(begun.given)
        self._score, self._text = begun.strongest.score.copy(), begun.strongest.text.copy()
        self._passages = dict(begun.strongest.passages)
        self._counts = {
            name: getattr(begun, name) for name in ("texts", "tokens", "cut", "longest")
        }

    def add(self, texts: Sequence[Text], sites: Sequence[Measured]) -> None:
        """What every site of the model, in order, did on these texts."""
        rows = self._given.rows(
            np.concatenate([text.ids for text in texts]),
            {int(i): t for text in texts for i, t in zip(text.ids, text.tokens, strict=True)},
        )
        width = self._max_logit.shape[1]
        given = np.zeros((len(rows), len(sites), width), np.int64)
        score = np.full((*self._score.shape[:3], len(texts)), NONE)
        for at, seen in enumerate(sites):
            heads = len(seen.max_logit)
            self._site(at, heads, seen)
            given[:, at, :heads] = sums.weights(seen.received)
            enough = seen.kind_rows >= LEAST_ROWS
            mean = np.where(enough, seen.mass / np.maximum(seen.kind_rows, 1), NONE)
            score[:, at, :heads] = mean.transpose(0, 2, 1)
        self._given.add(rows, given)
        self._examples(texts, score)
        self._counts["texts"] += len(texts)
        self._counts["tokens"] += sum(len(text.ids) for text in texts)
        self._counts["cut"] += sum(text.cut for text in texts)
        longest = max(len(text.ids) for text in texts)
        self._counts["longest"] = max(self._counts["longest"], longest)
        if int(self._tables["rows"].max(initial=0)) > sums.MOST_ROWS:
            raise ArgumentError(
                f"the survey has more than {sums.MOST_ROWS:,} rows a head, the most that adds up "
                f"exactly: survey the rest in a file of its own"
            )

    def _site(self, at: int, heads: int, seen: Measured) -> None:
        tables = self._tables
        for name in ("rows", "judged", "not_a_number"):
            tables[name][at, :heads] += getattr(seen, name).sum(axis=0)
        count = seen.kind_rows
        tables["kind_rows"][:, at, :heads] += count.sum(axis=1)
        tables["kind_rows_rows"][:, at, :heads] += (count * count).sum(axis=1)
        tables["kind_texts"][:, at, :heads] += (count > 0).sum(axis=1)
        moments = seen.mass, seen.mass**2, seen.mass * count, seen.chance
        for name, values in zip(("figures", *MOMENTS), (seen.figures, *moments), strict=True):
            whole, part = (table.sum(axis=1) for table in sums.split(values))
            held = tables[f"{name}.whole"], tables[f"{name}.part"]
            total = sums.carried(held[0][:, at, :heads] + whole, held[1][:, at, :heads] + part)
            held[0][:, at, :heads], held[1][:, at, :heads] = total
        for name in ("distances", "places"):
            tables[name][at, :heads] += sums.weights(getattr(seen, name))
        for name in ("pairs", "place_rows"):
            tables[name][at, :heads] += getattr(seen, name)
        for name in HISTOGRAMS:
            tables[f"histogram.{name}"][at, :heads] += seen.histograms[name]
        self._max_logit[at, :heads] = np.maximum(self._max_logit[at, :heads], seen.max_logit)

    def _examples(self, texts: Sequence[Text], score: Array) -> None:
        """Most texts are no example of anything any more: only those that are get sorted in."""
        better = (score > NONE) & (score >= self._score[..., -1:])
        hopeful = np.flatnonzero(better.any(axis=(0, 1, 2))).tolist()
        if not hopeful:
            return
        some, mine = [texts[at] for at in hopeful], score[..., hopeful]
        digests = np.array([text.digest for text in some], np.int64)
        their = np.where(mine > NONE, digests, 0)
        self._score, self._text = best(np.concatenate([self._score, mine], axis=-1),
                                       np.concatenate([self._text, their], axis=-1))  # fmt: skip
        self._passages |= {text.digest: text.passage for text in some}
        if len(self._passages) > MOST_PASSAGES:
            self._passages = kept(self._passages, self._score, self._text)

    def survey(self, **source: Any) -> Survey:
        """What was added up so far."""
        self._passages = kept(self._passages, self._score, self._text)
        return replace(
            self._begun, **self._counts, max_logit=self._max_logit.copy(),
            tables={name: table.copy() for name, table in self._tables.items()},
            given=self._given.done(),
            strongest=Examples(self._score.copy(), self._text.copy(), dict(self._passages)),
            source={**self._begun.source, **source},
        )  # fmt: skip
