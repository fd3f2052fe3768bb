"""Health: each figure against its own definition on dense weights."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight.call import Call
from limelight.capture import Site
from limelight.capture.health import HealthTables, cell
from limelight.health import PEAKED, SATURATED, Health, written
from tests.cases import CASES, HERE, Case, widest


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_figure_by_its_definition(case: Case) -> None:
    arrays, options = case.arrays()
    health = ll.inspect(*arrays, **options, engine="numpy").health
    trace = ll.trace(*arrays, **options)
    weights = trace.weights
    sink = trace.call.restore(trace.steps.sink)[..., None]
    outcomes = np.concatenate([weights, sink], axis=-1)
    with np.errstate(all="ignore"):
        entropy = -np.where(outcomes > 0, outcomes * np.log(outcomes), 0.0).sum(axis=-1)
    keys, p = trace.allowed.sum(axis=-1), weights.max(axis=-1, initial=0.0)
    np.testing.assert_array_equal(health.keys, keys)
    np.testing.assert_allclose(health.max_prob, p, atol=1e-9)
    np.testing.assert_allclose(health.gradient, p * (1 - p), atol=1e-9)
    np.testing.assert_allclose(health.entropy, entropy, atol=1e-8)
    np.testing.assert_allclose(health.effective_keys, np.exp(entropy), rtol=1e-8)
    several = keys + (options.get("sinks") is not None)  # the sink is an outcome
    spread = np.where(
        several > 1, entropy / np.log(np.maximum(several, 2)), np.where(keys == 1, 1.0, 0.0)
    )
    np.testing.assert_allclose(health.spread, spread, atol=1e-8)
    assert (health.spread >= 0).all()
    assert (health.spread <= 1).all()
    verdict = np.where(p >= 0.95, "saturated", np.where(p >= 0.8, "peaked", "healthy"))
    near = (np.abs(p - 0.95) < 1e-9) | (np.abs(p - 0.8) < 1e-9)
    np.testing.assert_array_equal(health.verdict[~near], np.where(keys >= 2, verdict, "")[~near])


def test_with_and_without_scaling() -> None:
    """[15, 12, 9] at d_k = 64: the figures of the textbook comparison."""
    key = np.zeros((3, 64))
    key[:, 0] = [15, 12, 9]
    query = np.eye(1, 64)
    for scale, weights, gradient, spread in (
        (1.0, [0.950330, 0.047314, 0.002356], 0.0472, 0.188),
        (None, [0.463037, 0.318240, 0.218723], 0.2486, 0.959),
    ):
        trace = ll.trace(query, key, np.eye(3), scale=scale)
        np.testing.assert_allclose(trace.weights[0], weights, atol=5e-7)
        assert trace.health.gradient[0] == pytest.approx(gradient, abs=5e-5)
        assert trace.health.spread[0] == pytest.approx(spread, abs=5e-4)


@pytest.mark.parametrize("engine", HERE)
def test_a_sink_keeps_the_spread_within_one(engine: str) -> None:
    """Two equal keys: even with a sink of their logit, and with none; less with any other."""
    x = np.zeros((3, 2, 4), widest(engine))  # three heads

    def spread(*sinks: float, keys: int = 2) -> Any:
        given = np.array(sinks, x.dtype)
        return ll.inspect(x, x[:, :keys], x[:, :keys], sinks=given, engine=engine).health.spread

    rounding = 4 * np.finfo(x.dtype).eps
    np.testing.assert_allclose(spread(0.0, -np.inf, 2.0)[:2], 1.0, rtol=rounding)
    assert (spread(0.0, -np.inf, 2.0) <= 1.0).all()
    share = np.array([1.0, 1.0, np.exp(2.0)]) / (2 + np.exp(2.0))
    exact = -(share * np.log(share)).sum() / np.log(3)
    np.testing.assert_allclose(spread(0.0, 0.0, 2.0)[2], exact, rtol=8 * rounding)
    share = np.array([1.0, 1.0, np.exp(-2.0)]) / (2 + np.exp(-2.0))  # a sink below its keys
    exact = -(share * np.log(share)).sum() / np.log(3)
    np.testing.assert_allclose(spread(0.0, 0.0, -2.0)[2], exact, rtol=8 * rounding)
    one = 1 / (1 + np.exp(2.0))  # one key against a sink is a choice, too
    exact = -(one * np.log(one) + (1 - one) * np.log(1 - one)) / np.log(2)
    np.testing.assert_allclose(spread(0.0, 0.0, 2.0, keys=1)[2], exact, rtol=8 * rounding)
    assert (spread(0.0, 0.0, 2.0, keys=0) == 0.0).all()


def test_a_row_that_sees_nothing_is_no_row() -> None:
    x = np.random.default_rng(0).normal(size=(2, 1, 7, 4))
    mask = ll.Lengths([7, 5], queries=[7, 5])
    summary = ll.inspect(x, x, x, mask=mask, engine="numpy").health.summary()
    assert summary.rows.tolist() == summary.judged.tolist() == [12]
    alone = ll.inspect(x, x[:, :, :1], x[:, :, :1], engine="numpy").health.summary()
    assert alone.judged.tolist() == [0]  # one key is no choice
    assert alone.verdict.tolist() == [""]


@pytest.mark.parametrize(("bound", "word"), [(SATURATED, "saturated"), (PEAKED, "peaked")])
def test_a_weight_on_the_bound_is_within_it(bound: float, word: str) -> None:
    at = np.log(bound)
    while np.exp(at) < bound:
        at = np.nextafter(at, 0.0)
    while np.exp(at) > bound:
        at = np.nextafter(at, -1.0)
    assert np.exp(at) == bound
    just = Health(np.array([[at]]), np.zeros((1, 1)), np.ones((1, 1)), np.array([[3]]))
    assert just.verdict.item() == just.summary().verdict.item() == word
    assert bool(just.saturated.item()) == (word == "saturated")
    assert bool(just.peaked.item()) == (word == "peaked")
    below = Health(np.array([[at - 1e-9]]), np.zeros((1, 1)), np.ones((1, 1)), np.array([[3]]))
    assert below.verdict.item() != word


def test_summary() -> None:
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 3, 31, 8)), rng.normal(size=(2, 3, 31, 8))
    query[:, 1] *= 100
    health = ll.inspect(query, key, key, mask=ll.Causal(), engine="numpy").health
    summary = health.summary()
    assert summary.rows.tolist() == [62, 62, 62]
    assert summary.judged.tolist() == [60, 60, 60]  # the first row has one key
    assert summary.verdict.tolist()[1] == "saturated"
    judged = health.keys[0, 1] >= 2
    expected = np.concatenate([health.max_prob[b, 1][judged] for b in range(2)])
    assert summary.max_prob[1] == pytest.approx(expected.mean())
    assert summary.saturated[1] == pytest.approx((expected >= 0.95).mean())
    assert summary.max_logit[1] == health.max_logit[:, 1].max()
    text = repr(health)
    assert "Health of 62 rows a head, 3 heads" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    assert json.loads(json.dumps(summary.to_dict()))[1]["verdict"] == "saturated"
    assert "<table>" in health._repr_html_()


def test_numbers_of_a_table_are_written_as_elsewhere() -> None:
    query, key = -np.ones((1, 4, 3)), np.ones((1, 4, 3))
    health = ll.inspect(query, key, key).health
    tables = HealthTables.of([Site("x", 0, query[None], key[None])])
    for text in (repr(health), health._repr_html_(), tables.text("max_logit"), repr(tables)):
        assert "-1.7" not in text
        assert "0%" not in text
    assert repr(health).splitlines()[-1].split() == [
        "0", "4", "−1.73", "0.250", "0.188", "1.386", "1.000", "4.00", "0", "%", "0", "%",
        "healthy"]  # fmt: skip
    assert tables.text("max_logit").endswith("−1.7")
    assert tables.text("saturated").endswith("0 %")


@pytest.mark.parametrize(
    ("p", "text"), [(0.9534, "0.95"), (0.9479, "0.948"), (0.94996, "0.94996"), (0.7951, "0.795"),
                    (0.8, "0.80"), (0.5, "0.50"), (np.nan, "–")]
)  # fmt: skip
def test_a_weight_near_a_bound_is_written_on_its_side(p: float, text: str) -> None:
    assert written(p) == cell("max_prob", p) == text
    assert cell("max_prob", p, "peaked") == (f"~{text}" if text != "–" else text)


def test_rows_that_are_not_a_number_are_said_so() -> None:
    x = np.ones((4, 2))
    x[3] = np.nan
    health = ll.inspect(x, x, x, mask=ll.Causal(), engine="numpy").health
    assert health.verdict.tolist() == ["", "healthy", "healthy", ""]
    assert health.summary().not_a_number.tolist() == [1]
    json.dumps(health.to_dict(), allow_nan=False)


def test_figures_are_made_once_and_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    counted = []
    count = Call.row_keys
    monkeypatch.setattr(Call, "row_keys", lambda call: counted.append(1) or count(call))
    x = torch.ones(3, 2)
    health = ll.inspect(x, x, x, mask=ll.Causal()).health
    assert health.max_logit is health.max_logit
    assert not counted
    assert health.keys.tolist() == health.keys.tolist() == [1, 2, 3]
    assert counted == [1]
    again = pickle.loads(pickle.dumps(ll.inspect(x, x, x, mask=ll.Causal()).health))
    assert again.keys.tolist() == [1, 2, 3]
    assert again.entropy.tolist() == health.entropy.tolist()
    assert "_of" in vars(health)
    assert health.logsumexp.shape == (3,)
    assert "_of" not in vars(health)  # nothing is left to make: the tensors of the call may go
    with pytest.raises(AttributeError, match="Health has no colour"):
        health.colour  # noqa: B018


def test_the_last_column_says_what_was_found_or_why_not() -> None:
    x = np.array([[9.0, 0.0], [0.0, 9.0]])
    assert repr(ll.inspect(x, x, x).health).split()[-1] == "saturated"
    assert repr(ll.inspect(x[:, :1], x[:1, :1], x[:1]).health).split()[-1] == "–"
    x[0, 0] = np.nan
    assert repr(ll.inspect(x[:1], x, x).health).endswith("  not a number")
    some = ll.inspect(x, np.eye(2), x).health  # one row is none, the other has its verdict
    assert repr(some).endswith("  saturated, 1 not a number")
    assert "saturated, 1 not a number</td>" in some._repr_html_()


def test_a_sink_is_one_outcome_more_of_tensors_too() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(1, 2, 3, 2)
    health = ll.inspect(x, x, x, sinks=torch.zeros(2)).health
    assert (health.outcomes == health.keys + 1).all()
    assert ll.inspect(x, x, x).health.outcomes is None
