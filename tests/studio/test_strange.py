"""A head with NaN, hidden cells and zeros on the screen: the colours and words of the pictures."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from limelight.report import write_report
from limelight.views.palette import THEME, ramp, rgb
from tests.marks import quick
from tests.studio.conftest import Running
from tests.views.test_tiles import expected, sick


@pytest.mark.parametrize("theme", quick(["light", "dark"]))
def test_studio_and_report_show_what_pictures_show(
    browser: Any, start_studio: Callable[..., Running], tmp_path: Path, theme: str
) -> None:
    folder = tmp_path / "captures"
    folder.mkdir()
    sick().save(folder / "sick.safetensors")
    write_report(sick(), tmp_path / "sick.html")
    running = start_studio(folder=folder)
    context = browser.new_context(viewport={"width": 1200, "height": 1200}, color_scheme=theme)
    context.set_default_timeout(45_000)
    for address in (
        f"{running.origin}/?token={running.token}#/explore/sick",
        (tmp_path / "sick.html").as_uri(),
    ):
        page = context.new_page()
        page.goto(address)
        area = page.get_by_role("application", name="Weights of")
        area.wait_for()
        for words in ("hidden", "not a number"):
            page.locator(".legend").get_by_text(words, exact=True).last.wait_for()
        page.locator(".wait", has_text="Computing").wait_for(state="hidden")
        page.wait_for_timeout(200)  # a frame in which the map is drawn
        box = area.bounding_box()
        shown = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        right = expected()
        for i, j in np.ndindex(right.shape):
            y = box["y"] + (i + 0.15) * box["height"] / 7  # clear of the number within
            x = box["x"] + (j + 0.15) * box["width"] / 7
            value = right[i, j]
            colour = ramp(theme)[round(255 * float(np.nan_to_num(np.clip(value, 0, 1))))]
            if value < 0:
                colour = rgb(THEME[theme].hidden)
            elif np.isnan(value):
                colour = rgb(THEME[theme].alarm)
            near = np.abs(shown[int(y), int(x)].astype(int) - np.asarray(colour, int)).max()
            assert near <= 1, (address, i, j, value)
        area.focus()
        for key in ("Home", "PageUp", "PageUp", "PageUp"):  # from wherever it opens to the corner
            page.keyboard.press(key)
        for key in ("ArrowDown",) * 5:
            page.keyboard.press(key)
        page.get_by_text("f looks at a: not a number").wait_for()
        page.get_by_text("is given a sum that is not a number, by").wait_for()
        page.keyboard.press("Enter")
        page.locator("article .weight").get_by_text("not a number", exact=True).wait_for()
        page.keyboard.press("End")
        page.get_by_text("f looks at g: hidden").wait_for()
    context.close()
