"""Experiments whose results come along: `scaling()` of examples/scaling.py, `remedies()`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError
from limelight.learn.experiments.rescue import REMEDIES, Remedies, Rescue, remedies
from limelight.learn.experiments.results import read

FIGURES = {
    "loss": "loss, nats a character",
    "score_gradient": "gradient norm by W_Q and W_K",
    "spread": "spread: entropy / ln(keys)",
    "saturated": "share of saturated rows",
}
SETTINGS = {
    "unit": "entries of variance 1, Adam",
    "small": "small weights (0.02), Adam",
    "unit-sgd": "entries of variance 1, SGD",
}
SCALES = ("1/√d_k", "none", "1/d_k")
__all__ = [
    "FIGURES",
    "REMEDIES",
    "SCALES",
    "SETTINGS",
    "Remedies",
    "Rescue",
    "Runs",
    "Scaling",
    "ends",
    "remedies",
    "scaling",
]


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

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.setting for run in self.runs))

    @property
    def scales(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.scale for run in self.runs))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The d_k, ascending."""
        return tuple(sorted({run.d_k for run in self.runs}))

    def at(self, setting: str, scale: str, d_k: int) -> Runs:
        """The runs of one combination."""
        for run in self.runs:
            if (run.setting, run.scale, run.d_k) == (setting, scale, d_k):
                return run
        raise ArgumentError(
            f"there are no runs of {setting}, {scale}, d_k={d_k}: settings are "
            f"{', '.join(self.settings)}; scales {', '.join(self.scales)}; d_k "
            f"{', '.join(str(size) for size in self.sizes)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: the facts, and every combination with its figures and seeds."""
        runs = [
            {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in vars(run).items()}
            for run in self.runs
        ]
        return {"facts": self.facts, "runs": runs}

    def __repr__(self) -> str:
        lines = [f"Held-out loss after {self.facts['steps']} steps, mean ± half the range over "
                 f"{self.facts['seeds']} seeds"]  # fmt: skip
        for setting in self.settings:
            lines.append(f"\n{setting}: {SETTINGS.get(setting, '')}")
            lines.append("  d_k " + "".join(f"{scale:>16}" for scale in self.scales))
            for size in self.sizes:
                cells = [self.at(setting, scale, size).held_out for scale in self.scales]
                lines.append(f"  {size:<4}" + "".join(f"{ends(cell):>16}" for cell in cells))
        return "\n".join(lines)


def ends(values: NDArray[np.float64], digits: int = 3) -> str:
    """Seeds in a table: their mean and half their range.

    >>> ends(np.array([1.0, 2.0, 3.0]), 1)
    '2.0 ± 1.0'
    """
    return f"{values.mean():.{digits}f} ± {np.ptp(values) / 2:.{digits}f}"


def scaling(path: Path | None = None) -> Scaling:
    """The shipped results of the scaling experiment, or those in another file of its kind."""
    return read(path, "scaling.json", "examples/scaling.py", _scaling)


def _scaling(facts: dict[str, Any], data: dict[str, Any]) -> Scaling:
    return Scaling(facts, tuple(_runs(run) for run in data["runs"]))


def _runs(run: dict[str, Any]) -> Runs:
    words = ("setting", "scale", "d_k")
    held: dict[str, Any] = {
        k: v if k in words else np.array(v, np.int64 if k == "steps" else np.float64)
        for k, v in run.items()
    }
    found = Runs(**held)
    shape = len(found.held_out), len(found.steps)
    if (
        found.setting not in SETTINGS or found.scale not in SCALES or type(found.d_k) is not int
        or not all(shape) or found.held_out.ndim != 1
        or any(getattr(found, figure).shape != shape for figure in FIGURES)
    ):  # fmt: skip
        raise ValueError("its runs are not of one shape")
    return found
