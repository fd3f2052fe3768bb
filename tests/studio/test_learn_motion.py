"""Numbers that travel: at every stop the library's, scrubbed by keyboard, told in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import limelight as ll
from tests.studio.looking import at as cell
from tests.studio.looking import close, figures
from tests.studio.test_learn import given, stage

ROW = 2  # cat


def scrubber(part: Any) -> Any:
    return part.get_by_role("slider", name="Move through the step")


def stops(part: Any) -> int:
    return int(scrubber(part).get_attribute("max"))


def read(part: Any, at: int) -> np.ndarray:
    """The figures of what has moved, at a stop."""
    slider = scrubber(part)
    slider.focus()
    slider.press("Home")
    for _ in range(at):
        slider.press("ArrowRight")
    return figures(part.locator(".motion .after"))


@pytest.fixture
def step(page: Any) -> Any:
    part = page.locator("#step")
    part.get_by_role("switch", name="Causal mask").click()
    return part


@pytest.fixture
def done(step: Any) -> Any:
    has = given(step)
    query, key, value = (has["X"] @ has[name] for name in ("W_Q", "W_K", "W_V"))
    return ll.trace(query, key, value, mask=ll.Causal())


def test_a_row_slides_over_the_keys_and_leaves_its_products(step: Any, done: Any) -> None:
    stage(step, "Scores")
    assert stops(step) == 4
    for at in range(5):
        seen = read(step, at)
        close(seen[:12], done.key.T)
        close(seen[12:], done.raw[ROW, :at])
    assert "“cat” over “watched”" in step.locator(".motion .said").inner_text()


def test_a_row_of_x_slides_over_the_learned_columns(step: Any, done: Any) -> None:
    stage(step, "Q, K, V")
    tables = {"queries": done.query, "keys": done.key, "values": done.value}
    for label, table in tables.items():
        cell(step, label, ROW, 0).focus()
        close(read(step, 3)[12:], table[ROW])


def test_scores_shrink_fall_and_are_poured_into_shares(step: Any, done: Any) -> None:
    stage(step, "Scaled")
    close(read(step, 0), done.raw[ROW])
    close(read(step, 1), done.scaled[ROW])
    stage(step, "Masked")
    seen = read(step, 1)
    assert seen[3] == -np.inf
    close(seen[:3], done.scaled[ROW, :3])
    stage(step, "Weights")
    logits = done.logits[ROW, :3]
    powers = np.exp(logits - logits.max())
    for at, expected in enumerate((logits, logits - logits.max(), powers, done.weights[ROW, :3])):
        close(read(step, at)[:3], expected)
    close(read(step, 2)[-1], powers.sum())


def test_values_flow_into_the_output_in_proportion(step: Any, done: Any) -> None:
    stage(step, "Output")
    for at in range(5):
        seen = read(step, at)
        close(seen[:12], done.value.T)
        close(seen[12:15], done.weights[ROW, :3])
        close(seen[15:], done.weights[ROW, :at] @ done.value[:at])


def test_less_motion_shows_before_and_after(step: Any, done: Any) -> None:
    stage(step, "Scaled")
    before, after = (step.locator(".motion figure").nth(n) for n in (0, 1))
    close(figures(before), done.raw[ROW])
    close(figures(after), done.scaled[ROW])
    assert step.locator(".motion").get_by_role("button").count() == 0  # nothing plays


@pytest.mark.slow  # a busy machine may end the motion before it is paused
def test_next_plays_pauses_and_is_told_in_words(open_tab: Callable[..., Any]) -> None:
    page = open_tab()
    page.emulate_media(reduced_motion="no-preference")
    part = page.locator("#step")
    for _ in range(2):
        part.get_by_role("button", name="Next").click()
    slider, live = scrubber(part), part.locator('.motion [aria-live="polite"]')
    part.get_by_role("button", name="Pause", exact=True).click()
    held = float(slider.input_value())
    assert 0 <= held < 4
    assert part.get_by_role("button", name="Play", exact=True).is_visible()
    assert live.inner_text() != ""
    part.get_by_role("button", name="Play", exact=True).click()
    assert live.inner_text() == ""  # while it runs, nobody is talked over
    part.get_by_role("button", name="Play again").wait_for()
    assert float(slider.input_value()) == 4
    assert live.inner_text().startswith("“cat” over “watched”: ")
    part.get_by_role("button", name="Back").click()
    assert float(slider.input_value()) == 3  # going back, things are where they were left


def test_the_whole_softmax_stands_where_a_cell_is_explained(step: Any, done: Any) -> None:
    stage(step, "Weights")
    table = step.get_by_role("region", name="The softmax of “cat”, number by number")
    logits = done.logits[ROW]
    with np.errstate(under="ignore"):
        powers = np.exp(logits - logits.max())
    close(figures(table)[:9], np.stack([logits, powers, done.weights[ROW]], 1)[:3].ravel())
    step.get_by_role("switch", name="Take the largest off first").click()
    close(figures(table)[1:9:3], np.exp(logits[:3]))
    close(figures(table)[2:9:3], done.weights[ROW, :3])
    assert "709" in step.locator(".why").inner_text()
