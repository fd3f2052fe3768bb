"""Tables: lit cells that can be read on every page they may stand on."""

from __future__ import annotations

import re

import numpy as np
import pytest

from limelight.views.palette import THEME, css, rgb
from limelight.writing.tables import lit
from tests.pictures.test_colour import contrast

PAGES = {
    "JupyterLab": ("#ffffff", "#212121"), "JupyterLab dark": ("#111111", "#dddddd"),
    "VS Code dark": ("#1f1f1f", "#cccccc"), "Colab dark": ("#383838", "#e3e3e3"),
    **{f"a report, {name}": (look.surface, look.ink) for name, look in THEME.items()},
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_a_lit_cell_can_be_read(page: str) -> None:
    ground = np.array(rgb(PAGES[page][0]))
    for light in np.linspace(0, 1, 41):
        made = lit("0.5000", light)
        found = re.search(r"background:rgba\((\d+),(\d+),(\d+),([\d.]+)\)", made)
        assert found is not None
        share = float(found[4])
        cell = np.rint(share * np.array([int(found[n]) for n in (1, 2, 3)]) + (1 - share) * ground)
        assert ";color:" not in made
        assert contrast(css(cell), PAGES[page][1]) >= 4.5


def test_more_light_is_more_colour() -> None:
    shares = [float(share) for light in (0.0, 0.01, 0.5, 1.0)
              for share in re.findall(r"11,([\d.]+)", lit("x", light))[:1]]  # fmt: skip
    assert shares == sorted(shares)
    assert lit("a<b", 1.0, "it's").count("<") == 2
