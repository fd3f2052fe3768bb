"""Measure: the one number about what a model says that an effect is a change of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import is_integer
from limelight.errors import ArgumentError
from limelight.live.run import log_softmax, losses

Array = NDArray[Any]


@dataclass(frozen=True)
class Measure:
    """The log-probability of an answer, its lead over another token, or the loss on the text.

    ids      the text's tokens
    answer   the token that is followed; None for the loss
    against  the other token of a pair
    since    the first token that the loss counts
    """

    ids: tuple[int, ...]
    answer: int | None = None
    against: int | None = None
    since: int = 1

    @classmethod
    def of(
        cls, ids: Sequence[int], last: Array, token: Callable[[Any], int], *, answer: Any,
        against: Any, loss: bool, since: int,
    ) -> Measure:  # fmt: skip
        """What was asked for, checked; without an answer the likeliest of the `last` logits."""
        if loss and (answer is not None or against is not None):
            raise ArgumentError("the loss is that of the text: leave answer and against out")
        if against is not None and answer is None:
            raise ArgumentError("against names the other of a pair: give the answer too")
        if not loss:
            wanted = int(last.argmax()) if answer is None else token(answer)
            return cls(tuple(ids), wanted, None if against is None else token(against))
        if len(ids) < 2:
            raise ArgumentError("a loss needs a text of two tokens or more")
        if not is_integer(since) or not 1 <= since < len(ids):
            raise ArgumentError(
                f"since={since!r}: the text has {len(ids)} tokens, and a loss counts from token 1 "
                f"or a later one on"
            )
        return cls(tuple(ids), since=since)

    @property
    def name(self) -> str:
        if self.answer is None:
            return "loss"
        return "log-probability" if self.against is None else "difference"

    def rows(self, x: Any) -> Any:
        """Of [variants, tokens, ..] those tokens after which the logits are needed."""
        return x[:, -1:] if self.answer is not None else x[:, self.since - 1 : -1]

    def __call__(self, logits: Array) -> Array:
        """Of the logits after those tokens, [variants, tokens, vocabulary]: [variants]."""
        if self.answer is None:
            return losses(logits, self.ids[self.since - 1 :])
        if self.against is None:
            return np.asarray(log_softmax(logits[:, -1])[:, self.answer])
        pair = logits[:, -1, [self.answer, self.against]].astype(np.float64)
        return np.asarray(pair[:, 0] - pair[:, 1])
