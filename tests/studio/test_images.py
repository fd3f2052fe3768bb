"""A picture as it is and lit: by a head, by means over heads and layers, through all layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight.errors import ArgumentError
from limelight.views import looks
from tests.studio.conftest import Running

Open = Callable[..., Any]


def test_rollout_follows_attention_through_every_layer() -> None:
    capture = ll.captures()["vit"]
    sites = [site.entry(3) for site in capture.sites]
    step = np.eye(50)
    for site in sites:  # as a product of matrices, the first layer's at the right
        step = (np.eye(50) + site.weights().astype(np.float64).mean(0)) / 2 @ step
    for query in (0, 5, 49):
        found = looks.rollout(sites, query)
        np.testing.assert_allclose(found, step[query], atol=1e-6)
        assert found.sum() == pytest.approx(1, abs=1e-5)
    with pytest.raises(ArgumentError, match="no self-attention"):
        looks.rollout([], 0)
    long = ll.Site("long", 0, np.zeros((1, 1, 1025, 2)), np.zeros((1, 1, 1025, 2)))
    with pytest.raises(ArgumentError, match="for up to 1,024"):
        looks.rollout([long], 0)


def test_the_api_rolls_out(studio: Running) -> None:
    reply = studio.ask("/api/captures/vit/light?side=row&index=0&batch=3&rollout=true")
    sites = [site.entry(3) for site in ll.captures()["vit"].sites]
    np.testing.assert_allclose(np.frombuffer(reply.body, "<f4"), looks.rollout(sites, 0), atol=1e-6)
    refused = studio.ask("/api/captures/vit/light?side=column&index=0&rollout=true")
    assert refused.status == 400


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_the_clean_picture_stands_beside_the_lit_one(
    open_tab: Open, width: int, dark: bool
) -> None:
    page = open_tab("#/explore/vit?head=0.1&look=image&cell=0.29&batch=10", width=width, dark=dark)
    page.get_by_alt_text("as it is").wait_for()
    entry = page.get_by_label("Entry")
    assert entry.locator("option").nth(10).inner_text() == "sneaker, read as ankle boot"
    page.get_by_role("button", name="Through all layers").click()
    sites = [site.entry(10) for site in ll.captures()["vit"].sites]
    rolled = looks.rollout(sites, 0)
    best = int(rolled[1:].argmax())
    page.get_by_text(f"row {best // 7 + 1}, column {best % 7 + 1}").wait_for()
    page.get_by_text(f"{100 * rolled[1 + best]:.1f}").first.wait_for()
    entry.select_option("11")
    page.wait_for_url("**batch=11**")
    assert "cell=0.29" in page.url  # the query is kept
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
