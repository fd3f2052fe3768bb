"""The report of a comparison: drawings alone, in one file without a script.

All heads by how much they changed; then, for those that changed most, the map of either capture and
what lies between the two, on the tokens that both have.
"""

from __future__ import annotations

import os
from html import escape
from typing import Any

import numpy as np

from limelight.capture import Capture, Comparison
from limelight.capture.comparison import Change
from limelight.pictures import heatmap
from limelight.pictures.tokens import printable
from limelight.report.page import themes
from limelight.writing.files import whole
from limelight.writing.numbers import percent
from limelight.writing.tables import lit

BINS = 48  # a side of a map
HEADS = 10
LOOK: dict[str, Any] = {"high": 1.0, "theme": "auto"}  # of a map

_STYLE = """
body{margin:0 auto;max-width:1180px;padding:28px 20px 60px;background:var(--surface);
color:var(--ink);font:16px/1.55 system-ui,sans-serif}
h1{font-size:26px;margin:0 0 4px} h2{font-size:19px;margin:44px 0 2px}
p{margin:4px 0 12px;color:var(--soft);overflow-wrap:anywhere} .wide{overflow-x:auto}
table{border-collapse:separate;border-spacing:2px;font-size:13px}
th{font-weight:500;color:var(--soft);padding:1px 6px;text-align:right}
td{padding:2px 6px;border-radius:3px;min-width:34px}
.maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(340px,1fr));gap:10px}
figure{margin:0;min-width:0} figcaption{font-size:14px;color:var(--soft);padding:4px 2px}
svg{width:100%;height:auto;display:block} section{break-inside:avoid}
"""


def comparison_page(
    found: Comparison, *, names: tuple[str, str] = ("first", "second"), most: int = HEADS
) -> str:
    """The report as HTML: `most` heads with their maps."""
    changed = [one for one in found.strongest(most) if one.change > 0]
    said = "" if changed else "<p>No head changed.</p>"
    title = " and ".join(escape(printable(name)) for name in names)
    texts = "".join(_text(name, capture) for name, capture
                    in zip(names, (found.first, found.second), strict=True))  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title} · limelight comparison</title>\n"
        f"<style>{themes()}{_STYLE}</style></head>\n<body>"
        f"<h1>{title}</h1><p>{escape(found.title)}.</p>{texts}"
        "<h2>How much each head changed</h2><p>The mean share of a row’s attention that moved, "
        "from 0 to 1: layers down, heads across.</p>"
        f'<div class="wide">{_grid(found)}</div>{said}'
        + "".join(_head(found, one, names) for one in changed)
        + "</body></html>\n"
    )


def write_comparison(
    found: Comparison, path: str | os.PathLike[str], *,
    names: tuple[str, str] = ("first", "second"), most: int = HEADS,
) -> None:  # fmt: skip
    """comparison_page() into a file, whole or not at all."""
    page = comparison_page(found, names=names, most=most).encode()
    with whole(path) as file:
        file.write(page)


def _text(name: str, capture: Capture) -> str:
    said = capture.source.get("text")
    words = printable(said[:300]) if isinstance(said, str) else "no text"
    return f"<p><b>{escape(printable(name))}</b>: {escape(words)}</p>"


def _grid(found: Comparison) -> str:
    top = float(np.nanmax(found.change, initial=0.0)) or 1.0
    heading = "".join(f"<th>{head}</th>" for head in range(found.change.shape[1]))
    rows = "".join(
        f"<tr><th>{layer}</th>" + "".join(_cell(x, top) for x in row) + "</tr>"
        for layer, row in zip(found.layers, found.change, strict=True)
    )
    return f"<table><thead><tr><th></th>{heading}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(change: float, top: float) -> str:
    return "<td></td>" if np.isnan(change) else lit(f"{change:.2f}", change / top)


def _head(found: Comparison, one: Change, names: tuple[str, str]) -> str:
    """One head: its map in the first, in the second, and what lies between."""
    pair = found.pairs[one.site]
    less = found.difference(one.site, one.head, shape=(BINS, BINS))
    maps = []
    for side, name in zip((pair.first, pair.second), names, strict=True):
        size = (min(BINS, side.queries), min(BINS, side.keys))
        seen = side.heatmap(size, head=one.head)
        drawn = heatmap(
            seen, tokens=side.labels("key"), query_tokens=side.labels("query"), low=0.0, **LOOK
        ).svg()
        maps.append((printable(name), drawn))
    between = f"{printable(names[1])} less {printable(names[0])}"
    maps.append((between, less.svg(low=-1.0, **LOOK)))
    figures = "".join(
        f"<figure><figcaption>{escape(said)}</figcaption>{drawn}</figure>" for said, drawn in maps
    )
    at = " / ".join(dict.fromkeys(printable(token.strip() or token) for token in one.tokens))
    return (
        f"<section><h2>Layer {one.layer}, head {one.head}</h2><p>{percent(one.change)} of a row’s "
        f"attention moved on average; most, {percent(one.largest)}, at “{escape(at)}”.</p>"
        f'<div class="maps">{figures}</div></section>'
    )
