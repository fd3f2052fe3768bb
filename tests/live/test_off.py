"""What is switched off, and what that does: against the formula written out, and against itself."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from limelight import live
from limelight.errors import ArgumentError
from limelight.live import Off
from limelight.live.effects import outcomes
from limelight.live.measure import Measure
from limelight.live.model import MEANS

LINE = "It is the east, and Juliet is the su"
OTHER = "Now is the winter of our discontent"
EPS = float(np.finfo(np.float32).eps)


def close(found: object, truth: object) -> None:
    a, b = np.asarray(found, np.float64), np.asarray(truth, np.float64)
    assert a.shape == b.shape
    assert np.abs(a - b).max() <= 128 * EPS * np.abs(b).max()


def by_hand(model: live.Model, run: live.Run, off: Off) -> np.ndarray:
    """The decoder in plain float64, one token and head at a time; logits of the last token."""
    d = model.decoder
    x = d.embed(run.ids).astype(np.float64)
    size, n = d.head_size, len(run.ids)

    def norm(part, x):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + part.eps) * part.weight + part.bias

    for layer, b in enumerate(d.blocks):
        q, k, v = np.split(norm(b.before, x) @ b.qkv, 3, axis=1)
        added = np.zeros_like(x)
        for head in range(d.heads):
            at = slice(head * size, (head + 1) * size)
            read = np.zeros((n, size))
            for i in range(n):
                keys = [j for j in range(i + 1) if (layer, head, i, j) not in off.cells]
                s = q[i, at] @ k[keys, at].T / np.sqrt(size)
                w = np.exp(s - s.max())
                read[i] = w / w.sum() @ v[keys, at]
            if (layer, head) in off.heads or layer in off.attention:
                read[:] = 0 if off.means is None else off.means.heads[layer, head]
            added += read @ b.out[at]
        x = x + added
        inner = norm(b.between, x) @ b.up + b.up_bias
        from math import erf, sqrt

        inner = inner * 0.5 * (1 + np.vectorize(erf)(inner / sqrt(2)))
        fed = inner @ b.down + b.down_bias
        if layer in off.feed_forward:
            fed[:] = 0 if off.means is None else off.means.feed_forward[layer]
        x = x + fed
    return norm(d.norm, x)[-1] @ d.unembedding


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize(
    "off",
    [
        Off(),
        Off(heads=[(0, 3), (0, 4), (4, 1)]),
        Off(attention=[2]),
        Off(feed_forward=[0, 3]),
        Off(cells=[(1, 2, 35, 35), (1, 2, 35, 0), (3, 0, 20, 4)]),
        Off(heads=[(2, 2)], attention=[1], feed_forward=[4], cells=[(0, 0, 9, 3)]),
    ],
    ids=["nothing", "heads", "attention", "feed-forward", "cells", "all"],
)
def test_off_is_the_formula_without_it(gpt: live.Model, off: Off, mean: bool) -> None:
    run = gpt.run(LINE, off, mean_over=OTHER if mean else None)
    close(run.last, by_hand(gpt, run, run.off))


def test_off_holds_for_what_is_written_after(gpt: live.Model) -> None:
    off = Off(heads=[(3, 0)], cells=[(1, 2, 37, 30)])
    run = gpt.run(LINE, Off(heads=[(3, 0)]))
    longer = gpt.run(LINE + "n, t", Off(heads=[(3, 0)]))
    for symbol in "n, t":
        run = run.then(symbol)
    close(run.last, longer.last)
    with pytest.raises(ArgumentError, match="there is no token 37"):
        gpt.run(LINE, off)


def test_a_capture_hides_the_cells_that_are_off(gpt: live.Model) -> None:
    seen = gpt.run(LINE, Off(cells=[(1, 2, 35, 35)])).capture
    assert seen[1].weights(head=2)[35, 35] == 0
    assert seen[1].weights(head=2)[35].sum() == pytest.approx(1)
    assert seen[1].weights(head=1)[35, 35] > 0


@pytest.mark.parametrize("how", [{}, {"answer": "b"}, {"answer": "n", "against": "b"}, {"loss": True},
                                 {"mean_over": OTHER}], ids=str)  # fmt: skip
def test_effects_are_those_of_single_runs(gpt: live.Model, how: dict) -> None:
    found = gpt.effects(LINE, **how)

    def measured(off) -> float:
        run = gpt.run(LINE, off, keep="all", mean_over=how.get("mean_over"))
        if how.get("loss"):
            return run.loss
        answer = how.get("answer", "n")
        if "against" in how:
            return float(run.last[gpt.token(answer)] - run.last[gpt.token(how["against"])])
        return run.log_probability(answer)

    assert found.before == pytest.approx(measured([]), abs=1e-5)
    single = [[measured([(n, h)]) for h in range(5)] for n in range(5)]
    assert np.abs(found.after - single).max() < 2e-5
    assert (found.cost == (found.change if how.get("loss") else -found.change)).all()
    layer, head, change = found.strongest(1)[0]
    assert abs(change) == np.abs(found.change).max() == abs(found.change[layer, head])


def test_layers_as_wholes(gpt: live.Model) -> None:
    found = gpt.effects(LINE, parts="layers")
    assert found.names == ("attention", "feed-forward")
    for n in range(5):
        for at, off in enumerate((Off(attention=[n]), Off(feed_forward=[n]))):
            expected = gpt.run(LINE, off).log_probability("n")
            assert found.after[n, at] == pytest.approx(expected, abs=2e-5)


def test_variants_in_several_batches_and_in_any_order(
    gpt: live.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = gpt.run(LINE)
    offs = [
        Off(heads=[(4, 1)]),
        Off(heads=[(0, 2), (3, 3)]),
        Off(feed_forward=[2]),
        Off(cells=[(1, 0, 9, 1)]),
    ]
    follow = Measure(run.ids, 7, 9)
    whole = outcomes(run, offs, follow)
    monkeypatch.setattr("limelight.live.effects.ROWS", 40)
    close(outcomes(run, offs, follow), whole)
    close([(last := gpt.run(LINE, off).last)[7] - last[9] for off in offs], whole)


def test_contributions_sum_to_the_logit(gpt: live.Model) -> None:
    for off in (Off(), Off(heads=[(2, 1)], feed_forward=[0], cells=[(4, 0, 35, 3)])):
        run = gpt.run(LINE, off)
        found = run.contributions("n")
        assert found.total == pytest.approx(float(run.last[gpt.token("n")]), rel=1e-5)
        assert found.heads.shape == found.norms.shape == (5, 5)
        pair = run.contributions("n", against="b")
        assert pair.total == pytest.approx(
            float(run.last[gpt.token("n")] - run.last[gpt.token("b")]), rel=1e-4
        )
    assert found.heads[2, 1] == found.norms[2, 1] == 0
    assert found.feed_forward[0] == pytest.approx(0, abs=1e-5)


def test_a_last_layer_head_contributes_what_its_absence_costs_before_the_norm(
    gpt: live.Model,
) -> None:
    """In the last layer a head speaks to the logits by itself, but for feed-forward and norm."""
    run = gpt.run(LINE, Off(feed_forward=[4]))
    without = gpt.run(LINE, Off(heads=[(4, 0)], feed_forward=[4]))
    d, token = gpt.decoder, gpt.token("n")
    lost = d.norm.linear(
        run.residuals[-1, -1:] - without.residuals[-1, -1:], d.norm.size(run.residuals[-1, -1:])
    )
    assert run.contributions("n").heads[4, 0] == pytest.approx(
        float(lost[0] @ d.unembedding[:, token]), rel=1e-3
    )


def test_reading_weighs_by_what_a_value_brings(gpt: live.Model) -> None:
    run = gpt.run(LINE)
    found = run.reading(3, 1)
    site, out = run.capture[3], gpt.decoder.blocks[3].out[32:64]
    i, j = 30, 12
    expected = np.linalg.norm(site.weights(head=1)[i, j] * (site.value[0, 1, j] @ out))
    assert found[i, j] == pytest.approx(expected, rel=1e-5)
    assert found.shape == (36, 36)
    assert (np.triu(found, 1) == 0).all()


def test_a_model_is_given_back_at_once_with_the_means_it_has_found() -> None:
    model = live.load("gpt")
    first = model.means(LINE)
    assert model.means(LINE) is first
    for n in range(1, MEANS + 1):
        model.means(LINE[:n])
    assert model.means(LINE) is not first  # of so many texts
    gone = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert gone() is None
    finally:
        gc.enable()


def test_what_off_refuses(gpt: live.Model) -> None:
    with pytest.raises(ArgumentError, match="there is no layer 5: there are 5"):
        gpt.run(LINE, [(5, 0)])
    with pytest.raises(ArgumentError, match="there is no head 9"):
        gpt.run(LINE, [(0, 9)])
    for wrong in ([3], [(1, 2, 3)], [("a", 1)], 4, [(True, 1)], [(0.5, 1)]):
        with pytest.raises(ArgumentError, match=r"off: heads=.* such as heads=\[\(layer, head\)\]"):
            gpt.run(LINE, wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"such as attention=\[3\]"):
        Off(attention=["a"])
    assert gpt.run(LINE, [(-1, -1)]).off == Off(heads=[(4, 4)])
    with pytest.raises(ArgumentError, match="parts='cells'"):
        gpt.effects(LINE, parts="cells")
    with pytest.raises(ArgumentError, match="leave answer and against out"):
        gpt.effects(LINE, answer="n", loss=True)
    with pytest.raises(ArgumentError, match="give the answer too"):
        gpt.effects(LINE, against="n")
    with pytest.raises(ArgumentError, match="two tokens or more"):
        gpt.effects("a", loss=True)


def test_a_table_to_read(gpt: live.Model) -> None:
    found = gpt.effects(LINE)
    lines = repr(found).splitlines()
    assert lines[0].startswith("Effects on the log-probability of 'n' next: −0.69")
    assert len(lines) == 7
    assert "<caption>" in found._repr_html_()
    assert "−0.00" not in found._repr_html_() + repr(found)
    unknown = replace(found, after=np.where(found.after == found.after.max(), np.nan, found.after))
    assert "nan" not in unknown._repr_html_() + repr(unknown)
    assert found.to_dict()["change"] == found.change.tolist()
