"""A rectangle of a mask is that rectangle of its dense form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import limelight as ll
from limelight.masks.allowed import Allowed

RNG = np.random.default_rng(0)
MASKS: list[Any] = [
    ll.Causal(), ll.Causal(align="top-left"), ll.Window(3, 2), ll.Window(None, 4), ll.Lengths([0, 7]),
    ll.Lengths([5, 13], queries=[11, 2]), ll.Documents([0] * 5 + [1] * 8), ll.Causal() | ll.Prefix(4),
    ~ll.Window(1, 1), ll.Causal() & ll.Lengths([9, 13]), ll.Causal() & (RNG.random((11, 13)) < 0.5),
    ll.Lengths(13) & (RNG.random((2, 3, 1, 13)) < 0.5),
]  # fmt: skip


def cells(allowed: Any) -> Any:
    tile = allowed.tile(np.arange(allowed.nq), np.arange(allowed.nk))
    return np.ones((1, 1, allowed.nq, allowed.nk), bool) if tile is None else tile


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.expression)
@settings(deadline=None)
@given(
    edges=st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(0, 13), st.integers(0, 13))
)
def test_crop_is_the_rectangle(mask: Any, edges: tuple[int, int, int, int]) -> None:
    top, bottom, left, right = edges
    rows, columns = slice(top, bottom), slice(left, right)
    whole = mask.allowed(11, 13)
    part = whole.crop(rows, columns)
    assert (part.nq, part.nk) == (max(0, bottom - top), max(0, right - left))
    want = cells(whole)[:, :, rows, columns]
    assert np.array_equal(np.broadcast_to(cells(part), want.shape), want)


def test_a_band_that_covers_the_rectangle_is_dropped() -> None:
    causal = ll.Causal().allowed(100, 100)
    assert causal.crop(slice(50, 60), slice(0, 20)).everything
    assert causal.crop(slice(0, 20), slice(50, 60)).reach(0, 20) == (0, 0)
    assert causal.crop(slice(50, 60), slice(50, 60)).band == (-10, 0)


@settings(deadline=None)
@given(st.tuples(*[st.integers(-15, 15)] * 2), st.tuples(*[st.integers(0, 12)] * 4))
def test_a_band_reaches_as_far_as_its_cells(
    band: tuple[int, int], sizes: tuple[int, int, int, int]
) -> None:
    nq, nk, start, stop = sizes
    i, j = np.arange(nq)[:, None], np.arange(nk)
    used = np.nonzero(((j - i >= band[0]) & (j - i <= band[1]))[start:stop].any(axis=0))[0]
    want = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
    assert Allowed(nq, nk, band=band).reach(start, stop) == want
