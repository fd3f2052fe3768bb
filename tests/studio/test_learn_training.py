"""Learn, part 5: the scaling experiment, drawn from the results that come along."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

from limelight.learn.experiments import FIGURES, SETTINGS, Scaling, scaling
from tests.marks import quick
from tests.studio.conftest import Running
from tests.studio.looking import close, figures, focused, percent

RESULTS: Scaling = scaling()
BUTTONS = {
    "loss": "Loss", "score_gradient": "Gradient", "spread": "Spread", "saturated": "Saturated",
}  # fmt: skip
LOOKS = ("warm", "cold", "plain")  # in the order of RESULTS.scales


@pytest.fixture
def part(page: Any) -> Any:
    found = page.locator("#training")
    found.locator("table").wait_for()
    return found


def choose(part: Any, setting: str, d_k: int, figure: str) -> None:
    part.get_by_role("combobox", name="How it starts and learns").select_option(setting)
    part.get_by_role("button", name=str(d_k), exact=True).click()
    part.get_by_role("button", name=BUTTONS[figure], exact=True).click()


def slide(part: Any, index: int) -> None:
    part.get_by_role("slider", name="Step").fill(str(index))


def axis(chart: Any, name: str) -> Any:
    """Pixels to values, from the labels of an axis and where they stand."""
    ticks = chart.locator(f"text.{name}").evaluate_all(
        f"found => found.map(t => [t.textContent, t.{'x' if name == 'across' else 'y'}.baseVal[0].value])"
    )
    values, pixels = np.array([[float(text), at] for text, at in ticks]).T
    pixels = pixels - (4 if name == "up" else 0)  # a label's foot is below its line
    log = not np.allclose(np.diff(values), values[1] - values[0])
    slope, start = np.polyfit(pixels, np.log(values) if log else values, 1)
    return lambda pixel: np.exp(slope * pixel + start) if log else slope * pixel + start


def points(path: str) -> np.ndarray:
    return np.array([[float(x) for x in pair.split()] for pair in re.split("[ML]", path)[1:]])


def drawn(chart: Any, look: str, kind: str) -> np.ndarray:
    """A line's points as values: [points, 2]."""
    found = points(chart.locator(f"path.{kind}.{look}").get_attribute("d").removesuffix("Z"))
    return np.stack([axis(chart, "across")(found[:, 0]), axis(chart, "up")(found[:, 1])], 1)


def near(found: Any, expected: Any, figure: str) -> None:
    """To the hundredth of a pixel that a path is written in, over the height of a chart."""
    if figure == "score_gradient":
        np.testing.assert_allclose(found, expected, rtol=1e-3)
    else:
        np.testing.assert_allclose(found, expected, atol=2e-4)


def test_the_route_gives_what_the_library_has(studio: Running) -> None:
    served = studio.get("/api/experiments/scaling")
    here = RESULTS.to_dict()
    assert (served["facts"], served["runs"]) == (here["facts"], here["runs"])
    assert (served["figures"], served["settings"]) == (FIGURES, SETTINGS)
    assert (served["scales"], served["sizes"]) == (list(RESULTS.scales), list(RESULTS.sizes))


@pytest.mark.parametrize("figure", quick(FIGURES))
def test_the_lines_and_bands_are_the_librarys_numbers(part: Any, figure: str) -> None:
    for setting, d_k in itertools.product(SETTINGS, (16, 256)):
        choose(part, setting, d_k, figure)
        chart = part.locator("svg[role=img]").first
        for scale, look in zip(RESULTS.scales, LOOKS, strict=True):
            run = RESULTS.at(setting, scale, d_k)
            seeds = getattr(run, figure)
            mean, band = drawn(chart, look, "mean"), drawn(chart, look, "band")
            np.testing.assert_allclose(mean[:, 0], run.steps, atol=0.05)
            near(mean[:, 1], seeds.mean(0), figure)
            near(band[: len(run.steps), 1], seeds.max(0), figure)
            near(band[: len(run.steps) - 1 : -1, 1], seeds.min(0), figure)


def test_the_table_holds_the_numbers_of_the_step(part: Any) -> None:
    steps = RESULTS.runs[0].steps
    for figure, index in itertools.product(FIGURES, (0, 7, len(steps) - 1)):
        choose(part, "small", 64, figure)
        slide(part, index)
        assert f"at step {steps[index]}" in part.locator("thead").inner_text()
        shown = figures(part.locator("tbody")).reshape(3, 5)
        for row, scale in zip(shown, RESULTS.scales, strict=True):
            run = RESULTS.at("small", scale, 64)
            seeds = getattr(run, figure)[:, index]
            close(row[:3], [seeds.mean(), seeds.min(), seeds.max()])
            close(row[3:], [run.held_out.mean(), np.ptp(run.held_out) / 2])


