"""One page that asks nobody for anything: the built view and the data. A report is such a page.

The data stand in a script element of type application/json, which browsers do not run; every '<' in
it is written as an escape, so that no text can end the element. The policy in the page allows
exactly the one script and the one style sheet that it holds, by their digests.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from limelight.capture import Capture
from limelight.errors import FileError
from limelight.live.effects import Effects
from limelight.texts import translate
from limelight.views.bundle import Progress, bundle
from limelight.views.facts import kinds
from limelight.views.palette import theme_of
from limelight.writing.files import whole

MEGABYTE = 1_000_000
BUDGET = 10 * MEGABYTE
TITLE_ROOM = 4096  # for the title, escaped


@dataclass(frozen=True)
class Written:
    """What went into a report: its bytes, its heads, and how many of them with their vectors."""

    html: str
    size: int
    heads: int
    complete: int


def report(
    capture: Capture,
    *,
    budget: int = BUDGET,
    precision: str = "float16",
    batch: int = 0,
    title: str | None = None,
    first: Sequence[tuple[int, int]] | None = None,
    effects: Effects | None = None,
    progress: Progress | None = None,
) -> Written:
    """The report as HTML of at most `budget` bytes.

    precision  of the vectors that cells are computed from: "float16" or "float32"
    batch      the entry that is shown, where the capture has several
    first      (layer, head) pairs whose vectors go in before all others
    effects    what each head's absence does, as limelight.live or hf.effects measured it: of heads
               of no known kind, those with the most effect come first
    """
    script, style = built("report.js"), built("report.css")
    frame = len(_page("", script, style, "").encode()) + TITLE_ROOM
    made = bundle(capture, budget=budget, around=frame, precision=precision, batch=batch,
                  title=title, found=kinds(capture, batch), first=first, effects=effects,
                  progress=progress)  # fmt: skip
    html = _page(made.data["title"], script, style, made.to_json())
    return Written(html, len(html.encode()), len(made.data["findings"]), len(made.complete))


def write_report(capture: Capture, path: str | os.PathLike[str], **how: Any) -> Written:
    """report() into a file, whole or not at all."""
    made = report(capture, **how)
    with whole(path) as file:
        file.write(made.html.encode())
    return made


def built(name: str) -> str:
    """A file of the built front-end, from the package."""
    from importlib.resources import files

    found = files("limelight.studio") / "static" / name
    if not found.is_file():
        raise FileError(
            f"{name} was not built: run `make web` in a checkout; a wheel has it inside"
        )
    return found.read_text(encoding="utf-8")


def _page(title: str, script: str, style: str, data: str) -> str:
    shown = "".join(c for c in title if c.isprintable()) or "Capture"
    return alone(f"{shown} · limelight report", script, style, data)


def alone(title: str, script: str, style: str, data: str, language: str = "en") -> str:
    """A page that holds its script, its style sheet and its data, and may load nothing else."""
    unscripted = translate("This page draws itself: allow the script it holds to see it.", language)
    script = _inert(script)
    policy = "; ".join([
        "default-src 'none'", f"script-src '{_digest(script)}'", f"style-src '{_digest(style)}'",
        "img-src data: blob:", "base-uri 'none'", "form-action 'none'",
    ])  # fmt: skip
    return (
        "<!doctype html>\n"
        f'<html lang="{language}"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{style}</style></head>\n"
        '<body><div id="app"></div>\n'
        f"<noscript>{unscripted}</noscript>\n"
        f'<script type="application/json" id="limelight-data">{data}</script>\n'
        f"<script>{script}</script></body></html>\n"
    )


def themes() -> str:
    """The colours of a page without a script: as the reader's system has them, light on paper."""
    light, dark = (
        ";".join(f"--{part}:{getattr(theme_of(theme), part)}"
                 for part in ("surface", "ink", "soft", "line", "light"))
        for theme in ("light", "dark")
    )  # fmt: skip
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        "td{-webkit-print-color-adjust:exact;print-color-adjust:exact}"
    )


def _inert(script: str) -> str:
    """Our own built code, with the texts in it that would end its element escaped as JavaScript."""
    return re.sub(r"<(/script|!--)", r"<\\\1", script, flags=re.IGNORECASE)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
