"""Why a value contributes most: reasons to choose from, one of them true, the others misreadings.

What a value adds to the output is weight × value. Whoever looks at the weight alone, or at the
numbers alone, or thinks that one value is picked, is right in some exercises about which value it
is and in none about why.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from limelight.learn.exercises.exercise import Exercise


@dataclass(frozen=True)
class Reason:
    """One option: what it claims, and what is said to whoever chooses it. `kind` names the
    misreading, and is "" for the truth."""

    kind: str
    text: str
    says: str

    @property
    def right(self) -> bool:
        return not self.kind


def reasons(exercise: Exercise) -> tuple[Reason, ...]:
    """Four of them, in an order that the exercise's seed decides.

    >>> from limelight.learn.exercises import WORKED
    >>> sorted(reason.kind for reason in reasons(WORKED))[:3]
    ['', 'by-size', 'by-weight']
    """
    weights, shares = exercise.weights, exercise.contributions
    sizes = np.abs(np.asarray(exercise.values, np.float64)).sum(axis=1)
    key, value = exercise.top_key, exercise.top_value
    second = int(np.argsort(shares)[::-1][1]) if len(shares) > 1 else value
    most, next_most = shares[value], shares[second]

    def product(j: int) -> str:
        return f"{weights[j]:.2f} × {sizes[j]:g} ≈ {shares[j]:.2f}"

    if key != value:
        truth = Reason(
            "", "Its weight is not the largest, but its numbers make up for that.",
            f"Yes: key {key} has the largest weight, and value {key} comes to {product(key)}; "
            f"value {value} comes to {product(value)}.",
        )  # fmt: skip
        weight = (
            f"No: key {key} has the largest weight, and its value contributes {shares[key]:.2f} "
            f"against {most:.2f}."
        )
    else:
        truth = Reason(
            "", "Its weight is the largest, and no other's numbers make up for less weight.",
            f"Yes: value {value} comes to {product(value)}, and the next, value {second}, to "
            f"{product(second)}.",
        )  # fmt: skip
        weight = (
            f"No: the weight is the largest here, but it does not decide alone. With numbers "
            f"{_above(most / next_most):g} times as large, value {second} would contribute more."
            if next_most > 0
            else "No: a weight says how much of a value is taken, not how much that is."
        )
    largest = int(sizes.argmax())
    if sizes[value] < sizes[largest]:
        size = (
            f"No: the numbers of value {largest} are larger, and it contributes "
            f"{shares[largest]:.2f} against {most:.2f}."
        )
    else:
        size = (
            f"No: its numbers are the largest here, but they do not decide alone. With a weight "
            f"of {_below(next_most / sizes[value]):g} it would contribute less than value {second}."
            if sizes[value] > 0
            else "No: numbers without weight add nothing."
        )
    options = [
        truth,
        Reason("by-weight", "Its key matches best, and only the weight counts.", weight),
        Reason("by-size", "Its numbers are the largest, and only the numbers count.", size),
    ]
    order = random.Random(f"limelight reasons {exercise!r}")
    options.append(order.choice((_PICKED, _MATCHED)))
    order.shuffle(options)
    return tuple(options)


_PICKED = Reason(
    "picked",
    "It was picked, and the other values are left out.",
    "No: nothing is picked. Every value in view is in the output, each by its weight.",
)
_MATCHED = Reason(
    "values-for-keys",
    "The query was compared with the values, and this one matches best.",
    "No: queries meet keys. The values come in after the softmax and are compared with nothing.",
)


def _above(x: float) -> float:
    """The next number with one digit after the point."""
    return math.floor(x * 10 + 1) / 10


def _below(x: float) -> float:
    """The last number with two digits after the point that is smaller."""
    return max(0.0, (math.ceil(x * 100) - 1) / 100)
