"""The report of a survey: all heads, and each of them by a click, in one file without a script.

A head's section is shown while the page's address names it: the browser does that by itself.
"""

from __future__ import annotations

import base64
import os
from html import escape
from typing import Any

import numpy as np

from limelight.capture.health import TITLES, cell
from limelight.pictures.tokens import printable, visible
from limelight.report.page import themes
from limelight.survey import Survey
from limelight.views.facts import words
from limelight.views.palette import THEME, Scale
from limelight.writing.files import whole
from limelight.writing.numbers import counted, percent
from limelight.writing.png import encode
from limelight.writing.tables import lit

FIGURES = ("max_prob", "entropy", "saturated")
SHOWN = 4  # kinds with their examples
TOKENS = 8
WIDE = 240  # of a bar for 1, in dots

_STYLE = """
body{margin:0 auto;max-width:1100px;padding:28px 20px 80px;background:var(--surface);
color:var(--ink);font:16px/1.55 system-ui,sans-serif}
h1{font-size:26px;margin:0 0 2px} h2{font-size:20px;margin:36px 0 6px}
h3{font-size:15px;margin:18px 0 4px} p{margin:2px 0 10px;color:var(--soft)}
a{color:inherit} .wide{overflow-x:auto} table{border-spacing:2px;font-size:13px}
th{font-weight:500;color:var(--soft);text-align:left;padding:1px 8px 1px 0;vertical-align:top}
td{padding:2px 6px;border-radius:3px;vertical-align:top} .grid th{text-align:right}
.grid td a{text-decoration:none;display:block} .names td{padding:2px 10px 2px 0}
summary{cursor:pointer;color:var(--soft);margin:6px 0}
.head{display:none;border-top:1px solid var(--line);margin-top:24px} .head:target{display:block}
.parts{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:8px 36px}
.parts th,.parts td{white-space:nowrap}
.map img{width:min(300px,100%);aspect-ratio:1;image-rendering:pixelated;display:block;
border:1px solid var(--line)}
blockquote{margin:4px 0 10px;padding-left:12px;border-left:3px solid var(--light);
overflow-wrap:anywhere;white-space:pre-wrap;font-size:14px}
small{color:var(--soft)} svg{display:block;max-width:100%} rect{fill:var(--light)}
line{stroke:var(--ink)} .tick{stroke:var(--soft);stroke-dasharray:2 2}
"""


def survey_page(found: Survey, *, title: str | None = None) -> str:
    """The report as HTML."""
    name = title or str(found.source.get("model", "Survey"))
    size = (f"{counted(found.texts, 'text')} of {found.tokens:,} tokens in all, "
            f"{counted(sum(found.counts), 'head')} in {counted(len(found.sites), 'layer')}"
            f"{f', {found.cut:,} texts cut' if found.cut else ''}.")  # fmt: skip
    tables = found.health()
    grids = "".join(
        f"<details{' open' if at == 0 else ''}><summary>{escape(TITLES[figure])}</summary>"
        f'<div class="wide">{_grid(found, tables, figure)}</div></details>'
        for at, figure in enumerate(FIGURES)
    )
    every = [(at, head) for at, heads in enumerate(found.counts) for head in range(heads)]
    sections = "".join(_head(found, tables, *place) for place in every)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(printable(name))} · limelight survey</title>\n"
        f"<style>{themes()}{_STYLE}</style></head>\n<body>"
        f"<h1>{escape(printable(name))}</h1><p>{escape(size)}</p>"
        f'<h2>Heads of known kinds</h2><div class="wide">{_kinds(found)}</div>'
        "<h2>Every head</h2><p>Layers down, heads across. A click shows what a head does.</p>"
        f"{grids}{sections}</body></html>\n"
    )


def write_survey(found: Survey, path: str | os.PathLike[str], *, title: str | None = None) -> int:
    """survey_page() into a file, whole or not at all; how many bytes that are."""
    page = survey_page(found, title=title).encode()
    with whole(path) as file:
        file.write(page)
    return len(page)


