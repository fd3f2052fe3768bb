"""What to look at first: what is wrong, then known kinds, strong heads, and those at rest."""

from __future__ import annotations

import json

import numpy as np
import pytest

from limelight import Causal
from limelight.capture import Capture, Site
from limelight.capture.shipped import open as shipped
from limelight.errors import ArgumentError
from limelight.live.effects import Effects
from limelight.report import bundle
from limelight.views.facts import health_of, kinds
from limelight.views.order import findings
from limelight.views.schema import Finding
from tests.studio import samples

LENGTH = 31
TOKENS = ("<s>", *(f"t{n}" for n in range(1, LENGTH)))


def one_hot(targets: list[int], strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Queries and keys whose row i rests on targets[i]."""
    return strength * np.eye(LENGTH)[targets], np.eye(LENGTH)


def house() -> Capture:
    """Heads: 0 a sink, 1 even, 2 the token before, 3 strong without a kind, 4 weak, 5 before, weaker."""
    before = [max(0, n - 1) for n in range(LENGTH)]
    third = [max(0, n - 3) for n in range(LENGTH)]
    pairs = [one_hot([0] * LENGTH, 90.0), one_hot([0] * LENGTH, 0.0), one_hot(before, 90.0),
             one_hot(third, 40.0), one_hot(third, 15.0), one_hot(before, 30.0)]  # fmt: skip
    query, key = (np.stack(part)[None] for part in zip(*pairs, strict=True))
    site = Site("a", 0, query, key, mask=Causal(), tokens=(TOKENS,))
    return Capture((site,), (TOKENS,))


def found(capture: Capture) -> list[Finding]:
    return findings(capture, [health_of(site, 0) for site in capture.sites], kinds(capture))


def test_kinds_come_first_the_strongest_of_them_ahead_and_sinks_last() -> None:
    order = found(house())
    assert [one.head for one in order] == [2, 5, 3, 4, 1, 0]
    assert [one.kinds for one in order] == [
        ["previous token"], ["previous token"], [], [], ["uniform"], ["sink"],
    ]  # fmt: skip
    assert not any(one.wrong for one in order)
    said = {one.head: one.why for one in order}
    assert said[2].startswith("It looks at the token before with 100 % of its weight; evenly")
    assert "95 % or more on one key" in said[3]
    assert said[0].startswith("It rests on the first token with 100 % of its weight")
    assert said[1].startswith("It spreads evenly over all keys (spread 1.00)")


def test_heads_of_no_known_kind_come_by_their_effect_where_it_was_measured() -> None:
    capture = house()
    after = np.zeros((1, 6))
    after[0, 4], after[0, 3] = -2.0, 0.5  # the weak one matters more
    measured = Effects(0.0, after, "loss", TOKENS, None)
    seen = [health_of(site, 0) for site in capture.sites]
    order = findings(capture, seen, kinds(capture), effects=measured)
    assert [one.head for one in order] == [2, 5, 4, 3, 1, 0]


def test_a_head_that_rests_is_not_strong() -> None:
    """Weights on the first token count for nothing among heads of no known kind."""
    first = [0 if n % 2 else max(0, n - 3) for n in range(LENGTH)]  # half of the rows rest
    third = [max(0, n - 3) for n in range(LENGTH)]
    pairs = [one_hot(first, 90.0), one_hot(third, 20.0)]
    query, key = (np.stack(part)[None] for part in zip(*pairs, strict=True))
    capture = Capture((Site("a", 0, query, key, mask=Causal(), tokens=(TOKENS,)),), (TOKENS,))
    order = found(capture)
    assert [one.kinds for one in order] == [[], []]
    assert [one.head for one in order] == [1, 0]


def test_named_heads_keep_their_vectors_before_all_others() -> None:
    capture = house()
    found = kinds(capture)
    room = bundle(capture, budget=10**6, found=found).size - 600  # not for all six
    small = bundle(capture, budget=room, found=found)
    told = bundle(capture, budget=room, found=found, first=[(0, 0), (0, 4)])
    assert len(told.complete) < 6
    assert told.complete[:2] == [(0, 0), (0, 4)] != small.complete[:2]
    with pytest.raises(
        ArgumentError, match=r"no head 0\.9: the capture has 6 heads in the layers 0"
    ):
        bundle(capture, budget=room, first=[(0, 9)])
    with pytest.raises(ArgumentError, match=r"no head 99\.1: .* 9 heads in the layers 0 to 29$"):
        bundle(shipped("llama"), budget=10**6, first=[(99, 1)])


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_only_what_is_wrong_is_an_alarm_and_it_comes_before_all(bad: float) -> None:
    capture = house()
    capture.sites[0].query[0, 0, 7] = bad
    capture.sites[0].key[0, 0, 3] = bad
    order = found(capture)
    assert order[0].head == 0
    assert [one.wrong for one in order] == [True, False, False, False, False, False]
    assert "not a number" in order[0].why or "infinite" in order[0].why
    data = bundle(capture, budget=10**6).data
    json.dumps(data, allow_nan=False)
    assert ("0.0" in data["vectors"]["heads"]) == (bad != 1e200)  # no float holds it: left out


def test_one_query_shows_no_pattern() -> None:
    site = house().sites[0]
    last = Site("a", 0, site.query[:, :, -1:], site.key, tokens=(TOKENS,))
    assert all(not one.kinds for one in found(Capture((last,), (TOKENS,))))


def test_a_head_that_rests_on_another_key_is_told_which() -> None:
    query, key = one_hot([5] * LENGTH, 90.0)
    site = Site("a", 0, query[None, None], key[None, None], tokens=(TOKENS,))
    assert "of all its weight goes to key 5 (“t5”)" in found(Capture((site,), (TOKENS,)))[0].why


def test_a_bundle_and_the_rule_agree() -> None:
    capture = samples.text_capture(29)
    data = bundle(capture, budget=10**7, found=kinds(capture)).data
    assert [(one["site"], one["head"]) for one in data["findings"]] == [
        (one.site, one.head) for one in found(capture)
    ]
