"""Tables: as text, and as plain HTML whose cells are lit by a number, on light pages and dark."""

from __future__ import annotations

from collections.abc import Container, Sequence
from html import escape

DARK_INK = 0.6  # from this much light on: below it the page's own ink reads better, light or dark


def columns(lines: Sequence[Sequence[str]], left: Container[int] = ()) -> list[str]:
    """Lines of cells as text, each column as wide as it must be: to the right, or to the left.

    >>> columns([("name", "keys"), ("a", "12")], left=[0])
    ['name  keys', 'a       12']
    """
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    sides = ["<" if at in left else ">" for at in range(len(widths))]
    return [
        "  ".join(f"{c:{s}{w}}" for c, s, w in zip(line, sides, widths, strict=True)).rstrip()
        for line in lines
    ]


def lit(words: str, light: float, title: str = "") -> str:
    """A cell of a number, its ground lit by 0 to 1.

    >>> "color:#111" in lit("0.9000", 0.9), "color:#111" in lit("0.2500", 0.25)
    (True, False)
    """
    ink = ";color:#111" if light >= DARK_INK else ""
    named = f" title='{escape(title)}'" if title else ""
    return (
        f"<td{named} style='text-align:right;font-variant-numeric:tabular-nums;"
        f"background:rgba(245,158,11,{light:.2f}){ink}'>{escape(words)}</td>"
    )
