"""Bins of distances and of places: one by one where they are small, wider further out.

Wide bins double with the distance, so that a few dozen reach over a million tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Edges = NDArray[np.int64]
REACH = 20  # log2 of what the last bin ends at


def edges(singles: int, octave: int) -> Edges:
    """Where bins begin, and where the last one ends: 0, 1, 2 …, then `octave` for each doubling.

    >>> edges(4, 2)[:9]
    array([ 0,  1,  2,  3,  4,  6,  8, 12, 16])
    """
    first = singles.bit_length() - 1
    wide = [(1 << power) + (n << power) // octave
            for power in range(first, REACH) for n in range(octave)]  # fmt: skip
    return np.array([*range(singles), *wide, 1 << REACH], np.int64)


DISTANCE = edges(16, 4)  # how far a key lies from its query
PLACE = edges(8, 2)  # where in the text a token stands
BEHIND = len(DISTANCE) - 1  # bins of keys at or before the query; as many follow for those after
LEVELS = 20  # bins of a share from 0 to 1


def of_place(places: Edges) -> Edges:
    """The bin of each place."""
    return np.searchsorted(PLACE, places, side="right").astype(np.int64) - 1


def of_distance(steps: Edges) -> Edges:
    """The bin of each distance from the query to the key; negative ones lie ahead."""
    behind = np.searchsorted(DISTANCE, np.abs(steps), side="right").astype(np.int64) - 1
    return np.where(steps < 0, behind + BEHIND, behind)


def named(low: int, high: int) -> str:
    """A bin in words.

    >>> named(3, 4), named(16, 20)
    ('3', '16–19')
    """
    return str(low) if high == low + 1 else f"{low:,}–{high - 1:,}"
