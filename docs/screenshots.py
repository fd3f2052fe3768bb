"""Make the studio's pictures in docs/images/: `python docs/screenshots.py [name …]`.

Starts a studio of this checkout on a folder of its own, looks at it with Chromium as a person
would, and keeps what it sees as small PNG files, each in light and dark. Needs the package
playwright, the built page (`make web`) and Chromium (LIMELIGHT_CHROMIUM names another than
/usr/bin/chromium).
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the studio and the samples of the tests

IMAGES = ROOT / "docs" / "images"
CHROMIUM = os.environ.get("LIMELIGHT_CHROMIUM", "/usr/bin/chromium")
COLOURS = 256  # of a picture: a page has few, and a palette makes it a third of the size


@dataclass(frozen=True)
class Shot:
    """One view: its address, the size of its window, and what to do before the shutter."""

    name: str
    address: str
    width: int = 1280
    height: int = 800
    act: Callable[[Any], None] | None = None


def _hover_long(page: Any) -> None:
    area = page.get_by_role("application").first
    box = area.bounding_box()
    area.hover(position={"x": box["width"] * 0.3, "y": box["height"] * 0.62})


def _unscaled(page: Any) -> None:
    lab = page.locator("#lab")
    lab.get_by_role("switch").first.click()


SHOTS = (
    Shot("studio-lab", "#/learn/lab", act=_unscaled),
    Shot("studio-training", "#/learn/training", height=900),
    Shot("studio-explore", "#/explore/llama?head=11.1&cell=2.1", width=1440, height=1000),
    Shot("studio-long", "#/explore/long", height=900, act=_hover_long),
    Shot("studio-image", "#/explore/vit?head=3.3&look=image&cell=0.7"),
    Shot("studio-watch", "#/watch/run", height=760),
)


@contextmanager
def studio() -> Iterator[str]:
    """The address of a running studio, with a long capture and a training run in its folder."""
    from tests.studio import samples
    from tests.studio.conftest import start, stop

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        samples.long_capture(32_768, size=32, sharp=2.0).save(folder / "long.safetensors")
        samples.write_lines(folder / "run.jsonl", samples.run_lines(120, 6, 6))
        running = start(folder, folder / "studio.log")
        try:
            yield running.url
        finally:
            stop(running)


def small(png: bytes) -> bytes:
    """The same picture with a palette."""
    from PIL import Image

    out = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def main(names: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(exist_ok=True)
    wanted = [shot for shot in SHOTS if not names or shot.name in names]
    with studio() as url, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for shot in wanted:
            for theme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": shot.width, "height": shot.height}, color_scheme=theme,
                    reduced_motion="reduce",
                )  # fmt: skip
                page = context.new_page()
                page.goto(url + shot.address)
                page.wait_for_load_state("networkidle")
                if shot.act is not None:
                    shot.act(page)
                    page.wait_for_load_state("networkidle")
                page.wait_for_timeout(500)
                path = IMAGES / f"{shot.name}-{theme}.png"
                path.write_bytes(small(page.screenshot()))
                print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")
                context.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
