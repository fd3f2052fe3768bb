"""A heat-map: weights as cells, tokens or positions along two sides, a legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError, ShapeError
from limelight.pictures import frame
from limelight.pictures.scene import Box, Label, Mark, Picture, Pixels, Stroke
from limelight.views.palette import THEMES, Scale, Theme, css, ink_on, theme_of
from limelight.views.tiles import HIDDEN_WORD, NAN_WORD
from limelight.writing.numbers import counted, fixed

if TYPE_CHECKING:
    from limelight.looking.heatmap import Heatmap

PLOT, TALLEST_CELL = 560.0, 34.0  # CSS pixels: the map's usual side, and a cell's most
WRITTEN = 30.0  # from this cell size on its number stands in it
MOST_BOXES = 2500  # cells drawn one by one, with a hover text each; beyond, one image
MOST_PANELS = 16
MOST_NAMED = 72  # tokens a side up to which cells are made wide enough for their names
SLANT, STEEP = -45.0, -62.0  # degrees of the columns' names; steeper where columns are narrow
NARROW = 16.0
CAPTION = "each row is a query, each column a key"


def heatmap(
    seen: Heatmap | Any,
    *,
    tokens: Sequence[str] | None = None,
    query_tokens: Sequence[str] | None = None,
    title: str = "",
    scale: str = "linear",
    low: float | None = None,
    high: float | None = None,
    theme: str = "light",
) -> Picture:
    """A heat-map as a picture; `.svg()`, `.png()` or `.save(path)` it.

    seen          a Heatmap, or weights [rows, columns], in which a masked array masks what is
                  hidden; with leading axes, one panel a head (16 at most)
    tokens        names of all the keys, shown where a cell is wide enough; else positions
    query_tokens  names of all the queries; those of the keys where there are as many
    scale         "linear", or "log" for weights over many orders of magnitude
    low, high     the ends of the scale; for a linear one 0 and the largest weight unless told
    theme         "light", "dark", or "auto": as SVG, by the page that it stands on; else light

    >>> from limelight import weights
    >>> drawn = heatmap(weights([[2, 1]], [[2, 1], [1, 0], [0, -1]]), tokens=["a", "b", "c"])
    >>> drawn.svg().startswith("<svg")
    True
    """
    if theme == "auto":
        day, night = (
            heatmap(seen, tokens=tokens, query_tokens=query_tokens, title=title, scale=scale,
                    low=low, high=high, theme=one)
            for one in THEMES
        )  # fmt: skip
        return replace(day, dark=night)
    values, spans, pool, empty = _facts(seen)
    if values.ndim > 2 and len(values.reshape(-1, *values.shape[-2:])) == 1:
        values, empty = (array.reshape(values.shape[-2:]) for array in (values, empty))
    if values.ndim > 2:
        return _panels(values, empty, spans, pool, title, scale, low, high, theme)
    fit = Scale.of(values, scale, low, high)
    look = theme_of(theme)
    rows, columns = _names(query_tokens, tokens, spans)
    height, width = values.shape
    cell = _cell((height, width), (rows, columns))
    named = [_one_each(names, bins, cell) for names, bins in ((rows, height), (columns, width))]
    size = min(frame.BODY, max(9.0, 0.8 * cell))  # of the names
    left = frame.MARGIN + (frame.widest(rows, size) if named[0] and rows else 34.0) + 8
    slant = math.radians(-_slant(cell))
    above = frame.widest(columns, size) * math.sin(slant) + 14 if named[1] and columns else 22.0
    words = _measure(pool, spans, values.shape)
    words += ", log" if fit.kind == "log" else ""
    marks, y = frame.heading(title, "", look)
    top = y + above
    plot = width * cell, height * cell
    marks += _cells(values, empty, fit, left, top, cell, look.name, spans, (rows, columns))
    for axis in (0, 1):
        marks += _axis(
            axis, named[axis] and (rows, columns)[axis], spans[axis], left, top, plot, size, look
        )
    swatches = _swatches(values, empty, look)
    bar = max(plot[1], 120.0)
    x = left + plot[0] + 24
    marks += frame.legend(fit, x, top, bar, look, words, swatches)
    marks.append(Label(left, top + plot[1] + 14, CAPTION, look.soft, frame.SMALL))
    overhang = frame.widest(columns[-3:], size) * math.cos(slant) + 8 if columns else 0.0
    full = x + max(frame.legend_width(fit, words, swatches), overhang - 24) + frame.MARGIN
    full = max(full, frame.heading_width(title, "") if title else 0.0)
    tall = top + max(bar, plot[1] + 24) + frame.MARGIN
    return Picture(
        full,
        tall,
        tuple(marks),
        theme,
        title or f"{height} × {width} heat-map of attention weights",
    )


def _facts(seen: Any) -> tuple[NDArray[Any], Any, str, NDArray[np.bool_]]:
    """Values, the spans of queries and keys, how they were pooled, and where nothing is allowed."""
    pooled = hasattr(seen, "pool")
    values = seen.values if pooled else np.ma.asarray(frame.table(seen))
    if values.ndim < 2 or 0 in values.shape:
        raise ShapeError(f"weights of shape {values.shape} are no heat-map: give [rows, columns]")
    if pooled:
        return values, (seen.rows, seen.columns), seen.pool, seen.empty
    spans = (0, values.shape[-2]), (0, values.shape[-1])
    return values.filled(np.nan), spans, "", np.ma.getmaskarray(values)


def _swatches(values: NDArray[Any], empty: NDArray[np.bool_], look: Theme) -> dict[str, str]:
    """What has no place on the scale, and its colour."""
    there = {HIDDEN_WORD: (empty, look.hidden),
             NAN_WORD: (np.isnan(values) & ~empty, look.alarm)}  # fmt: skip
    return {words: colour for words, (bins, colour) in there.items() if bins.any()}


def _names(queries: Any, keys: Any, spans: Any) -> tuple[list[str] | None, list[str] | None]:
    """The names of the rows and columns shown."""
    (r0, r1), (c0, c1) = spans
    for texts, stop, what in ((keys, c1, "tokens"), (queries, r1, "query_tokens")):
        if texts is not None and len(texts) < stop:
            raise ArgumentError(
                f"{what} has {len(texts)} names, but the map shows positions up to "
                f"{stop - 1}: give one for every position of the sequence"
            )
    if queries is None and keys is not None and len(keys) >= r1:
        queries = keys
    return frame.names(queries, r0, r1), frame.names(keys, c0, c1)


def _measure(pool: str, spans: Any, shape: tuple[int, ...]) -> str:
    """What a colour stands for: the weight itself where every bin is one cell."""
    single = all(
        bins >= stop - start for bins, (start, stop) in zip(shape[-2:], spans, strict=True)
    )
    if single or not pool:
        return "weight"
    return {"max": "largest weight", "mean": "mean weight"}[pool]


def _one_each(names: list[str] | None, bins: int, cell: float) -> bool:
    """Whether the cells can carry names: one token a cell, and room to read it."""
    return names is not None and len(names) == bins and cell >= frame.SMALLEST_LABEL


def _slant(cell: float) -> float:
    return SLANT if cell >= NARROW else STEEP


def _cell(shape: tuple[int, int], names: Any) -> float:
    """A cell's side: what fits the plot, wide enough for names where there are some, at least 1."""
    longest = max(shape)
    side = min(TALLEST_CELL, max(1.0, PLOT / longest))
    single = any(texts is not None and len(texts) == bins
                 for texts, bins in zip(names, shape, strict=True))  # fmt: skip
    return max(side, frame.SMALLEST_LABEL) if single and longest <= MOST_NAMED else side


