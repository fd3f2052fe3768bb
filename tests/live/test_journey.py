"""The last token's way, and its large looks: against the run itself, number by number."""

from __future__ import annotations

import numpy as np
import pytest

from limelight import live
from limelight.live import Off
from limelight.live.journey import journey
from limelight.live.looks import looks
from limelight.live.run import log_softmax

TEXT = "JULIET:\nO Romeo, Romeo! wherefore art thou Rome"


@pytest.fixture(scope="module")
def run() -> live.Run:
    return live.load("gpt").run(TEXT)


def test_the_way_starts_at_the_embedding_and_ends_at_the_models_answer(run: live.Run) -> None:
    way = journey(run, k=4)
    stream = run.residuals[:, -1].astype(np.float64)
    assert [stop.layer for stop in way] == [-1, *np.repeat(range(5), 2)]
    assert [stop.part for stop in way[1:]] == ["attention", "feed-forward"] * 5
    sizes = [stop.size for stop in way if stop.part != "attention"]
    np.testing.assert_allclose(sizes, np.linalg.norm(stream, axis=1), rtol=1e-6)
    expected = run.next(4)
    for mine, theirs in zip(way[-1].guesses, expected, strict=True):
        assert mine.token == theirs.token
        assert mine.probability == pytest.approx(theirs.probability, rel=1e-4)


def test_each_guess_is_the_stream_asked_early(run: live.Run) -> None:
    decoder = run.model.decoder
    for stop, x in zip(journey(run)[2::2], run.residuals[1:, -1], strict=True):
        shares = np.exp(log_softmax(decoder.logits(x[None])[0]))
        assert stop.guesses[0].probability == pytest.approx(shares.max(), rel=1e-5)


def test_what_is_added_is_what_a_layer_without_it_lacks(run: live.Run) -> None:
    without = run.model.run(TEXT, Off(attention=[0]))
    first, attention, fed = journey(run)[:3]
    kept = journey(without)
    assert kept[1].added == 0
    assert kept[1].size == pytest.approx(first.size)
    assert attention.added > 0
    assert fed.added > 0


def test_replaced_by_what_is_read_the_text_is_lost(run: live.Run) -> None:
    kept, replaced = journey(run), journey(run, replace=True)
    assert kept[0] == replaced[0]
    assert replaced[1].size == pytest.approx(replaced[1].added)  # nothing of the token is left
    assert replaced[1].added == pytest.approx(kept[1].added, rel=1e-4)  # the first read is the same
    assert kept[-1].guesses[0].token == "o"
    assert replaced[-1].guesses[0].token != "o"


def test_a_look_is_its_weight_and_what_hiding_it_changes(run: live.Run) -> None:
    found = looks(run, 0.4)
    assert [look.weight for look in found] == sorted((x.weight for x in found), reverse=True)
    before = run.log_probability("o")
    for look in (found[0], found[-1]):
        weights = run.capture[look.layer].weights(head=look.head)[-1]
        assert look.weight == pytest.approx(float(weights[look.key]), rel=1e-6)
        assert look.brought == pytest.approx(run.reading(look.layer, look.head)[-1, look.key])
        cell = (look.layer, look.head, len(run.ids) - 1, look.key)
        hidden = run.model.run(TEXT, Off(cells=[cell]))
        assert look.change == pytest.approx(hidden.log_probability("o") - before, abs=1e-4)


def test_a_large_weight_may_change_nothing_and_a_smaller_one_all(run: live.Run) -> None:
    found = looks(run)
    assert abs(found[0].change) < 0.05 < 0.9 < found[0].weight
    worst = min(found, key=lambda look: look.change)
    assert worst.weight < found[0].weight
    assert worst.change < -2
    assert looks(run, 1.1) == []
