"""Notebook: traces, heads and captures as widgets that one clicks in (extra `notebook`).

    import limelight.notebook as nb
    nb.show(trace)               every cell's computation
    nb.show(site, head=1)        one head's map, at any length
    nb.show(capture)             all heads, what to look at first first
    nb.show(survey)              all heads over many texts, each by a click
    nb.lesson("lab", d_k=256)    an interactive of the lessons
    nb.show(weights, tokens)     weights of any framework

The view is the studio's own, from the package: nothing is fetched. What the widget holds draws
without a kernel too; while there is one, maps of any length and every cell come from it. Where
anywidget is missing the objects show themselves as plain HTML.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from limelight.arrays import a_type, as_array, index
from limelight.capture import Capture, HealthTables, Site
from limelight.errors import ArgumentError, LimelightError
from limelight.lessons import lessons
from limelight.masks import as_mask
from limelight.report.page import built
from limelight.report.survey import survey_page
from limelight.survey import Survey
from limelight.views.bundle import bundle
from limelight.views.facts import kinds
from limelight.views.looks import cell, lines, strip
from limelight.views.schema import Side
from limelight.views.tiles import tile
from limelight.worked.trace import Trace

BUDGET = 4_000_000  # bytes that a widget leaves in the notebook
MOST_TILE = 1024  # bins a side
MOST_BINS = 256  # bins a side of a map in plain HTML

Showable = Trace | Site | Capture
TALL = 640  # CSS pixels of a survey's page


def show(
    what: Any,
    tokens: Any = (),
    *,
    query_tokens: Any = (),
    head: int | None = None,
    batch: int = 0,
    budget: int = BUDGET,
) -> Any:
    """`what` as a widget, or as plain HTML where anywidget is not installed.

    what          a Trace, a Site, a Capture, or weights of any framework: [queries, keys],
                  [heads, …], [batch, heads, …], or a list of these, one for each layer, such as
                  Transformers' `attentions`
    tokens        texts for the keys of weights, for all entries or one list for each; as people
                  or tokenizers spell them
    query_tokens  those of the queries, where they are others
    head          of a Site or Trace; None shows all of its heads
    batch         the entry of the batch that is shown
    budget        bytes of data kept in the notebook, so that it draws without a kernel
    """
    tokens, query_tokens = (() if given is None else given for given in (tokens, query_tokens))
    if isinstance(what, Survey):
        return Page(what)
    if not isinstance(what, Trace | Site | Capture):
        what = _of_weights(what, tokens, query_tokens)
    elif len(tokens) or len(query_tokens):
        raise ArgumentError(f"tokens name the positions of weights, and {a_type(what)} "
                            f"has its own")  # fmt: skip
    if isinstance(what, Capture):
        batch = what.entry_number(batch)
    held = as_capture(what, head, batch)
    if importlib.util.find_spec("anywidget") is None:
        return Plain(what, held, head, batch)
    return widget(held, batch if isinstance(what, Capture) else 0, budget)


def lesson(part: str, *, height: int = 760, language: str = "en", **state: Any) -> Lesson:
    """A part of the lessons in a frame of its own, in a language; `state` is what it opens on.

    The names are those of the part's address: lesson("lab", d_k=256, scaled=False, keys=8). It runs
    in the page, without a kernel, and stays in the notebook.
    """
    if isinstance(height, bool) or not isinstance(height, int) or height < 1:
        raise ArgumentError(f"height={height!r}: give it in pixels, a whole number ≥ 1")
    return Lesson(lessons(part, language=language, **state), height)


@dataclass(frozen=True, repr=False)
class Lesson:
    """A page of the lessons that a notebook shows in a frame."""

    page: str
    height: int

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escape(self.page)}" title="A lesson of limelight" loading="lazy" '
            f'style="width: 100%; height: {self.height}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Lesson({len(self.page) / 1e6:.2f} MB): a notebook shows it"


def _of_weights(weights: Any, tokens: Any = (), query_tokens: Any = ()) -> Site | Capture:
    """Weights as a site, or those of several layers as a capture."""
    if isinstance(weights, (list, tuple)) and not _numbers(weights):
        sites = [_weighed(f"layer {n}", n, layer, tokens, query_tokens)
                 for n, layer in enumerate(weights)]  # fmt: skip
        if not sites:
            raise ArgumentError("there are no weights to show: the list is empty")
        return Capture(tuple(sites), sites[0].tokens, source={"title": "Weights"})
    return _weighed("weights", 0, weights, tokens, query_tokens)


def _numbers(weights: Any) -> bool:
    """Whether it is one table in plain lists."""
    first = weights
    while isinstance(first, (list, tuple)) and len(first):
        first = first[0]
    return isinstance(first, (int, float))


def _weighed(name: str, layer: int, weights: Any, tokens: Any, query_tokens: Any) -> Site:
    try:
        table = as_array(weights)
        known = table.dtype.kind in "fiu" and 2 <= table.ndim <= 4
    except ValueError:  # rows of different lengths
        known = False
    if not known:
        raise ArgumentError(
            f"{a_type(weights)} cannot be shown: give a Trace, a Site, a Capture, or "
            f"weights as [queries, keys], [heads, queries, keys] or [batch, heads, queries, keys]"
        )
    table = table.reshape((1,) * (4 - table.ndim) + table.shape)
    keys, queries = (_for_all(given, len(table)) for given in (tokens, query_tokens))
    kind = "cross" if len(queries) or table.shape[2] > table.shape[3] else "self"
    return Site.from_weights(name, layer, table, tokens=keys, query_tokens=queries, kind=kind)


def _for_all(tokens: Any, batch: int) -> Any:
    """Texts of one entry for each of the batch."""
    single = len(tokens) and all(isinstance(token, str) for token in tokens)
    return (tuple(tokens),) * batch if single else tokens


def mimebundle(what: Showable | Survey) -> dict[str, Any]:
    """What a notebook displays for `what`: the widget, or plain HTML where anywidget is missing.

    Empty outside a notebook: a terminal has its own repr, and need not wait for more.
    """
    if not _in_notebook():
        return {}
    shown = show(what)
    if isinstance(shown, (Plain, Page)):
        return {"text/plain": repr(what), "text/html": shown._repr_html_()}
    made: Any = shown._repr_mimebundle_()
    data: dict[str, Any] = made[0] if isinstance(made, tuple) else made
    return {**data, "text/plain": repr(what)}


def _in_notebook() -> bool:
    """Whether this is a kernel that a notebook talks to."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Page:
    """A survey's report in a frame of its own: a click on a head shows what it does."""

    def __init__(self, what: Survey) -> None:
        self._what = what

    def _repr_html_(self) -> str:
        page = escape(survey_page(self._what), quote=True)
        return (f'<iframe sandbox srcdoc="{page}" style="width:100%;height:{TALL}px;border:0">'
                f"</iframe>")  # fmt: skip

    def __repr__(self) -> str:
        return repr(self._what)