def _cells(
    values: Any,
    empty: Any,
    fit: Scale,
    left: float,
    top: float,
    cell: float,
    theme: str,
    spans: Any,
    names: Any,
) -> list[Mark]:
    height, width = values.shape
    colours = fit.paint(values, theme, empty)
    if height * width > MOST_BOXES:
        size = width * cell, height * cell
        rim = Box(left - 1, top - 1, size[0] + 2, size[1] + 2, theme_of(theme).line)
        return [rim, Pixels(left, top, *size, colours)]
    gap = 1.0 if cell >= 10 else 0.0
    marks: list[Mark] = [
        Box(
            left - 1, top - 1, width * cell + 2 - gap, height * cell + 2 - gap, theme_of(theme).line
        )
    ]
    letters = 10.0 if fit.low >= 0 else 9.0  # a sign takes room
    for i, j in np.ndindex(height, width):
        value, fill = float(values[i, j]), css(colours[i, j])
        x, y = left + j * cell, top + i * cell
        words = _words(value, empty[i, j], i, j, values.shape, spans, names)
        marks.append(Box(x, y, cell - gap, cell - gap, fill, words))
        if cell >= WRITTEN and np.isfinite(value):
            middle = cell / 2 - gap / 2
            text, ink = fixed(value, 2), ink_on(colours[i, j])
            marks.append(Label(x + middle, y + middle, text, ink, letters, "middle"))
    return marks


