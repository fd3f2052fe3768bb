"""Tables: as text, and as plain HTML whose cells are lit by a number, on light pages and dark."""

from __future__ import annotations

from collections.abc import Container, Sequence
from html import escape

# How much of the light's colour a cell's ground takes at most. The ink is the page's own and the
# page's ground shows through, so that a table suits light pages and dark: with more of it, greyish
# ink on the dark greys of notebooks falls below a contrast of 4.5.
MOST = 0.38


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
    """A cell of a number, lit by 0 to 1: its ground a little, its foot in full.

    >>> "background:rgba(245,158,11,0.19);" in lit("0.5000", 0.5)
    True
    """
    named = f" title='{escape(title)}'" if title else ""
    ground, foot = (f"rgba(245,158,11,{share:.2f})" for share in (MOST * light, light))
    return (
        f"<td{named} style='text-align:right;font-variant-numeric:tabular-nums;"
        f"background:{ground};box-shadow:inset 0 -2px {foot}'>{escape(words)}</td>"
    )
