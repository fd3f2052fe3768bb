"""/api/exercise and /api/quiz: what Learn asks of limelight.learn.exercises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from limelight.learn import exercises
from limelight.studio.endpoint import Asked, Endpoint, Nothing
from limelight.studio.work import Cancel

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

Step = Literal["raw", "scaled", "weights", "output", "key", "value", "why"]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Level = Annotated[int, msgspec.Meta(ge=0, le=max(exercises.LEVELS))]
Typed = Annotated[str, msgspec.Meta(max_length=100)]


class OfExercise(Asked, frozen=True):
    seed: Seed
    level: Level


class OfStep(OfExercise, frozen=True):
    step: Step


class OfCheck(OfStep, frozen=True):
    answer: Annotated[list[Typed], msgspec.Meta(max_length=64)]


class StepInfo(msgspec.Struct):
    step: Step
    question: str
    options: list[str]
    hints: list[str]


class LevelInfo(msgspec.Struct):
    level: int
    summary: str


class ExerciseInfo(msgspec.Struct, kw_only=True):
    level: int
    seed: int
    d_k: int
    query: list[float]
    keys: list[list[float]]
    values: list[list[float]]
    position: int | None
    allowed: list[bool]
    steps: list[StepInfo]
    levels: list[LevelInfo]


class FeedbackInfo(msgspec.Struct, kw_only=True):
    step: Step
    verdict: Literal["right", "rounding", "mistake", "wrong", "unreadable"]
    kind: str
    says: str
    instead: str
    numbers: list[bool]
    exact: list[float]
    right: bool


class Solution(msgspec.Struct, kw_only=True):
    step: Step
    exact: list[float]
    working: list[str]


class QuizQuestion(msgspec.Struct, kw_only=True):
    name: str
    text: str
    options: list[str]
    right: int
    says: list[str]


def exercise(_: Studio, asked: OfExercise, __: Cancel) -> ExerciseInfo:
    made = exercises.generate(asked.level, asked.seed).to_dict()
    levels = [LevelInfo(number, level.summary) for number, level in exercises.LEVELS.items()]
    return msgspec.convert({**made, "levels": levels}, ExerciseInfo)


def exercise_check(_: Studio, asked: OfCheck, __: Cancel) -> FeedbackInfo:
    made = exercises.generate(asked.level, asked.seed)
    feedback = exercises.check(made, asked.step, list(asked.answer))
    return msgspec.convert(feedback.to_dict(), FeedbackInfo)


def exercise_show(_: Studio, asked: OfStep, __: Cancel) -> Solution:
    made = exercises.generate(asked.level, asked.seed)
    exact, working = made.expected(asked.step).tolist(), list(made.working(asked.step))
    return Solution(step=asked.step, exact=exact, working=working)


def quiz(_: Studio, __: Nothing, ___: Cancel) -> list[QuizQuestion]:
    return [msgspec.convert(item.to_dict(answers=True), QuizQuestion) for item in exercises.QUIZ]


ENDPOINTS = (
    Endpoint("/api/exercise", exercise, OfExercise, ExerciseInfo, "An exercise by level and seed."),
    Endpoint("/api/exercise/check", exercise_check, OfCheck, FeedbackInfo,
             "What an answer is worth, and which mistake it was.", method="POST"),
    Endpoint("/api/exercise/show", exercise_show, OfStep, Solution,
             "The answer of a step and its arithmetic.", method="POST"),
    Endpoint("/api/quiz", quiz, Nothing, list[QuizQuestion], "The quiz with its answers."),
)  # fmt: skip
