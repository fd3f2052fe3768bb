"""What each weight brings, w · ‖v‖ or w · ‖v·W_O‖, over the same cells, by every way of looking."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import live
from limelight.capture.brought import lengths
from limelight.errors import ArgumentError, ShapeError


@pytest.mark.parametrize(("name", "layer", "head"), [("llama-paragraph", 18, 8), ("bert", 4, 5),
                                                     ("gpt", 2, 0)])  # fmt: skip
def test_a_cell_is_its_weight_times_the_length_of_its_value(
    name: str, layer: int, head: int
) -> None:
    site = ll.captures()[name][layer]
    site = replace(site, written=None)  # by its value alone
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


@pytest.mark.parametrize("name", ["gpt", "code"])
def test_a_live_capture_is_lit_by_what_w_o_writes_and_so_is_its_file(
    name: str, tmp_path: Path
) -> None:
    run = live.load(name).run("The moon; the sun: the moon")
    layer, head = 1, 3
    site, block = run.capture[layer], run.model.decoder.blocks[layer]
    assert site.value is not None
    size = site.value.shape[3]
    # In float64 from the arrays alone: softmax, then every cell's own vector, and its length.
    query, key, value = (np.asarray(x[0, head], np.float64)
                         for x in (site.query, site.key, site.value))  # fmt: skip
    logits = np.where(np.tri(len(query)) > 0, query @ key.T / np.sqrt(size), -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    out = block.out[head * size : (head + 1) * size].astype(np.float64)  # the head's rows of W_O
    written = np.linalg.norm(weights[:, :, None] * (value @ out), axis=-1)
    np.testing.assert_allclose(run.reading(layer, head), written, rtol=2e-5, atol=1e-6)
    share = written / np.linalg.norm(value @ out, axis=-1).max()
    np.testing.assert_allclose(site.by_value(head).weights(head=0), share, atol=2e-6)
    assert np.abs(share - replace(site, out=None).by_value(head).weights(head=0)).max() > 0.05
    run.capture.save(tmp_path / "live.safetensors")
    kept = ll.Capture.open(tmp_path / "live.safetensors")[layer]
    assert kept.out is None
    assert kept.writes
    np.testing.assert_allclose(kept.by_value(head).weights(head=0), share, atol=2e-6)


def test_heads_that_share_values_write_their_own_and_large_ones_stay_finite() -> None:
    rng = np.random.default_rng(7)
    value = rng.normal(size=(2, 2, 5, 3))
    out = rng.normal(size=(6, 3, 7))
    found = lengths(value, 6, out)
    expected = np.linalg.norm(np.repeat(value, 3, axis=1) @ out, axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    huge = lengths(np.full((1, 1, 1, 4), 1e300), 1)
    assert huge.item() == pytest.approx(2e300)
    query = rng.normal(size=(2, 6, 5, 3))
    site = ll.Site("mine", 0, query, value, value, out=out)
    np.testing.assert_allclose(site.entry(1).brought[0], expected[1], rtol=1e-12)
    np.testing.assert_allclose(site.one(4, 1).brought[0, 0], expected[1, 4], rtol=1e-12)
    for wrong, error, said in (
        ({"out": out[:, :2]}, ShapeError, r"W_O by heads is \[6, 3, width\]"),
        ({"value": None}, ArgumentError, "out comes without values"),
        ({"written": expected[:1]}, ShapeError, r"takes \[batch, heads, keys\], \(2, 6, 5\)"),
    ):
        changed: dict[str, Any] = wrong
        with pytest.raises(error, match=said):
            replace(site, **changed)
