"""marking(): all that a page must know to check an exercise where no library is at hand.

The page compares; what is right, what each mistake leads to and what is said of it come from here,
so that its verdicts are check()'s own. tests hold the two together by cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from limelight.learn.exercises.check import check, papers
from limelight.learn.exercises.exercise import STEPS, Exercise
from limelight.learn.exercises.mistakes import MISTAKES, candidates, slack

DIGITS = 6  # of the numbers that a mistake leads to: far finer than any slack
SWAPPED = "swapped"  # every order of the right numbers: the page permutes them itself


@dataclass(frozen=True, kw_only=True)
class Reached:
    """An answer that someone may reach, and what is said of it: how, or which mistake it is."""

    numbers: list[float]
    says: str


@dataclass(frozen=True, kw_only=True)
class StepMarking:
    """One step: its answer and arithmetic; and how an answer to it is told right from wrong.

    right     said of an answer that is the exact one, and of one that rounds to it
    paper     answers that follow from rounded numbers, and what is said of them
    slack     how far each number may be off and still be a matter of rounding
    wrong     answers that mistakes lead to, each with the mistake's kind for what it says
    choices   of a step with options: what check() says of each, as {verdict, kind, says, instead}
    """

    exact: list[float]
    working: list[str]
    right: list[str]
    paper: list[Reached]
    slack: list[float]
    wrong: list[Reached]
    choices: list[dict[str, Any]]


def marking(exercise: Exercise) -> dict[str, StepMarking]:
    """By step.

    >>> from limelight.learn.exercises import WORKED
    >>> [(reached.says, reached.numbers) for reached in marking(WORKED)["scaled"].wrong][:1]
    [('not-scaled', [5.0, 2.0, -1.0])]
    """
    return {step: _step(exercise, step) for step in STEPS}


def mistakes() -> list[dict[str, str]]:
    """Every known mistake in the order in which they are tried: kind, says, instead."""
    return [{"kind": m.kind, "says": m.says, "instead": m.instead} for m in MISTAKES]


def _step(exercise: Exercise, step: str) -> StepMarking:
    exact, options = exercise.expected(step), exercise.options(step)
    choices = [check(exercise, step, [str(n)]).to_dict() for n in range(len(options))]
    right = [
        check(exercise, step, list(exact)).says,
        check(exercise, step, list(exact + 1e-9)).says,
    ]
    numbers = not options
    return StepMarking(
        exact=exact.tolist(),
        working=list(exercise.working(step)),
        right=right if numbers else [],
        paper=[Reached(numbers=row.tolist(), says=text) for row, text in papers(exercise, step)],
        slack=slack(exercise, step).tolist() if numbers else [],
        wrong=_wrong(exercise, step) if numbers else [],
        choices=[{key: made[key] for key in ("verdict", "kind", "says", "instead")}
                 for made in choices],
    )  # fmt: skip


def _wrong(exercise: Exercise, step: str) -> list[Reached]:
    return [
        Reached(numbers=[round(float(x), DIGITS) for x in wrong], says=mistake.kind)
        for mistake, wrong in candidates(exercise, step)
        if mistake.kind != SWAPPED
    ]