def _words(value: float, empty: bool, i: int, j: int, shape: Any, spans: Any, names: Any) -> str:
    """What hovering over a cell says."""
    where = []
    for at, bins, (start, stop), texts in zip((i, j), shape, spans, names, strict=True):
        n = stop - start
        first = at * n // bins
        last = max(first + 1, (at + 1) * n // bins) - 1
        name = f" {texts[first]}" if texts is not None and first == last else ""
        place = str(start + first) if first == last else f"{start + first}–{start + last}"
        where.append(place + name)
    what = f"weight {fixed(value, 6)}"
    if np.isnan(value):
        what = HIDDEN_WORD if empty else NAN_WORD
    return f"query {where[0]} → key {where[1]}: {what}"


def _axis(
    axis: int,
    texts: Any,
    span: tuple[int, int],
    left: float,
    top: float,
    plot: tuple[float, float],
    size: float,
    look: Any,
) -> list[Mark]:
    """Names or positions along the left side (axis 0) or the top (axis 1)."""
    if texts:
        cell = plot[1 - axis] / len(texts)
        if axis == 0:
            return [
                Label(left - 7, top + (n + 0.5) * cell, text, look.ink, size, "end")
                for n, text in enumerate(texts)
            ]
        upright = all(len(text) == 1 for text in texts)  # characters need no turning
        anchor, angle = ("middle", 0.0) if upright else ("start", _slant(cell))
        return [
            Label(left + (n + 0.5) * cell, top - 8, text, look.ink, size, anchor, angle)
            for n, text in enumerate(texts)
        ]
    start, stop = span
    marks: list[Mark] = []
    for position in frame.positions(span, plot[1 - axis]):
        at = (position - start + 0.5) / (stop - start)
        if axis == 0:
            y = top + at * plot[1]
            marks += [
                Stroke(left - 5, y, left - 1, y, look.soft),
                Label(left - 8, y, f"{position:,}", look.soft, frame.SMALL, "end"),
            ]
        else:
            x = left + at * plot[0]
            marks += [
                Stroke(x, top - 5, x, top - 1, look.soft),
                Label(x, top - 13, f"{position:,}", look.soft, frame.SMALL, "middle"),
            ]
    return marks


def _panels(
    values: Any,
    empty: Any,
    spans: Any,
    pool: str,
    title: str,
    scale: str,
    low: float | None,
    high: float | None,
    theme: str,
) -> Picture:
    """Several heads side by side on one scale, without names: small multiples."""
    maps, hidden = (array.reshape(-1, *values.shape[-2:]) for array in (values, empty))
    shown, hidden = maps[:MOST_PANELS], hidden[:MOST_PANELS]
    fit, look = Scale.of(values, scale, low, high), theme_of(theme)
    across = min(len(shown), 4)
    side = 150.0
    tall = side * shown.shape[1] / shown.shape[2] if shown.shape[1] < shown.shape[2] else side
    wide = side * shown.shape[2] / shown.shape[1] if shown.shape[2] < shown.shape[1] else side
    note = f"the first {len(shown)} of {len(maps)} heads" if len(maps) > len(shown) else ""
    marks, y = frame.heading(title, note, look)
    step = tall + 34
    for n, one in enumerate(shown):
        x, top = frame.MARGIN + (n % across) * (wide + 16), y + (n // across) * step
        marks += [
            Label(x, top + 8, f"head {n}", look.soft, frame.SMALL),
            Pixels(x, top + 20, wide, tall, fit.paint(one, theme, hidden[n])),
        ]
    rows = -(-len(shown) // across)
    x = frame.MARGIN + across * (wide + 16) + 8
    swatches = _swatches(shown, hidden, look)
    words = _measure(pool, spans, values.shape)
    marks += frame.legend(fit, x, y + 20, max(tall, 120.0), look, words, swatches)
    full = x + frame.legend_width(fit, words, swatches) + frame.MARGIN
    height = y + max(rows * step, 150.0) + frame.MARGIN - 14
    return Picture(
        max(full, frame.heading_width(title, note)),
        height,
        tuple(marks),
        theme,
        title or f"attention weights of {counted(len(shown), 'head')}",
    )
