"""Learn's state: in the address, kept by a reload, carried by a link, undone by Start over."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.studio.looking import figures, percent

CALM = ["0.2190", percent(0.324, 1), percent(0.95)]


def at(page: Any, part: str) -> Any:
    page.locator("#apply .board:not(.waiting)").wait_for()
    return page.locator(f"#{part}")


def kept(page: Any, *texts: str) -> None:
    """Wait until the address holds these, then load the page anew."""
    for text in texts:
        page.wait_for_url(re.compile(re.escape(text)))
    page.reload()
    page.locator("#apply .board:not(.waiting)").wait_for()


def test_the_lab_opens_on_a_calm_row_and_has_presets(page: Any) -> None:
    lab = at(page, "lab")
    shown = lab.locator(".value").all_inner_texts()
    assert shown == CALM
    assert "healthy" in lab.get_by_role("status").first.inner_text().lower()
    presets = lab.get_by_role("combobox", name="Begin with")
    presets.select_option(label="Eight keys, not scaled: saturated")
    assert "saturated" in lab.locator(".verdict").inner_text().lower()
    kept(page, "lab.scaled=0", "lab.keys=8", "lab.draw=3")
    lab = at(page, "lab")
    assert "saturated" in lab.locator(".verdict").inner_text().lower()
    lab.get_by_role("button", name="New draw").click()
    assert presets.locator("option:checked").inner_text() == "your own setting"
    lab.get_by_role("button", name="Start over").click()
    assert lab.locator(".value").all_inner_texts() == CALM
    page.wait_for_url(lambda url: "lab." not in url)


def test_a_reload_keeps_sentence_numbers_stage_and_cell(page: Any) -> None:
    step = at(page, "step")
    step.get_by_role("textbox", name="Sentence").fill("A red door opens slowly")
    step.get_by_role("switch").click()
    step.get_by_role("tab", name="Q, K, V", exact=True).click()
    field = step.get_by_role("textbox").nth(1)
    field.fill("1.25")
    step.get_by_role("tab", name="Scaled", exact=True).click()
    before = figures(step)
    kept(page, "step.stage=scale", "step.causal=1", "step.sentence=A+red+door")
    step = at(page, "step")
    assert step.get_by_role("textbox", name="Sentence").input_value() == "A red door opens slowly"
    assert step.get_by_role("tab", selected=True).inner_text() == "Scaled"
    assert figures(step) == pytest.approx(before, nan_ok=True)
    step.get_by_role("button", name="Start over").click()
    assert step.get_by_role("textbox", name="Sentence").input_value() == "The curious cat watched"
    assert step.get_by_role("tab", selected=True).inner_text() == "X"
    assert not step.get_by_role("switch").is_checked()


def test_a_reload_keeps_every_other_part(page: Any) -> None:
    at(page, "map").get_by_role("button", name="The toy of Step through").click()
    example = page.locator("#example")
    example.get_by_role("textbox", name="key 1, first entry").fill("-3")
    scaling = page.locator("#scaling")
    scaling.get_by_role("button", name="One more key").click()
    scaling.get_by_role("textbox", name="d k").fill("100")
    training = page.locator("#training")
    training.get_by_role("button", name="32", exact=True).click()
    training.get_by_role("button", name="Spread", exact=True).click()
    future = page.locator("#future")
    future.get_by_role("slider").press("ArrowRight")
    future.get_by_role("button", name="Write a word").click()
    future.get_by_role("switch", name="Causal mask").click()
    shown = [figures(page.locator(f"#{part}")) for part in ("map", "example", "scaling", "future")]
    kept(page, "map.of=toy", "example.keys=2%2C1%3B-3%2C0", "scaling.scores=15%3B12%3B9%3B6",
         "scaling.d_k=100", "training.d_k=32", "training.figure=spread", "future.ahead=1",
         "future.written=4", "future.masked=0")  # fmt: skip
    page.locator("#training .waiting").wait_for(state="detached")
    again = [figures(page.locator(f"#{part}")) for part in ("map", "example", "scaling", "future")]
    for one, other in zip(shown, again, strict=True):
        assert one == pytest.approx(other, nan_ok=True)
    pressed = training.locator("[aria-pressed=true]").all_inner_texts()
    assert pressed == ["32", "Spread"]
    for part in ("map", "example", "scaling", "future"):
        page.locator(f"#{part}").get_by_role("button", name="Start over").click()
    page.wait_for_url(lambda url: "?" not in url.split("#")[1])


def test_an_exercise_goes_on_where_it_was_left(page: Any) -> None:
    apply = at(page, "apply")
    apply.get_by_role("combobox", name="Level").select_option("0")
    apply.get_by_text("[10, 0]").wait_for()
    for n, text in enumerate(("5", "2", "-1")):
        apply.get_by_role("textbox", name=f"key {n}").fill(text)
    apply.get_by_role("button", name="Check").click()
    apply.get_by_role("heading", name="Scale", exact=True).wait_for()
    apply.get_by_role("textbox", name="key 0").fill("3.5")
    kept(page, "apply.level=0")
    apply.get_by_role("heading", name="Scale", exact=True).wait_for()
    assert apply.get_by_role("textbox", name="key 0").input_value() == "3.5"
    assert "[5, 2, −1]" in apply.locator(".steps").inner_text()
    apply.get_by_role("button", name="Start over").click()
    apply.get_by_role("heading", name="Compare", exact=True).wait_for()
    assert apply.get_by_role("combobox", name="Level").input_value() == "1"


def test_a_link_opens_exercise_and_question(open_tab: Callable[..., Any], studio: Any) -> None:
    page = open_tab("#/learn/apply?apply.level=3&apply.seed=17")
    given = studio.get("/api/exercise?seed=17&level=3")
    shown = at(page, "apply").locator("dl").inner_text()
    assert f"[{', '.join(f'{x:g}' for x in given['query'])}]".replace("-", "−") in shown
    page.goto(f"{studio.origin}/#/learn/apply?apply.tab=quiz&apply.question=5&apply.answer=0")
    page.get_by_text("Question 5 of 13").wait_for()
    assert page.locator("#apply").get_by_role("radio").first.is_checked()
    page.locator("#apply").get_by_role("button", name="Next question").click()
    page.wait_for_url(re.compile(r"apply\.question=6"))
    assert "apply.answer" not in page.url


def test_copy_link_says_everything_of_a_part(page: Any, studio: Any) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    lab = at(page, "lab")
    lab.get_by_role("textbox", name="d k").fill("200")
    lab.get_by_role("button", name="Copy link").click()
    lab.get_by_text("Link copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == (
        f"{studio.origin}/#/learn/lab?lab.d_k=200&lab.scaled=1&lab.keys=4&lab.draw=11158"
    )


def test_a_link_that_cannot_be_copied_is_shown(page: Any) -> None:
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    lab = at(page, "lab")
    lab.get_by_role("button", name="Copy link").click()
    field = lab.get_by_role("textbox", name="Link to Saturation lab as it is now")
    assert field.input_value().endswith("lab.keys=4&lab.draw=11158")
    assert page.evaluate("getSelection().toString()") == field.input_value()


def test_links_between_parts_lose_nothing_and_typing_does_not_scroll(page: Any) -> None:
    lab = at(page, "lab")
    lab.get_by_role("textbox", name="d k").fill("77")
    page.wait_for_url(re.compile("lab.d_k=77"))
    page.evaluate("document.querySelector('nav[aria-label=Parts] a[href$=\"/future\"]').click()")
    page.wait_for_url(re.compile(r"#/learn/future\?lab.d_k=77"))
    page.locator("#future").get_by_role("switch", name="Causal mask").focus()
    where = page.evaluate("scrollY")
    page.keyboard.press("Space")
    page.wait_for_url(re.compile("future.masked=0"))
    assert page.evaluate("scrollY") == where
    assert lab.get_by_role("textbox", name="d k").input_value() == "77"
    page.get_by_role("link", name="Watch", exact=True).click()
    page.wait_for_url(re.compile("#/watch"))
    page.get_by_role("link", name="Learn", exact=True).click()
    page.wait_for_url(re.compile("lab.d_k=77"))


@pytest.mark.parametrize(
    "query",
    ["step.x=9.9:1;a;0.0:nan&step.sentence=", "lab.d_k=-1&lab.keys=7", "example.keys=1;2;3",
     "scaling.scores=", "apply.level=x&apply.seed=-4&apply.question=0", "training.setting=__proto__",
     "apply.tab=quiz&apply.question=999&apply.answer=99", "map.row=63&map.column=63"],
)  # fmt: skip
def test_an_address_that_makes_no_sense_breaks_nothing(
    open_tab: Callable[..., Any], query: str
) -> None:
    page = open_tab(f"#/learn?{query}")
    page.locator("#training .waiting").wait_for(state="detached")
    assert page.locator("#lab .value").first.inner_text() == "0.2190"
    assert page.locator("#example").get_by_text("8.829123").first.is_visible()
    assert page.locator("#training").get_by_role("button", name="256", exact=True).is_visible()


def test_the_page_is_not_built_anew_as_its_address_changes(page: Any) -> None:
    step = page.locator("#step")
    step.evaluate("part => { part.kept = true; }")
    before = page.url
    for name in ("Scores", "Weights"):
        step.get_by_role("tab", name=name, exact=True).click()
        page.wait_for_url(re.compile("step.stage=" + {"Scores": "compare"}.get(name, "normalise")))
    assert page.url != before
    assert step.evaluate("part => part.kept")
