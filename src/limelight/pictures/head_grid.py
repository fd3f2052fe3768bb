"""All heads of a model at once: layers down, heads across, coloured by a figure of their health."""

from __future__ import annotations

from typing import Any

import numpy as np

from limelight.capture.health import TITLES, check_figure
from limelight.errors import ArgumentError, ShapeError
from limelight.looking.heatmap import Heatmap
from limelight.pictures import frame
from limelight.pictures.scene import Box, Label, Mark, Picture, Pixels
from limelight.views.figures import TOPS
from limelight.views.palette import Scale, css, ink_on, theme_of
from limelight.writing.numbers import counted

PLAIN, THUMB, RIM = 30.0, 58.0, 5.0  # CSS pixels: a cell, one with a map in it, its coloured rim


def head_grid(
    capture: Any,
    *,
    figure: str = "max_prob",
    thumbnails: int = 0,
    title: str = "",
    theme: str = "light",
) -> Picture:
    """Layers × heads, each cell coloured by one figure of that head's health.

    capture      a capture, or its health() tables (then without thumbnails)
    figure       one of capture.health().figures
    thumbnails   with a number, each head shows its own map at that many bins a side, and the figure
                 colours its rim

    A filled corner marks a saturated head, a hollow one a peaked head.
    """
    check_figure(figure)
    tables = capture.health() if hasattr(capture, "health") else capture
    maps = _maps(capture, thumbnails) if thumbnails else None
    return draw(tables[figure], tables.verdict, tables.names(), figure, maps, title, theme)


def draw(
    values: Any,
    verdict: Any,
    rows: list[str],
    figure: str,
    maps: list[list[Heatmap]] | None = None,
    title: str = "",
    theme: str = "light",
) -> Picture:
    """The grid from plain tables [layers, heads]; NaN where a layer has no such head."""
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or 0 in values.shape:
        raise ShapeError(f"figures of shape {values.shape} are no grid: give [layers, heads]")
    look = theme_of(theme)
    fit = Scale.of(values, "linear", None, TOPS.get(figure))
    cell = THUMB if maps else PLAIN
    marks, y = frame.heading(title, "", look)
    left = frame.MARGIN + max(frame.widest(rows, frame.SMALL), 30) + 8
    top = y + 34
    marks += [
        Label(left, top - 28, "head", look.soft, frame.SMALL),
        Label(left - 8, top - 12, "layer", look.soft, frame.SMALL, "end"),
    ]
    layers, heads = values.shape
    marks += [
        Label(left + (h + 0.5) * cell, top - 12, str(h), look.soft, frame.SMALL, "middle")
        for h in range(heads)
    ]
    for r, h in np.ndindex(layers, heads):
        if h == 0:
            marks.append(
                Label(left - 8, top + (r + 0.5) * cell, rows[r], look.soft, frame.SMALL, "end")
            )
        if np.isnan(values[r, h]) and not verdict[r, h]:
            continue
        picture = maps[r][h] if maps else None
        marks += _head(
            float(values[r, h]),
            str(verdict[r, h]),
            picture,
            fit,
            left + h * cell,
            top + r * cell,
            cell,
            f"layer {rows[r]}, head {h}",
            figure,
            look,
        )
    x = left + heads * cell + 22
    tall = max(layers * cell, 130.0)
    marks += _legend(fit, x, top, tall, figure, verdict, look)
    full = x + max(frame.legend_width(fit, ""), frame.widest([TITLES[figure]], frame.SMALL))
    full = max(full + frame.MARGIN, frame.heading_width(title, "") if title else 0.0)
    words = title or f"{TITLES[figure]} of {counted(heads, 'head')} in {counted(layers, 'layer')}"
    return Picture(full, top + tall + frame.MARGIN, tuple(marks), theme, words)


def _maps(capture: Any, side: int) -> list[list[Heatmap]]:
    if not hasattr(capture, "health"):
        raise ArgumentError("thumbnails need the capture itself, not its health tables")
    return [
        [site.heatmap(shape=(side, side), head=head) for head in range(site.heads)]
        for site in capture.sites
    ]


def _head(
    value: float,
    verdict: str,
    picture: Heatmap | None,
    fit: Scale,
    x: float,
    y: float,
    cell: float,
    name: str,
    figure: str,
    look: Any,
) -> list[Mark]:
    colour = fit.paint(value, look.name)
    side = cell - 2
    tip = f"{name}: {TITLES[figure]} {frame.number(value)}" + (f", {verdict}" if verdict else "")
    marks: list[Mark] = [Box(x, y, side, side, css(colour), tip, edge=look.line)]
    if picture is not None:
        own = Scale.of(picture.values, "linear")
        inner = side - 2 * RIM
        colours = own.paint(picture.values, look.name, picture.empty)
        marks.append(Pixels(x + RIM, y + RIM, inner, inner, colours))
    elif np.isfinite(value):
        text = f"{value:.2f}" if abs(value) < 1 else frame.number(round(value, 1))
        text = text[1:] if text.startswith("0.") else text
        marks.append(Label(x + side / 2, y + side / 2 + 1, text, ink_on(colour), 9.5, "middle"))
    if verdict in ("saturated", "peaked"):
        marks.append(_corner(x + side - 6, y + 1, verdict, look))
    return marks


def _corner(x: float, y: float, verdict: str, look: Any) -> Box:
    return Box(x, y, 5, 5, look.alarm if verdict == "saturated" else look.surface, edge=look.alarm)


def _legend(
    fit: Scale, x: float, y: float, tall: float, figure: str, verdict: Any, look: Any
) -> list[Mark]:
    words = [word for word in ("saturated", "peaked") if (np.asarray(verdict) == word).any()]
    bar = frame.bar_height(tall - 22.0 * len(words))
    marks = frame.legend(fit, x, y, bar, look, TITLES[figure])
    for n, word in enumerate(words):
        line = y + bar + 22 * n + 16
        marks += [
            _corner(x + 4, line - 3, word, look),
            Label(x + frame.BAR + 7, line, word, look.soft, frame.SMALL),
        ]
    return marks