def _name(found: Survey, at: int, head: int) -> str:
    alone = found.layers.count(found.layers[at]) == 1
    return f"L{found.layers[at] if alone else f'{found.layers[at]}.{at}'}H{head}"


def _kinds(found: Survey) -> str:
    rows = []
    for kind in found.known:
        of_it = found.heads.is_kind(kind.name)
        best = [(at, head) for at, head, _ in found.heads.best(kind.name, 12) if of_it[at, head]]
        links = ", ".join(
            f'<a href="#{_name(found, at, head)}">{_name(found, at, head)}</a> '
            f"<small>{_score(found, kind.name, at, head)}</small>"
            for at, head in best
        )
        more = int(of_it.sum()) - len(best)
        links += f" and {more:,} more" if more else ""
        rows.append(f"<tr><th>{escape(words(kind.name))}</th><td>{escape(kind.meaning)}</td>"
                    f"<td>{links or 'none'}</td></tr>")  # fmt: skip
    return f'<table class="names">{"".join(rows)}</table>'


def _score(found: Survey, kind: str, at: int, head: int) -> str:
    score, error = found.heads.scores[kind][at, head], found.heads.error(kind, at, head)
    return f"{score:.2f}" if error is None else f"{score:.2f} ± {error:.2f}"


def _grid(found: Survey, tables: Any, figure: str) -> str:
    values, verdict = tables[figure], tables.verdict
    known = np.nan_to_num(np.where(np.isinf(values), np.nan, values))
    top = float(np.abs(known).max(initial=0.0)) or 1.0
    heading = "".join(f"<th>{head}</th>" for head in range(values.shape[1]))
    rows = []
    for at, layer in enumerate(tables.names()):
        cells = []
        for head in range(found.counts[at]):
            kinds = ", ".join(words(kind) for kind in found.heads.kinds(at, head))
            said = lit("@", min(1.0, abs(known[at, head]) / top), kinds or str(verdict[at, head]))
            number = escape(cell(figure, values[at, head]))
            cells.append(said.replace("@", f'<a href="#{_name(found, at, head)}">{number}</a>'))
        rows.append(f"<tr><th>{escape(layer)}</th>{''.join(cells)}</tr>")
    return (f'<table class="grid"><thead><tr><th></th>{heading}</tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table>")  # fmt: skip


def _head(found: Survey, tables: Any, at: int, head: int) -> str:
    site, name = found.sites[at], _name(found, at, head)
    figures = " · ".join(
        f"{escape(TITLES[figure])} {escape(cell(figure, tables[figure][at, head]))}"
        for figure in ("max_prob", "entropy", "effective_keys", "saturated", "max_logit")
    )
    named = ", ".join(words(kind) for kind in found.heads.kinds(at, head)) or "no known kind"
    return (
        f'<section class="head" id="{name}"><h2>Layer {found.layers[at]}, head {head}: '
        f"{escape(named)}</h2><p>{figures}</p>"
        f'<div class="parts"><div><h3>Kinds, with standard errors</h3>{_bars(found, at, head)}'
        f"</div><div><h3>Distance from query to key</h3>{_distances(found, site, head)}</div>"
        f'<div class="map"><h3>Mean pattern by place in the text</h3>{_map(found, site, head)}'
        f"</div><div><h3>Tokens that it gives most to</h3>{_tokens(found, site, head)}"
        f"<h3>Rows by their largest weight</h3>{_histogram(found, site, head)}</div></div>"
        f"{_examples(found, at, head)}</section>"
    )


def _bars(found: Survey, at: int, head: int) -> str:
    """Each kind's score as a bar, its error as a line, what even attention would give dashed."""
    rows = []
    for kind in found.known:
        score, chance = (float(table[kind.name][at, head])
                         for table in (found.heads.scores, found.heads.chance))  # fmt: skip
        if np.isnan(score):
            continue
        error = found.heads.error(kind.name, at, head) or 0.0
        low, high = (WIDE * min(1.0, max(0.0, score + sign * error)) for sign in (-1, 1))
        even = WIDE * min(1.0, chance)
        rows.append(
            f"<tr><th>{escape(words(kind.name))}</th><td>"
            f'<svg width="{WIDE}" height="14" viewBox="0 0 {WIDE} 14" aria-hidden="true">'
            f'<rect x="0" y="2" width="{WIDE * score:.1f}" height="10"/>'
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="7" y2="7" stroke-width="2"/>'
            f'<line class="tick" x1="{even:.1f}" x2="{even:.1f}" y1="0" y2="14"/></svg></td>'
            f"<td>{_score(found, kind.name, at, head)}</td></tr>"
        )
    return f"<table>{''.join(rows)}</table>"


def _distances(found: Survey, site: str, head: int) -> str:
    rows = []
    for one in found.distances(site, head):
        low, high = sorted((abs(one["from"]), abs(one["to"])))
        far = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        side = " ahead" if one["to"] < 0 else ""
        if one["share"] >= 0.005:
            rows.append(
                f"<tr><th>{far}{side}</th><td><svg width='{WIDE}' height='12' "
                f"aria-hidden='true'><rect x='0' y='1' height='10' "
                f"width='{WIDE * min(1.0, one['share']):.1f}'/></svg></td>"
                f"<td>{percent(one['share'])}</td></tr>"
            )
    return f"<table>{''.join(rows)}</table>"


def _map(found: Survey, site: str, head: int) -> str:
    names, shares = found.places(site, head)
    scale = Scale(0.0, max(1e-9, float(np.nanmax(shares, initial=0.0))))
    shown = np.where(np.isnan(shares), np.nan, shares)
    sources = {theme: base64.b64encode(encode(scale.paint(shown, theme))).decode()
               for theme in THEME}  # fmt: skip
    words_of = f"queries down, keys across, places {names[0]} to {names[-1]}"
    return (
        '<picture><source media="screen and (prefers-color-scheme: dark)" '
        f'srcset="data:image/png;base64,{sources["dark"]}">'
        f'<img src="data:image/png;base64,{sources["light"]}" alt="{words_of}"></picture>'
        f"<small>{words_of}; the brightest is {percent(scale.high)} of a row</small>"
    )


def _tokens(found: Survey, site: str, head: int) -> str:
    rows = "".join(
        f"<tr><th>{escape(visible(one['token'], 24))}</th>"
        f"<td>{percent(one['share'], 1)} of all</td><td>{one['mean']:.2f} each, seen "
        f"{'once' if one['seen'] == 1 else counted(one['seen'], 'time')}</td></tr>"
        for one in found.received(site, head, TOKENS)
    )
    return f"<table>{rows}</table>"


def _histogram(found: Survey, site: str, head: int) -> str:
    counts = found.histogram("max_prob", site, head)
    top, step = max(1, int(counts.max(initial=0))), WIDE / len(counts)
    bars = "".join(
        f'<rect x="{n * step:.1f}" y="{48 - 46 * count / top:.1f}" width="{step - 1:.1f}" '
        f'height="{46 * count / top:.1f}"/>'
        for n, count in enumerate(counts.tolist())
    )
    return (f'<svg width="{WIDE}" height="50" aria-hidden="true">{bars}<line x1="0" x2="{WIDE}" '
            f'y1="49" y2="49"/></svg><small>from 0 to 1</small>')  # fmt: skip


def _examples(found: Survey, at: int, head: int) -> str:
    """Texts of the kinds that this head does most of, beyond what even attention would."""
    scores, chance, parts = found.heads.scores, found.heads.chance, []
    over = {kind.name: float(scores[kind.name][at, head] - chance[kind.name][at, head])
            for kind in found.known if kind.name != "uniform"}  # fmt: skip
    best = sorted((name for name, gap in over.items() if gap > 0), key=lambda name: -over[name])
    for kind in best[:SHOWN]:
        texts = "".join(
            f"<blockquote>{escape(printable(passage.text))}<br><small>"
            f"{escape(printable(passage.name))}: {score:.2f}</small></blockquote>"
            for score, passage in found.examples(found.sites[at], head, kind)
        )
        if texts:
            parts.append(f"<h3>Where it is strongest: {escape(words(kind))}</h3>{texts}")
    return "".join(parts)
