"""The calculation as on paper."""

import json

import numpy as np
import pytest

import limelight as ll
from limelight.errors import ArgumentError
from limelight.worked.by_hand import by_hand, rounded
from limelight.worked.trace import trace

WORKED = ([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]])


def test_the_worked_example():
    paper = by_hand(trace(*WORKED))
    assert paper.raw.tolist() == [[5, 2, -1]]
    assert paper.scaled.tolist() == [[3.54, 1.41, -0.71]]
    assert paper.weights.tolist() == [[0.88, 0.11, 0.01]]
    assert paper.output.tolist() == [[8.81, 0.89]]


def test_carrying_the_rounded_scores_too():
    paper = by_hand(trace(*WORKED), carry_scores=True)
    assert paper.weights.tolist() == [[0.88, 0.10, 0.01]]
    assert paper.output.tolist() == [[8.81, 0.81]]


@pytest.mark.parametrize("carry", [False, True])
def test_enough_digits_give_the_exact_result(carry):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=shape) for shape in ((6, 5, 3), (2, 7, 3), (2, 7, 4)))
    mask = ll.Causal() & ll.Window(3, 0)
    found = trace(query, key, value, mask=mask, softcap=2.0, sinks=np.linspace(-1, 1, 6))
    paper = by_hand(found, 12, carry_scores=carry)
    np.testing.assert_allclose(paper.output, found.output, atol=1e-10)
    np.testing.assert_allclose(paper.weights, found.weights, atol=1e-11)


def test_rows_that_see_nothing_and_hidden_nan():
    found = trace([[1.0]] * 3, [[1.0]] * 2, [[1.0], [np.nan]], mask=ll.Causal())
    paper = by_hand(found, carry_scores=True)
    assert paper.output[0] == [0]
    assert paper.output[1] == [1]
    assert np.isnan(paper.output[2])
    assert json.loads(json.dumps(paper.to_dict(), allow_nan=False))["output"] == [[0], [1], [None]]


def test_halves_round_away_from_zero():
    assert rounded([0.005, -0.005, 1.005, 0.004], 2).tolist() == [0.01, -0.01, 1.01, 0.0]
    assert rounded([2.5, -2.5], 0).tolist() == [3, -3]


@pytest.mark.parametrize("digits", [-1, 13, 2.5])
def test_digits_out_of_range(digits):
    with pytest.raises(ArgumentError, match="give a whole number from 0 to 12"):
        by_hand(trace(*WORKED), digits)
