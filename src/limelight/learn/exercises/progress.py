"""Progress: how far someone has come in an exercise. A value; answering gives a new one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from limelight.learn.exercises.check import Feedback, check
from limelight.learn.exercises.exercise import STEPS, Exercise, known


@dataclass(frozen=True)
class Progress:
    """The steps done so far, and how many tries each took.

    >>> from limelight.learn.exercises import WORKED
    >>> now = Progress(WORKED).answer("5, 2, -1")
    >>> now.feedback.says, now.step
    ('Right.', 'scaled')
    """

    exercise: Exercise
    done: int = 0
    begun: int = 0  # the step that was asked first
    tries: tuple[int, ...] = (0,) * len(STEPS)
    shown: frozenset[str] = field(default_factory=frozenset)  # steps whose solution was shown
    hinted: frozenset[str] = field(default_factory=frozenset)  # steps with a hint taken
    feedback: Feedback | None = None

    @classmethod
    def at(cls, exercise: Exercise, step: str) -> Progress:
        """Starting in the middle: the steps before are not asked."""
        done = STEPS.index(known(step))
        return cls(exercise, done, done)

    @property
    def step(self) -> str | None:
        """The step to answer now; None at the end."""
        return STEPS[self.done] if self.done < len(STEPS) else None

    def answer(self, given: Any) -> Progress:
        """After an answer: one step on if it is right; else the same step with feedback.

        An answer that cannot be read does not count as a try.
        """
        if self.step is None:
            return self
        feedback = check(self.exercise, self.step, given)
        tries = list(self.tries)
        tries[self.done] += feedback.verdict != "unreadable"
        return replace(self, done=self.done + feedback.right, tries=tuple(tries), feedback=feedback)

    def hint(self) -> Progress:
        """The same step, with a hint taken."""
        return self if self.step is None else replace(self, hinted=self.hinted | {self.step})

    def show(self) -> Progress:
        """Past this step, with its solution shown."""
        if self.step is None:
            return self
        return replace(self, done=self.done + 1, shown=self.shown | {self.step}, feedback=None)
