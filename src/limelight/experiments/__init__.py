"""Experiments whose results come along: `scaling()`, made by examples/scaling.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIGURES = ("loss", "score_gradient", "spread", "saturated")


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs that differ in their seed alone. Each figure is [seeds, recorded steps]."""

    setting: str
    scale: str
    d_k: int
    steps: NDArray[np.int64]
    loss: NDArray[np.float64]  # nats a character, on what is learned from
    score_gradient: NDArray[np.float64]  # norm of the loss's gradient by W_Q and W_K
    spread: NDArray[np.float64]  # entropy as a share of the largest possible, mean over rows
    saturated: NDArray[np.float64]  # share of rows
    held_out: NDArray[np.float64]  # [seeds], nats a character at the end


@dataclass(frozen=True, eq=False)
class Scaling:
    """What became of the same small models with 1/√d_k, with no scaling and with 1/d_k."""

    facts: dict[str, Any]
    runs: tuple[Runs, ...]

    def at(self, setting: str, scale: str, d_k: int) -> Runs:
        for run in self.runs:
            if (run.setting, run.scale, run.d_k) == (setting, scale, d_k):
                return run
        raise KeyError((setting, scale, d_k))


def scaling() -> Scaling:
    """The shipped results of the scaling experiment."""
    text = (files("limelight.experiments") / "scaling.json").read_text(encoding="utf-8")
    data = json.loads(text)
    runs = (Runs(**{k: v if isinstance(v, (str, int)) else np.array(v) for k, v in run.items()})
            for run in data["runs"])  # fmt: skip
    return Scaling(data["facts"], tuple(runs))