def test_where_each_ends_is_drawn_for_every_size_and_seed(part: Any) -> None:
    for setting in SETTINGS:
        choose(part, setting, 32, "loss")
        chart = part.locator("svg[role=img]").last
        for scale, look in zip(RESULTS.scales, LOOKS, strict=True):
            ends = np.stack([RESULTS.at(setting, scale, k).held_out for k in RESULTS.sizes], 1)
            mean = drawn(chart, look, "mean")
            np.testing.assert_allclose(mean[:, 0], RESULTS.sizes, rtol=1e-3)
            near(mean[:, 1], ends.mean(0), "loss")
            dots = chart.locator(f"circle.{look}:not(.at)").evaluate_all(
                "found => found.map(c => c.cy.baseVal.value)"
            )
            near(axis(chart, "up")(np.array(dots)).reshape(ends.shape), ends, "loss")


def test_what_is_said_is_so(part: Any) -> None:
    """The sentences' numbers, and a claim only where no seeds overlap."""
    for setting, d_k in itertools.product(SETTINGS, RESULTS.sizes):
        choose(part, setting, d_k, "loss")
        none, root = (RESULTS.at(setting, scale, d_k) for scale in ("none", "1/√d_k"))
        said = part.locator(".told p").first
        ratio = none.score_gradient[:, 0].mean() / root.score_gradient[:, 0].mean()
        close(figures(said), [none.held_out.mean() - root.held_out.mean(), ratio])
        text = said.inner_text()
        if none.held_out.min() > root.held_out.max():
            assert "above" in text
        elif none.held_out.max() < root.held_out.min():
            assert "below" in text
        else:
            assert "no difference is claimed" in text
        assert percent(none.saturated[:, 0].mean()) in text


def test_the_words_below_hold_for_the_numbers() -> None:
    """What the page says of a setting as a whole."""

    def held(setting: str, scale: str, d_k: int) -> np.ndarray:
        return RESULTS.at(setting, scale, d_k).held_out

    for setting, d_k in itertools.product(SETTINGS, RESULTS.sizes):  # too much everywhere
        assert held(setting, "1/d_k", d_k).min() > held(setting, "1/√d_k", d_k).max()
    large = RESULTS.sizes[-1]
    for setting in ("unit", "unit-sgd"):  # right about the outcome, not about the reason
        none, root = (RESULTS.at(setting, scale, large) for scale in ("none", "1/√d_k"))
        assert none.held_out.min() > root.held_out.max()
        assert none.saturated[:, 0].min() > 0.5 > root.saturated[:, 0].max()
        assert none.saturated[:, -1].min() > 0.5  # and stays that way
        assert none.score_gradient[:, 0].min() > root.score_gradient[:, 0].max()
    for d_k in RESULTS.sizes:  # small weights do the scaling's work at the start
        assert RESULTS.at("small", "none", d_k).saturated[:, 0].max() < 0.005
    assert RESULTS.at("small", "none", large).saturated[:, -1].min() > 0.5


def test_a_pointer_chooses_the_step_and_the_size(part: Any, page: Any) -> None:
    over_steps, over_sizes = part.locator("svg[role=img]").all()
    over_steps.scroll_into_view_if_needed()
    box = over_steps.bounding_box()
    across = np.array([44, box["width"] - 14])
    page.mouse.move(box["x"] + across.mean(), box["y"] + 100)
    middle = int(re.search(r"at step (\d+)", part.locator("thead").inner_text())[1])
    assert abs(middle - RESULTS.runs[0].steps[-1] / 2) <= 20
    box = over_sizes.bounding_box()
    share = math.log(64 / (16 * 0.85)) / math.log(256 * 1.18 / (16 * 0.85))
    over_sizes.click(position={"x": 44 + share * (box["width"] - 58), "y": 100})
    assert part.get_by_role("button", name="64", exact=True).get_attribute("aria-pressed") == "true"
    assert "d k = 64" in over_steps.get_attribute("aria-label")


def test_by_keyboard_alone(part: Any, page: Any) -> None:
    slider = part.get_by_role("slider", name="Step")
    slider.focus()
    page.keyboard.press("Home")
    assert "at step 0" in part.locator("thead").inner_text()
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "step 20"
    part.get_by_role("button", name="16", exact=True).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert "at d k = 32" in part.locator("svg[role=img]").first.get_attribute("aria-label")


def test_the_lab_leads_there(page: Any) -> None:
    page.locator("#lab").get_by_role("link", name="an answer of its own").click()
    page.wait_for_url(re.compile("#/learn/training"))
    focused(page, "#training")


def test_nothing_below_moves_as_one_chooses(part: Any, page: Any) -> None:
    def foot() -> float:
        return page.evaluate(
            "document.getElementById('apply').getBoundingClientRect().top + scrollY"
        )

    before = foot()
    for setting, figure in itertools.product(SETTINGS, FIGURES):
        choose(part, setting, 64, figure)
        assert foot() == pytest.approx(before, abs=1), (setting, figure)
