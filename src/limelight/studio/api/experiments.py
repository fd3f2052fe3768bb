"""/api/experiments: what became of the same models with and without √d_k, and with remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from limelight.learn import experiments
from limelight.studio.endpoint import Endpoint, Nothing
from limelight.studio.work import Cancel
from limelight.views.schema import Numbers

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

TrainingFigure = Literal["loss", "score_gradient", "spread", "saturated"]


class ScalingFacts(msgspec.Struct):
    """What the models and their training had in common."""

    steps: int
    seeds: int
    width: int
    heads: int
    layers: int
    length: int
    batch: int


class ScalingRuns(msgspec.Struct, kw_only=True):
    """Runs that differ in their seed alone; each figure is [seed][recorded step]."""

    setting: str
    scale: str
    d_k: int
    steps: list[int]
    loss: list[Numbers]
    score_gradient: list[Numbers]
    spread: list[Numbers]
    saturated: list[Numbers]
    held_out: Numbers  # a number a seed


class ScalingResults(msgspec.Struct, kw_only=True):
    facts: ScalingFacts
    figures: dict[TrainingFigure, str]  # in words
    settings: dict[str, str]
    scales: list[str]
    sizes: list[int]
    runs: list[ScalingRuns]


class RemedyRun(msgspec.Struct, kw_only=True):
    """One run; `largest` is the largest logit of any head, over the steps."""

    remedy: str
    rate: float
    seed: int
    died: list[str]
    held_out: float | None
    most: float | None  # of `largest`
    largest: Numbers


class RemedyResults(msgspec.Struct, kw_only=True):
    facts: ScalingFacts
    remedies: dict[str, str]  # in words
    rates: list[float]
    steps: list[int]
    runs: list[RemedyRun]


def scaling(_: Studio, __: Nothing, ___: Cancel) -> ScalingResults:
    found = experiments.scaling()
    words = {"figures": experiments.FIGURES, "settings": experiments.SETTINGS}
    axes = {"scales": found.scales, "sizes": found.sizes}
    return msgspec.convert({**found.to_dict(), **words, **axes}, ScalingResults)


def remedies(_: Studio, __: Nothing, ___: Cancel) -> RemedyResults:
    return msgspec.convert(experiments.remedies().shown(), RemedyResults)


ENDPOINTS = (
    Endpoint("/api/experiments/scaling", scaling, Nothing, ScalingResults,
             "The scaling experiment's results: every figure of every run, over its steps."),
    Endpoint("/api/experiments/remedies", remedies, Nothing, RemedyResults,
             "What saved runs whose attention died: the end and the logits of each."),
)  # fmt: skip
