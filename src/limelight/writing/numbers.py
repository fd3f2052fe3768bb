"""How numbers are written for people, whole ones short, others to six digits; and read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any


def number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if value == round(value) and abs(value) < 1e6:
        return str(round(value)).replace("-", "−")
    if abs(value) >= 1e6 or 0 < abs(value) < 1e-4:
        return f"{value:.6e}".replace("-", "−")
    return f"{value:.6f}".replace("-", "−")


def given(value: float) -> str:
    """A number as it was typed, where six digits hold it: 0.5, and not 0.500000.

    >>> given(-1.5), given(1e200), given(20), given(1 / 3)
    ('−1.5', '1e+200', '20', '0.333333')
    """
    digits, e, power = number(value).partition("e")
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) + e + power


def two_digits(value: float) -> str:
    return fixed(value, 2)


def fixed(value: float, digits: int) -> str:
    """With so many digits after the point.

    >>> fixed(-0.70711, 4), fixed(math.inf, 4)
    ('−0.7071', '∞')
    """
    return formatted(value, f".{digits}f")


def percent(share: float, digits: int = 0) -> str:
    """A share of 1.

    >>> percent(0.42), percent(0.8816, 1)
    ('42 %', '88.2 %')
    """
    return formatted(share, f".{digits}%")


def formatted(value: float, how: str) -> str:
    """By a format of Python's, as people write it; without a sign where it rounds to nothing.

    >>> formatted(-1.73, ".1f"), formatted(-0.001, ".2f"), formatted(0.42, ".0%")
    ('−1.7', '0.00', '42 %')
    """
    if not math.isfinite(value):
        return number(value)
    text = format(value, how).replace("-", "−").replace("%", " %")
    return text if text.strip("−0. %") else text.removeprefix("−")


def signed(value: float, digits: int) -> str:
    """A change: its sign in front, none where it rounds to nothing.

    >>> signed(0.125, 2), signed(-0.3, 2), signed(-0.001, 2), signed(math.nan, 2)
    ('+0.12', '−0.30', '0.00', '–')
    """
    if math.isnan(value):
        return "–"
    text = f"{value:+.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.") else text[1:]


def parse(text: str) -> float:
    """What a person wrote: "−" is a minus, 1/2 a half, and what is no number is NaN.

    >>> parse("−1/2"), parse("half")
    (-0.5, nan)
    """
    top, slash, bottom = text.strip().replace("−", "-").partition("/")
    try:
        return float(top) / (float(bottom) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        return math.nan


def ranged(numbers: Sequence[int]) -> str:
    """Numbers in their order, which may be many.

    >>> ranged(range(30)), ranged([0, 1]), ranged([2, 3, 11])
    ('0 to 29', '0 to 1', '2, 3, 11')
    """
    whole = len(numbers) > 1 and list(numbers) == list(range(len(numbers)))
    return f"0 to {numbers[-1]}" if whole else ", ".join(map(str, numbers))


def counted(count: int, word: str) -> str:
    """How many of what.

    >>> counted(1, "key"), counted(2048, "query")
    ('1 key', '2,048 queries')
    """
    plural = f"{word[:-1]}ies" if word.endswith("ry") else f"{word}s"
    return f"{count:,} {word if count == 1 else plural}"


def in_bytes(count: int) -> str:
    """How much memory.

    >>> in_bytes(800), in_bytes(72_500_000_000)
    ('800 bytes', '72.5 GB')
    """
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return counted(count, "byte")


def operand(value: float, written: Callable[[float], str] = number) -> str:
    """A number beside an operator: a negative one in brackets."""
    return f"({written(value)})" if value < 0 else written(value)


def vector(values: Any, most: int = 8) -> str:
    """[a, b, …], cut after `most` numbers."""
    shown = ", ".join(number(float(x)) for x in values[:most])
    return f"[{shown}{f', … {len(values)} in all' if len(values) > most else ''}]"


def scale_name(scale: float, head_size: int) -> str:
    """1/√d where it is that to float32's rounding, else the number."""
    usual = math.isclose(scale, 1.0 / math.sqrt(head_size), rel_tol=2.0**-22)
    return f"1/√{head_size}" if usual else number(scale)
