"""Trace and Cell: every number of every step, and how they read."""

from __future__ import annotations

import json

import numpy as np
import pytest

import limelight as ll
from limelight.call import prepare
from limelight.errors import ArgumentError, EngineError, ShapeError
from limelight.worked.cell import cell
from tests.cases import CASES, HERE, Case

WORKED = ([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]])


def test_worked_example_to_six_digits() -> None:
    trace = ll.trace(*WORKED)
    assert trace.raw.tolist() == [[5, 2, -1]]
    np.testing.assert_allclose(trace.scaled, [[3.535534, 1.414214, -0.707107]], atol=5e-7)
    np.testing.assert_allclose(trace.weights, [[0.881645, 0.105686, 0.012669]], atol=5e-7)
    np.testing.assert_allclose(trace.output, [[8.829123, 0.858154]], atol=5e-7)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cells_agree_with_the_tables(case: Case) -> None:
    arrays, options = case.arrays()
    trace = ll.trace(*arrays, **options)
    done = trace.steps
    rng = np.random.default_rng(5)
    for _ in range(10):
        b, h, i, j = (int(rng.integers(n)) for n in done.raw.shape)
        seen = trace.cell(i, j, head=h, batch=b)
        for name in ("raw", "scaled", "capped", "biased"):
            np.testing.assert_allclose(
                getattr(seen, name), getattr(done, name)[b, h, i, j], err_msg=name
            )
        assert seen.allowed == done.allowed[b, h, i, j]
        assert seen.products.sum() == pytest.approx(seen.raw, rel=1e-9, abs=1e-9)
        assert seen.weight == pytest.approx(done.weights[b, h, i, j], rel=1e-9, abs=1e-12)
        if seen.allowed:
            assert seen.exponential / seen.row_sum == pytest.approx(seen.weight, rel=1e-9)
        assert seen.contribution == pytest.approx(seen.weight * seen.value)
        quick = cell(
            trace.call,
            i,
            j,
            head=h,
            batch=b,
            max_logit=done.max_logit[b, h, i],
            logsumexp=done.logsumexp[b, h, i],
        )
        assert quick.weight == pytest.approx(seen.weight, rel=1e-9)
        assert quick.row_sum == pytest.approx(seen.row_sum, rel=1e-9)
        assert json.loads(json.dumps(seen.to_dict(), allow_nan=False))["row"] == i
        assert repr(seen)
        assert "<table>" in seen._repr_html_()
    json.dumps(trace.to_dict(), allow_nan=False)
    assert repr(trace)
    assert "<table>" in trace._repr_html_()


def test_a_cell_reads_as_its_arithmetic() -> None:
    text = repr(ll.trace(*WORKED, tokens=(["now"], ["a", "b", "c"])).cell(0, 2))
    assert text.splitlines() == [
        "query 0 'now' looks at key 2 'c'",
        "  query      [2, 1]",
        "  key        [0, −1]",
        "  products   [0, −1]",
        "  compare    2·0 + 1·(−1) = −1",
        "  scale      −1 × 1/√2 = −0.707107",
        "  normalise  e^(−0.707107 − 3.535534) = 0.014370, with the row's largest logit taken off",
        "             0.014370 / 1.134243 = 0.012669, divided by the row's sum",
        "  mix        0.012669 × [1, 1] = [0.012669, 0.012669]",
    ]


def test_a_cell_names_its_head_where_there_are_several() -> None:
    x = -np.ones((2, 3, 5, 2))
    text = repr(ll.trace(x, x, x).cell(4, 1))
    assert text.startswith("batch 0 of 2, head 0 of 3, query 4 looks at key 1")
    assert "(−1)·(−1) + (−1)·(−1) = 2" in text


def test_hidden_keys_and_sinks_are_named() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 2))
    trace = ll.trace(x, x, x, mask=ll.Causal(), sinks=[0.0, 1.0], tokens=["a", "b", "c"])
    text = trace.text(head=1)
    assert "hidden" in text
    assert "sink" in text
    assert "head 1 of 2" in text
    assert trace.text(head=-1) == text
    with pytest.raises(ArgumentError, match="no head 2: there are 2, numbered from 0"):
        trace.text(head=2)
    assert "may not look at this key" in repr(trace.cell(0, 2))
    assert "no key to look at" in repr(ll.trace([[1.0]], np.ones((0, 1)), np.ones((0, 1))))


def test_tokens_are_escaped_in_html() -> None:
    token = '"><img src=x onerror=alert(1)>'
    x = np.eye(2)
    trace = ll.trace(x, x, x, tokens=[token, "b"])
    for shown in (trace._repr_html_(), trace.cell(0, 0)._repr_html_()):
        assert "<img" not in shown


