"""Exercise: one query, a few keys and values with small whole numbers, and what to compute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError
from limelight.learn.exercises.reasons import Reason, reasons
from limelight.worked.trace import Trace, trace
from limelight.writing.numbers import counted, number, operand, vector

Array = NDArray[np.float64]
Row = tuple[float, ...]

STEPS = ("raw", "scaled", "weights", "output", "key", "value", "why")
QUESTIONS = {
    "raw": "Compare: what is the dot product of the query with each key?",
    "scaled": "Scale: what are the scores after dividing by √d_k?",
    "weights": "Normalise: what weights does the softmax of the scaled scores give?",
    "output": "Mix: what is the output, the sum of weight × value?",
    "key": "Which key gets the largest weight?",
    "value": "Which value contributes most to the output, by the sum of |weight × number|?",
    "why": "Why does value {value} contribute most?",
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

    >>> WORKED.output.round(2), WORKED.top_key, WORKED.top_value
    (array([8.83, 0.86]), 0, 0)
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
    def contributions(self) -> Array:
        """How much of the output comes from each value: Σ|weight × number| over its numbers."""
        adds: Array = self.weights * np.abs(np.asarray(self.values, np.float64)).sum(axis=1)
        return adds

    @property
    def top_key(self) -> int:
        """The key with the largest weight."""
        return int(self.weights.argmax())

    @property
    def top_value(self) -> int:
        """The value that contributes most; with numbers large enough, not that of `top_key`."""
        return int(self.contributions.argmax())

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """What may be given as the reason for `top_value`: one is true, the others misread."""
        return reasons(self)

    def expected(self, step: str) -> Array:
        """The exact answer of a step, as an array; of a choice the number of the right option."""
        if known(step) in ("key", "value"):
            return np.array([self.top_key if step == "key" else self.top_value], np.float64)
        if step == "why":
            return np.array([[reason.right for reason in self.reasons].index(True)], np.float64)
        row: Array = getattr(self, step)
        return row

    def options(self, step: str) -> tuple[str, ...]:
        """What a step lets choose from; nothing where it asks for numbers."""
        if known(step) == "why":
            return tuple(reason.text for reason in self.reasons)
        rows = {"key": self.keys, "value": self.values}.get(step, ())
        return tuple(f"{step} {j} = {vector(row)}" for j, row in enumerate(rows))

    def question(self, step: str) -> str:
        """What is asked, and in what form where numbers are."""
        count = counted(len(self.keys), "number")
        how = {
            "raw": f" {count}, one for each key.",
            "scaled": f" {count}, two digits after the point are enough.",
            "weights": f" {count} that sum to 1, two digits each.",
            "output": f" {counted(len(self.values[0]), 'number')}, two digits each.",
        }.get(known(step), "")
        hidden = ""
        if not all(self.allowed):
            names = ", ".join(str(j) for j, seen in enumerate(self.allowed) if not seen)
            what = "key" if sum(self.allowed) == len(self.keys) - 1 else "keys"
            are = "is" if what == "key" else "are"
            if step in ("raw", "scaled"):
                hidden = f" For the hidden {what} ({names}) you may write 'hidden'."
            if step == "weights":
                hidden = f" Remember that {what} {names} {are} hidden."
        return f"{QUESTIONS[step].format(value=self.top_value)}{how}{hidden}"

    def hints(self, step: str) -> tuple[str, ...]:
        """From the rule to the arithmetic; where numbers are asked the last gives one away."""
        same = self.top_key == self.top_value
        rule = {
            "raw": "Multiply the query and the key number by number, and add the products.",
            "scaled": f"d_k is how many numbers a key has, here {self.d_k}; divide every score by "
            f"its root, √{self.d_k} = {number(math.sqrt(self.d_k))}.",
            "weights": "Take e to the power of each scaled score, then divide each by their sum."
            + ("" if all(self.allowed) else " A hidden key has a score of −∞, so e to it is 0."),
            "output": "Multiply each value by its weight, number by number, and add the results.",
            "key": "A softmax keeps the order: of the keys in view, the larger score gets more.",
            "value": "Add up each value's numbers without their signs, and multiply by its weight.",
            "why": f"Key {self.top_key} has the largest weight. What is weight × value there, and "
            f"what {'elsewhere' if same else f'for value {self.top_value}'}?",
        }[known(step)]
        if step in ("key", "why"):
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
        if step == "key":
            return (f"key {self.top_key} has the largest weight, "
                    f"{number(self.weights[self.top_key])}",)  # fmt: skip
        if step == "value":
            return tuple(
                f"value {j}: " + (
                    f"{number(self.weights[j])}·({' + '.join(number(abs(x)) for x in value)}) = "
                    f"{number(self.contributions[j])}" if self.allowed[j]
                    else "hidden, so it adds nothing")
                for j, value in enumerate(self.values)
            )  # fmt: skip
        truth = self.reasons[int(self.expected(step)[0])]
        return (truth.text, truth.says)

    def to_dict(self, *, answers: bool = False) -> dict[str, Any]:
        """The exercise for a page or a grader; with `answers`, the solution and the arithmetic."""
        data: dict[str, Any] = {
            "level": self.level, "seed": self.seed, "d_k": self.d_k,
            "query": list(self.query), "keys": [list(key) for key in self.keys],
            "values": [list(value) for value in self.values],
            "position": self.position, "allowed": list(self.allowed),
            "steps": [
                {"step": step, "question": self.question(step),
                 "options": list(self.options(step)), "hints": list(self.hints(step))}
                for step in STEPS
            ],
        }  # fmt: skip
        if answers:
            data["answers"] = {
                step: int(self.expected(step)[0])
                if self.options(step)
                else self.expected(step).tolist()
                for step in STEPS
            }
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


def known(step: str) -> str:
    if step not in STEPS:
        raise ArgumentError(f"there is no step {step!r}: choose {', '.join(STEPS)}")
    return step
