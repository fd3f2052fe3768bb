"""Surveys as views are given them: a list, all heads of one, and one head in full."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from limelight.arrays import jsonable
from limelight.capture.health import FIGURES
from limelight.survey import Survey
from limelight.views.facts import kind_tables, words
from limelight.views.schema import HealthTable, KindScores, Numbers, Real

FAINT = 0.005  # of all attention, to be a bar
TOKENS = 10
EXAMPLES = 4  # kinds with their texts


@dataclass(kw_only=True)
class SurveySummary:
    """What stands in a list of surveys; `id` is used in addresses."""

    id: str
    model: str
    texts: int
    tokens: int
    cut: int
    layers: int
    heads: int


@dataclass(kw_only=True)
class SurveyInfo(SurveySummary):
    """All heads of a survey."""

    sites: list[str]
    health: HealthTable
    kinds: list[KindScores]
    named: list[list[list[str]]]  # [site][head]: the kinds of each head, in words


@dataclass(kw_only=True)
class SurveyKind:
    """How much a head does what a kind does, the error of that, and what even attention would."""

    title: str
    meaning: str
    score: float
    error: Real
    chance: float
    rows: int
    named: bool


@dataclass(kw_only=True)
class SurveyDistance:
    words: str
    share: float


@dataclass(kw_only=True)
class SurveyToken:
    token: str
    share: float
    mean: float
    seen: int


@dataclass(kw_only=True)
class SurveyExample:
    """A text in which a head is strongest at what a kind does."""

    kind: str
    score: float
    name: str
    text: str


@dataclass(kw_only=True)
class SurveyHead:
    """One head over all texts.

    `pattern` is [query's place][key's place], shares of a row; `histogram` counts rows by their
    largest weight, in even steps from 0 to 1.
    """

    kinds: list[SurveyKind]
    distances: list[SurveyDistance]
    places: list[str]
    pattern: list[Numbers]
    tokens: list[SurveyToken]
    histogram: list[int]
    examples: list[SurveyExample]


def summary(survey: Survey, name: str) -> SurveySummary:
    return SurveySummary(
        id=name, model=str(survey.source.get("model", "")), texts=survey.texts,
        tokens=survey.tokens, cut=survey.cut, layers=len(set(survey.layers)),
        heads=max(survey.counts, default=0),
    )  # fmt: skip


def facts(survey: Survey, name: str) -> SurveyInfo:
    """Every head's health and kinds."""
    health, found = survey.health(), survey.heads
    figures = {figure: [row[:heads] for row, heads in
                        zip(jsonable(health[figure]), survey.counts, strict=True)]
               for figure in FIGURES}  # fmt: skip
    verdicts = [row[:heads].tolist() for row, heads in
                zip(health.verdict, survey.counts, strict=True)]  # fmt: skip
    named = [[[words(kind) for kind in found.kinds(at, head)] for head in range(heads)]
             for at, heads in enumerate(survey.counts)]  # fmt: skip
    table = HealthTable(layers=list(survey.layers), heads=max(survey.counts, default=0),
                        figures=figures, verdicts=verdicts)  # type: ignore[arg-type]  # fmt: skip
    return SurveyInfo(**vars(summary(survey, name)), sites=list(survey.sites), health=table,
                      kinds=kind_tables(found), named=named)  # fmt: skip


def head(survey: Survey, at: int, number: int) -> SurveyHead:
    """All that is known of one head."""
    site, found = survey.sites[at], survey.heads
    known = [kind for kind in survey.known if not np.isnan(found.scores[kind.name][at, number])]
    places, pattern = survey.places(site, number)
    over = {kind.name: float(found.scores[kind.name][at, number]
                             - found.chance[kind.name][at, number])
            for kind in known if kind.name != "uniform"}  # fmt: skip
    best = sorted((kind for kind, gap in over.items() if gap > 0), key=lambda kind: -over[kind])
    return SurveyHead(
        kinds=[SurveyKind(
            title=words(kind.name), meaning=kind.meaning,
            score=float(found.scores[kind.name][at, number]),
            error=found.error(kind.name, at, number),
            chance=float(found.chance[kind.name][at, number]),
            rows=int(found.rows[kind.name][at, number]),
            named=bool(found.is_kind(kind.name)[at, number]),
        ) for kind in known],
        distances=[SurveyDistance(words=_far(one["from"], one["to"]), share=one["share"])
                   for one in survey.distances(site, number) if one["share"] >= FAINT],
        places=places, pattern=jsonable(pattern),
        tokens=[SurveyToken(**one) for one in survey.received(site, number, TOKENS)],
        histogram=survey.histogram("max_prob", site, number).tolist(),
        examples=[SurveyExample(kind=words(kind), score=score, name=passage.name, text=passage.text)
                  for kind in best[:EXAMPLES]
                  for score, passage in survey.examples(site, number, kind)],
    )  # fmt: skip


def _far(first: int, last: int) -> str:
    """A bin of distances in words: "1", "16–19", "3 ahead"."""
    low, high = sorted((abs(first), abs(last)))
    return (str(low) if low == high else f"{low:,}–{high:,}") + (" ahead" if last < 0 else "")
