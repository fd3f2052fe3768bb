"""Learn in a room: on a projector, one part at a time; and on paper."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.studio.test_learn_page import ready


@pytest.fixture
def room(open_tab: Callable[..., Any]) -> Any:
    page = open_tab("#/learn/lab?learn.projector=1", width=1024, height=768)
    page.get_by_role("toolbar", name="Projector").wait_for()
    return page


def test_the_lab_fits_the_screen_with_its_controls_and_its_verdict(room: Any) -> None:
    assert [each.get_attribute("id") for each in room.locator("section[id]").all()] == ["lab"]
    assert room.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)") >= 18
    for where in (".slide", "[role=switch]", ".count", ".verdict", ".value"):
        for shown in room.locator(f"#lab {where}").all():
            box = shown.bounding_box()
            assert box["y"] >= 0, where
            assert box["y"] + box["height"] <= 768, where
            assert box["x"] + box["width"] <= 1024, where
    room.locator("#lab").get_by_role("combobox", name="Begin with").select_option(
        label="Eight keys, not scaled: saturated"
    )
    verdict = room.locator("#lab .verdict").bounding_box()
    assert verdict["y"] + verdict["height"] <= 768


def test_keys_go_on_and_back_and_leave(room: Any) -> None:
    def now() -> str:
        return room.locator("section[id]").get_attribute("id")

    parts = ["lab"]
    for _ in range(8):  # what is left to scroll comes first
        room.keyboard.press("PageDown")
        room.wait_for_timeout(200)
        if now() != "lab":
            break
    assert now() != "lab"
    parts.append(now())
    assert "learn.projector=1" in room.url
    room.keyboard.press("Home")
    room.wait_for_timeout(300)  # the way up
    room.keyboard.press("PageUp")
    room.locator("section[id]#lab").wait_for()
    room.get_by_role("button", name="Next").click()
    room.locator(f"section[id]#{parts[1]}").wait_for()
    room.keyboard.press("Escape")
    room.locator("#step").wait_for()
    room.wait_for_url(lambda url: "projector" not in url)
    assert room.locator("section[id]").count() > 5


def test_the_projector_is_reached_from_the_contents(page: Any) -> None:
    page.get_by_role("button", name="Projector").click()
    page.get_by_role("toolbar", name="Projector").wait_for()
    page.wait_for_url(re.compile("learn.projector=1"))
    page.reload()
    page.get_by_role("toolbar", name="Projector").wait_for()


@pytest.mark.skipif(not shutil.which("pdftoppm"), reason="pdftoppm (poppler-utils) is not here")
def test_paper_is_light_and_nothing_lies_over_the_title(
    open_tab: Callable[..., Any], tmp_path: Path
) -> None:
    from PIL import Image

    page = ready(open_tab(dark=True))
    page.pdf(path=tmp_path / "learn.pdf", format="A4", print_background=True)
    subprocess.run(["pdftoppm", "-r", "30", "-png", "learn.pdf", "page"], cwd=tmp_path, check=True)
    sheets = [np.asarray(Image.open(path).convert("L")) for path in sorted(tmp_path.glob("*.png"))]
    assert all((sheet > 200).mean() > 0.75 for sheet in sheets)  # mostly paper
    hidden = np.abs(sheets[0].astype(int) - 217) < 4  # the sheet that hides the future, #d9d4c8
    assert hidden.mean() < 0.005


def test_on_paper_stands_no_button_that_does_nothing(page: Any) -> None:
    ready(page).emulate_media(media="print")
    for name in ("Start over", "Copy link", "New draw", "Next →", "Check"):
        for button in page.get_by_role("button", name=name, exact=True).all():
            assert not button.is_visible()
    assert not page.locator("nav[aria-label=Parts]").is_visible()
    assert page.locator("#lab .verdict").is_visible()
    assert not page.locator("#future .sheet").is_visible()
