"""The story of a capture stays while it is open: its words, the heads they name, what chips mean."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import heads
from limelight.views.facts import health_of, kinds, summary
from limelight.views.order import findings
from tests.studio import samples
from tests.studio.looking import percent

Open = Callable[..., Any]


@pytest.mark.parametrize("name", ll.captures().names)
def test_each_mention_shows_what_it_says(name: str) -> None:
    """The cell of every mention carries its row, and every capture has a story."""
    capture = ll.captures()[name]
    told = summary(capture, name, "shipped").story
    assert told is not None
    assert len(told.mentions) >= 2
    for one in told.mentions:
        row, column = one.cell
        weights = capture.sites[one.site].weights([row], head=one.head)[0]
        assert weights[column] == weights.max(), one
        # A word is looked at with much of the weight, a patch of a picture with many times its share.
        assert weights[column] > (0.4 if capture.image is None else 5 / len(weights)), one
    assert summary(capture, name, "folder").story is None


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_the_story_stands_above_and_leads_to_its_heads(
    open_tab: Open, width: int, dark: bool
) -> None:
    page = open_tab("#/explore/llama-paragraph", width=width, dark=dark)
    capture = ll.captures()["llama-paragraph"]
    told = summary(capture, "llama-paragraph", "shipped").story
    assert told is not None
    page.get_by_text(told.words).wait_for()
    page.get_by_role("heading", name="Layer 17, head 5").wait_for()  # not layer 0, head 0
    page.locator(".token.lamp", has_text="curious").wait_for()
    page.locator(".mention", has_text=told.mentions[0].words).wait_for()
    beside = page.locator(".why", has_text=told.mentions[0].why)
    beside.get_by_text("More in docs/systems/llama.md").wait_for()
    button = page.get_by_role("button", name=told.mentions[1].words)
    button.focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Layer 16, head 0").wait_for()
    assert button.get_attribute("aria-pressed") == "true"
    assert "head=4.0&cell=50.49" in page.url
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_chips_say_what_they_mean_by_pointer_and_keyboard(open_tab: Open) -> None:
    page = open_tab("#/explore/llama-paragraph?head=5.5")
    chip = page.locator(".chip.kind", has_text="induction").first
    chip.wait_for(timeout=60_000)  # every head is judged by every kind first
    page.get_by_label("Colour by").get_by_role("option", name="induction", exact=True).wait_for(
        state="attached", timeout=60_000
    )
    says = page.locator("[role=tooltip].open")
    assert says.count() == 0
    chip.hover()
    found = kinds(ll.captures()["llama-paragraph"])
    assert found is not None
    score, rows = found.scores["induction"][5, 5], int(found.rows["induction"][5, 5])
    text = says.inner_text()
    assert f"looks at what followed this token before: with {percent(score)} of its weight" in text
    assert f"over {rows} rows" in text
    page.mouse.move(2, 2)
    chip.focus()
    assert says.is_visible()
    page.keyboard.press("Tab")
    page.locator("[role=tooltip].open", has_text="The largest weight of a row is").wait_for()


def test_another_capture_opens_on_what_stands_out_most(open_tab: Open) -> None:
    capture = samples.text_capture()
    first = findings(capture, [health_of(site, 0) for site in capture.sites], kinds(capture))[0]
    assert first.cell is not None
    page = open_tab("#/explore/sample")
    place = f"layer {first.site}, head {first.head}, query {first.cell[0]}, key {first.cell[1]}"
    page.get_by_text(place).wait_for()
    page.get_by_role("button", name=re.compile("layer 2, head 0")).click()
    page.get_by_text(f"layer 2, head 0, query {first.cell[0]}, key {first.cell[1]}").wait_for()


def test_brightness_clips_next_to_nothing_and_says_so(open_tab: Open) -> None:
    page = open_tab("#/explore/long?head=0.0")
    page.wait_for_load_state("networkidle")
    legend = page.locator(".settings .legend")
    site = samples.long_capture().sites[0]
    seen = site.heatmap((129, 129), head=0)
    weights = seen.values[~seen.empty]
    gain = int(page.locator(".times").inner_text().lstrip("×"))
    assert (weights > 1 / gain).mean() <= 0.012
    page.get_by_label("Brightness").fill("8")
    legend.get_by_text("1/256 and more").wait_for()
    share = float(re.search(r"\(([\d.]+)\s%", legend.inner_text())[1])  # type: ignore[index]
    assert share / 100 == pytest.approx((weights > 1 / 256).mean(), abs=0.02)


@pytest.mark.parametrize(
    ("name", "layer", "head", "kind"),
    [("llama-paragraph", 17, 5, "induction"), ("llama-paragraph", 18, 8, "sink"), ("bert", 0, 2, "previous"), ("code", 4, 2, None)],
)  # fmt: skip
def test_the_telling_cell_of_a_head(name: str, layer: int, head: int, kind: str | None) -> None:
    capture = ll.captures()[name]
    site = capture[layer]
    cell = heads.telling(site, head, kind=kind)
    assert cell is not None
    weights = site.weights(head=head)
    assert weights[cell] > 0.8
    if kind == "induction":
        tokens = site.tokens[0]
        assert tokens[cell[1] - 1] == tokens[cell[0]]
    if kind is None:
        assert cell[1] not in (0, cell[0])


def test_nothing_tells_of_a_head_that_looks_nowhere() -> None:
    empty = np.zeros((1, 1, 0, 4)), np.zeros((1, 1, 0, 4))
    assert heads.telling(ll.Site("none", 0, *empty), 0) is None
