"""Cells of plain HTML tables, lit by a number; readable on a light page and on a dark one."""

from __future__ import annotations

from html import escape

DARK_INK = 0.6  # from this much light on: below it the page's own ink reads better, light or dark


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
