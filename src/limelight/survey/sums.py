"""Exact sums: the same bits in whatever order the parts come, or are merged.

Adding floats rounds, and each order rounds otherwise. So what is added becomes whole numbers first:

    weights   at most 1 a row: one integer in units of 2⁻³², for up to 2³⁰ rows
    figures   of any size: an integer for the whole part, one for the fraction in units of 2⁻⁴⁸

Each part is rounded once, on its own, to that unit; adding integers rounds nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
WEIGHT = float(1 << 32)
FRACTION = 48
MOST_ROWS = 1 << 30  # of a head, in one survey


def weights(values: Array) -> NDArray[np.int64]:
    """Sums of weights as integers."""
    return np.rint(np.asarray(values, np.float64) * WEIGHT).astype(np.int64)


def split(values: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers as whole parts and fractions.

    >>> whole, part = split(np.array([2.5, -0.25]))
    >>> whole, part / 2**48
    (array([ 2, -1]), array([0.5 , 0.75]))
    """
    values = np.asarray(values, np.float64)
    whole = np.floor(values)
    part = np.rint((values - whole) * 2.0**FRACTION)
    return carried(whole.astype(np.int64), part.astype(np.int64))


def carried(
    whole: NDArray[np.int64], part: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same numbers with every fraction below 1: the one way to write them."""
    return whole + (part >> FRACTION), part & ((1 << FRACTION) - 1)


def joined(whole: Array, part: Array) -> NDArray[np.float64]:
    """Back to floats."""
    return whole.astype(np.float64) + part.astype(np.float64) * 2.0**-FRACTION
