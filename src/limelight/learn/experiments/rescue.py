"""The experiment of remedies: what saves a run whose attention dies, and what it costs.

examples/remedies.py trains the models, examples/make_runs.py gathers what comes along.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError
from limelight.learn.experiments.results import read
from limelight.writing.tables import columns

REMEDIES = {
    "none": "nothing done",
    "clip": "QKClip at 100",
    "z_loss": "z-loss",
    "floor": "entropy floor",
    "norm": "normalised queries and keys",
}
CURVES = ("loss", "largest", "entropy")


@dataclass(frozen=True, eq=False)
class Rescue:
    """One run of the experiment, and what became of it."""

    remedy: str
    rate: float
    seed: int
    died: tuple[str, ...]  # of a "logit" above 1,000, no "entropy", a "loss" above the first; or ()
    since: int | None  # the first recorded step at which a head was dead
    dead: int  # records in which a head was
    below: int  # records in which a head had no entropy while all its logits lay below 0
    end: float | None  # the loss over the last steps, nats a character
    held_out: float | None  # and on text that was not trained on
    most: float | None  # the largest logit of any head in any record
    before: float | None  # the largest logit of that head one record earlier
    lowest: float  # the largest logit of the head where it lay lowest
    least: float  # the smallest mean entropy of any head in any record, nats
    clipped: int  # how often QKClip scaled a head back
    steps: NDArray[np.int64]  # each of these stands for the records up to the next
    loss: NDArray[np.float64]  # there
    largest: NDArray[np.float64]  # logit of any head
    entropy: NDArray[np.float64]  # the smallest of any head


@dataclass(frozen=True, eq=False)
class Remedies:
    """The same small GPT at four learning rates, with nothing done and with each remedy."""

    facts: dict[str, Any]
    runs: tuple[Rescue, ...]

    @property
    def remedies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.remedy for run in self.runs))

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates, ascending."""
        return tuple(sorted({run.rate for run in self.runs}))

    def at(self, remedy: str, rate: float) -> tuple[Rescue, ...]:
        """The runs of one remedy at one learning rate: they differ in their seed alone."""
        found = tuple(run for run in self.runs if (run.remedy, run.rate) == (remedy, rate))
        if not found:
            raise ArgumentError(
                f"there are no runs of {remedy} at {rate:g}: remedies are "
                f"{', '.join(self.remedies)}; rates {', '.join(f'{r:g}' for r in self.rates)}"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: the facts, and every run with its curves."""
        runs = [
            {k: v.tolist() if isinstance(v, np.ndarray) else list(v) if k == "died" else v
             for k, v in vars(run).items()}
            for run in self.runs
        ]  # fmt: skip
        return {"facts": self.facts, "runs": runs}

    def shown(self) -> dict[str, Any]:
        """JSON-safe: what Learn draws."""
        names = ("remedy", "rate", "seed", "died", "held_out", "most", "largest")
        runs = [{name: run[name] for name in names} for run in self.to_dict()["runs"]]
        return {"facts": self.facts, "remedies": REMEDIES, "rates": list(self.rates),
                "steps": self.runs[0].steps.tolist(), "runs": runs}  # fmt: skip

    def table(self) -> list[tuple[str, ...]]:
        """Headings, then for each remedy where its runs ended at each rate, and how many died."""
        lines = [("remedy", *(f"{rate:g}" for rate in self.rates))]
        for remedy in self.remedies:
            lines.append((remedy, *(fate(self.at(remedy, rate)) for rate in self.rates)))
        return lines

    def __repr__(self) -> str:
        lines = columns(self.table(), left=range(len(self.rates) + 1))
        facts = self.facts
        head = (f"Mean held-out loss after {facts['steps']} steps at each learning rate, and how "
                f"many of {facts['seeds']} runs died")  # fmt: skip
        return "\n".join([head, *lines])


def fate(runs: tuple[Rescue, ...]) -> str:
    """Runs of one kind in a table: their mean held-out loss, and how many died."""
    died = sum(bool(run.died) for run in runs)
    return f"{np.mean(held_out(runs)):.2f}" + (f" ({died} died)" if died else "")


def held_out(runs: tuple[Rescue, ...]) -> NDArray[np.float64]:
    """Their held-out losses, [runs]; NaN where one was not finite."""
    return np.array([run.held_out for run in runs], np.float64)


def remedies(path: Path | None = None) -> Remedies:
    """The shipped results of the experiment of remedies, or those in another file of its kind.

    >>> [bool(run.died) for run in remedies().at("norm", 0.1)]
    [False, False, False]
    """
    return read(path, "remedies.json", "examples/make_runs.py", _remedies)


def _remedies(facts: dict[str, Any], data: dict[str, Any]) -> Remedies:
    return Remedies(facts, tuple(_rescue(run, data["steps"]) for run in data["runs"]))


def _rescue(run: dict[str, Any], steps: list[int]) -> Rescue:
    curves = {name: np.array(run[name], np.float64) for name in CURVES}
    held = {**run, **curves, "died": tuple(run["died"]), "steps": np.array(steps, np.int64)}
    if any(curve.shape != (len(steps),) for curve in curves.values()):
        raise ValueError("a curve has not one number a step")
    if run["remedy"] not in REMEDIES or not all(isinstance(word, str) for word in run["died"]):
        raise ValueError("a word in it is not known")
    numbers = [held[name] for name in held if name not in ("remedy", "died", "steps", *CURVES)]
    if type(run["rate"]) not in (int, float) or not all(
        number is None or type(number) in (int, float) for number in numbers
    ):
        raise ValueError("a number in it is none")
    return Rescue(**held)
