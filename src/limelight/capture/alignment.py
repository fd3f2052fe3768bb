"""align(): which positions of two texts stand for one another.

Tokens that are the same and come in the same order are pairs, as in a diff; so are those between
them where as many stand on one side as on the other, such as a name that was put in the place of
another. What only one text has stands for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

LONG = 2_000  # tokens from which words that come often do not begin a match: a diff is quadratic


@dataclass(frozen=True, eq=False)
class Alignment:
    """Pairs of positions, ascending: `first[n]` stands for `second[n]`.

    same   whether the two tokens are the same
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    same: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.first)


def align(first: Sequence[str], second: Sequence[str]) -> Alignment:
    """The pairs of two texts, given as tokens.

    >>> found = align("the cat saw a dog".split(), "today the bird saw a dog".split())
    >>> found.first, found.second
    (array([0, 1, 2, 3, 4]), array([1, 2, 3, 4, 5]))
    >>> found.same
    array([ True, False,  True,  True,  True])
    """
    pairs = np.array(list(_pairs(list(first), list(second))), np.int64).reshape(-1, 3)
    return Alignment(pairs[:, 0], pairs[:, 1], pairs[:, 2].astype(np.bool_))


def _pairs(first: list[str], second: list[str]) -> Iterator[tuple[int, int, bool]]:
    shortest = min(len(first), len(second))
    head = next((n for n in range(shortest) if first[n] != second[n]), shortest)
    rest = shortest - head
    tail = next((n for n in range(rest) if first[-1 - n] != second[-1 - n]), rest)
    stops = len(first) - tail, len(second) - tail
    yield from ((n, n, True) for n in range(head))
    one, other = first[head : stops[0]], second[head : stops[1]]
    often = max(len(one), len(other)) > LONG
    for what, i, i_end, j, j_end in SequenceMatcher(None, one, other, often).get_opcodes():
        if i_end - i == j_end - j:
            same = what == "equal"
            yield from ((head + i + n, head + j + n, same) for n in range(i_end - i))
    yield from ((stops[0] + n, stops[1] + n, True) for n in range(tail))
