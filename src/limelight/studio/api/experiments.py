"""/api/experiments/scaling: what became of the same models with and without division by √d_k."""

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


def scaling(_: Studio, __: Nothing, ___: Cancel) -> ScalingResults:
    found = experiments.scaling()
    words = {"figures": experiments.FIGURES, "settings": experiments.SETTINGS}
    axes = {"scales": found.scales, "sizes": found.sizes}
    return msgspec.convert({**found.to_dict(), **words, **axes}, ScalingResults)


ENDPOINTS = (
    Endpoint("/api/experiments/scaling", scaling, Nothing, ScalingResults,
             "The scaling experiment's results: every figure of every run, over its steps."),
)  # fmt: skip
