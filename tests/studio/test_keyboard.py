"""Explore by keyboard alone, on a narrow and dark page: light, brightness, a second head, pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import limelight as ll
from limelight.capture import compare

Open = Callable[..., Any]


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_what_a_look_brings_and_brightness(open_tab: Open) -> None:
    page = open_tab("#/explore/llama-paragraph?head=6.8&cell=54.0", width=390, dark=True)
    lit = page.get_by_label("A cell is lit by")
    lit.focus()
    with page.expect_request(re.compile("lit=value")):
        press(page, "ArrowDown")
    page.get_by_text("weight × length of what WO writes of the value").wait_for()
    press(page, "ArrowUp")
    page.wait_for_url(lambda url: "lit=" not in url)
    page.get_by_label("Brightness").focus()
    press(page, "Home", "ArrowRight", "ArrowRight")
    legend = page.locator(".settings .legend")
    legend.get_by_text("1/4 and more").wait_for()  # and says how much of the map that is
    weights = ll.captures()["llama-paragraph"].sites[6].weights(head=8)
    share = 100 * (weights[weights > 0] > 0.25).sum() / (len(weights) * (len(weights) + 1) / 2)
    told = float(re.search(r"\(([\d.]+)\s%", legend.inner_text())[1])  # type: ignore[index]
    assert abs(told - share) < 1.5
    assert fits(page)


def test_a_second_head_and_the_other_meaning(open_tab: Open) -> None:
    page = open_tab("#/explore/bank-river", width=390, dark=True)
    page.get_by_role("button", name="Put the other meaning beside it").focus()
    press(page, "Enter")
    page.wait_for_url(re.compile("with=2.11&of=bank-savings"))
    page.get_by_role("application", name="Difference of the two heads").wait_for()
    page.get_by_label("Capture beside it").focus()
    press(page, "Home")  # this capture
    page.wait_for_url(lambda url: "with=2.11" in url and "of=" not in url)
    grid = page.get_by_role("grid", name=re.compile("Layers by heads"))
    grid.locator("button[tabindex='0']").focus()
    press(page, "ArrowLeft", "Enter")
    page.wait_for_url(re.compile(r"head=2\.11&with=2\.10"))
    page.get_by_role("application", name="Weights of layer 2, head 10").wait_for()
    assert fits(page)


def test_patches_entries_and_light(open_tab: Open) -> None:
    capture = ll.captures()["vit"]
    grid, labels = capture.grid, capture.source["labels"]
    assert grid is not None
    page = open_tab("#/explore/vit", width=390, dark=True)
    page.get_by_role("button", name="Image").focus()
    press(page, "Enter")
    picture = page.get_by_role("application", name=re.compile("looks at, .* patches"))
    picture.focus()
    press(page, "ArrowRight")
    page.get_by_text("the patch in row 1, column 2").first.wait_for()
    press(page, "ArrowDown")
    place = grid.start + grid.columns + 1  # the second patch of the second row
    page.get_by_text("the patch in row 2, column 2").first.wait_for()
    page.get_by_role("button", name="Layer’s mean").focus()
    press(page, "Enter")
    page.wait_for_url(re.compile("light=layer"))
    entry = page.get_by_label("Entry")
    entry.focus()
    press(page, "ArrowDown")
    page.wait_for_url(re.compile("batch=1"))
    assert entry.locator("option").nth(1).inner_text() == str(labels[1])
    assert f"cell={place}." in page.url  # the patch is kept
    assert fits(page)


def test_the_studio_s_comparison_is_the_library_s(open_tab: Open) -> None:
    """What `limelight studio A B --compare` opens."""
    found = compare(ll.captures()["bank-river"], ll.captures()["bank-savings"]).strongest(1)[0]
    at = f"{found.layer}.{found.head}"
    page = open_tab(f"#/explore/bank-river?head={at}&with={at}&of=bank-savings")
    page.get_by_role("application", name="Difference of the two heads").wait_for()
    page.get_by_text(f"On average a row gives {100 * found.change:.0f}").wait_for()
