"""generate(): the exercise of a level and a seed, drawn until it teaches something."""

from __future__ import annotations

import math
import random
from functools import lru_cache

from limelight.errors import ArgumentError
from limelight.learn.exercises.exercise import LEVELS, WORKED, Exercise, Row
from limelight.learn.exercises.mistakes import distinguishable


def generate(level: int = 1, seed: int = 0) -> Exercise:
    """The exercise of that level and seed; the same pair always gives the same one.

    Numbers are drawn until the exercise teaches something: no weight takes all, one clearly leads,
    one value clearly contributes most, in half of them not that of the leading key, and
    each typical mistake leads to a visibly different answer. Level 0 is the worked example.

    >>> generate(1, seed=7)
    Exercise(level 1, seed 7), d_k = 2
      query = [2, 1]
      key 0 = [0, 2]   value 0 = [6, 5]
      key 1 = [2, 0]   value 1 = [0, 1]
    """
    if level not in LEVELS:
        raise ArgumentError(f"there is no level {level!r}: choose from 0 to {max(LEVELS)}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ArgumentError(f"seed={seed!r}: give a whole number ≥ 0")
    return WORKED if level == 0 else _generate(level, seed)


@lru_cache(maxsize=256)
def _generate(level: int, seed: int) -> Exercise:
    rng = random.Random(f"limelight exercise, level {level}, seed {seed}")
    differ = rng.random() < 0.5  # whether the leading key and the largest contribution part
    while True:
        query, keys, values, position = _draw(rng, level)
        if _instructive(query, keys, values, position, differ):
            exercise = Exercise(query, keys, values, position, level, seed)
            if distinguishable(exercise):
                return exercise


def _draw(
    rng: random.Random, level: int
) -> tuple[Row, tuple[Row, ...], tuple[Row, ...], int | None]:
    made = LEVELS[level]

    def rows(count: int, size: int, low: int, high: int) -> tuple[Row, ...]:
        return tuple(tuple(rng.randint(low, high) for _ in range(size)) for _ in range(count))

    # At least two keys in view and one hidden, so that both rules matter.
    position = rng.randint(1, made.keys - 2) if made.causal else None
    low = 0 if level == 1 else -2
    (query,) = rows(1, made.size, low, 3)
    keys, values = rows(made.keys, made.size, low, 3), rows(made.keys, made.value_size, 0, 9)
    return query, keys, values, position


def _instructive(
    query: Row, keys: tuple[Row, ...], values: tuple[Row, ...], position: int | None, differ: bool
) -> bool:
    """Nothing trivial: no zeros to skip over, no twins, and leads that are clear and not all."""
    if 0 in query or not all(any(row) for row in (*keys, *values)):
        return False
    if any(len(set(rows)) < len(rows) for rows in (keys, values)):
        return False
    seen = len(keys) if position is None else position + 1
    scores = [sum(q * k for q, k in zip(query, key, strict=True)) for key in keys[:seen]]
    powers = [math.exp((score - max(scores)) / math.sqrt(len(query))) for score in scores]
    weights = [power / sum(powers) for power in powers]
    shares = [weight * sum(value) for weight, value in zip(weights, values, strict=False)]
    (top, second), (most, less) = (sorted(row)[:-3:-1] for row in (weights, shares))
    # Weights written with two digits move a share by 0.005·27 at most, so the lead survives that.
    if not 0.4 <= top <= 0.95 or top - second < 0.1 or most - less < max(0.3, 0.1 * most):
        return False
    return (weights.index(top) != shares.index(most)) == differ
