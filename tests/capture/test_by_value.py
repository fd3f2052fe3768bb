"""What each weight brings: w · ‖v‖ over the same cells, by every way of looking."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import limelight as ll
from limelight.errors import ArgumentError


@pytest.mark.parametrize(("name", "layer", "head"), [("llama-paragraph", 18, 8), ("bert", 4, 5),
                                                     ("gpt", 2, 0)])  # fmt: skip
def test_a_cell_is_its_weight_times_the_length_of_its_value(
    name: str, layer: int, head: int
) -> None:
    site = ll.captures()[name][layer]
    length = np.linalg.norm(site.one(head).value[0, 0].astype(np.float64), axis=-1)  # type: ignore[index]
    expected = site.weights(head=head) * (length / length.max())
    seen = site.by_value(head)
    np.testing.assert_allclose(seen.weights(head=0), expected, atol=2e-6)
    whole = seen.heatmap((7, 5), head=0)
    edges = [np.arange(bins) * count // bins for bins, count in ((7, site.queries), (5, site.keys))]
    pooled = np.maximum.reduceat(np.maximum.reduceat(expected, edges[0], 0), edges[1], 1)
    np.testing.assert_allclose(np.where(whole.empty, 0, whole.values), pooled, atol=2e-6)
    best = seen.top(rows=[site.queries - 1], k=1, head=0)
    assert best.columns[0, 0] == expected[-1].argmax()


def test_a_sink_that_writes_nothing_goes_dark() -> None:
    site = ll.captures()["llama-paragraph"][18]
    assert site.weights(head=8)[:, 0].min() > 0.99
    assert site.by_value(8).weights(head=0)[:, 0].max() < 0.1


def test_a_value_of_nothing_is_seen_and_dark_and_none_is_an_error() -> None:
    weights = [[[[0.5, 0.5], [0.25, 0.75]]]]
    value = np.zeros((1, 1, 2, 3))
    site = ll.Site.from_weights("mine", 0, weights, value=value)
    assert (site.by_value().weights(head=0) <= 1e-29).all()
    with pytest.raises(ArgumentError, match="holds no values: capture with values=True"):
        replace(site, value=None).by_value()
