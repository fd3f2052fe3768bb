"""Where to look again: what an answer that is wrong shows of the way that led to it.

The rule of a step is its hint's to tell; here is which number, and which part of its sum.
"""

from __future__ import annotations

import math

import numpy as np

from limelight.learn.exercises.exercise import Array, Exercise
from limelight.writing.numbers import number, operand, two_digits

FEW = 0.08  # of a number: that much off, the way was right and a figure on it was not


def close(exercise: Exercise, step: str, numbers: Array, right: tuple[bool, ...]) -> str | None:
    """What to say where all that is wrong is wrong by a few per cent; else None."""
    exact = exercise.expected(step)
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(numbers - exact) / np.abs(exact)
    near = off <= FEW
    if step == "weights":  # a small weight is far off by its own measure and close by the row's
        near |= np.abs(numbers - exact) <= 0.03
    wrong = [j for j, mark in enumerate(right) if not mark]
    if step == "raw" or not all(near[j] for j in wrong):
        return None
    parts = [f"{_name(step)} {j} by {abs(numbers[j] - exact[j]):.2f}" for j in wrong]
    return f"Close: the way is right, and a figure on it is not. Off: {', '.join(parts)}."


def where(
    exercise: Exercise, step: str, numbers: Array | None = None, right: tuple[bool, ...] = ()
) -> str:
    """The part of the work to look at again, without its result."""
    if numbers is None or all(right):
        if step == "key":
            return "Go back to the weights and compare them."
        return "Compare what each value in view adds to the output."
    j = right.index(False)
    if step == "raw":
        terms = [
            f"{operand(q)}·{operand(k)}"
            for q, k in zip(exercise.query, exercise.keys[j], strict=True)
        ]
        return f"Go through key {j} once more: {' and '.join(terms)}; mind the signs."
    if step == "scaled":
        by = _divisor(exercise, numbers)
        if by is not None:
            return f"All of them are raw scores divided by about {by:.2f}: is that the root?"
        return f"Go through key {j} once more: {number(exercise.raw[j])} over the root."
    if step == "weights":
        total = numbers.sum()
        if abs(total - 1) > 0.015 and (numbers >= 0).all():
            return "Look at the sum you divided by: is it that of all the powers you used?"
        j = _power(exercise, numbers, j)
        return f"Look at the power for key {j}: e^{operand(float(exercise.scaled[j]), two_digits)}."
    terms = [
        f"{w:.2f}·{operand(v[j])}"
        for w, v, seen in zip(exercise.weights, exercise.values, exercise.allowed, strict=True)
        if seen
    ]
    return f"Go through number {j} once more: {', '.join(terms)}, then their sum."


def _divisor(exercise: Exercise, numbers: Array) -> float | None:
    """What all scores were divided by, where it was one number."""
    used = [j for j, seen in enumerate(exercise.allowed) if seen and exercise.raw[j] != 0]
    if len(used) < 2 or any(abs(numbers[j]) < 1e-6 for j in used):  # no score that was divided
        return None
    by = exercise.raw[used] / numbers[used]
    middle = float(np.median(by))
    return middle if middle > 0 and np.ptp(by) <= 0.03 * middle else None


def _power(exercise: Exercise, numbers: Array, otherwise: int) -> int:
    """The key whose power fits the others least: weights are powers over one sum."""
    seen = [j for j, mark in enumerate(exercise.allowed) if mark]
    if any(numbers[j] <= 0 for j in seen):
        return otherwise
    off = np.array([math.log(numbers[j]) - exercise.scaled[j] for j in seen])
    return seen[int(np.abs(off - np.median(off)).argmax())]


def _name(step: str) -> str:
    return "number" if step == "output" else "key"
