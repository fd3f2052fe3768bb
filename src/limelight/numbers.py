"""How numbers are written for people: whole ones short, others to six digits, a real minus sign."""

from __future__ import annotations

import math
from typing import Any


def number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == round(value) and abs(value) < 1e6:
        return str(round(value)).replace("-", "−")
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-4:
        return f"{value:.6e}".replace("-", "−")
    return f"{value:.6f}".replace("-", "−")


def operand(value: float) -> str:
    """A number after an operator: a negative one in brackets."""
    return f"({number(value)})" if value < 0 else number(value)


def vector(values: Any, most: int = 8) -> str:
    """[a, b, …], cut after `most` numbers."""
    shown = ", ".join(number(float(x)) for x in values[:most])
    return f"[{shown}{f', … {len(values)} in all' if len(values) > most else ''}]"


def scale_name(scale: float, head_size: int) -> str:
    """1/√d where it is that, else the number."""
    return f"1/√{head_size}" if scale == 1.0 / math.sqrt(head_size) else number(scale)
