"""Letters of other scripts for PNG pictures, from the fonts of this machine; Pillow draws them."""

from __future__ import annotations

import math
import os
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KINDS = (".ttf", ".otf", ".ttc")
PLAIN = ("notosans", "dejavusans", "arialunicode", "liberationsans", "sans")  # looked at first
NO_LETTER = "\U0010ffff"  # what no font has: drawn as the font's own box
PROBE = 32  # pixels


def missing() -> str:
    """Why no letter of another script can be drawn here, or nothing."""
    try:
        from PIL import features
    except ImportError:
        return "Pillow, which draws them, is not installed: pip install pillow"
    if not features.check("freetype2"):
        return "the Pillow here was built without FreeType"
    return "" if _files() else "there is no font on this machine"


@lru_cache(maxsize=4096)
def font_of(text: str) -> Path | None:
    """The first font that has every letter of the text, and can shape it."""
    if missing() or (_turned(text) and not _shapes()):
        return None
    letters = {c for c in text if unicodedata.category(c) not in ("Zs", "Cf", "Mn")} or set(text)
    return next((path for path in _files() if all(_has(path, c) for c in sorted(letters))), None)


@lru_cache(maxsize=4096)
def width(text: str) -> float:
    """How wide a text is in its font, in ems."""
    return float(_font(font_of(text), 100.0).getlength(text)) / 100.0


@lru_cache(maxsize=2048)
def coverage(text: str, size: float, angle: float) -> tuple[NDArray[np.float32], int, int] | None:
    """How much of each pixel a text covers, and where its corner is from its start on the baseline.

    `size` in pixels, `angle` in degrees clockwise.
    """
    from PIL import Image, ImageDraw

    font = _font(font_of(text), size)
    reach = math.ceil(font.getlength(text) + 2 * size)
    page = Image.new("L", (2 * reach, 2 * reach))
    ImageDraw.Draw(page).text((reach, reach), text, 255, font, anchor="ls")
    turned = page.rotate(-angle, Image.Resampling.BICUBIC) if angle else page
    box = turned.getbbox()
    if box is None:
        return None
    covered = np.asarray(turned.crop(box), np.float32) / np.float32(255)
    return covered, box[0] - reach, box[1] - reach


@cache
def _files() -> tuple[Path, ...]:
    """Every font file there is, plain ones of many scripts first."""
    found = {path for folder in _folders() if folder.is_dir()
             for path in folder.rglob("*") if path.suffix.lower() in KINDS}  # fmt: skip

    def rank(path: Path) -> tuple[int, int, str]:
        name = path.stem.lower().replace("-", "").replace(" ", "").removesuffix("regular")
        place = next((n for n, word in enumerate(PLAIN) if name.startswith(word)), len(PLAIN))
        return place, len(name), str(path)

    return tuple(sorted(found, key=rank))


def _folders() -> Iterator[Path]:
    home = Path.home()
    if sys.platform == "darwin":
        yield from (Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts")
    elif sys.platform == "win32":
        yield Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts"
    else:
        yield from (Path("/usr/share/fonts"), Path("/usr/local/share/fonts"))
        yield from (home / ".local/share/fonts", home / ".fonts")


@lru_cache(maxsize=512)
def _font(path: Path | None, size: float) -> Any:
    from PIL import ImageFont

    return ImageFont.truetype(str(path), size)


@lru_cache(maxsize=1 << 15)
def _has(path: Path, letter: str) -> bool:
    """Whether a font has a letter: it does not draw it as its own box."""
    try:
        font = _font(path, PROBE)
        drawn, box = (font.getmask(text) for text in (letter, NO_LETTER))
    except (OSError, ValueError):  # a font of colour bitmaps alone, or a damaged one
        return False
    return bool(drawn.getbbox()) and (drawn.size != box.size or bytes(drawn) != bytes(box))


def _turned(text: str) -> bool:
    return any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in text)


@cache
def _shapes() -> bool:
    """Whether Pillow can join letters and set them from right to left."""
    from PIL import features

    return bool(features.check("raqm"))
