"""Exercise: one query, a few keys and values with small whole numbers, and what to compute."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError
from limelight.numbers import counted, number, operand, vector
from limelight.trace import Trace, trace

Array = NDArray[np.float64]
Row = tuple[float, ...]

STEPS = ("raw", "scaled", "weights", "output", "dominant")
QUESTIONS = {
    "raw": "Compare: what is the dot product of the query with each key?",
    "scaled": "Scale: what are the scores after dividing by √d_k?",
    "weights": "Normalise: what weights does the softmax of the scaled scores give?",
    "output": "Mix: what is the output, the sum of weight × value?",
    "dominant": "Which value dominates the output? Give its number, counting from 0.",
}


@dataclass(frozen=True)
class Level:
    """What the exercises of a level are made of."""

    summary: str
    keys: int
    size: int  # d_k
    value_size: int
    causal: bool = False


LEVELS: dict[int, Level] = {
    0: Level("the worked example", 3, 2, 2),
    1: Level("two keys, d_k = 2", 2, 2, 2),
    2: Level("three keys, d_k = 2", 3, 2, 2),
    3: Level("three keys, d_k = 4", 3, 4, 2),
    4: Level("four keys, causal, d_k = 2", 4, 2, 2, causal=True),
    5: Level("five keys, causal, d_k = 3", 5, 3, 3, causal=True),
}


@dataclass(frozen=True)
class Exercise:
    """One query against some keys and values. `position` is the key the query stands on where the
    attention is causal: keys after it are hidden; None hides nothing.

    >>> WORKED.output.round(2), WORKED.dominant
    (array([8.83, 0.86]), 0)
    """

    query: Row
    keys: tuple[Row, ...]
    values: tuple[Row, ...]
    position: int | None = None
    level: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.position is not None and not 0 <= self.position < len(self.keys):
            raise ArgumentError(
                f"position={self.position}: the query stands on one of "
                f"{counted(len(self.keys), 'key')}, numbered from 0"
            )
        self.trace  # noqa: B018  # sizes that do not fit are an error now, not at the first answer

    @cached_property
    def trace(self) -> Trace:
        """The whole calculation."""
        return trace([self.query], self.keys, self.values, mask=[list(self.allowed)])

    @property
    def d_k(self) -> int:
        return len(self.query)

    @property
    def allowed(self) -> tuple[bool, ...]:
        last = len(self.keys) - 1 if self.position is None else self.position
        return tuple(j <= last for j in range(len(self.keys)))

    @property
    def raw(self) -> Array:
        row: Array = self.trace.raw[0]
        return row

    @property
    def scaled(self) -> Array:
        row: Array = self.trace.scaled[0]
        return row

    @property
    def weights(self) -> Array:
        row: Array = self.trace.weights[0]
        return row

    @property
    def output(self) -> Array:
        row: Array = self.trace.output[0]
        return row

    @property
    def dominant(self) -> int:
        """The key with the largest weight: its value has the largest say in the output."""
        return int(self.weights.argmax())

    def expected(self, step: str) -> Array:
        """The exact answer of a step, as an array."""
        return np.atleast_1d(np.asarray(getattr(self, known(step)), np.float64))

    def question(self, step: str) -> str:
        """What is asked, and in what form."""
        count = counted(len(self.keys), "number")
        how = {
            "raw": f"{count}, one for each key.",
            "scaled": f"{count}, two digits after the point are enough.",
            "weights": f"{count} that sum to 1, two digits each.",
            "output": f"{counted(len(self.values[0]), 'number')}, two digits each.",
            "dominant": "One number.",
        }[known(step)]
        hidden = ""
        if not all(self.allowed):
            names = ", ".join(str(j) for j, seen in enumerate(self.allowed) if not seen)
            what = "key" if sum(self.allowed) == len(self.keys) - 1 else "keys"
            are = "is" if what == "key" else "are"
            if step in ("raw", "scaled"):
                hidden = f" For the hidden {what} ({names}) you may write 'hidden'."
            if step == "weights":
                hidden = f" Remember that {what} {names} {are} hidden."
        return f"{QUESTIONS[step]} {how}{hidden}"

    def hints(self, step: str) -> tuple[str, ...]:
        """From the rule to the arithmetic; the last gives the first number away."""
        rule = {
            "raw": "Multiply the query and the key number by number, and add the products.",
            "scaled": f"d_k is the length of a key, here {self.d_k}; divide every score by its "
            f"root, √{self.d_k} = {number(math.sqrt(self.d_k))}.",
            "weights": "Take e to the power of each scaled score, then divide each by their sum."
            + ("" if all(self.allowed) else " A hidden key has a score of −∞, so e to it is 0."),
            "output": "Multiply each value by its weight, number by number, and add the results.",
            "dominant": "The larger a value's weight, the more of it is in the output.",
        }[known(step)]
        if step == "dominant":
            return (rule,)
        return (rule, f"The first one: {self.working(step)[0]}")

    def working(self, step: str) -> tuple[str, ...]:
        """The arithmetic of a step, one line for each number."""
        if known(step) == "raw":
            return tuple(
                f"key {j}: " + " + ".join(
                    f"{operand(q)}·{operand(k)}" for q, k in zip(self.query, key, strict=True))
                + f" = {number(score)}"
                for j, (key, score) in enumerate(zip(self.keys, self.raw, strict=True))
            )  # fmt: skip
        if step == "scaled":
            return tuple(
                f"key {j}: {number(raw)} / √{self.d_k} = {number(score)}"
                for j, (raw, score) in enumerate(zip(self.raw, self.scaled, strict=True))
            )
        powers = np.where(self.allowed, np.exp(self.scaled), 0.0)
        if step == "weights":
            return tuple(
                f"key {j}: " + (
                    f"e^{operand(score)} / {number(powers.sum())} = {number(weight)}"
                    if seen else "hidden, so its weight is 0")
                for j, (seen, score, weight) in enumerate(
                    zip(self.allowed, self.scaled, self.weights, strict=True))
            )  # fmt: skip
        if step == "output":
            columns = np.asarray(self.values).T
            return tuple(
                f"number {c}: " + " + ".join(
                    f"{number(w)}·{operand(v)}"
                    for w, v, seen in zip(self.weights, column, self.allowed, strict=True) if seen)
                + f" = {number(total)}"
                for c, (column, total) in enumerate(zip(columns, self.output, strict=True))
            )  # fmt: skip
        return (f"value {self.dominant}: key {self.dominant} has the largest weight, "
                f"{number(self.weights[self.dominant])}",)  # fmt: skip

    def to_dict(self, *, answers: bool = False) -> dict[str, Any]:
        """The exercise for a page or a grader; with `answers`, the solution and the arithmetic."""
        data: dict[str, Any] = {
            "level": self.level, "seed": self.seed, "d_k": self.d_k,
            "query": list(self.query), "keys": [list(key) for key in self.keys],
            "values": [list(value) for value in self.values],
            "position": self.position, "allowed": list(self.allowed),
            "steps": [
                {"step": step, "question": self.question(step), "hints": list(self.hints(step))}
                for step in STEPS
            ],
        }  # fmt: skip
        if answers:
            data["answers"] = {step: self.expected(step).tolist() for step in STEPS[:-1]}
            data["answers"]["dominant"] = self.dominant
            data["working"] = {step: list(self.working(step)) for step in STEPS}
        return data

    def __repr__(self) -> str:
        lines = [f"Exercise(level {self.level}, seed {self.seed}), d_k = {self.d_k}",
                 f"  query = {vector(self.query)}"]  # fmt: skip
        for j, (key, value) in enumerate(zip(self.keys, self.values, strict=True)):
            hidden = "" if self.allowed[j] else "   hidden"
            lines.append(f"  key {j} = {vector(key)}   value {j} = {vector(value)}{hidden}")
        return "\n".join(lines)


WORKED = Exercise((2, 1), ((2, 1), (1, 0), (0, -1)), ((10, 0), (0, 8), (1, 1)))


def generate(level: int = 1, seed: int = 0) -> Exercise:
    """The exercise of that level and seed; the same pair always gives the same one.

    Numbers are drawn until the exercise teaches something: no weight takes all, one clearly leads,
    and each typical mistake leads to a visibly different answer. Level 0 is the worked example.

    >>> generate(1, seed=7)
    Exercise(level 1, seed 7), d_k = 2
      query = [1, 1]
      key 0 = [1, 1]   value 0 = [3, 4]
      key 1 = [3, 1]   value 1 = [1, 3]
    """
    if level not in LEVELS:
        raise ArgumentError(f"there is no level {level!r}: choose from 0 to {max(LEVELS)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ArgumentError(f"seed={seed!r}: give a whole number ≥ 0")
    if level == 0:
        return WORKED
    from limelight.exercises.mistakes import distinguishable

    rng = random.Random(f"limelight exercise, level {level}, seed {seed}")
    while True:
        exercise = _draw(rng, level, seed)
        if _instructive(exercise) and distinguishable(exercise):
            return exercise


def _instructive(exercise: Exercise) -> bool:
    """Nothing trivial: no zeros to skip over, no twins, and a clear lead that is not all."""
    if 0 in exercise.query or not all(any(key) for key in exercise.keys):
        return False
    if any(len(set(rows)) < len(rows) for rows in (exercise.keys, exercise.values)):
        return False
    top, second = np.sort(exercise.weights)[::-1][:2]
    return bool(0.4 <= top <= 0.95 and top - second >= 0.1)


def known(step: str) -> str:
    if step not in STEPS:
        raise ArgumentError(f"there is no step {step!r}: choose {', '.join(STEPS)}")
    return step


def _draw(rng: random.Random, level: int, seed: int) -> Exercise:
    made = LEVELS[level]

    def rows(count: int, size: int, low: int, high: int) -> tuple[Row, ...]:
        return tuple(tuple(rng.randint(low, high) for _ in range(size)) for _ in range(count))

    # At least two keys in view and one hidden, so that both rules matter.
    position = rng.randint(1, made.keys - 2) if made.causal else None
    low = 0 if level == 1 else -2
    (query,) = rows(1, made.size, low, 3)
    keys, values = rows(made.keys, made.size, low, 3), rows(made.keys, made.value_size, 0, 9)
    return Exercise(query, keys, values, position, level, seed)
