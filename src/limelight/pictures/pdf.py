"""Pictures as PDF: one page of vectors, with text that can be searched and selected.

Text is set in Helvetica, which every reader has, where Windows-1252 has its letters. A line with
others is painted letter by letter as in a PNG (pictures/lettering.py), at six dots a CSS pixel.
"""

from __future__ import annotations

import math
import unicodedata
import zlib
from typing import Any

import numpy as np

from limelight.pictures import lettering
from limelight.pictures.raster import tell
from limelight.pictures.scene import Box, Label, Picture, Pixels, Stroke, Trail
from limelight.pictures.svg import BASELINE
from limelight.pictures.tokens import printable
from limelight.views.palette import rgb

POINTS = 0.75  # to a CSS pixel
DOTS = 6.0  # to a CSS pixel, of letters that are painted
BOLD = 0.03  # of the size: the stroke about a bold letter

# Widths in thousandths of the size: from the space to the tilde, then those beyond with no base.
_ASCII = """278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278
556 556 556 556 556 556 556 556 556 556 278 278 584 584 584 556
1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778
667 778 722 667 611 722 667 944 667 667 611 278 278 278 469 556
333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556
556 556 333 500 278 556 500 722 500 500 500 334 260 334 584"""
WIDTHS = {chr(32 + n): int(width) for n, width in enumerate(_ASCII.split())} | {
    "–": 556, "—": 1000, "…": 1000, "‘": 222, "’": 222, "“": 333, "”": 333, "„": 333, "‚": 222,
    "•": 350, "€": 556, "×": 584, "÷": 584, "±": 584, "·": 278, "°": 400, "«": 556, "»": 556,
    "‹": 333, "›": 333, "¬": 584, "µ": 556, "§": 556, "¶": 537, "©": 737, "®": 737, "™": 1000,
    "æ": 889, "Æ": 1000, "œ": 944, "Œ": 1000, "ø": 611, "Ø": 778, "ß": 611, "ð": 556, "Ð": 722,
    "þ": 556, "Þ": 667, "¿": 611, "¡": 333, "£": 556, "¥": 556, "¢": 556, "¦": 260, "\xa0": 278,
}  # fmt: skip


