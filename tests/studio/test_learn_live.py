"""The next word, and what attention is not: the page's live numbers are the library's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from limelight import live
from limelight.capture import Capture
from limelight.live.journey import journey
from limelight.live.looks import looks
from limelight.studio.shelf import shipped
from tests.studio.looking import figures

TEXT = "JULIET:\nO Romeo, Romeo! wherefore art thou Rome"
EAST = "It is the east, and Juliet is the su"


@pytest.fixture(scope="module")
def model() -> live.Model:
    return live.load("gpt")


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_the_way_of_the_last_letter(page: Any, model: live.Model) -> None:
    part = page.locator("#next")
    part.locator(".stops data").first.wait_for()
    way = journey(model.run(TEXT))
    near(figures(part.locator(".stops")), [stop.guesses[0].probability for stop in way])
    near(figures(part.locator(".next")), [guess.probability for guess in way[-1].guesses])
    stops = part.locator(".stops button")
    stops.nth(3).click()
    near(figures(part.locator("dl")), [way[3].added, way[3].size])
    stops.nth(3).press("ArrowUp")
    near(figures(part.locator("dl")), [way[2].added, way[2].size])
    part.get_by_role("switch", name="Let what is read replace").click()
    part.get_by_text("the guess is babble").wait_for()
    lost = journey(model.run(TEXT), replace=True)
    page.wait_for_function(
        "p => Math.abs(document.querySelectorAll('#next .stops data')[10].value - p) < 1e-3",
        arg=lost[-1].guesses[0].probability,
    )
    near(figures(part.locator(".stops")), [stop.guesses[0].probability for stop in lost])


def test_a_text_is_typed_and_the_guess_written(page: Any, model: live.Model) -> None:
    part = page.locator("#next")
    part.get_by_label("Type, and see what comes next").fill(EAST)
    part.get_by_text("Follow “u”").wait_for()
    near(figures(part.locator(".next"))[0], model.run(EAST).next(1)[0].probability)
    part.get_by_role("button", name="Write it n").click()
    part.get_by_text("Follow “n”").wait_for()
    assert part.get_by_label("Type, and see what comes next").input_value() == f"{EAST}n"


def test_a_large_weight_is_not_a_large_effect(page: Any, model: live.Model) -> None:
    part = page.locator("#not").get_by_role("region", name="A large weight")
    part.locator(".plot button").first.wait_for()
    found = looks(model.run(TEXT))
    assert part.locator(".plot button").count() == len(found)
    near(figures(part.locator("dl")), [found[0].weight, found[0].brought, found[0].change])
    part.get_by_role("button", name="The look that matters most").click()
    worst = min(found, key=lambda look: look.change)
    near(figures(part.locator("dl")), [worst.weight, worst.brought, worst.change])
    part.locator('.plot [aria-pressed="true"]').press("Home")
    near(figures(part.locator("dl"))[0], found[0].weight)


def test_most_heads_of_a_real_model_rest_on_the_first_word(page: Any) -> None:
    part = page.locator("#not").get_by_role("region", name="Most heads rest")
    part.get_by_text("of 270 heads").wait_for()
    part.locator("li data", has_text=".").first.wait_for()  # the head's values come after
    first, others, share = figures(part)[-3:]
    assert share > 0.5
    assert first < 0.3 * others
    capture = Capture.open(shipped()["llama"])
    link = part.get_by_role("link").get_attribute("href")
    site, head = (int(n) for n in link.partition("head=")[2].split("."))
    value = capture[site].value[0, head * capture[site].value.shape[1] // 9]
    lengths = np.linalg.norm(value.astype(np.float64), axis=1)
    near([first, others], [lengths[0], lengths[1:].mean()])
    assert capture[site].weights(head=head)[1:, 0].mean() > 0.5


def test_one_head_is_missed_by_nobody_and_one_breaks_the_sentence(
    page: Any, model: live.Model
) -> None:
    part = page.locator("#not").get_by_role("region", name="Heads that nobody misses")
    change = model.effects(TEXT).change
    for name, pick in (("One nobody misses", np.abs(change).argmin()),
                       ("One that breaks it", change.argmin())):  # fmt: skip
        layer, head = divmod(int(pick), 5)
        part.get_by_role("button", name=name).click()
        part.get_by_text(f"without layer {layer}, head {head}").wait_for()
        off = model.run(TEXT, [(layer, head)]).next(4)
        page.wait_for_function(
            """p => { const all = document.querySelectorAll('#not section:last-child ol data');
                      return all.length && Math.abs(all[0].value - p) < 1e-3; }""",
            arg=off[0].probability,
        )
        near(figures(part.locator("ol")), [guess.probability for guess in off])
    assert off[0].token != "o" or off[0].probability < 0.5


def test_the_same_letter_is_looked_at_for_other_reasons(page: Any) -> None:
    part = page.locator("#not").get_by_role("region", name="The same head")
    cases = part.locator(".case")
    page.wait_for_function(
        "() => [...document.querySelectorAll('#not .case data')].every(d => d.value !== 'NaN')"
    )
    for n, verdict in enumerate(("The look stays", "The look goes")):
        assert figures(cases.nth(n))[0] > 0.4
        cases.nth(n).get_by_role("button").click()
        cases.nth(n).locator(".said").get_by_text(verdict).wait_for()
