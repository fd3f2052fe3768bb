"""Whether two JSON values are the same but for the last roundings, which machines differ in."""

from __future__ import annotations

import math
from typing import Any


def same(first: Any, second: Any, within: float = 1e-12) -> bool:
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            same(first[key], second[key], within) for key in first
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(
            same(a, b, within) for a, b in zip(first, second, strict=True)
        )
    if isinstance(first, float) or isinstance(second, float):
        numbers = all(isinstance(x, (int, float)) for x in (first, second))
        return numbers and math.isclose(first, second, rel_tol=within, abs_tol=within)
    return bool(first == second)
