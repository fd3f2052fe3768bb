"""Widgets: what they hold, what they answer, and what stands in where anywidget is missing."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import Causal, trace
from limelight import notebook as nb
from limelight.capture import Capture, Site
from limelight.errors import ArgumentError
from limelight.views.tiles import coded
from tests.studio import samples

QUERY, KEY, VALUE = (
    [[2.0, 1.0]],
    [[2.0, 1.0], [1.0, 0.0], [0.0, -1.0]],
    [[10.0, 0.0], [0.0, 8.0], [1.0, 1.0]],
)


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nb, "built", lambda name: f"/* {name} */")


@pytest.fixture
def without_anywidget(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "anywidget" else found(name)
    )


def test_a_trace_becomes_a_capture_with_the_same_cells() -> None:
    tr = trace(QUERY, KEY, VALUE, tokens=(["q"], ["a", "b", "c"]))
    held = nb.as_capture(tr)
    assert held.tokens == (("a", "b", "c"),)
    assert held[0].cell(0, 0).weight == tr.cell(0, 0).weight
    rng = np.random.default_rng(1)
    array = rng.standard_normal((2, 3, 7, 5))
    big = trace(array, array, array, mask=Causal(), softcap=3.0, sinks=np.ones(3))
    held = nb.as_capture(big, batch=1)
    for head in range(3):
        np.testing.assert_allclose(held[0].weights(head=head), big.weights[1, head], rtol=1e-12)


def test_one_head_of_a_site() -> None:
    site = samples.text_capture()[1]
    held = nb.as_capture(site, head=1)
    assert held.sites[0].heads == 1
    assert held.sites[0].cell(6, 2).weight == site.cell(6, 2, head=1).weight
    assert held.source["title"] == "layers.1.attention, head 1"


class Foreign:
    """An array of another framework, by one of the two ways that they offer."""

    def __init__(self, table: np.ndarray, way: str) -> None:
        if way == "__array__":
            self.__class__ = type("ByArray", (Foreign,), {"__array__": lambda s, *a, **k: table})
        else:
            ways = {"__dlpack__": lambda s, **k: table.__dlpack__(),
                    "__dlpack_device__": lambda s: table.__dlpack_device__()}  # fmt: skip
            self.__class__ = type("ByDLPack", (Foreign,), ways)


WEIGHTS = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None]


@pytest.mark.parametrize("form", ["numpy", "lists", "torch", "bfloat16", "__array__", "__dlpack__"])
def test_weights_of_any_framework_in_one_line(without_anywidget: None, form: str) -> None:
    import torch

    made: dict[str, Any] = {
        "numpy": WEIGHTS,
        "lists": WEIGHTS.tolist(),
        "torch": torch.from_numpy(WEIGHTS).requires_grad_(),
        "bfloat16": torch.from_numpy(WEIGHTS).bfloat16(),
    }
    given = made[form] if form in made else Foreign(WEIGHTS, form)
    shown = ll.show(given, ["The", "Ġcurious", "Ġcat", "ðŁĻ", "Ĥ"], head=0)
    assert "<svg" in shown._repr_html_()
    site = shown._held.sites[0]
    assert site.only_weights
    assert site.labels() == ("The", " curious", " cat", "🙂[1/2]", "🙂[2/2]")
    close = 3e-3 if form == "bfloat16" else 1e-12
    np.testing.assert_allclose(site.weights(head=0), WEIGHTS, atol=close)


def test_the_weights_of_all_layers_at_once(views: None) -> None:
    layers = [np.broadcast_to(WEIGHTS, (2, 3, 5, 5))] * 2
    shown = ll.show(tuple(layers), list("abcde"), batch=1)
    data = json.loads(shown.data)
    assert [site["name"] for site in data["capture"]["sites"]] == ["layer 0", "layer 1"]
    even = np.full((5, 3), 1 / 3)
    cross = nb._of_weights(even, list("abc"), list("vwxyz"))
    assert (cross.kind, cross.labels("query"), cross.labels("key")) == (
        "cross",
        tuple("vwxyz"),
        tuple("abc"),
    )


def test_what_cannot_be_shown_is_said() -> None:
    for given in ("text", [], [[1.0], [0.5, 0.5]], np.ones(3), object()):
        with pytest.raises(ArgumentError, match=r"cannot be shown|no weights to show"):
            ll.show(given)
    with pytest.raises(ArgumentError, match=r"a row of weights sums to 5"):
        ll.show(np.ones((5, 5)))
    with pytest.raises(ArgumentError, match="tokens name the positions of weights, and a Site has"):
        ll.show(samples.text_capture()[1], ["a"])
    with pytest.raises(ArgumentError, match="cannot be shown"):
        nb.as_capture([1, 2])  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="head="):
        nb.as_capture(samples.text_capture(), head=1)
    with pytest.raises(
        ArgumentError, match=r"there is no batch entry 3 at layers\.0\.attention: there is one"
    ):
        nb.as_capture(samples.text_capture()[0], batch=3)


@pytest.mark.parametrize("what", ["trace", "site", "capture"])
def test_plain_html_where_anywidget_is_missing(without_anywidget: None, what: str) -> None:
    capture = samples.text_capture(7)
    shown = nb.show(
        {"trace": trace(QUERY, KEY, VALUE), "site": capture[0], "capture": capture}[what]
    )
    html = shown._repr_html_()
    assert html.startswith("<")
    assert "<script" not in html
    assert "<img" not in html


def test_plain_html_of_one_head_of_one_entry(without_anywidget: None) -> None:
    rng = np.random.default_rng(3)
    query, key = rng.standard_normal((2, 2, 3, 5, 7))
    site = Site("layers.0", 0, query, key, tokens=(tuple("abcde"), tuple("vwxyz")))
    html = nb.show(site, head=1, batch=1)._repr_html_()
    assert html.startswith("<p>layers.0, head 1</p><svg")
    assert "data-jp-theme-light" in html
    assert f"{site.cell(4, 2, head=1, batch=1).weight:.4g}"[:4] in html
    assert ">v<" in html
    assert (
        len({nb.show(site, head=h, batch=b)._repr_html_() for h in range(3) for b in range(2)}) == 6
    )
    entries = [nb.show(site, batch=b)._repr_html_() for b in range(2)]
    assert entries[0] != entries[1]
    assert entries[1].count("<tr>") == 4  # a heading and three heads
    assert nb.show(site, batch=-1)._repr_html_() == entries[1]
    both = nb.show(Capture((site,)), batch=1)._repr_html_()
    assert both == nb.show(Capture((site,)), batch=-1)._repr_html_()
    assert both != nb.show(Capture((site,)))._repr_html_()
    with pytest.raises(ArgumentError, match="head 3"):
        nb.show(site, head=3)
    with pytest.raises(ArgumentError, match="there is no batch entry 2: there are 2"):
        nb.show(Capture((site,)), batch=2)


def test_plain_html_of_weights_of_one_head_is_their_map(without_anywidget: None) -> None:
    html = nb.show([[0.25, 0.75], [0.5, 0.5]], ["left", "right"])._repr_html_()
    assert html.startswith("<svg")
    assert ">right<" in html
    assert ">0.75<" in html


def test_plain_html_of_one_head_of_a_trace(without_anywidget: None) -> None:
    query, key = np.random.default_rng(4).standard_normal((2, 2, 3, 5, 7))
    found = trace(query, key, key)
    html = nb.show(found, head=2, batch=1)._repr_html_()
    assert html.startswith("<p>trace, head 2</p>")
    assert f">{found.weights[1, 2, 4, 3]:.4f}<" in html
    assert f">{found.weights[1, 0, 4, 3]:.4f}<" in nb.show(found, batch=1)._repr_html_()
    assert nb.show(found)._repr_html_() == found._repr_html_()


def test_the_widget_holds_a_bundle(views: None) -> None:
    pytest.importorskip("anywidget")
    view = nb.show(samples.text_capture())
    data = json.loads(view.data)
    assert (data["format"], data["precision"]) == ("limelight.bundle", "float32")
    assert len(data["vectors"]["heads"]) == 12
    assert len(view.data) <= nb.BUDGET
    assert "http" not in view._esm
    assert any("widget-view" in kind for kind in view._repr_mimebundle_()[0])
    view.close()


def test_the_kernel_answers_what_the_view_asks() -> None:
    capture = samples.text_capture()
    at = {"site": 1, "head": 1}
    found, arrays = nb.answer(
        capture,
        0,
        {**at, "ask": "tile", "rows": [0, 23], "columns": [0, 23], "height": 11, "width": 7},
    )
    assert found == {}
    expected = coded(capture[1].heatmap((11, 7), head=1))
    np.testing.assert_array_equal(np.frombuffer(arrays[0], "<f4").reshape(11, 7), expected)
    cell, _ = nb.answer(capture, 0, {**at, "ask": "cell", "row": 6, "column": 2})
    assert cell == capture[1].one(1).cell(6, 2).to_dict()
    strip, _ = nb.answer(capture, 0, {**at, "ask": "strip", "side": "column", "index": 2})
    assert strip["token"] == samples.HOSTILE[2]
    lines, _ = nb.answer(capture, 0, {**at, "ask": "lines", "rows": [0, 5], "k": 3})
    assert len(lines["rows"]) == len(lines["weights"])
    for reply in (cell, strip, lines):
        json.dumps(reply, allow_nan=False)


@pytest.mark.parametrize(
    "asked",
    [{}, {"ask": "tile"}, {"ask": "cell", "site": 9, "head": 0}, {"ask": "cell", "site": 0, "head": 99, "row": 0, "column": 0},
     {"ask": "cell", "site": 0, "head": 0, "row": -1, "column": 0}, {"ask": "shoe", "site": 0, "head": 0},
     {"ask": "tile", "site": 0, "head": 0, "rows": [0, 5], "columns": [0, 5], "height": 10**6, "width": 2},
     {"ask": "tile", "site": 0, "head": 0, "rows": "all", "columns": [0, 5], "height": 2, "width": 2},
     {"ask": "cell", "site": True, "head": 0, "row": 0, "column": 0}],
)  # fmt: skip
def test_a_strange_question_is_an_error_in_words(asked: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        nb.answer(samples.text_capture(5), 0, asked)


def test_messages_go_back_with_their_number(views: None) -> None:
    pytest.importorskip("anywidget")
    view = nb.show(samples.text_capture(5))
    sent: list[Any] = []
    view.send = lambda content, buffers=None: sent.append((content, buffers))
    view._handle_custom_msg(
        {"id": 7, "ask": "cell", "site": 0, "head": 0, "row": 1, "column": 0}, []
    )
    view._handle_custom_msg({"id": 8, "ask": "cell", "site": 5, "head": 0}, [])
    view._handle_custom_msg("nonsense", [])
    assert [content["id"] for content, _ in sent] == [7, 8]
    assert sent[0][0]["found"]["row"] == 1
    assert "no site 5" in sent[1][0]["error"]
    view.close()


class Shell:
    kernel = object()


@pytest.mark.parametrize("what", ["trace", "site", "capture"])
def test_objects_show_themselves_in_a_notebook(
    views: None, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    pytest.importorskip("anywidget")
    ipython = pytest.importorskip("IPython")
    capture = samples.text_capture(7)
    shown: Any = {"trace": trace(QUERY, KEY, VALUE), "site": capture[0], "capture": capture}[what]
    assert shown._repr_mimebundle_() == {}  # no notebook here
    monkeypatch.setattr(ipython, "get_ipython", Shell)
    found = shown._repr_mimebundle_(include=None, exclude=None)
    assert "application/vnd.jupyter.widget-view+json" in found
    assert found["text/plain"] == repr(shown)


def test_objects_show_plain_html_in_a_notebook_without_anywidget(
    without_anywidget: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ipython = pytest.importorskip("IPython")
    monkeypatch.setattr(ipython, "get_ipython", Shell)
    found = samples.text_capture(7)._repr_mimebundle_()
    assert set(found) == {"text/plain", "text/html"}
