"""The figures of a head as views offer them: in words, which end stands out, and the scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from limelight.health import PEAKED, SATURATED
from limelight.views.schema import Figure


@dataclass(frozen=True, kw_only=True)
class FigureKind:
    """`lit` is the end that is drawn bright; `scale` is null where it is taken from the numbers."""

    name: Figure
    title: str
    meaning: str
    lit: Literal["high", "low"] = "high"
    scale: tuple[float, float] | None = None


UNIT = (0.0, 1.0)
KINDS = (
    FigureKind(name="saturated", title="Saturated rows", scale=UNIT,
               meaning=f"share of rows whose largest weight is at least {SATURATED:.2f}"),
    FigureKind(name="max_prob", title="Largest weight", scale=UNIT,
               meaning="mean of each row’s largest weight"),
    FigureKind(name="peaked", title="Peaked rows", scale=UNIT,
               meaning=f"share of rows whose largest weight is from {PEAKED:.2f} to "
                       f"{SATURATED:.2f}"),
    FigureKind(name="max_logit", title="Largest logit", meaning="the largest logit of any row"),
    FigureKind(name="entropy", title="Entropy", lit="low",
               meaning="mean entropy of the rows, in nats"),
    FigureKind(name="spread", title="Spread", lit="low", scale=UNIT,
               meaning="entropy as a share of the most it could be"),
    FigureKind(name="effective_keys", title="Effective keys", lit="low",
               meaning="how many evenly used keys would be as spread"),
    FigureKind(name="gradient", title="Gradient p·(1−p)", lit="low", scale=(0.0, 0.25),
               meaning="how much the top weight still moves with its logit; small also where a "
                       "row is spread wide"),
    FigureKind(name="not_a_number", title="Rows not a number", meaning="how many rows are NaN"),
)  # fmt: skip
TOPS: dict[str, float] = {kind.name: kind.scale[1] for kind in KINDS if kind.scale}
