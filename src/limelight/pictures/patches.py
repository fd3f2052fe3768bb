"""What a vision model looks at: its attention as light on the image's patches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError, ShapeError
from limelight.pictures import frame
from limelight.pictures.lettering import width as text_width
from limelight.pictures.scene import Box, Label, Mark, Picture, Pixels, Stroke
from limelight.views.palette import STEPS, Scale, css, ink_on, rgb, theme_of
from limelight.writing.numbers import counted, fixed, percent

SIDE = 300.0  # CSS pixels of the longer side
DARK = 0.38  # what is left of the image, in grey, where no attention falls
TINT = 0.6  # how much of what is lit takes the colour of the light
ROOM = 32.0  # CSS pixels a side from which a patch carries its number
SMALL = 64  # pixels a side below which an image stays in sharp blocks
GLOW = "#ffb53c"


def patches(
    image: Any,
    weights: Any,
    *,
    grid: Any = None,
    query: int | None = None,
    title: str = "",
    scale: str = "linear",
    high: float | None = None,
    theme: str = "light",
) -> Picture:
    """The image, and beside it the image lit by where one query looks.

    image    uint8 [height, width, 3]
    weights  one query's weights over all keys [Nk], or already over the patches [rows, columns]
    grid     the patches among the keys: a capture's grid, (rows, columns) for the last keys, or
             (rows, columns, start) where `start` keys (such as CLS) come first
    query    the key number of the query's own patch, outlined where it is one
    """
    picture = np.asarray(image)
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
        raise ShapeError(
            f"the image is {picture.dtype} {picture.shape}: give uint8 [height, width, 3]"
        )
    lit, start = _on_grid(frame.table(weights), grid)
    outside = 1.0 - float(np.nansum(lit))
    fit = Scale.of(lit, scale, None, high)
    look = theme_of(theme)
    height, width, _ = picture.shape
    wide = SIDE * min(1.0, width / height)
    tall = SIDE * min(1.0, height / width)
    marks, y = frame.heading(title, "", look)
    top, second = y + 18, frame.MARGIN + wide + 24
    marks += [
        Label(frame.MARGIN, top - 12, "image", look.soft, frame.SMALL),
        Pixels(frame.MARGIN, top, wide, tall, picture, smooth=max(height, width) >= SMALL),
        Label(second, top - 12, "where it looks", look.soft, frame.SMALL),
        Pixels(second, top, wide, tall, _lit(picture, fit.share(lit)), smooth=True),
    ]
    marks += _numbers(lit, _lit(picture, fit.share(lit)), second, top, wide, tall)
    for x in (frame.MARGIN, second):
        marks += _own(query, lit.shape, start, x, top, wide, tall)
    x = second + wide + 20
    marks += _legend(fit, x, top, tall, look)
    if outside > 0.005:
        note = f"{percent(outside)} of the weight is not on a patch"
        marks.append(Label(second, top + tall + 14, note, look.soft, frame.SMALL))
    full = x + frame.legend_width(fit, "weight") + frame.MARGIN
    return Picture(
        max(full, frame.heading_width(title, "") if title else 0.0),
        top + tall + 24 + frame.MARGIN,
        tuple(marks),
        theme,
        title or "attention over the patches of an image",
    )


def _on_grid(weights: NDArray[Any], grid: Any) -> tuple[NDArray[Any], int]:
    """Weights as [rows, columns] of patches, and how many keys stand before the patches."""
    if weights.ndim == 2 and grid is None:
        return weights, 0
    if grid is None or weights.ndim != 1:
        raise ShapeError(
            f"weights of shape {weights.shape} do not say where the patches are: give "
            f"[rows, columns], or one query's weights [Nk] and grid=(rows, columns)"
        )
    parts = (grid.rows, grid.columns, grid.start) if hasattr(grid, "start") else tuple(grid)
    rows, columns, *first = parts
    start = first[0] if first else len(weights) - rows * columns
    if start < 0 or start + rows * columns > len(weights):
        raise ArgumentError(
            f"{rows} × {columns} patches from key {start} on do not fit in "
            f"{counted(len(weights), 'key')}"
        )
    return weights[start : start + rows * columns].reshape(rows, columns), start


def _lit(image: NDArray[np.uint8], light: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The image in the dark, each patch lit by its share of the light."""
    height, width, _ = image.shape
    rows, columns = light.shape
    factor = max(1, -(-max(2 * rows, 256) // max(height, width)))  # keep patch edges sharp
    image = image.repeat(factor, axis=0).repeat(factor, axis=1).astype(np.float64)
    down = np.arange(height * factor) * rows // (height * factor)
    across = np.arange(width * factor) * columns // (width * factor)
    share = np.nan_to_num(light)[down[:, None], across][..., None]
    grey = (image @ (0.2126, 0.7152, 0.0722))[..., None]
    dark = DARK * grey
    # Ink in a lit patch glows too, half as bright: light is told by its colour, not by the image's.
    glow = np.array(rgb(GLOW)) * (0.5 + 0.5 * grey / 255)
    bright = TINT * glow + (1 - TINT) * image
    return np.asarray(np.clip(dark + share * (bright - dark), 0, 255), np.uint8)


def _numbers(
    lit: NDArray[Any], shown: NDArray[np.uint8], x: float, y: float, wide: float, tall: float
) -> list[Mark]:
    """Lines between the patches, and their weights where there is room to write them.

    A patch is light and dark at once, so its number stands on a plate of its mean colour.
    """
    rows, columns = lit.shape
    width, height = wide / columns, tall / rows
    if min(width, height) < ROOM:
        return []
    marks: list[Mark] = [Stroke(x + c * width, y, x + c * width, y + tall, "#14120f", 0.6, 0.5)
                         for c in range(1, columns)]  # fmt: skip
    marks += [Stroke(x, y + r * height, x + wide, y + r * height, "#14120f", 0.6, 0.5)
              for r in range(1, rows)]  # fmt: skip
    down, across = shown.shape[0] // rows, shown.shape[1] // columns
    for r, c in np.ndindex(rows, columns):
        part = shown[r * down : (r + 1) * down, c * across : (c + 1) * across]
        mean = part.reshape(-1, 3).mean(axis=0)
        x0, y0 = x + (c + 0.5) * width, y + (r + 0.5) * height
        text = fixed(float(lit[r, c]), 2)
        room = text_width(text, 10.0) + 6
        marks += [
            Box(x0 - room / 2, y0 - 7, room, 14, css(mean)),
            Label(x0, y0, text, ink_on(mean), 10.0, "middle"),
        ]
    return marks


def _own(
    query: int | None,
    shape: tuple[int, ...],
    start: int,
    x: float,
    y: float,
    wide: float,
    tall: float,
) -> list[Mark]:
    """An outline around the query's own patch."""
    rows, columns = shape
    if query is None or not start <= query < start + rows * columns:
        return []
    row, column = divmod(query - start, columns)
    x0, x1 = x + column * wide / columns, x + (column + 1) * wide / columns
    y0, y1 = y + row * tall / rows, y + (row + 1) * tall / rows
    sides = ((x0, y0, x1, y0), (x1, y0, x1, y1), (x1, y1, x0, y1), (x0, y1, x0, y0))
    return [
        Stroke(*side, colour, thick)
        for colour, thick in (("#14120f", 4.0), (GLOW, 2.0))
        for side in sides
    ]


def _legend(fit: Scale, x: float, y: float, height: float, look: Any) -> list[Mark]:
    """From the dark to full light."""
    bar = _lit(np.full((STEPS, 1, 3), 200, np.uint8), np.linspace(1.0, 0.0, STEPS)[:, None])
    marks: list[Mark] = [
        Label(x, y - 12, "weight", look.soft, frame.SMALL),
        Pixels(x, y, frame.BAR, height, bar, smooth=True),
    ]
    for tick in fit.ticks():
        ty = y + height * (1 - float(fit.share(tick)))
        marks += [
            Stroke(x + frame.BAR, ty, x + frame.BAR + 4, ty, look.soft),
            Label(x + frame.BAR + 7, ty, frame.number(tick), look.soft, frame.SMALL),
        ]
    return marks