class Page:
    """What the page shows, and the images and opacities that it names."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.images: list[tuple[bytes, ...]] = []
        self.opacities: list[float] = []

    def draw(self, *words: Any) -> None:
        self.shown.append(" ".join(w if isinstance(w, str) else _n(w) for w in words))

    def opacity(self, value: float) -> None:
        if value < 1:
            if value not in self.opacities:
                self.opacities.append(value)
            self.draw(f"/G{self.opacities.index(value)} gs")


def write(picture: Picture) -> bytes:
    """The picture as a PDF file."""
    tell(picture, _painted)
    page = Page()
    page.draw(POINTS, 0, 0, -POINTS, 0, picture.height * POINTS, "cm")  # CSS pixels, y down
    _box(page, Box(0, 0, picture.width, picture.height, picture.surface))
    for mark in picture.marks:
        page.draw("q")
        _DRAW[type(mark)](page, mark)
        page.draw("Q")
    return _file(picture, page)


def _box(page: Page, mark: Box) -> None:
    page.draw(_colour(mark.fill), "rg", mark.x, mark.y, mark.width, mark.height, "re f")
    if mark.edge:
        page.draw(_colour(mark.edge), "RG 1 w", mark.x, mark.y, mark.width, mark.height, "re S")


def _pixels(page: Page, mark: Pixels) -> None:
    rows, columns, _ = mark.colours.shape
    smooth = b"true" if mark.smooth else b"false"
    head = (b"/ColorSpace /DeviceRGB /BitsPerComponent 8 /Interpolate " + smooth
            + _size(columns, rows))  # fmt: skip
    page.images.append((head, np.ascontiguousarray(mark.colours, np.uint8).tobytes()))
    page.draw(mark.width, 0, 0, -mark.height, mark.x, mark.y + mark.height, "cm")
    page.draw(f"/I{len(page.images) - 1} Do")


def _label(page: Page, mark: Label) -> None:
    text = printable(mark.text)
    (_paint if _painted(text) else _set)(page, mark, text)


def _set(page: Page, mark: Label, text: str) -> None:
    """A line of Helvetica."""
    wide = sum(_width(letter) for letter in text) * mark.size / 1000
    along = {"start": 0.0, "middle": -wide / 2, "end": -wide}[mark.anchor]
    x, y, cos, sin = _turned(mark, along, mark.size * BASELINE)
    written = text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(")
    letters = written.replace(b")", b"\\)").decode("latin-1")
    fill = _colour(mark.fill)
    bold = f"{fill} RG {_n(mark.size * BOLD)} w 2 Tr" if mark.bold else ""
    page.draw(fill, "rg", bold, "BT /F", mark.size, "Tf", cos, sin, sin, -cos, x, y,
              f"Tm ({letters}) Tj ET")  # fmt: skip


def _paint(page: Page, mark: Label, text: str) -> None:
    """Letters by how much of each dot they cover."""
    size = mark.size * DOTS
    parts, wide = lettering.placed(text, size)
    start = {"start": 0.0, "middle": -wide / 2, "end": -wide}[mark.anchor]
    drop = lettering.MIDDLE * size / lettering.EM
    for letter, at in parts:
        drawn = lettering.coverage(letter, size, mark.angle)
        if drawn is None:
            continue
        covered, left, top = drawn
        x, y, _, _ = _turned(mark, (start + at) / DOTS, drop / DOTS)
        rows, columns = covered.shape
        mask = np.rint(np.clip(covered, 0.0, 1.0) * 255).astype(np.uint8).tobytes()
        fill = bytes(rgb(mark.fill))
        head = b"/ColorSpace /DeviceRGB /BitsPerComponent 8" + _size(1, 1)
        soft = b"/ColorSpace /DeviceGray /BitsPerComponent 8" + _size(columns, rows)
        page.images.append((head, fill, soft, mask))
        high, across = rows / DOTS, columns / DOTS
        page.draw("q", across, 0, 0, -high, x + left / DOTS, y + top / DOTS + high, "cm",
                  f"/I{len(page.images) - 1} Do Q")  # fmt: skip


def _stroke(page: Page, mark: Stroke) -> None:
    page.opacity(mark.opacity)
    page.draw(_colour(mark.colour), "RG 1 J", mark.width, "w", mark.x0, mark.y0, "m")
    middle = (mark.x0 + mark.x1) / 2
    if mark.bent:
        page.draw(middle, mark.y0, middle, mark.y1, mark.x1, mark.y1, "c S")
    else:
        page.draw(mark.x1, mark.y1, "l S")


def _trail(page: Page, mark: Trail) -> None:
    if len(mark.points) < 2:
        return
    page.opacity(mark.opacity)
    dash = f"[{_n(mark.dash[0])} {_n(mark.dash[1])}] 0 d" if mark.dash else ""
    page.draw(_colour(mark.colour), "RG 1 j", mark.width, "w", dash)
    for n, (x, y) in enumerate(mark.points):
        page.draw(x, y, "l" if n else "m")
    page.draw("S")


_DRAW: dict[type, Any] = {
    Box: _box, Pixels: _pixels, Label: _label, Stroke: _stroke, Trail: _trail
}  # fmt: skip


def _file(picture: Picture, page: Page) -> bytes:
    """The objects one after the other, and where each begins."""
    title = picture.description.encode("utf-16-be").hex().upper()
    width, height = (_n(side * POINTS) for side in (picture.width, picture.height))
    named, images, number = [], [], 7
    for n, (head, data, *soft) in enumerate(page.images):
        named.append(f"/I{n} {number} 0 R")
        if soft:
            images += [_stream(soft[1], b"/Type /XObject /Subtype /Image " + soft[0])]
            named[-1] = f"/I{n} {number + 1} 0 R"
            head += f" /SMask {number} 0 R".encode()
            number += 1
        images.append(_stream(data, b"/Type /XObject /Subtype /Image " + head))
        number += 1
    clear = " ".join(f"/G{n} << /CA {_n(value)} >>" for n, value in enumerate(page.opacities))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Contents 4 0 R /Resources "
        f"<< /Font << /F 5 0 R >> /XObject << {' '.join(named)} >> /ExtGState << {clear} >> >> >>"
        .encode(),
        _stream("\n".join(page.shown).encode("latin-1")),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        f"<< /Title <FEFF{title}> /Producer (limelight) >>".encode(),
        *images,
    ]  # fmt: skip
    made, places = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", []
    for n, body in enumerate(objects, 1):
        places.append(len(made))
        made += f"{n} 0 obj\n".encode() + body + b"\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = (f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n"
           f"<< /Size {len(objects) + 1} /Root 1 0 R /Info 6 0 R >>\nstartxref\n{len(made)}\n"
           f"%%EOF\n")  # fmt: skip
    return made + end.encode()


def _stream(data: bytes, head: bytes = b"") -> bytes:
    packed = zlib.compress(data, 9)
    length = f" /Filter /FlateDecode /Length {len(packed)} >>".encode()
    return b"<< " + head + length + b"\nstream\n" + packed + b"\nendstream"


def _size(width: int, height: int) -> bytes:
    return f" /Width {width} /Height {height}".encode()


def _turned(mark: Label, along: float, down: float) -> tuple[float, float, float, float]:
    """The point so far along a label's line and below it, and the cosine and sine of its angle."""
    turn = math.radians(mark.angle)
    cos, sin = math.cos(turn), math.sin(turn)
    return mark.x + along * cos - down * sin, mark.y + along * sin + down * cos, cos, sin


def _painted(text: str) -> bool:
    """Whether a text has letters that Helvetica's encoding lacks."""
    return any(_width(letter) == 0 for letter in text)


def _width(letter: str) -> int:
    """In thousandths of the size; an accent adds nothing, and 0 is a letter that is not there."""
    if letter not in WIDTHS and letter.encode("cp1252", "ignore"):
        letter = unicodedata.normalize("NFKD", letter)[0]
    return WIDTHS.get(letter, 0)


def _colour(name: str) -> str:
    return " ".join(_n(part / 255) for part in rgb(name))


def _n(number: float) -> str:
    """A number without needless digits."""
    return f"{number:.4f}".rstrip("0").rstrip(".")
