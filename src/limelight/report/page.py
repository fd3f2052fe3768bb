"""The page of a report: the built view and the data, in one file that asks nobody for anything.

The data stand in a script element of type application/json, which browsers do not run; every '<' in
it is written as an escape, so that no text can end the element. The policy in the page allows
exactly the one script and the one style sheet that it holds, by their digests.
"""

from __future__ import annotations

import base64
import hashlib
import os
from html import escape
from pathlib import Path

from limelight.capture import Capture
from limelight.errors import ArgumentError, FileError
from limelight.report.bundle import Progress, bundle

MEGABYTE = 1_000_000
BUDGET = 10 * MEGABYTE


def report(
    capture: Capture,
    path: str | os.PathLike[str] | None = None,
    *,
    budget: int = BUDGET,
    precision: str = "float16",
    batch: int = 0,
    title: str | None = None,
    progress: Progress | None = None,
) -> str:
    """The report's HTML, of at most `budget` bytes; written to `path` where one is given.

    precision  of the vectors that cells are computed from: "float16" or "float32"
    batch      the entry that is shown, where the capture has several
    """
    script, style = built("report.js"), built("report.css")
    frame = len(_page("", script, style, "").encode())
    room = budget - frame - 4096
    if room <= 0:
        raise ArgumentError(f"budget={budget}: the page alone takes {(frame + 4096) / 1e6:.1f} MB")
    made = bundle(capture, budget=room, precision=precision, batch=batch, title=title,
                  labels=kinds(capture, batch), progress=progress)  # fmt: skip
    html = _page(made.data["title"], script, style, made.to_json())
    if path is not None:
        _write(Path(path), html)
    return html


def kinds(capture: Capture, batch: int = 0) -> dict[tuple[int, int], list[str]]:
    """The known kinds of heads, by (site, head)."""
    return {}


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
    script, style = _inert(script, "script"), _inert(style, "style")
    policy = "; ".join([
        "default-src 'none'", f"script-src '{_digest(script)}'", f"style-src '{_digest(style)}'",
        "img-src data: blob:", "base-uri 'none'", "form-action 'none'",
    ])  # fmt: skip
    shown = escape("".join(c for c in title if c.isprintable())) or "Capture"
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{shown} · limelight report</title>\n"
        f"<style>{style}</style></head>\n"
        '<body><div id="app"></div>\n'
        "<noscript>This report draws itself: allow the script it holds to see it.</noscript>\n"
        f'<script type="application/json" id="limelight-data">{_safe(data)}</script>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _safe(data: str) -> str:
    """JSON that cannot end its element, whatever the texts in it hold."""
    return data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _inert(text: str, element: str) -> str:
    """Our own built code, checked not to end the element it is put in."""
    if f"</{element}" in text.lower() or "<!--" in text:
        raise FileError(
            f"the built view holds '</{element}' and cannot be put in a page: rebuild it"
        )
    return text


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _write(path: Path, html: str) -> None:
    half = path.with_name(f".{path.name}.part")
    try:
        half.write_text(html, encoding="utf-8")
        os.replace(half, path)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        half.unlink(missing_ok=True)
