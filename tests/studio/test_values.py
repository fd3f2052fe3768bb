"""What a weight brings, as a second light over the same cells; one word in two sentences."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import heads
from tests.studio.conftest import Running
from tests.studio.looking import figures

Open = Callable[..., Any]


def test_tiles_of_what_each_weight_brings(studio: Running) -> None:
    site = ll.captures()["llama-paragraph"].sites[6]
    reply = studio.ask(
        "/api/captures/llama-paragraph/sites/6/heads/8/tile?height=55&width=55&lit=value"
    )
    found = np.frombuffer(reply.body, "<f4").reshape(55, 55)
    expected = site.by_value(8).weights(head=0)
    lower = np.tril(np.ones((55, 55), bool))
    np.testing.assert_allclose(found[lower], expected[lower], atol=2e-6)


def test_a_sink_goes_dark_in_the_page(open_tab: Open) -> None:
    page = open_tab("#/explore/llama-paragraph?head=6.8&cell=54.0")
    page.get_by_role("application", name=re.compile("Weights of layer 18, head 8")).wait_for()
    with page.expect_request(re.compile("lit=value")):
        page.get_by_label("A cell is lit by").select_option("value")
    page.wait_for_url(re.compile("lit=value"))
    page.get_by_text("weight × length of what WO writes of the value").wait_for()
    page.wait_for_load_state("networkidle")
    assert page.locator(".times").inner_text() == "×1"  # no brightness of its own lights it again


@pytest.mark.parametrize(("width", "dark"), [(1440, True), (390, False)])
def test_two_meanings_of_one_word_stand_side_by_side(
    open_tab: Open, width: int, dark: bool
) -> None:
    page = open_tab("#/explore/bank-river", width=width, dark=dark)
    capture = ll.captures()["bank-river"]
    page.get_by_role("heading", name="Layer 2, head 11").wait_for()
    found = {
        (one.layer, one.head): one.weight
        for one in heads.search(capture, query="bank", key="river")
    }
    assert found[2, 11] > 0.5
    story = page.get_by_role("region", name="Story")
    assert figures(story).tolist() == capture.source["cosine"]
    assert len(capture.source["cosine"]) == 7
    story.get_by_role("button", name="Put the other meaning beside it").click()
    name = "Weights of layer 2, head 11 of Two meanings of one word: savings bank"
    page.get_by_role("application", name=name).wait_for()
    page.get_by_role("application", name="Difference of the two heads").wait_for()
    assert "with=2.11&of=bank-savings" in page.url
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
