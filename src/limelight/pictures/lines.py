"""Lines from queries to keys: who looks at whom, thicker and brighter the more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from limelight.errors import ArgumentError, ShapeError
from limelight.pictures import frame
from limelight.pictures.scene import Label, Mark, Picture, Stroke
from limelight.pictures.tokens import visible
from limelight.views.palette import theme_of
from limelight.writing.numbers import counted

MOST_TOKENS, MOST_LINES = 200, 4000
ROW, SPREAD, THICKEST, SIZE = 22.0, 260.0, 9.0, 12.5  # CSS pixels


def lines(
    weights: Any,
    *,
    tokens: Sequence[str] | None = None,
    query_tokens: Sequence[str] | None = None,
    title: str = "",
    least: float = 0.02,
    rows: Sequence[int] | None = None,
    theme: str = "light",
) -> Picture:
    """Queries on the left, keys on the right, a stroke for each weight of at least `least`.

    weights       [rows, columns] of one head, from `weights(…)` or a trace
    tokens        a name for each key; query_tokens for each query where they differ
    rows          only these queries' strokes; the others' names are set back
    """
    cells = np.asarray(frame.table(weights))
    if cells.ndim != 2 or 0 in cells.shape:
        raise ShapeError(f"weights of shape {cells.shape}: lines need one head, [rows, columns]")
    if max(cells.shape) > MOST_TOKENS:
        raise ArgumentError(
            f"{cells.shape[0]:,} × {cells.shape[1]:,} tokens are too many for lines: give at most "
            f"{MOST_TOKENS} a side, or draw a heat-map"
        )
    if not 0 <= least < 1:
        raise ArgumentError(f"least={least}: give the smallest weight to draw, from 0 to below 1")
    left, right = _texts(query_tokens or tokens, cells.shape[0]), _texts(tokens, cells.shape[1])
    queries = counted(cells.shape[0], "query")
    chosen = set(range(cells.shape[0])) if rows is None else {int(row) for row in rows}
    if not chosen <= set(range(cells.shape[0])):
        raise ArgumentError(f"rows={sorted(chosen)} reach outside the {queries}")
    look = theme_of(theme)
    marks, y = frame.heading(title, "", look)
    top = y + 22
    x0 = frame.MARGIN + max(frame.widest(left, SIZE), 44) + 10
    x1 = x0 + SPREAD
    marks += [
        Label(x0 - 10, top - 12, "query", look.soft, frame.SMALL, "end"),
        Label(x1 + 10, top - 12, "key", look.soft, frame.SMALL),
    ]
    marks += _strokes(cells, chosen, least, (left, right), x0, x1, top, look.light)
    for side, texts, anchor in ((x0 - 10, left, "end"), (x1 + 10, right, "start")):
        for n, text in enumerate(texts):
            lit = anchor == "start" or n in chosen
            marks.append(
                Label(
                    side, top + (n + 0.5) * ROW, text, look.ink if lit else look.soft, SIZE, anchor
                )
            )
    bottom = top + max(cells.shape) * ROW + 10
    marks += _key(x0, x1, bottom, least, look)
    width = x1 + 10 + max(frame.widest(right, SIZE), 44) + frame.MARGIN
    words = title or f"attention of {queries} to {counted(cells.shape[1], 'key')} as lines"
    width = max(width, frame.heading_width(title, "") if title else 0.0)
    return Picture(width, bottom + 34 + frame.MARGIN, tuple(marks), theme, words)


def _texts(tokens: Sequence[str] | None, count: int) -> list[str]:
    if tokens is None:
        return [str(n) for n in range(count)]
    if len(tokens) != count:
        raise ArgumentError(f"{len(tokens)} names for {count} rows or columns: give one for each")
    return [visible(str(token), 20) for token in tokens]


def _strokes(
    cells: Any,
    chosen: set[int],
    least: float,
    names: Any,
    x0: float,
    x1: float,
    top: float,
    colour: str,
) -> list[Mark]:
    """The strongest last, so that they lie on top."""
    found = np.argwhere(cells >= least)
    at = sorted((float(cells[i, j]), int(i), int(j)) for i, j in found if int(i) in chosen)
    return [
        Stroke(
            x0,
            top + (i + 0.5) * ROW,
            x1,
            top + (j + 0.5) * ROW,
            colour,
            width(weight),
            opacity(weight),
            bent=True,
            tip=f"{names[0][i]} → {names[1][j]}: {weight:.4f}",
        )
        for weight, i, j in at[-MOST_LINES:]
    ]


def width(weight: float) -> float:
    return 0.6 + (THICKEST - 0.6) * weight


def opacity(weight: float) -> float:
    """Faint lines stay faint where many cross."""
    return float(0.18 + 0.72 * min(1.0, weight) ** 0.7)


def _key(x0: float, x1: float, y: float, least: float, look: Any) -> list[Mark]:
    """What a thickness means."""
    marks: list[Mark] = []
    shown = [weight for weight in (0.1, 0.5, 1.0) if weight > least]
    room = (x1 - x0) / len(shown)
    for n, weight in enumerate(shown):
        x = x0 + n * room
        marks += [
            Stroke(x, y + 14, x + 34, y + 14, look.light, width(weight), opacity(weight)),
            Label(x + 44, y + 14, frame.number(weight), look.soft, frame.SMALL),
        ]
    marks.append(
        Label(
            x0, y + 34, f"weights below {frame.number(least)} are left out", look.soft, frame.SMALL
        )
    )
    return marks
