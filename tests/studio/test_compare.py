"""Two heads beside one another, of one capture or of two: maps, difference, cursor, address."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight.errors import ArgumentError
from limelight.views import differences
from tests.studio import samples
from tests.studio.conftest import Running

Open = Callable[..., Any]


def test_any_two_heads_are_compared_on_the_tokens_that_both_have() -> None:
    short, long = ll.captures()["llama"], ll.captures()["llama-paragraph"]
    found = differences.two(short[11].one(1), long[16].one(0))
    info = differences.facts(found)
    assert info.first_queries == [0, 1, 2, 3, 4, 5] == info.second_queries
    made = differences.tile(found, (0, 6), (0, 6), (6, 6)).values
    expected = long[16].weights(rows=(0, 6), columns=(0, 6), head=0) - short[11].weights(head=1)
    allowed = np.tril(np.ones((6, 6), bool))
    np.testing.assert_allclose(made[allowed], expected[allowed], atol=1e-6)
    assert (made[~allowed] == differences.HIDDEN_CHANGE).all()
    other = replace(short[11].one(1), kind="cross")
    with pytest.raises(ArgumentError, match="cross-attention"):
        differences.two(short[11].one(1), other)


def test_the_api_tells_a_difference(studio: Running) -> None:
    base = "/api/captures/llama/sites/11/heads/1/against"
    asked = "?other=llama&other_site=2&other_head=1"
    cap = ll.captures()["llama"]
    info = studio.get(base + asked)
    assert info["query_tokens"] == list(cap.tokens[0])
    reply = studio.ask(f"{base}/tile{asked}&height=6&width=6")
    values = np.frombuffer(reply.body, "<f4").reshape(6, 6)
    expected = cap[2].weights(head=1) - cap[11].weights(head=1)
    allowed = np.tril(np.ones((6, 6), bool))
    np.testing.assert_allclose(values[allowed], expected[allowed], atol=1e-6)
    assert studio.ask(f"{base}?other=nothing&other_site=0&other_head=0").status == 404
    assert studio.ask(f"{base}?other=llama&other_site=2&other_head=99").status == 404
    assert studio.ask(f"{base}/tile{asked}&rows=0:99").status == 400


def maps(page: Any, name: str) -> Any:
    return page.get_by_role("application", name=re.compile(name))


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_a_second_head_is_set_in_the_grid(open_tab: Open, width: int, dark: bool) -> None:
    page = open_tab("#/explore/sample?head=1.1&cell=6.2", width=width, dark=dark)
    page.get_by_role("button", name="Put another head beside it").click()
    maps(page, "Weights of layer 1, head 2").wait_for()
    maps(page, "Difference of the two heads").wait_for()
    grid = page.get_by_role("grid", name=re.compile("Layers by heads"))
    grid.get_by_role("button", name=re.compile("layer 2, head 0")).click()
    maps(page, "Weights of layer 2, head 0").wait_for()
    assert "head=1.1&with=2.0" in page.url
    assert grid.locator("button.second").get_attribute("data-at") == "2,0"
    sample = samples.text_capture()
    change = differences.facts(differences.two(sample[1].one(1), sample[2].one(0))).change
    page.get_by_text(f"On average a row gives {100 * change:.0f}").wait_for()  # type: ignore[operator]
    page.get_by_role("button", name="Swap").click()
    page.wait_for_url(re.compile("head=2.0&with=1.1"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Close").click()
    page.wait_for_url(lambda url: "with=" not in url)


def test_a_head_of_another_capture_stands_beside_and_a_link_restores_it(open_tab: Open) -> None:
    page = open_tab("#/explore/llama?head=11.1&cell=2.1")
    page.get_by_role("button", name="Put another head beside it").click()
    page.get_by_label("Capture beside it").select_option("llama-paragraph")
    page.get_by_text("There is no such head in that capture").wait_for()  # it has eight layers
    page = open_tab("#/explore/llama?head=11.1&cell=2.1&with=3.1&of=llama-paragraph")
    second = maps(page, "Weights of layer 11, head 1 of Llama kind: SmolLM2-135M on a paragraph")
    second.wait_for()
    apart = maps(page, "Difference of the two heads")
    apart.wait_for()
    apart.focus()
    for key in ("Home", "ArrowDown", "Enter"):  # the open cell's row and the next
        page.keyboard.press(key)
    page.get_by_text("layer 11, head 1, query 3, key 0").wait_for()
    assert "with=3.1&of=llama-paragraph" in page.url


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("bank-river?head=5.4&with=5.4&of=bank-savings", "Weights of layer 5, head 4"),
        ("llama?head=11.1&with=11.6", "Weights of layer 11"),  # one has words of its own above it
    ],
)
def test_two_maps_stand_level_and_are_as_large(open_tab: Open, path: str, names: str) -> None:
    page = open_tab(f"#/explore/{path}")
    maps(page, "Difference of the two heads").wait_for()
    one, two = (found.bounding_box() for found in maps(page, names).all())
    assert [one[side] for side in ("y", "width", "height")] == [
        two[side] for side in ("y", "width", "height")
    ]
