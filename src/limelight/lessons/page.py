"""The lessons as pages: one file, or a folder that any web host can serve."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from limelight.errors import FileError
from limelight.lessons.data import PARTS, lessons_data
from limelight.report.page import alone, built
from limelight.texts import known, translate
from limelight.views.bundle import for_page
from limelight.writing.files import as_path, whole

TITLE = "Attention, with the lights on"
HOME = "index.html"  # of a site


def lessons(part: str | None = None, *, language: str = "en", **state: Any) -> str:
    """The lessons as one HTML page, all parts or one; `state` is what that part opens on.

    What a part calls its settings stands in its address: lessons("lab", d_k=64, scaled=False). The
    page holds every language and opens in this one.
    """
    data = _data(part, state, language=language)
    title = translate(TITLE, language)
    return alone(title, built("lessons.js"), built("lessons.css"), data, language)


def write_lessons(
    path: str | os.PathLike[str], part: str | None = None, *, language: str = "en", **state: Any
) -> int:
    """lessons() into a file, whole or not at all; gives its bytes."""
    page = lessons(part, language=language, **state).encode()
    with whole(path) as file:
        file.write(page)
    return len(page)


def write_site(folder: str | os.PathLike[str], *, language: str = "en") -> list[Path]:
    """Static pages: index.html, a page for each part, the script and the style sheet they share.

    They open in `language`; whoever reads them can choose another.
    """
    known(language)
    target = as_path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{target}: cannot be written: {error.strerror or error}") from None
    made = {"lessons.js": built("lessons.js"), "lessons.css": built("lessons.css")}
    made[HOME] = _linked(None, language)
    made |= {f"{part}.html": _linked(part, language) for part in PARTS}
    for name, text in made.items():
        with whole(target / name) as file:
            file.write(text.encode())
    return [target / name for name in made]


def _data(
    part: str | None,
    state: Mapping[str, Any] | None = None,
    home: str | None = None,
    language: str = "en",
) -> str:
    data = asdict(lessons_data(part, state, home, language))
    return for_page(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def _linked(part: str | None, language: str) -> str:
    """A page of the site: its own data, and the files beside it."""
    unscripted = translate("The lessons draw themselves: allow scripts to see them.", language)
    data = _data(part, home=HOME, language=language)
    return (
        "<!doctype html>\n"
        f'<html lang="{language}"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{translate(TITLE, language)}</title>\n"
        f'<link rel="icon" href="data:image/svg+xml,{quote(built("favicon.svg"))}">\n'
        '<link rel="stylesheet" href="lessons.css"></head>\n'
        '<body><div id="app"></div>\n'
        f"<noscript>{unscripted}</noscript>\n"
        f'<script type="application/json" id="limelight-data">{data}</script>\n'
        '<script src="lessons.js"></script></body></html>\n'
    )
