"""Survey: what every head of a model did over any number of texts, as exact running figures.

    health()        layers × heads of every health figure, as of a capture
    heads           every kind's score, with rows, chance and standard error, as heads.find gives
    distances()     the share of a head's attention by how far the key lies from the query
    places()        … by where query and key stand in the text
    received()      the tokens that a head gives most to
    histogram()     how many rows had which largest weight, or which spread
    examples()      the texts in which a head did most of what a kind does

The size depends on the model alone, not on the number of texts. All that adds up is integers
(survey/sums.py), so surveys of parts merge to the survey of all, bit for bit, in any order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import a_type, index, is_integer
from limelight.capture import HealthTables
from limelight.errors import ArgumentError
from limelight.heads import Heads, Kind
from limelight.heads.kinds import is_share
from limelight.health import MEANS, Summary
from limelight.offers import offered
from limelight.survey import sums
from limelight.survey.bins import BEHIND, DISTANCE, LEVELS, PLACE, named
from limelight.survey.examples import NONE, Examples
from limelight.survey.passages import Passage
from limelight.survey.received import Received
from limelight.writing.frames import Frame, Tabular
from limelight.writing.numbers import counted
from limelight.writing.terminal import shown

Array = NDArray[Any]
Integers = NDArray[np.int64]
MOMENTS = ("mass", "mass_mass", "mass_rows", "chance")  # of kinds, by text; in whole and fraction
HISTOGRAMS = ("max_prob", "spread")


def shapes(sites: int, heads: int, kinds: int) -> dict[str, tuple[int, ...]]:
    """Every table of integers that a survey adds up, and its shape."""
    one, places = (sites, heads), len(PLACE) - 1
    return {
        "rows": one, "judged": one, "not_a_number": one,
        "figures.whole": (len(MEANS), *one), "figures.part": (len(MEANS), *one),
        "kind_rows": (kinds, *one), "kind_rows_rows": (kinds, *one), "kind_texts": (kinds, *one),
        **{f"{name}.{part}": (kinds, *one) for name in MOMENTS for part in ("whole", "part")},
        "distances": (*one, 2 * BEHIND), "pairs": (*one, 2 * BEHIND),
        "places": (*one, places, places), "place_rows": (*one, places),
        **{f"histogram.{name}": (*one, LEVELS) for name in HISTOGRAMS},
    }  # fmt: skip


@dataclass(frozen=True)
class Pull:
    """One head and how much of its attention goes to a token; `given` is the mean a occurrence."""

    site: int
    layer: int
    head: int
    key: str
    weight: float
    given: float

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}  {self.weight:.2f}  → {self.key.strip()!r}"


@dataclass(frozen=True, eq=False)
class Survey(Tabular):
    """What a model's heads did over `texts` texts of `tokens` tokens in all.

    cut       texts that were longer than the survey reads, and cut
    known     the kinds that were judged; those of an opened file have no function any more
    tables    integers, by the names of shapes(); added when surveys are merged
    source    plain facts: model, licence, how it was made
    """

    sites: tuple[str, ...]
    layers: tuple[int, ...]
    counts: tuple[int, ...]  # heads of each site
    known: tuple[Kind, ...]
    texts: int
    tokens: int
    cut: int
    longest: int
    tables: Mapping[str, Integers]
    max_logit: NDArray[np.float64]
    given: Received
    strongest: Examples
    source: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def empty(
        cls, sites: tuple[str, ...], layers: tuple[int, ...], counts: tuple[int, ...],
        known: tuple[Kind, ...], source: dict[str, Any] | None = None,
    ) -> Survey:  # fmt: skip
        """A survey of no text."""
        size = len(sites), max(counts, default=0)
        tables = {name: np.zeros(shape, np.int64)
                  for name, shape in shapes(*size, len(known)).items()}  # fmt: skip
        return cls(
            sites, layers, counts, known, 0, 0, 0, 0, tables, np.full(size, -np.inf),
            Received.empty(*size), Examples.empty(len(known), *size), source or {},
        )  # fmt: skip

    def merge(self, *others: Survey) -> Survey:
        """This survey and others of the same model as one: exact, in any order."""
        found = self
        for other in others:
            found = _merged(found, other)
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """One safetensors file, written whole or not at all."""
        from limelight.survey import file

        file.save(self, path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Survey:
        """Read a saved survey; a damaged or foreign file is a FileError that says why."""
        from limelight.survey import file

        return file.load(path)

    def health(self) -> HealthTables:
        """Layers × heads tables of every figure, over all texts."""
        return HealthTables(self.sites, self.layers,
                            tuple(self._summary(at) for at in range(len(self.sites))))  # fmt: skip

    def _summary(self, at: int) -> Summary:
        heads = self.counts[at]
        judged = self.tables["judged"][at, :heads]
        total = self._joined("figures")[:, at, :heads]
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.where(judged > 0, total / np.maximum(judged, 1), np.nan)
        return Summary(
            rows=self.tables["rows"][at, :heads], judged=judged,
            not_a_number=self.tables["not_a_number"][at, :heads],
            max_logit=self.max_logit[at, :heads], **dict(zip(MEANS, means, strict=True)),
        )  # fmt: skip

    @cached_property
    def heads(self) -> Heads:
        """Every kind's score with its rows, chance and standard error.

        The score is the mean over all rows. Rows of one text are not independent of one another,
        so the error is that of a ratio of sums over texts: √(T/(T−1) · Σ_t (M_t − s·n_t)²) / N.
        """
        rows, texts = self.tables["kind_rows"], self.tables["kind_texts"]
        mass, square, cross, chance = (self._joined(name) for name in MOMENTS)
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.where(rows > 0, np.minimum(mass / rows, 1.0), np.nan)
            spread = square - 2 * score * cross + score**2 * self.tables["kind_rows_rows"]
            wide = np.sqrt(np.maximum(spread, 0.0) * texts / (texts - 1)) / rows
            error = np.where(texts > 1, wide, np.nan)
            even = np.where(rows > 0, chance / rows, np.nan)
        absent = np.arange(rows.shape[2]) >= np.array(self.counts)[:, None]
        named = [kind.name for kind in self.known]

        def by_kind(table: Array) -> dict[str, Array]:
            whole = np.where(absent, np.nan, table)
            return dict(zip(named, whole, strict=True))

        return Heads(
            self.sites, self.layers, self.counts, by_kind(score), by_kind(even), by_kind(rows),
            self.known, by_kind(error),
        )  # fmt: skip

    def distances(self, layer: int | str, head: int) -> list[dict[str, Any]]:
        """The share of a head's attention by how far the key lies behind the query (or ahead, < 0).

        One record a bin: from, to (inclusive), share of all its attention, and mean weight of a
        pair of tokens so far apart.
        """
        at, head = self._place(layer, head)
        weight = self.tables["distances"][at, head] / sums.WEIGHT
        pairs, rows = self.tables["pairs"][at, head], max(1, self._rows(at, head))
        found = []
        for n in [*range(2 * BEHIND - 1, BEHIND - 1, -1), *range(BEHIND)]:
            low, high = DISTANCE[n % BEHIND], DISTANCE[n % BEHIND + 1] - 1
            if pairs[n]:
                ends = (int(low), int(high)) if n < BEHIND else (-int(high), -int(low))
                found.append({"from": ends[0], "to": ends[1], "share": float(weight[n] / rows),
                              "mean": float(weight[n] / pairs[n])})  # fmt: skip
        return found

    def places(self, layer: int | str, head: int) -> tuple[list[str], Array]:
        """Names of the bins of places, and a head's mean pattern on them: [bins, bins].

        A row of it is where queries that stand there look: shares that sum to 1, less what a sink
        takes; NaN where no query stood.
        """
        at, head = self._place(layer, head)
        used = int(np.searchsorted(PLACE[:-1], max(1, self.longest)))
        rows = self.tables["place_rows"][at, head, :used]
        weight = self.tables["places"][at, head, :used, :used] / sums.WEIGHT
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(rows[:, None] > 0, weight / rows[:, None], np.nan)
        names = [named(int(PLACE[n]), int(PLACE[n + 1])) for n in range(used)]
        return names, shares

    def received(self, layer: int | str, head: int, most: int = 10) -> list[dict[str, Any]]:
        """The tokens that a head gives most to: the share of all its attention, and the mean."""
        if not is_integer(most) or most < 0:
            raise ArgumentError(f"most={most!r}: give how many tokens, a whole number of them")
        at, head = self._place(layer, head)
        weight = self.given.weights[:, at, head] / sums.WEIGHT
        rows = max(1, self._rows(at, head))
        order = np.lexsort((self.given.ids, -weight))[:most]
        return [
            {"token": self.given.texts[n], "share": float(weight[n] / rows),
             "mean": float(weight[n] / self.given.seen[n]), "seen": int(self.given.seen[n])}
            for n in order if weight[n] > 0
        ]  # fmt: skip

    def histogram(self, figure: str, layer: int | str, head: int) -> Integers:
        """How many rows had a figure ("max_prob" or "spread") in each twentieth from 0 to 1."""
        if figure not in HISTOGRAMS:
            raise ArgumentError(f"there is no histogram of {figure!r}: choose "
                                f"{' or '.join(HISTOGRAMS)}")  # fmt: skip
        at, head = self._place(layer, head)
        return np.asarray(self.tables[f"histogram.{figure}"][at, head])

    def examples(self, layer: int | str, head: int, kind: str) -> list[tuple[float, Passage]]:
        """The texts in which a head did most of what a kind does, the best first: score, text."""
        at, head = self._place(layer, head)
        n = [one.name for one in self.known].index(self.heads._kind(kind).name)
        pairs = zip(self.strongest.score[n, at, head], self.strongest.text[n, at, head],
                    strict=True)  # fmt: skip
        return [(float(score), self.strongest.passages[int(text)])
                for score, text in pairs if score > NONE]  # fmt: skip

    def search(self, *, query: Any = None, key: Any = None, at_least: float = 0.0) -> list[Pull]:
        """The heads that give a token at least so much of all their attention, the most first."""
        if query is not None or not isinstance(key, str):
            raise ArgumentError(
                "a survey keeps how much each token was given, and not by which: give key= a token "
                "alone. What looks from one token to another is a kind of its own: "
                "hf.survey(…, kinds=[heads.between(query, key)])"
            )
        if not is_share(at_least):
            raise ArgumentError(f"at_least={at_least!r}: give the least share of a head's "
                                f"attention, from 0 to 1")  # fmt: skip
        wanted = [n for n, text in enumerate(self.given.texts)
                  if text == key or text.strip() == key.strip()]  # fmt: skip
        if not wanted:
            raise ArgumentError(f"no text of the survey has the token {key!r}: received(layer, "
                                f"head) lists those that a head gives most to")  # fmt: skip
        weight = self.given.weights[wanted].sum(axis=0) / sums.WEIGHT
        seen = int(self.given.seen[wanted].sum())
        found = [
            Pull(at, self.layers[at], head, key, float(weight[at, head] / rows),
                 float(weight[at, head] / seen))
            for at in range(len(self.sites)) for head in range(self.counts[at])
            if (rows := self._rows(at, head))
        ]  # fmt: skip
        strong = [one for one in found if one.weight >= at_least and one.weight > 0]
        return sorted(strong, key=lambda one: (-one.weight, one.site, one.head))

    def table(self) -> list[dict[str, Any]]:
        """One record a head: its place, every health figure, every kind's score and error."""
        return [{name: None if value != value else value for name, value in record.items()}
                for record in self.frame().records()]  # fmt: skip

    def frame(self) -> Frame:
        """Every health figure and every kind's score, chance, error and rows, by site and head."""
        health, kinds = self.health().frame(), self.heads.frame()
        return replace(health, values={**health.values, **kinds.values})

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: the facts, the kinds, and every head."""
        return {"texts": self.texts, "tokens": self.tokens, "cut": self.cut,
                "source": self.source, **self.heads.to_dict(),
                "health": self.health().to_dict()}  # fmt: skip

    def _rows(self, at: int, head: int) -> int:
        """The rows that patterns and what tokens were given are made of."""
        return int(self.tables["place_rows"][at, head].sum())

    def _joined(self, name: str) -> NDArray[np.float64]:
        return sums.joined(self.tables[f"{name}.whole"], self.tables[f"{name}.part"])

    def _place(self, layer: int | str, head: int) -> tuple[int, int]:
        """The place of a site, by its layer or name, and of a head."""
        if is_integer(layer):
            numbers = sorted(set(self.layers))
            wanted = numbers[layer] if -len(numbers) <= layer < 0 else layer  # type: ignore[index,operator]
            found = [at for at, number in enumerate(self.layers) if number == wanted]
        else:
            found = [at for at, name in enumerate(self.sites) if name == layer]
        if len(found) != 1:
            names = ", ".join(self.sites[at] for at in (found or range(len(self.sites)))[:12])
            raise ArgumentError(f"{layer!r} names {len(found)} sites of the survey: take one of "
                                f"{names}")  # fmt: skip
        return found[0], index(head, self.counts[found[0]], "head", f" at {self.sites[found[0]]}")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        made: dict[str, Any] = offered("notebook").mimebundle(self)
        return made

    def __repr__(self) -> str:
        model = shown(str(self.source.get("model", "a model")))
        return (f"Survey({model}: {counted(sum(self.counts), 'head')} in "
                f"{counted(len(self.sites), 'layer')}, {counted(self.texts, 'text')} of "
                f"{self.tokens:,} tokens)")  # fmt: skip


def _merged(one: Survey, other: Survey) -> Survey:
    if not isinstance(other, Survey):
        raise ArgumentError(f"a survey merges with surveys, and got {a_type(other)}")
    for what, own, theirs in (
        ("sites", one.sites, other.sites),
        ("heads", one.counts, other.counts),
        ("kinds", _plain(one.known), _plain(other.known)),
        ("model", one.source.get("model"), other.source.get("model")),
    ):
        if own != theirs:
            raise ArgumentError(f"the surveys are not of one model and the same kinds: their "
                                f"{what} differ, {_short(own)} and {_short(theirs)}. Survey both "
                                f"texts with one model and the same kinds=…")  # fmt: skip
    tables = {name: table + other.tables[name] for name, table in one.tables.items()}
    if int(tables["rows"].max(initial=0)) > sums.MOST_ROWS:
        raise ArgumentError(f"together the surveys have more than {sums.MOST_ROWS:,} rows a head, "
                            f"the most that adds up exactly: keep them apart")  # fmt: skip
    for name in ("figures", *MOMENTS):
        pair = sums.carried(tables[f"{name}.whole"], tables[f"{name}.part"])
        tables[f"{name}.whole"], tables[f"{name}.part"] = pair
    return replace(
        one, texts=one.texts + other.texts, tokens=one.tokens + other.tokens,
        cut=one.cut + other.cut, longest=max(one.longest, other.longest), tables=tables,
        max_logit=np.maximum(one.max_logit, other.max_logit), given=one.given.merge(other.given),
        strongest=one.strongest.merge(other.strongest),
        source={key: value for key, value in one.source.items() if other.source.get(key) == value},
    )  # fmt: skip


def _plain(kinds: tuple[Kind, ...]) -> list[tuple[str, str, float]]:
    return [(kind.name, kind.meaning, kind.threshold) for kind in kinds]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:119]}…"
