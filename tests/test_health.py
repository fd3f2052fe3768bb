"""Health: each figure against its own definition on dense weights."""

from __future__ import annotations

import json

import numpy as np
import pytest

import limelight as ll
from limelight.capture.health import cell
from limelight.health import written
from tests.cases import CASES, Case


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
    spread = np.where(
        keys > 1, entropy / np.log(np.maximum(keys, 2)), np.where(keys == 1, 1.0, 0.0)
    )
    np.testing.assert_allclose(health.spread, spread, atol=1e-8)
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