class Plain:
    """The plain HTML of an object: of one entry of its batch, and of one head where one was named.

    A trace's tables; the health of a site's or a capture's heads; the map of a single head.
    """

    def __init__(self, what: Showable, held: Capture, head: int | None, batch: int) -> None:
        self._what, self._held, self._head, self._batch = what, held, head, batch

    def _repr_html_(self) -> str:
        what, head, batch = self._what, self._head, self._batch
        title = "" if head is None else f"<p>{escape(self._held.source['title'])}</p>"
        if isinstance(what, Trace):
            first = head is None and batch == 0
            one = what if first else Trace(what.call.one_head(head or 0, batch), what.tokens)
            return title + one._repr_html_()
        if isinstance(what, Site) and self._held.sites[0].heads == 1:
            return title + _map(self._held.sites[0])
        if isinstance(what, Site):
            return self._held.sites[0].health().summary()._repr_html_()
        entries = [site.entry(min(batch, site.batch - 1)) for site in what.sites]
        return HealthTables.of(entries)._repr_html_()

    def __repr__(self) -> str:
        return repr(self._what)


def _map(one: Site) -> str:
    """A head's map, as SVG."""
    from limelight.pictures import heatmap

    seen = one.heatmap((min(MOST_BINS, one.queries), min(MOST_BINS, one.keys)), head=0)
    keys, queries = (one.labels(side) for side in ("key", "query"))
    return heatmap(seen, tokens=keys, query_tokens=queries, theme="auto").svg()


