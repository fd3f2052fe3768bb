"""Looks: the large weights of the last token, and what hiding each one changes.

A weight says how much is taken of a value. What that changes is another figure, and it is measured:
the look is hidden, the rest of its row shares the weight, and the model answers anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from limelight.live.effects import outcomes
from limelight.live.measure import Measure
from limelight.live.off import Off

if TYPE_CHECKING:
    from limelight.live.run import Run


@dataclass(frozen=True)
class Look:
    """One head of one layer, from the last token to an earlier one.

    weight   how much of that token's value is taken
    brought  ‖w·v·W_O‖, the length of what arrives
    change   of the log-probability of the likeliest next token when the look is hidden
    """

    layer: int
    head: int
    key: int
    weight: float
    brought: float
    change: float


def looks(run: Run, least: float = 0.2) -> list[Look]:
    """Every look of the last token with at least that weight, the largest weight first.

    >>> from limelight import live
    >>> found = looks(live.load("gpt").run("It is the east, and Juliet is the su"), 0.4)
    >>> found[0].weight > found[-1].weight >= 0.4
    True
    """
    decoder, last = run.model.decoder, len(run.ids) - 1
    found: list[tuple[float, float, int, int, int]] = []
    for layer in range(decoder.depth):
        for head in range(decoder.heads):
            weights = run.capture[layer].weights(head=head)[-1]
            brought = run.reading(layer, head)[-1]
            found += [(float(weights[key]), float(brought[key]), layer, head, int(key))
                      for key in (weights >= least).nonzero()[0]]  # fmt: skip
    found.sort(reverse=True)
    if not found:
        return []
    follow = Measure(run.ids, int(run.last.argmax()))
    hidden = [Off(cells=((layer, head, last, key),)) for *_, layer, head, key in found]
    before = run.log_probability(int(run.last.argmax()))
    after = outcomes(run, hidden, follow)
    return [
        Look(layer, head, key, weight, brought, float(score - before))
        for (weight, brought, layer, head, key), score in zip(found, after, strict=True)
    ]
