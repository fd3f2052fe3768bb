"""One head learns to look something up: a training run small enough to watch, in NumPy.

Each of the sequence's tokens has a name, a wish (another token's name) and a content. The head is
to hand every token the content of the one it wishes for: it must learn W_Q and W_K such that a
query with a wish meets the key of that name. Values are the contents themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from limelight.attention import inspect
from limelight.call import prepare
from limelight.health import Summary
from limelight.reference import gradients

Array = NDArray[np.float64]
RATE, FIRST, SECOND = 0.02, 0.9, 0.999  # Adam's


@dataclass(frozen=True)
class Moment:
    """The run after some steps: its loss, and the health of the head on that step's batch."""

    step: int
    loss: float
    health: Summary


def recall(
    steps: int = 120, *, every: int = 20, tokens: int = 12, size: int = 8, seed: int = 0
) -> Iterator[Moment]:
    """Train the head, and say every so many steps how it is.

    >>> first, *_, last = recall(60, every=20)
    >>> last.loss < first.loss / 2, bool(last.health.entropy[0] < first.health.entropy[0])
    (True, True)
    """
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=(2 * tokens, size)) / np.sqrt(2 * tokens) for _ in range(2)]
    means = [np.zeros_like(w) for w in weights]
    squares = [np.zeros_like(w) for w in weights]
    for step in range(steps + 1):
        x, content, wanted = _batch(rng, tokens)
        query, key = x @ weights[0], x @ weights[1]
        seen = inspect(query, key, content)
        error = seen.output - wanted
        if step % every == 0:
            yield Moment(step, float((error**2).mean()), seen.health.summary())
        back = gradients(prepare(query, key, content), 2 * error / error.size)
        slopes = [np.einsum("bhnm,bhnd->md", x, part) for part in (back.query, back.key)]
        for at, slope in enumerate(slopes):
            means[at] += (1 - FIRST) * (slope - means[at])
            squares[at] += (1 - SECOND) * (slope**2 - squares[at])
            mean = means[at] / (1 - FIRST ** (step + 1))
            square = squares[at] / (1 - SECOND ** (step + 1))
            weights[at] -= RATE * mean / (np.sqrt(square) + 1e-8)


def _batch(rng: np.random.Generator, tokens: int, batch: int = 32) -> tuple[Array, Array, Array]:
    """Tokens [B, 1, N, 2N] (name and wish, one-hot), contents [B, 1, N, 4], and the wished."""
    order = np.argsort(rng.random((batch, tokens)), axis=1)  # which name stands where
    wish = rng.integers(0, tokens, (batch, tokens))
    content = rng.normal(size=(batch, tokens, 4))
    names, wishes = np.eye(tokens)[order], np.eye(tokens)[wish]
    place = np.argsort(order, axis=1)  # where each name stands
    wanted = np.take_along_axis(content, np.take_along_axis(place, wish, 1)[..., None], 1)
    return np.concatenate([names, wishes], axis=-1)[:, None], content[:, None], wanted[:, None]
