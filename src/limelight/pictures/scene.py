"""A picture as a list of marks, drawn once and written as SVG, PNG or PDF.

Units are CSS pixels, y down. A label's point is the middle of its line of text; its angle turns it
clockwise about that point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError
from limelight.views.palette import theme_of
from limelight.writing.files import as_path, whole, wrong_ending

ENDINGS = (".svg", ".png", ".pdf")  # of files that a picture is written to


@dataclass(frozen=True)
class Box:
    """A filled rectangle; `tip` is what a browser shows on hovering."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    tip: str = ""
    edge: str = ""


@dataclass(frozen=True, eq=False)
class Pixels:
    """Colours, uint8 [rows, columns, 3], stretched over a rectangle; each stays a sharp block."""

    x: float
    y: float
    width: float
    height: float
    colours: NDArray[np.uint8]
    smooth: bool = False


@dataclass(frozen=True)
class Label:
    """One line of text."""

    x: float
    y: float
    text: str
    fill: str
    size: float = 11.0
    anchor: str = "start"  # or middle, end
    angle: float = 0.0
    bold: bool = False
    tip: str = ""


@dataclass(frozen=True)
class Stroke:
    """A line from start to stop; bent, it leaves and arrives horizontally."""

    x0: float
    y0: float
    x1: float
    y1: float
    colour: str
    width: float = 1.0
    opacity: float = 1.0
    bent: bool = False
    tip: str = ""


@dataclass(frozen=True)
class Trail:
    """A line through points; `dash` gives the lengths of its pieces and of the gaps between."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1.0
    opacity: float = 1.0
    dash: tuple[float, float] | None = None


Mark = Box | Pixels | Label | Stroke | Trail


@dataclass(frozen=True, eq=False)
class Picture:
    """Marks on a surface. `description` is read out to whoever cannot see it.

    dark   the same for dark pages: as SVG, the picture suits the page that it stands on
    """

    width: float
    height: float
    marks: tuple[Any, ...]
    theme: str = "light"
    description: str = ""
    dark: Picture | None = None

    def svg(self) -> str:
        """As SVG text that stands alone."""
        from limelight.pictures.svg import write

        return write(self)

    def png(self, ratio: float = 2.0) -> bytes:
        """As a PNG file, `ratio` dots a CSS pixel."""
        from limelight.pictures.raster import draw

        return draw(self, ratio)

    def pdf(self) -> bytes:
        """As a PDF file of one page, its text searchable."""
        from limelight.pictures.pdf import write

        return write(self)

    def save(self, path: str | Path, ratio: float = 2.0) -> None:
        """Written to a file, by its name's ending: .svg, .png or .pdf."""
        path = as_path(path)
        if wrong := wrong_ending(path, ENDINGS):
            raise ArgumentError(wrong)
        made = {".svg": lambda: self.svg().encode(), ".png": lambda: self.png(ratio)}
        data = made.get(path.suffix.lower(), self.pdf)()
        with whole(path) as file:
            file.write(data)

    def beside(self, *others: Picture, gap: float = 16.0) -> Picture:
        """This picture and others in a row."""
        x, marks = 0.0, []
        for one in (self, *others):
            marks += [moved(mark, x, 0.0) for mark in one.marks]
            x += one.width + gap
        height = max(one.height for one in (self, *others))
        words = "; ".join(one.description for one in (self, *others))
        dark = self.dark and self.dark.beside(*(one.dark or one for one in others), gap=gap)
        return Picture(x - gap, height, tuple(marks), self.theme, words, dark)

    @property
    def surface(self) -> str:
        return theme_of(self.theme).surface

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        size = f"{self.width:g} × {self.height:g}"
        return f"Picture({size}, {len(self.marks)} marks: {self.description})"


def moved(mark: Mark, dx: float, dy: float) -> Mark:
    """The same mark elsewhere."""
    if isinstance(mark, Trail):
        return replace(mark, points=tuple((x + dx, y + dy) for x, y in mark.points))
    if isinstance(mark, Stroke):
        return replace(mark, x0=mark.x0 + dx, x1=mark.x1 + dx, y0=mark.y0 + dy, y1=mark.y1 + dy)
    return replace(mark, x=mark.x + dx, y=mark.y + dy)
