"""The calculation as it stands on paper: every number written with a few digits.

The exact weights of the worked example are 0.881645, 0.105686, 0.012669, and its output is
[8.83, 0.86]. Whoever writes the weights down as 0.88, 0.11, 0.01 and mixes with those gets
0.88·10 + 0.01·1 = 8.81 and 0.11·8 + 0.01·1 = 0.89. Neither is a slip; only the first is the answer.
Some carry the rounded scores into the softmax too; here that gives 0.88, 0.10, 0.01.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import jsonable
from limelight.errors import ArgumentError
from limelight.worked.trace import Trace

MOST_DIGITS = 12  # beyond, rounding is float64's own


@dataclass(frozen=True, eq=False)
class ByHand:
    """What each step gives on paper; shapes as in the trace."""

    digits: int
    raw: Any
    scaled: Any
    logits: Any
    weights: Any
    output: Any

    def to_dict(self) -> dict[str, Any]:
        steps = ("raw", "scaled", "logits", "weights", "output")
        return {"digits": self.digits, **{name: jsonable(getattr(self, name)) for name in steps}}


def by_hand(found: Trace, digits: int = 2, *, carry_scores: bool = False) -> ByHand:
    """The trace's numbers rounded, and its output mixed from the weights as rounded.

    With `carry_scores` the softmax, too, reads the rounded scores.

    >>> from limelight.worked.trace import trace
    >>> worked = trace([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]])
    >>> by_hand(worked).weights, by_hand(worked).output
    (array([[0.88, 0.11, 0.01]]), array([[8.81, 0.89]]))
    >>> by_hand(worked, carry_scores=True).weights
    array([[0.88, 0.1 , 0.01]])
    """
    if digits not in range(MOST_DIGITS + 1):
        raise ArgumentError(f"digits={digits!r}: give a whole number from 0 to {MOST_DIGITS}")
    call, exact = found.call, found.steps
    with np.errstate(all="ignore"):  # what is not finite stays so
        logits = rounded(exact.logits, digits)
        weights = exact.weights
        if carry_scores:
            weights = _softmax(logits, call.sinks)
        weights = rounded(weights, digits)
        value = np.repeat(np.asarray(call.value, np.float64), call.group, axis=1)
        mixed = np.where(exact.allowed, weights, 0.0) @ np.nan_to_num(value)
        output = rounded(np.where(np.isfinite(exact.output), mixed, exact.output), digits)
        tables = (
            rounded(exact.raw, digits),
            rounded(exact.scaled, digits),
            logits,
            weights,
            output,
        )
    return ByHand(digits, *(call.restore(table) for table in tables))


def rounded(numbers: Any, digits: int) -> NDArray[np.float64]:
    """To that many digits after the point, halves away from zero, as taught at school.

    >>> rounded([0.125, -0.125, 1.005], 2)
    array([ 0.13, -0.13,  1.01])
    """
    array = np.asarray(numbers, np.float64)
    unit = 10.0**digits
    # The nudge makes 1.005, stored as 1.00499…, the half that is written.
    return np.sign(array) * np.floor(np.abs(array) * unit + 0.5 + 1e-9) / unit


def _softmax(logits: NDArray[np.float64], sinks: Any) -> NDArray[np.float64]:
    """Rows that see nothing give zeros; a sink takes its share."""
    sink = np.full(logits.shape[1], -np.inf) if sinks is None else np.asarray(sinks, np.float64)
    top = np.maximum(logits.max(axis=-1, initial=-np.inf), sink[:, None])
    top = np.where(np.isneginf(top), 0.0, top)[..., None]
    power = np.exp(logits - top)
    total = power.sum(axis=-1, keepdims=True) + np.exp(sink[:, None, None] - top)
    return power / np.where(total == 0, 1.0, total)
