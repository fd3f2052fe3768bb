"""Every sentence of the exercises and the quiz: what a learner can be told, gathered by trying."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from limelight.learn.exercises import LEVELS, QUIZ, STEPS, Exercise, check, generate
from limelight.learn.exercises.check import papers
from limelight.learn.exercises.mistakes import MISTAKES
from limelight.learn.exercises.reasons import _MATCHED, _PICKED

FIGURES = re.compile(r"[\d.]*\d")
# Exercises that are never drawn: where the next value adds nothing, and where none does.
ODD = (
    Exercise((1, 1), ((1, 1), (0, 1)), ((5, 5), (0, 0))),
    Exercise((1, 1), ((1, 1), (0, 1)), ((0, 0), (0, 0))),
)


@cache
def sentences(seeds: int = 6, tried: int = 1) -> frozenset[str]:
    """All of them, over every level and some seeds, every answer tried on the first of these; of
    sentences that differ in figures alone, one."""
    fixed = {level.summary for level in LEVELS.values()}
    for mistake in MISTAKES:
        fixed |= {mistake.says, mistake.instead}
    for reason in (_PICKED, _MATCHED):
        fixed |= {reason.text, reason.says}
    for question in QUIZ:
        fixed.add(question.text)
        fixed |= {text for option in question.options for text in (option.text, option.says)}
    found = {reason.says for task in ODD for reason in task.reasons}
    for level in LEVELS:
        for seed in range(1, seeds + 1 if level else 2):
            found |= set(_of(generate(level, seed), seed <= tried))
    alike = {FIGURES.sub("0", sentence): sentence for sentence in sorted(found - {""})}
    return frozenset(fixed | set(alike.values()))


def _of(task: Exercise, all_of_it: bool) -> Iterator[str]:
    for step in STEPS:
        yield task.question(step)
        yield from task.options(step)
        yield from task.hints(step)
        yield from task.working(step)
        for answer in _answers(task, step) if all_of_it else ():
            feedback = check(task, step, answer)
            yield from (feedback.says, feedback.instead)
        yield from (says for _, says in papers(task, step))
    for reason in task.reasons:
        yield from (reason.text, reason.says)


def _answers(task: Exercise, step: str) -> Iterator[Any]:
    """Right ones and every kind of wrong one; what is said of mistakes stands in their table."""
    exact = task.expected(step)
    yield from ("", "half", "1e99", "1 2 3 4 5 6 7 8 9", "1")
    if task.options(step):
        yield from range(-1, len(task.options(step)) + 1)
        return
    yield exact
    yield exact.round(2)
    yield np.trunc(exact * 100) / 100  # cut off
    yield exact + 0.012  # a slip
    yield exact * 1.05  # close
    yield exact * 100  # per cent
    yield exact - 50
    yield exact / 1.7
    yield -exact
    yield exact[::-1] * 1.3
    yield [None] * len(exact)
    yield [3.0] * len(exact)
    yield [0.5] * len(exact)
    yield np.ones(len(task.keys) * task.d_k)
    yield np.ones(sum(task.allowed))
    yield np.ones(len(task.values) * len(task.values[0]))
    for right in (1, 2):
        yield exact + 2.3 * (np.arange(len(exact)) >= right)
    for j in range(len(exact)):
        one = np.eye(len(exact))[j]
        yield from (exact + 2 * one, exact + 0.1 * one)