def test_tokens_may_be_ids() -> None:
    x = np.eye(2)
    for ids in ([7, 42], np.array([7, 42]), (i for i in (7, 42))):
        found = ll.trace(x, x, x, tokens=ids)  # type: ignore[arg-type]
        assert found.tokens == (("7", "42"), ("7", "42"))
        json.dumps(found.to_dict())
        assert "query 1 '42' looks at key 0 '7'" in repr(found.cell(1, 0))
    pair = ll.trace(x, x, x, tokens=(["a", "b"], np.array([7, 42])))  # type: ignore[arg-type]
    assert pair.tokens == (("a", "b"), ("7", "42"))
    with pytest.raises(ShapeError, match="tokens are not a list of texts, one for each key"):
        ll.trace(x, x, x, tokens=5)  # type: ignore[arg-type]


def test_a_cell_of_a_long_row() -> None:
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(1, 3, 4)), rng.normal(size=(1, 5000, 4))
    seen = cell(prepare(query, key), 2, 4321)
    weights = ll.trace(query, key, key).weights
    assert seen.weight == pytest.approx(weights[0, 2, 4321])
    assert seen.value is None


def test_a_trace_without_values_says_so() -> None:
    keys, scale = [[2.0, 1.0], [1.0, 0.0]], float(np.float32(0.5**0.5))
    text = repr(ll.trace([[2.0, 1.0]], keys, np.empty((2, 0)), scale=scale))
    assert "no values were given   peaked" in text
    assert "[]" not in text
    assert "scale by 1/√2" in text


@pytest.mark.parametrize("engine", HERE)
def test_a_named_engine_computes_output_and_health(engine: str) -> None:
    (query, key, value), _ = CASES[0].arrays(np.float32)
    given = {"mask": ll.Causal(), "sinks": np.ones(query.shape[-3], np.float32)}
    traced = ll.trace(query, key, value, **given, engine=engine)
    seen = ll.inspect(query, key, value, **given, engine=engine)
    np.testing.assert_array_equal(traced.output, seen.output)
    assert traced.output.dtype == np.float32
    for name in ("max_logit", "logsumexp", "entropy", "keys"):
        np.testing.assert_array_equal(getattr(traced.health, name), getattr(seen.health, name))
    plain = ll.trace(query, key, value, **given)
    np.testing.assert_array_equal(traced.weights, plain.weights)
    assert plain.output.dtype == np.float64


def test_a_trace_takes_what_attention_takes() -> None:
    for engine in ("auto", "reference"):
        np.testing.assert_array_equal(
            ll.trace(*WORKED, engine=engine).output, ll.trace(*WORKED).output
        )
    with pytest.raises(EngineError, match="there is no engine 'cuda': choose auto, reference"):
        ll.trace(*WORKED, engine="cuda")
    with pytest.raises(EngineError, match="the engine 'native' cannot do this call: it takes"):
        ll.trace(*WORKED, engine="native")


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (0, 3, 4), (2, 2, 0, 4)])
def test_a_trace_of_nothing_says_so(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = ll.trace(*[np.ones(shape)] * 3)
    words = f"Trace of an empty attention, output {shape}"
    assert repr(nothing) == words
    if 0 in shape[:-2]:
        monkeypatch.setattr("limelight.notebook._in_notebook", lambda: True)
        assert nothing._repr_html_() == f"<pre>{words}</pre>"
        assert nothing._repr_mimebundle_() == {}


def test_the_flow_in_a_narrow_place() -> None:
    found = ll.trace([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]])
    assert found.text(width=72) == repr(found)
    text = found.text(width=71)
    assert max(map(len, text.splitlines())) == 44
    assert "├─ key 1   2              1.414214  0.105686\n│  [0, 0.845486]\n" in text
    assert text.endswith("\n    peaked: key 0 has 88 % of the weight")
    bare = ll.trace([[2, 1]], [[2, 1]], np.zeros((1, 0)))
    assert bare.text(width=9).endswith(
        "╰─▶ no values were given\n    key 0 has 100 % of the weight"
    )


@pytest.mark.parametrize("most", ["rows", "columns", "width"])
@pytest.mark.parametrize("wrong", [-1, 1.5, "9", True])
def test_a_text_has_so_many_rows_and_columns(most: str, wrong: object) -> None:
    with pytest.raises(ArgumentError, match=f"{most}={wrong!r}: give a whole number, from 0 on"):
        ll.trace(*WORKED).text(**{most: wrong})


def test_the_html_goes_as_far_as_the_text_and_writes_as_it_does() -> None:
    found = ll.trace([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]])
    html = found._repr_html_()
    assert ">−0.7071<" in html
    assert "-0.7071" not in html
    for words in ("[8.816454, 0]", ">8.8291<", ">0.8582<", "peaked: key 0 has 88 % of the weight"):
        assert words in html
    rng = np.random.default_rng(0)
    long = ll.trace(*(rng.normal(size=(2, 17, 18)) for _ in range(3)), mask=ll.Causal())
    html = long._repr_html_()
    assert "mix: weight" not in html
    assert "the first 16 of 18 numbers" in html
    assert ll.trace([[1.0]], [[1.0]], np.zeros((1, 0)))._repr_html_().count("<table>") == 3
    strange = ll.trace([[1e308]], [[1e308]], [[1.0]])._repr_html_()
    assert ">∞<" in strange
    assert ">NaN<" in strange
