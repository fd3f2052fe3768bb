"""What d_k does to a softmax: the published table, the exact comparison, the derivatives."""

import json
import math

import numpy as np
import pytest

from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.learn import saturation

# d_k: (max prob, gradient, spread) without scaling, then with it; means over 2,000 draws.
TABLE = {
    4: ((0.522, 0.209, 0.627), (0.338, 0.206, 0.846)),
    16: ((0.750, 0.146, 0.323), (0.356, 0.214, 0.832)),
    64: ((0.879, 0.080, 0.150), (0.362, 0.217, 0.827)),
    256: ((0.941, 0.040, 0.069), (0.366, 0.218, 0.826)),
    1024: ((0.968, 0.022, 0.037), (0.359, 0.216, 0.829)),
}


def softmax(scores):
    power = np.exp(np.asarray(scores) - np.max(scores))
    return power / power.sum()


@pytest.mark.parametrize("d_k", TABLE)
@pytest.mark.parametrize("scaled", [False, True])
def test_mean_over_2000_draws(d_k, scaled):
    found = saturation.mean(d_k, scaled=scaled, draws=2000)
    assert (found.max_prob, found.gradient, found.spread) == pytest.approx(
        TABLE[d_k][scaled], abs=0.01
    )


def test_scores_spread_like_the_root_of_d_k_and_scaling_brings_them_to_one():
    curve = saturation.curve((3, 31, 307), draws=1500, keys=7)
    for plain, scaled in zip(curve.unscaled, curve.scaled, strict=True):
        assert plain.score_deviation == pytest.approx(math.sqrt(plain.d_k), rel=0.06)
        assert scaled.score_deviation == pytest.approx(1.0, rel=0.06)
        assert scaled.saturated <= plain.saturated


def test_mean_does_not_depend_on_how_many_are_drawn_at_a_time(monkeypatch):
    whole = saturation.mean(13, draws=101, seed=5)
    monkeypatch.setattr(saturation, "MOST_NUMBERS", 7 * 13 * 9)
    assert saturation.mean(13, draws=101, seed=5).to_dict() == pytest.approx(whole.to_dict())


def test_draw_is_the_attention_of_its_own_vectors():
    for scaled in (False, True):
        drawn = saturation.draw(37, keys=5, scaled=scaled, seed=11)
        assert drawn.query.shape == (37,)
        assert drawn.key.shape == (5, 37)
        raw = drawn.key @ drawn.query
        weights = softmax(raw / math.sqrt(37) if scaled else raw)
        top = weights.max()
        np.testing.assert_allclose(drawn.raw, raw, rtol=1e-12)
        np.testing.assert_allclose(drawn.row.weights, weights, rtol=1e-12)
        assert drawn.row.max_prob == pytest.approx(top)
        assert drawn.row.gradient == pytest.approx(top * (1 - top))
        entropy = -(weights * np.log(weights)).sum()
        assert drawn.row.entropy == pytest.approx(entropy)
        assert drawn.row.spread == pytest.approx(entropy / math.log(5))
        assert drawn.row.effective_keys == pytest.approx(math.exp(entropy))


def test_the_same_seed_draws_the_same_vectors_scaled_or_not():
    plain, scaled = (saturation.draw(64, scaled=on, seed=3) for on in (False, True))
    np.testing.assert_array_equal(plain.key, scaled.key)
    assert (plain.raw != saturation.draw(64, seed=4).raw).all()


def test_compare_fifteen_twelve_nine():
    both = saturation.compare([15, 12, 9], 64)
    assert both.unscaled.weights == pytest.approx([0.950330, 0.047314, 0.002356], abs=5e-7)
    assert both.scaled.weights == pytest.approx([0.463037, 0.318240, 0.218723], abs=5e-7)
    assert both.unscaled.gradient == pytest.approx(0.0472, abs=5e-5)
    assert both.scaled.gradient == pytest.approx(0.2486, abs=5e-5)
    assert both.unscaled.spread == pytest.approx(0.188, abs=5e-4)
    assert both.scaled.spread == pytest.approx(0.959, abs=5e-4)
    assert (both.unscaled.verdict, both.scaled.verdict) == ("saturated", "healthy")


def test_scaling_never_changes_the_order():
    rng = np.random.default_rng(0)
    for d_k in (2, 17, 129):
        both = saturation.compare(rng.normal(size=11) * 5, d_k)
        order = np.argsort(both.unscaled.weights)
        np.testing.assert_array_equal(order, np.argsort(both.scaled.weights))


def test_jacobian_is_the_derivative():
    scores, step = np.array([0.3, -1.2, 2.5, 0.0, 1.1]), 1e-6
    found = saturation.jacobian(softmax(scores))
    for j, nudge in enumerate(np.eye(5) * step):
        column = (softmax(scores + nudge) - softmax(scores - nudge)) / (2 * step)
        np.testing.assert_allclose(found[:, j], column, atol=1e-9)
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-15)
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-15)


def test_jacobian_over_leading_axes_and_in_a_row():
    weights = np.random.default_rng(1).dirichlet(np.ones(3), size=(2, 5))
    found = saturation.jacobian(weights)
    assert found.shape == (2, 5, 3, 3)
    np.testing.assert_array_equal(found[1, 4], saturation.jacobian(weights[1, 4]))
    row = saturation.compare([2.0, 1.0], 4).scaled
    np.testing.assert_allclose(row.jacobian[0, 0], row.gradient)


def test_everything_is_json():
    curve = saturation.curve((2, 5), draws=3)
    for item in (saturation.draw(3), curve, saturation.compare([1, 2], 3)):
        assert json.loads(json.dumps(item.to_dict(), allow_nan=False))
    drawn = saturation.draw(3, keys=2).to_dict()
    assert {"query", "key", "raw", "scores", "weights", "max_prob", "verdict"} <= set(drawn)


def test_one_key_has_no_verdict():
    row = saturation.compare([4.0], 9).scaled
    assert (row.verdict, row.spread, row.max_prob) == ("", 1.0, 1.0)


def test_curve_prints_a_table():
    text = repr(saturation.curve((4, 64), draws=200))
    assert text.splitlines()[0] == "Means over 200 draws of one query and 8 keys"
    assert len({len(line) for line in text.splitlines()[2:]}) == 1


@pytest.mark.parametrize(
    ("attempt", "error", "message"),
    [
        (lambda: saturation.draw(0), ArgumentError, r"d_k=0: give a whole number ≥ 1"),
        (lambda: saturation.draw(2.5), ArgumentError, r"d_k=2\.5: give a whole number"),
        (lambda: saturation.draw(4, keys=0), ArgumentError, r"keys=0: give a whole number ≥ 1"),
        (lambda: saturation.draw(4, seed=-1), ArgumentError, r"seed=-1: give a whole number ≥ 0"),
        (lambda: saturation.mean(4, draws=0), ArgumentError, r"draws=0: give a whole number ≥ 1"),
        (lambda: saturation.curve(()), ArgumentError, r"no sizes: give at least one d_k"),
        (lambda: saturation.compare([], 4), ShapeError, r"scores has shape \(0,\): give one row"),
        (lambda: saturation.compare([[1.0]], 4), ShapeError, r"scores has shape \(1, 1\)"),
        (lambda: saturation.compare(["a"], 4), DtypeError, r"scores has dtype"),
        (lambda: saturation.jacobian(0.5), ShapeError, r"weights is a single number"),
    ],
)
def test_errors_say_what_came(attempt, error, message):
    with pytest.raises(error, match=message):
        attempt()
