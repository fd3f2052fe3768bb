"""What was typed as an answer, as numbers; and the number of an option that was chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from limelight.errors import ArgumentError
from limelight.writing.numbers import parse

HIDDEN_WORDS = frozenset(
    {"hidden", "masked", "mask", "-inf", "−inf", "-∞", "−∞", "-", "−", "x", "·"}
)
LETTERS = "abcdefghij"
LARGEST = 1e12  # no answer is near it


def numbers(answer: Any) -> list[float | None]:
    """Numbers as typed or as given; None for a word that means hidden."""
    if isinstance(answer, str):
        parts: Sequence[Any] = _split(answer)
        if not parts:
            raise ArgumentError("Nothing to check: the answer is empty.")
    elif np.ndim(answer) == 0:
        parts = [answer]
    else:
        parts = list(answer)
    return [_number(part) for part in parts]


def _split(text: str) -> list[str]:
    """At commas, semicolons and spaces; '3,54; 1,41' has decimal commas."""
    text = text.strip().strip("[]()")
    if ";" in text and "." not in text:
        text = text.replace(",", ".")
    parts = text.replace(";", " ").replace(",", " ").split()
    return [part for part in parts if part.lower() not in ("key", "value")]


def _number(part: Any) -> float | None:
    if part is None:
        return None
    text = str(part).strip().lower()
    if text in HIDDEN_WORDS:
        return None
    found = parse(text.removeprefix("v").removesuffix("%"))
    if found == -math.inf:
        return None
    if math.isnan(found):
        raise ArgumentError(f"{str(part)!r} is not a number.")
    if abs(found) > LARGEST:
        raise ArgumentError(f"{str(part)!r} is far too large.")
    return found


def choice(answer: Any, what: str) -> int | None:
    """The number of an option: 1, '1', 'key 1', 'k1', 'b' among reasons. None where it is none."""
    if not isinstance(answer, str) and np.ndim(answer) > 0:
        if len(answer) != 1:
            return None
        answer = answer[0]
    text = str(answer).strip().lower()
    if what == "why":
        if len(text) == 1 and text in LETTERS:
            return LETTERS.index(text)
    else:
        text = text.removeprefix(what).removeprefix(what[0])
    found = parse(text)
    return int(found) if abs(found) < LARGEST and found == round(found) else None
