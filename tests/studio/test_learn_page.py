"""Learn as a page: reached by keyboard and by address, clean for axe, whole at every width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.marks import quick
from tests.studio.looking import focused, violations

PARTS = (
    "input", "step", "map", "lab", "example", "scaling", "softmax", "future", "apply", "heads",
    "next", "not", "stays",
)  # fmt: skip


def ready(page: Any) -> Any:
    page.locator("#apply .board:not(.waiting)").wait_for()
    page.locator("#map").get_by_text("Fetching the head").wait_for(state="detached")
    page.locator("#training .waiting").wait_for(state="detached")
    page.locator("#remedies .waiting").wait_for(state="detached")
    page.locator("#next .stops data").first.wait_for()
    page.locator("#not").get_by_text("of the 25 heads").wait_for()
    page.locator("#not").get_by_role("link", name="Open it in Explore").wait_for()
    return page


@pytest.mark.parametrize(("width", "dark"), [
    pytest.param(1440, False, id="1440-light"),
    pytest.param(360, True, id="360-dark"),
    pytest.param(1440, True, id="1440-dark", marks=pytest.mark.slow),
    pytest.param(360, False, id="360-light", marks=pytest.mark.slow),
])  # fmt: skip
def test_axe_finds_nothing_serious(
    open_tab: Callable[..., Any], axe: str, width: int, dark: bool
) -> None:
    page = ready(open_tab(width=width, dark=dark))
    assert violations(page, axe) == []
    step = page.locator("#step")
    step.get_by_role("switch").click()
    step.get_by_role("tab", name="Weights", exact=True).click()
    page.locator("#lab").get_by_role("switch").click()  # saturated: another set of colours
    page.locator("#apply").get_by_role("button", name="Quiz").click()
    page.locator("#apply").get_by_role("radio").first.check()
    for opened in page.locator("summary:visible").all():
        opened.click()
    assert violations(page, axe) == []


@pytest.mark.slow
def test_axe_finds_nothing_serious_in_any_stage(page: Any, axe: str) -> None:
    step = ready(page).locator("#step")
    for name in ("Q, K, V", "Scores", "Scaled", "Masked", "Output"):
        step.get_by_role("tab", name=name, exact=True).click()
        assert violations(page, axe, "#step") == []


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious_on_the_projector(
    open_tab: Callable[..., Any], axe: str, dark: bool
) -> None:
    page = open_tab("#/learn/input?learn.projector=1", width=1024, height=768, dark=dark)
    for part in PARTS:
        page.evaluate("hash => (location.hash = hash)", f"#/learn/{part}?learn.projector=1")
        page.locator(f"#{part}").wait_for()
        page.wait_for_load_state("networkidle")
        assert violations(page, axe) == []


@pytest.mark.parametrize(
    "width",
    quick((360, 414, 768, 1024, 1440, 2560, 3840), 360, 1440),
)
def test_nothing_is_wider_than_the_window(open_tab: Callable[..., Any], width: int) -> None:
    page = ready(open_tab(width=width))
    for name in ("X", "Q, K, V", "Scores", "Weights", "Output"):
        page.locator("#step").get_by_role("tab", name=name, exact=True).click()
        wide = page.evaluate("document.scrollingElement.scrollWidth")
        assert wide <= width
    spills = page.evaluate(
        """() => [...document.querySelectorAll("main .card > *")].filter(element => {
            const card = element.parentElement.getBoundingClientRect();
            const box = element.getBoundingClientRect();
            return box.right > card.right + 1 || box.left < card.left - 1;
        }).map(element => element.outerHTML.slice(0, 200))"""
    )
    assert spills == []
    tight = page.evaluate(
        """() => [...document.querySelectorAll("main .button:not(:has(.unseen))")].filter(button => {
            const words = document.createRange();
            words.selectNodeContents(button);
            const [text, box] = [words, button].map(each => each.getBoundingClientRect());
            return text.height && Math.min(text.top - box.top, box.bottom - text.bottom) < 3;
        }).map(button => button.textContent)"""
    )
    assert tight == []  # also where words take two lines


def test_formulas_are_typeset(page: Any) -> None:
    ready(page)
    raw = r"""() => {
      const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
      const found = [];
      for (let text; (text = texts.nextNode()); )
        if (/[A-Za-z]_[A-Za-z](?![A-Za-z])|e\^/.test(text.data) && !text.parentElement.closest("code"))
          found.push(text.data);
      return found;
    }"""
    page.locator("#step").get_by_role("tab", name="Weights").click()
    assert page.evaluate(raw) == []


def test_the_names_of_arrows_are_beside_the_knob(page: Any) -> None:
    plot = ready(page).locator("#example").get_by_role("group", name="The query and three keys")
    knob = plot.locator(".knob").bounding_box()
    for name in plot.locator(".key text").all():
        box = name.bounding_box()
        over = (
            min(box["x"] + box["width"], knob["x"] + knob["width"]) - max(box["x"], knob["x"]),
            min(box["y"] + box["height"], knob["y"] + knob["height"]) - max(box["y"], knob["y"]),
        )
        assert min(over) <= 0


def test_stepping_through_moves_nothing_below(page: Any) -> None:
    ready(page)
    tops = set()
    for name in ("X", "Q, K, V", "Scores", "Scaled", "Masked", "Weights", "Output"):
        page.locator("#step").get_by_role("tab", name=name, exact=True).click()
        tops.add(page.evaluate("document.getElementById('map').offsetTop"))
    assert len(tops) == 1


def test_the_lab_moves_nothing_below(page: Any) -> None:
    ready(page)
    lab = page.locator("#lab")
    tops = {page.evaluate("document.getElementById('example').offsetTop")}
    lab.get_by_role("switch").click()
    for d_k in (1, 16, 1024):
        lab.get_by_role("textbox", name="d k").fill(str(d_k))
        tops.add(page.evaluate("document.getElementById('example').offsetTop"))
    assert len(tops) == 1


def test_other_numbers_move_nothing(page: Any) -> None:
    ready(page)
    lab, example, training, future = (
        page.locator(f"#{part}") for part in ("lab", "example", "training", "future")
    )
    held = """() => [...document.querySelectorAll(`#lab .slide input, #lab .marks span, #future .cell,
        #example :is(th, td), #training .numbers :is(th, td), #future .numbers :is(th, td)`)].map(
            each => { const box = each.getBoundingClientRect(); return [box.left, box.width]; })"""
    tops = "() => [...document.querySelectorAll('main section[id]')].map(part => part.offsetTop)"
    boxes, starts = np.array(page.evaluate(held)), page.evaluate(tops)

    def across(what: str) -> None:
        assert np.abs(page.evaluate(held) - boxes).max() < 0.5, what

    def same(what: str) -> None:
        across(what)
        assert page.evaluate(tops) == starts, what

    for d_k in (3, 100, 1024):
        lab.get_by_role("textbox", name="d k").fill(str(d_k))
        same(f"the lab's d_k = {d_k}")
    for field in (0, 2, 5, 9):
        for number in ("-2", "0", "4"):
            example.get_by_role("textbox").nth(field).fill(number)
            same(f"{number} in the example's field {field}")
        example.get_by_role("textbox").nth(field).fill("-12.345")  # long sums take a second line
        across(f"a long number in the example's field {field}")
        example.get_by_role("button", name="Start over").click()
    for figure in ("Gradient", "Spread", "Saturated", "Loss"):
        training.get_by_role("button", name=figure, exact=True).click()
        same(f"the training's {figure}")
    for row in future.locator(".word").all():
        row.click()
        same(f"the row of {row.text_content()}")


@pytest.mark.parametrize("width", quick((1440, 768, 360), 1440, 360))
def test_what_the_server_sends_moves_nothing(open_tab: Callable[..., Any], width: int) -> None:
    page = ready(open_tab(width=width))
    held: list[Any] = []
    waiting = True
    page.route("**/api/**", lambda route: held.append(route) if waiting else route.continue_())
    page.reload()
    tops = "() => [...document.querySelectorAll('main section[id]')].map(part => part.offsetTop)"
    page.locator("#future .triangle").wait_for()
    before = page.evaluate(tops)
    waiting = False
    for route in held:
        route.continue_()
    ready(page)
    page.locator("#map .waiting").wait_for(state="detached")
    assert page.evaluate(tops) == before


@pytest.mark.parametrize("part", quick(PARTS, "input", "lab", "future", "next", "stays"))
def test_a_link_leads_to_a_part(open_tab: Callable[..., Any], part: str) -> None:
    page = open_tab(f"#/learn/{part}")
    page.wait_for_function(
        """id => { const top = document.getElementById(id)?.getBoundingClientRect().top;
                   return top !== undefined && Math.abs(top) < 80; }""",
        arg=part,
    )
    focused(page, f"#{part}")


def test_the_parts_are_listed_and_the_one_being_read_is_marked(page: Any) -> None:
    ready(page)
    rail = page.get_by_role("navigation", name="Parts")
    assert rail.get_by_role("link").count() == len(PARTS)
    rail.get_by_role("link", name="Worked example").click()
    page.locator(".rail [aria-current][href$='#/learn/example']").wait_for()


def test_a_telephone_has_the_contents_too(open_tab: Callable[..., Any]) -> None:
    page = open_tab(width=390, height=844)
    page.get_by_text("All 13 parts").click()
    page.locator(".contents").get_by_role("link", name="The next word").click()
    focused(page, "#next")


def test_the_first_tab_stop_skips_to_the_content(page: Any) -> None:
    ready(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    focused(page, "#main")
    assert page.url.endswith("#/learn")


def test_every_control_has_a_name_and_can_be_reached(page: Any) -> None:
    """Tab goes through the page in order, once, and never gets stuck."""
    ready(page)
    seen: list[str] = []
    for _ in range(400):
        page.keyboard.press("Tab")
        here = page.evaluate(
            """() => { const at = document.activeElement;
                if (at === document.body) return "";
                window.count ??= 0; at.dataset.stop ??= String(++window.count);
                return at.dataset.stop; }"""
        )
        if not here or here in seen:
            break
        seen.append(here)
    reached = page.evaluate(
        """() => [...document.querySelectorAll("main section[id]")].map(part =>
            [part.id, part.querySelectorAll("[data-stop]").length])"""
    )
    assert all(count > 0 for _, count in reached), reached


def test_the_theme_is_chosen_and_kept(page: Any) -> None:
    ready(page)
    button = page.get_by_role("button", name="Theme")

    def surface() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = surface()
    button.click()
    dark = surface()
    assert light != dark
    page.reload()
    ready(page)
    assert surface() == dark
    button.click()
    assert surface() == light
    button.click()
    assert button.get_attribute("title") == "Theme: as the system"


def test_the_first_word_lights_what_it_looks_at(page: Any) -> None:
    ready(page)
    sentence = page.get_by_role("group", name="Choose a word to see what it looks at")
    assert "cat looks at curious" in page.locator(".told").first.inner_text()
    sentence.get_by_role("button", name="watched").click()
    assert "watched looks at cat" in page.locator(".told").first.inner_text()
    page.keyboard.press("ArrowLeft")
    assert "cat looks at curious" in page.locator(".told").first.inner_text()


def test_a_weight_is_not_taught_as_what_matters(page: Any) -> None:
    said = ready(page).locator(".intro").first.inner_text()
    assert "matter to me" not in said
    assert "not how much that word matters" in said