def as_capture(what: Showable, head: int | None = None, batch: int = 0) -> Capture:
    """Anything that can be shown, as a capture: the form that the views read."""
    if isinstance(what, Capture):
        if head is not None:
            raise ArgumentError("head=… chooses a head of one site: show(capture[layer], head=…)")
        return what
    if isinstance(what, Trace):
        what = _site(what)
    if not isinstance(what, Site):
        raise ArgumentError(f"{a_type(what)} cannot be shown: give a Trace, a Site or a "
                            f"Capture")  # fmt: skip
    site = what.entry(batch) if head is None else what.one(head, batch)
    source: dict[str, Any] = {"title": site.name}
    if head is not None:
        source = {"title": f"{site.name}, head {head}", "head": head}
    return Capture((site,), site.tokens, site.query_tokens, source=source)


def widget(capture: Capture, batch: int = 0, budget: int = BUDGET) -> Any:
    """The widget of a capture; needs anywidget."""
    import anywidget
    import traitlets

    made = bundle(capture, budget=budget, precision="float32", batch=batch,
                  found=kinds(capture, batch))  # fmt: skip

    class View(anywidget.AnyWidget):
        """Draws a capture; asks the kernel for tiles and cells."""

        _esm = built("widget.js")
        data = traitlets.Unicode(made.to_json()).tag(sync=True)
        style_sheet = traitlets.Unicode(built("widget.css")).tag(sync=True)

    view = View()
    view.on_msg(lambda _, asked, __: _reply(view, capture, batch, asked))
    return view


def answer(capture: Capture, batch: int, asked: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """What the view asked for: JSON, and arrays beside it."""
    site = capture.sites[index(_whole(asked, "site"), len(capture.sites), "site")]
    one = site.one(_whole(asked, "head"), min(batch, site.batch - 1))
    match asked.get("ask"):
        case "tile":
            shape = (_whole(asked, "height"), _whole(asked, "width"))
            if max(shape) > MOST_TILE:
                raise ArgumentError(f"a tile of {shape}: each side is at most {MOST_TILE}")
            rows, columns = (_pair(asked, name) for name in ("rows", "columns"))
            pool = "mean" if asked.get("pool") == "mean" else "max"
            return {}, [tile(one, rows, columns, shape, pool).to_bytes()]
        case "cell":
            return asdict(cell(one, _whole(asked, "row"), _whole(asked, "column"))), []
        case "strip":
            side: Side = "column" if asked.get("side") == "column" else "row"
            return asdict(strip(one, side, _whole(asked, "index"))), []
        case "lines":
            start, stop = _pair(asked, "rows")
            return asdict(lines(one, start, stop, _whole(asked, "k"))), []
    raise ArgumentError(f"the view asked for {asked.get('ask')!r}, which is not known")


def _reply(view: Any, capture: Capture, batch: int, asked: Any) -> None:
    if not isinstance(asked, dict) or "id" not in asked:
        return
    try:
        found, arrays = answer(capture, batch, asked)
        view.send({"id": asked["id"], "found": found}, arrays)
    except LimelightError as error:
        view.send({"id": asked["id"], "error": str(error)})


def _whole(asked: dict[str, Any], name: str) -> int:
    number = asked.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ArgumentError(f"{name}={number!r}: a whole number from 0 on is needed")
    return number


def _pair(asked: dict[str, Any], name: str) -> tuple[int, int]:
    pair = asked.get(name)
    if not isinstance(pair, list) or len(pair) != 2:
        raise ArgumentError(f"{name}={pair!r}: a pair of whole numbers is needed")
    return _whole({name: pair[0]}, name), _whole({name: pair[1]}, name)


def _site(trace: Trace) -> Site:
    """A trace's attention as a site."""
    call = trace.call
    names = trace.tokens or ((), ())
    allowed = call.allowed.tile(np.arange(call.queries), np.arange(call.keys))
    value = np.asarray(call.value) if call.value_size else None
    return Site(
        "trace", 0, np.asarray(call.query), np.asarray(call.key), value, scale=call.scale,
        softcap=call.softcap, sinks=call.sinks, bias=call.bias,
        mask=None if allowed is None else as_mask(allowed),
        tokens=(tuple(names[1]),) * call.batch if names[1] else (),
        query_tokens=(tuple(names[0]),) * call.batch if names[0] else (),
    )  # fmt: skip
