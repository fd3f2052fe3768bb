"""Pictures as SVG text: self-contained, escaped, with hover texts and a description."""

from __future__ import annotations

import base64
from html import escape as markup
from typing import Any

from limelight.pictures.scene import Box, Label, Picture, Pixels, Stroke, Trail
from limelight.pictures.tokens import isolated, printable
from limelight.writing.png import encode

FONT = (
    "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, "
    "'Noto Sans', sans-serif"
)
BASELINE = 0.35  # of the size, from the middle of a line down to its baseline


# The signs by which notebooks and documentation say that they are dark, or light, whatever the
# system is; where there are none, the system decides.
_NIGHT = ":is([data-jp-theme-light=false],[data-theme=dark],[theme=dark],.vscode-dark)"
_DAY = ":is([data-jp-theme-light=true],[data-theme=light],[theme=light],.vscode-light)"
_ONE_OF_TWO = (
    "<style>@media screen and (prefers-color-scheme:dark)"
    "{.by-day{display:none}.by-night{display:inline}}"
    f"{_NIGHT} .by-day,{_DAY} .by-night{{display:none}}"
    f"{_DAY} .by-day,{_NIGHT} .by-night{{display:inline}}</style>"
)


def write(picture: Picture) -> str:
    w, h = _n(picture.width), _n(picture.height)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" '
        f'role="img" font-family="{FONT}" style="max-width:100%;height:auto">',
        f"<title>{escape(picture.description)}</title>",
    ]
    if picture.dark is None:
        return "\n".join([*lines, *_drawn(picture), "</svg>"])
    day, night = ("\n".join(_drawn(one)) for one in (picture, picture.dark))
    both = f'<g class="by-day">{day}</g>', f'<g class="by-night" display="none">{night}</g>'
    return "\n".join([*lines, _ONE_OF_TWO, *both, "</svg>"])


def _drawn(picture: Picture) -> list[str]:
    w, h = _n(picture.width), _n(picture.height)
    surface = f'<rect width="{w}" height="{h}" fill="{picture.surface}"/>'
    return [surface, *(_WRITE[type(mark)](mark) for mark in picture.marks)]


def _box(mark: Box) -> str:
    edge = f' stroke="{mark.edge}"' if mark.edge else ""
    head = (
        f'<rect x="{_n(mark.x)}" y="{_n(mark.y)}" width="{_n(mark.width)}" '
        f'height="{_n(mark.height)}" fill="{mark.fill}"{edge}'
    )
    return f"{head}><title>{escape(mark.tip)}</title></rect>" if mark.tip else f"{head}/>"


def _pixels(mark: Pixels) -> str:
    data = base64.b64encode(encode(mark.colours)).decode()
    style = "" if mark.smooth else ' style="image-rendering:pixelated"'
    return (
        f'<image x="{_n(mark.x)}" y="{_n(mark.y)}" width="{_n(mark.width)}" '
        f'height="{_n(mark.height)}" preserveAspectRatio="none"{style} '
        f'href="data:image/png;base64,{data}"/>'
    )


def _label(mark: Label) -> str:
    x, y = _n(mark.x), _n(mark.y)
    anchor = "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
    turn = f' transform="rotate({_n(mark.angle)} {x} {y})"' if mark.angle else ""
    bold = ' font-weight="600"' if mark.bold else ""
    tip = f"<title>{escape(mark.tip)}</title>" if mark.tip else ""
    return (
        f'<text x="{x}" y="{y}" dy="{_n(mark.size * BASELINE)}" font-size="{_n(mark.size)}" '
        f'fill="{mark.fill}"{anchor}{turn}{bold} style="unicode-bidi:isolate">{tip}'
        f"{isolated(escape(mark.text))}</text>"
    )


def _stroke(mark: Stroke) -> str:
    middle = (mark.x0 + mark.x1) / 2
    start, stop = f"{_n(mark.x0)} {_n(mark.y0)}", f"{_n(mark.x1)} {_n(mark.y1)}"
    bend = f"C{_n(middle)} {_n(mark.y0)} {_n(middle)} {_n(mark.y1)} " if mark.bent else "L"
    opacity = "" if mark.opacity >= 1 else f' stroke-opacity="{_n(mark.opacity)}"'
    head = (
        f'<path d="M{start}{bend}{stop}" fill="none" stroke="{mark.colour}" '
        f'stroke-width="{_n(mark.width)}" stroke-linecap="round"{opacity}'
    )
    return f"{head}><title>{escape(mark.tip)}</title></path>" if mark.tip else f"{head}/>"


def _trail(mark: Trail) -> str:
    points = " ".join(f"{_n(x)},{_n(y)}" for x, y in mark.points)
    opacity = "" if mark.opacity >= 1 else f' stroke-opacity="{_n(mark.opacity)}"'
    dash = f' stroke-dasharray="{_n(mark.dash[0])} {_n(mark.dash[1])}"' if mark.dash else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{mark.colour}" '
        f'stroke-width="{_n(mark.width)}" stroke-linejoin="round"{opacity}{dash}/>'
    )


_WRITE: dict[type, Any] = {
    Box: _box, Pixels: _pixels, Label: _label, Stroke: _stroke, Trail: _trail
}  # fmt: skip


def escape(text: str) -> str:
    """Text that XML takes: no markup, no control characters."""
    return markup(printable(text))


def _n(number: float) -> str:
    """A coordinate without needless digits."""
    return f"{number:.2f}".rstrip("0").rstrip(".")
