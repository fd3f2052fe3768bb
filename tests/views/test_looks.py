"""What a query looks at, and who looks at a key: a head's, and the mean over several."""

from __future__ import annotations

import numpy as np
import pytest

import limelight as ll
from limelight.capture import Site
from limelight.errors import ArgumentError
from limelight.views.looks import light
from limelight.views.tiles import HIDDEN


def site(heads: int, queries: int, keys: int, seed: int = 0) -> Site:
    rng = np.random.default_rng(seed)
    query, key = (rng.standard_normal((1, heads, n, 5)) for n in (queries, keys))
    return Site(f"s{seed}", seed, query, key, mask=ll.Causal())


def test_light_is_the_mean_over_all_heads_and_the_future_is_hidden() -> None:
    sites = [site(3, 7, 7), site(2, 7, 7, seed=1)]
    every = np.concatenate([one.weights() for one in sites])
    allowed = ll.Causal().dense(7, 7)
    for place in (0, 3, 6):
        row, column = light(sites, "row", place), light(sites, "column", place)
        np.testing.assert_allclose(
            row[allowed[place]], every.mean(0)[place, allowed[place]], rtol=1e-5
        )
        assert (row[~allowed[place]] == HIDDEN).all()
        seen = allowed[:, place]
        np.testing.assert_allclose(column[seen], every.mean(0)[seen, place], rtol=1e-5)
        assert (column[~seen] == HIDDEN).all()


def test_a_site_of_another_shape_is_left_out() -> None:
    own, other = site(2, 5, 7), site(2, 5, 6, seed=1)
    np.testing.assert_array_equal(light([own, other], "row", 2), light([own], "row", 2))


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(ArgumentError, match="there is no head"):
        light([], "row", 0)
    with pytest.raises(ArgumentError, match="row"):
        light([site(1, 3, 3)], "row", 3)


def test_rows_that_are_at_hand_are_not_summed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one = site(2, 6, 6)
    before = light([one], "column", 1)
    assert one.statistics is not None
    from limelight.looking import weights

    def never(*_: object) -> None:
        raise AssertionError("a second pass over the keys")

    chosen = weights.choose(one.call).module
    monkeypatch.setattr(chosen, "forward", never)
    np.testing.assert_allclose(light([one], "column", 1), before, rtol=1e-5)
