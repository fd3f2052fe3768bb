"""Pictures as PNG: marks painted on a NumPy array, with soft edges."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError
from limelight.pictures import fonts, lettering
from limelight.pictures.scene import Box, Label, Picture, Pixels, Stroke, Trail
from limelight.pictures.tokens import printable
from limelight.views.palette import rgb
from limelight.writing.png import encode

Canvas = NDArray[np.float32]
LARGEST = 1 << 26  # dots: 192 MB of uint8, more than any screen
CURVE = 24  # straight pieces in a bent stroke


def draw(picture: Picture, ratio: float = 2.0) -> bytes:
    """The picture as a PNG file, `ratio` dots a CSS pixel."""
    width, height = (math.ceil(side * ratio) for side in (picture.width, picture.height))
    if not 0 < width * height <= LARGEST:
        raise ArgumentError(
            f"a PNG of {width:,} × {height:,} dots is too large: make it smaller, or save an .svg"
        )
    tell(picture)
    canvas = np.empty((height, width, 3), np.float32)
    canvas[:] = rgb(picture.surface)
    for mark in picture.marks:
        _DRAW[type(mark)](canvas, mark, ratio)
    return encode(np.rint(canvas).astype(np.uint8), round(ratio * 96 / 0.0254))


def tell(picture: Picture, painted: Callable[[str], bool] = bool) -> None:
    """Say which letters become boxes, and why; of the texts that are painted."""
    texts = (printable(mark.text) for mark in picture.marks if isinstance(mark, Label))
    letters = "".join(dict.fromkeys("".join(map(lettering.boxed, filter(painted, texts)))))
    if letters:
        some = letters[:8] + ("…" if len(letters) > 8 else "")
        why = fonts.missing() or "no font on this machine has them"
        warnings.warn(
            f"{some} are drawn as boxes: {why}. An .svg shows them in the reader's own fonts",
            stacklevel=4,
        )


def _box(canvas: Canvas, mark: Box, ratio: float) -> None:
    x0, y0 = mark.x * ratio, mark.y * ratio
    x1, y1 = x0 + mark.width * ratio, y0 + mark.height * ratio
    _fill(canvas, x0, y0, x1, y1, mark.fill)
    if mark.edge:
        half = ratio / 2
        for a, b, c, d in ((x0, y0, x1, y0), (x0, y1, x1, y1), (x0, y0, x0, y1), (x1, y0, x1, y1)):
            _fill(canvas, a - half, b - half, c + half, d + half, mark.edge)


def _fill(canvas: Canvas, x0: float, y0: float, x1: float, y1: float, colour: str) -> None:
    """A rectangle whose edges cover part of a pixel."""
    height, width, _ = canvas.shape
    left, right = max(0, math.floor(x0)), min(width, math.ceil(x1))
    top, bottom = max(0, math.floor(y0)), min(height, math.ceil(y1))
    if left >= right or top >= bottom:
        return
    across = _covered(np.arange(left, right), x0, x1)
    down = _covered(np.arange(top, bottom), y0, y1)
    _blend(canvas[top:bottom, left:right], down[:, None] * across, colour)


def _covered(pixels: Any, start: float, stop: float) -> Any:
    return np.clip(np.minimum(pixels + 1, stop) - np.maximum(pixels, start), 0.0, 1.0)


def _pixels(canvas: Canvas, mark: Pixels, ratio: float) -> None:
    height, width, _ = canvas.shape
    x0, y0 = round(mark.x * ratio), round(mark.y * ratio)
    x1, y1 = round((mark.x + mark.width) * ratio), round((mark.y + mark.height) * ratio)
    x1, y1 = min(x1, width), min(y1, height)
    rows, columns, _ = mark.colours.shape
    down = (np.arange(y1 - y0) + 0.5) * rows / max(1, round(mark.height * ratio))
    across = (np.arange(x1 - x0) + 0.5) * columns / max(1, round(mark.width * ratio))
    if mark.smooth:
        canvas[y0:y1, x0:x1] = _smooth(mark.colours, down - 0.5, across - 0.5)
        return
    down = np.minimum(down.astype(np.intp), rows - 1)
    across = np.minimum(across.astype(np.intp), columns - 1)
    canvas[y0:y1, x0:x1] = mark.colours[down[:, None], across]


def _smooth(colours: NDArray[np.uint8], down: Any, across: Any) -> Any:
    """Between the four nearest colours, for photographs; averaged where they shrink."""
    source = colours.astype(np.float32)
    for axis, at in ((0, down), (1, across)):
        last = source.shape[axis] - 1
        low = np.clip(np.floor(at), 0, last).astype(np.intp)
        t = np.clip(at - low, 0.0, 1.0).astype(np.float32)
        t = t.reshape(-1, *(1,) * (2 - axis))
        high = np.minimum(low + 1, last)
        source = source.take(low, axis=axis) * (1 - t) + source.take(high, axis=axis) * t
    return source


def _label(canvas: Canvas, mark: Label, ratio: float) -> None:
    size = mark.size * ratio
    parts, wide = lettering.placed(printable(mark.text), size)
    start = {"start": 0.0, "middle": -wide / 2, "end": -wide}[mark.anchor]
    turn = math.radians(mark.angle)
    cos, sin = math.cos(turn), math.sin(turn)
    drop = lettering.MIDDLE * size / lettering.EM
    for letter, at in parts:
        along = start + at
        x = mark.x * ratio + along * cos - drop * sin
        y = mark.y * ratio + along * sin + drop * cos
        drawn = lettering.coverage(letter, size, mark.angle)
        if drawn is not None:
            covered, left, top = drawn
            _stamp(canvas, covered, round(x) + left, round(y) + top, mark.fill)
            if mark.bold:
                _stamp(canvas, covered, round(x + ratio * 0.45) + left, round(y) + top, mark.fill)


def _stamp(canvas: Canvas, covered: Any, left: int, top: int, colour: str) -> None:
    height, width, _ = canvas.shape
    rows, columns = covered.shape
    a, b = max(0, -top), max(0, -left)
    c, d = min(rows, height - top), min(columns, width - left)
    if a < c and b < d:
        _blend(canvas[top + a : top + c, left + b : left + d], covered[a:c, b:d], colour)


def _stroke(canvas: Canvas, mark: Stroke, ratio: float) -> None:
    """A line or a bent line, by its distance from each pixel of the box around it."""
    t = np.linspace(0.0, 1.0, CURVE + 1 if mark.bent else 2)
    if mark.bent:  # a cubic with both handles half-way across
        x = mark.x0 + (mark.x1 - mark.x0) * (1.5 * t * (1 - t) + t**3)
        y = mark.y0 + (mark.y1 - mark.y0) * (3 * t**2 - 2 * t**3)
    else:
        x, y = mark.x0 + (mark.x1 - mark.x0) * t, mark.y0 + (mark.y1 - mark.y0) * t
    _line(canvas, [(x * ratio, y * ratio)], mark, ratio)


def _trail(canvas: Canvas, mark: Trail, ratio: float) -> None:
    x, y = np.array(mark.points, np.float64).reshape(-1, 2).T * ratio
    if len(x) < 2:
        return
    if mark.dash is None:
        _line(canvas, [(x, y)], mark, ratio)
        return
    on, off = (length * ratio for length in mark.dash)
    along = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    pieces = []
    for start in np.arange(0.0, along[-1], on + off):
        stop = min(start + on, along[-1])
        at = np.concatenate([[start], along[(along > start) & (along < stop)], [stop]])
        pieces.append((np.interp(at, along, x), np.interp(at, along, y)))
    _line(canvas, pieces, mark, ratio)


def _line(canvas: Canvas, pieces: list[Any], mark: Stroke | Trail, ratio: float) -> None:
    """Lines through points (x, y) in dots, painted once, so that crossings are no darker."""
    half = mark.width * ratio / 2
    within = max(half, 0.5)
    found = [
        _touched(canvas.shape, (ax, ay), (bx, by), within + 0.5)
        for x, y in pieces
        for ax, ay, bx, by in zip(x, y, x[1:], y[1:], strict=False)
    ]
    dots, which = np.unique(np.concatenate([at for at, _ in found]), return_inverse=True)
    away = np.full(len(dots), np.inf, np.float32)
    np.minimum.at(away, which, np.concatenate([distance for _, distance in found]))
    thin = min(1.0, 2 * half)  # a hair thinner than a dot is a paler dot
    covered = np.clip(within - away + 0.5, 0.0, 1.0) * (mark.opacity * thin)
    rows, columns = np.divmod(dots, canvas.shape[1])
    part = canvas[rows, columns]
    _blend(part, covered, mark.colour)
    canvas[rows, columns] = part


def _touched(
    shape: tuple[int, ...], a: tuple[float, float], b: tuple[float, float], reach: float
) -> tuple[Any, Any]:
    """The dots within reach of the piece a–b, counted row by row, and how far each is."""
    height, width, _ = shape
    x0, x1 = _around(a[0], b[0], reach, width)
    y0, y1 = _around(a[1], b[1], reach, height)
    across, down = np.arange(x0, x1), np.arange(y0, y1)[:, None]
    px, py = across + 0.5, down + 0.5
    dx, dy = b[0] - a[0], b[1] - a[1]
    t = ((px - a[0]) * dx + (py - a[1]) * dy) / max(dx * dx + dy * dy, 1e-9)
    t = np.minimum(np.maximum(t, 0.0), 1.0)
    ex, ey = a[0] + t * dx - px, a[1] + t * dy - py
    near = ex * ex + ey * ey < reach * reach
    return (down * width + across)[near], np.hypot(ex[near], ey[near]).astype(np.float32)


def _around(a: float, b: float, reach: float, end: int) -> tuple[int, int]:
    """From where to where dots within reach of a and b lie, on a side of `end` dots."""
    first, last = math.floor(min(a, b) - reach), math.ceil(max(a, b) + reach)
    return min(max(0, first), end), min(max(0, last + 1), end)


def _blend(part: Canvas, covered: Any, colour: str) -> None:
    part += covered[..., None] * (np.array(rgb(colour), np.float32) - part)


_DRAW: dict[type, Any] = {
    Box: _box, Pixels: _pixels, Label: _label, Stroke: _stroke, Trail: _trail
}  # fmt: skip
