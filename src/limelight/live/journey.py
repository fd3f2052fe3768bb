"""Journey: the way of the last token through a model, and what it would say at every stop.

A token enters as its embedding (with its position, where the model adds one). Every layer adds what
its heads read, then what its feed-forward made of that. After each the last norm and the
unembedding can be asked early: the guess as it stands there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from limelight.live.contributions import head_outputs
from limelight.live.run import Guess, best

if TYPE_CHECKING:
    from limelight.live.run import Run

Array = NDArray[Any]
Part = Literal["embedding", "attention", "feed-forward"]


@dataclass(frozen=True)
class Stop:
    """After one part of the way.

    layer    whose part it was; −1 for the embedding
    added    the length of what was added to the token
    size     the token's length then
    guesses  what the model would say if it ended here, likeliest first
    """

    layer: int
    part: Part
    added: float
    size: float
    guesses: tuple[Guess, ...]


def journey(run: Run, k: int = 3, *, replace: bool = False) -> tuple[Stop, ...]:
    """The last token's stops: the embedding, then attention and feed-forward of every layer.

    replace   what the heads read takes the token's place, in every layer, and is not added to it:
              not this model, but what attention alone would leave of the text

    >>> from limelight import live
    >>> way = journey(live.load("gpt").run("It is the east, and Juliet is the su"))
    >>> len(way), way[0].part, way[-1].guesses[0].token
    (11, 'embedding', 'n')
    """
    stream = _replaced(run) if replace else _added(run)
    decoder, vocabulary = run.model.decoder, run.model.vocabulary
    logits = decoder.logits(np.stack([x for _, _, x, _ in stream]).astype(np.float32))
    return tuple(
        Stop(layer, part, _length(added), _length(x), tuple(best(row, k, vocabulary)))
        for (layer, part, x, added), row in zip(stream, logits, strict=True)
    )  # fmt: skip


def _length(x: Array) -> float:
    return float(np.linalg.norm(x.astype(np.float64)))


def _added(run: Run) -> list[tuple[int, Part, Array, Array]]:
    """(layer, part, the token after it, what was added) as the model does it."""
    residuals = run.residuals[:, -1].astype(np.float64)
    found: list[tuple[int, Part, Array, Array]] = [(-1, "embedding", residuals[0], residuals[0])]
    for layer, (before, after) in enumerate(pairwise(residuals)):
        read = head_outputs(run, layer).sum(axis=0)
        found.append((layer, "attention", before + read, read))
        found.append((layer, "feed-forward", after, after - before - read))
    return found


def _replaced(run: Run) -> list[tuple[int, Part, Array, Array]]:
    """The same with every token replaced by what its heads read."""
    decoder = run.model.decoder
    x = run.residuals[0]
    found: list[tuple[int, Part, Array, Array]] = [(-1, "embedding", x[-1], x[-1])]
    rotation = decoder.rotation(0, len(run.ids))
    for layer in range(decoder.depth):
        step = decoder.step(layer, x[None], rotation)
        read = step.x[0] - x - step.fed[0]
        fed = decoder.feed(layer, read)
        x = read + fed
        found.append((layer, "attention", read[-1], read[-1]))
        found.append((layer, "feed-forward", x[-1], fed[-1]))
    return found
