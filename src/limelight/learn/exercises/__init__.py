"""Exercises: attention by hand, generated from a seed and checked step by step.

    generate(level, seed) -> Exercise            numbers that fit on paper
    check(exercise, step, answer) -> Feedback    right, a rounding slip, or which mistake it was
    Progress                                     how far someone has come; answers move it on
    QUIZ                                         questions on what is often misread
    sheet(seed, count, levels) -> Sheet          exercises for paper, with a page of answers

Everything here is a frozen value or a pure function, so that a terminal, a web page and a grader
can use the same.
"""

from limelight.learn.exercises.check import Feedback, Progress, check
from limelight.learn.exercises.exercise import LEVELS, STEPS, WORKED, Exercise, Level
from limelight.learn.exercises.generate import generate
from limelight.learn.exercises.mistakes import MISTAKES, Mistake
from limelight.learn.exercises.quiz import QUIZ, Question
from limelight.learn.exercises.reasons import Reason
from limelight.learn.exercises.sheet import Sheet, sheet

__all__ = [
    "LEVELS", "MISTAKES", "QUIZ", "STEPS", "WORKED", "Exercise", "Feedback", "Level", "Mistake",
    "Progress", "Question", "Reason", "Sheet", "check", "generate", "sheet",
]  # fmt: skip
