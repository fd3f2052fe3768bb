"""Make the studio's pictures in docs/images/:

python docs/screenshots.py --text tinyshakespeare.txt              all of them
python docs/screenshots.py studio-lab studio-explore               some

Starts a studio of this checkout on a folder of its own, looks at it with Chromium as a person
would, and keeps what it sees as small PNG files, each in light and dark. What a picture shows is
real: the captures that come along, and for two pictures a long text read by SmolLM2 and a training
run, made first from --text, in minutes (docs/systems/gpt.md says where that text is from). Without
it those two stay as they are. Needs the package playwright, the built page (`make web`), Chromium
(LIMELIGHT_CHROMIUM names another than /usr/bin/chromium), and for those two PyTorch and SmolLM2.
"""

from __future__ import annotations

import argparse
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
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]  # for the studio of the tests, and making

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
    needs: Callable[[Path, Path], None] | None = None  # (text, folder): makes what it shows


def _hover_long(page: Any) -> None:
    area = page.get_by_role("application").first
    box = area.bounding_box()
    area.hover(position={"x": box["width"] * 0.3, "y": box["height"] * 0.62})


def _unscaled(page: Any) -> None:
    lab = page.locator("#lab")
    lab.get_by_role("switch").first.click()


def _long(text: Path, folder: Path) -> None:
    from making.real import long_capture

    long_capture(text).save(folder / "long.safetensors")


def _run(text: Path, folder: Path) -> None:
    from making.real import training_run

    training_run(text, folder / "run.jsonl")


SHOTS = (
    Shot("studio-lab", "#/learn/lab", act=_unscaled),
    Shot("studio-training", "#/learn/training", height=900),
    Shot("studio-explore", "#/explore/llama?head=11.1&cell=2.1", width=1440, height=1000),
    Shot("studio-long", "#/explore/long?head=1.3", height=900, act=_hover_long, needs=_long),
    Shot("studio-image", "#/explore/vit?head=0.1&look=image&cell=0.10&batch=9"),
    Shot("studio-watch", "#/watch/run", height=760, needs=_run),
)


@contextmanager
def studio(shots: list[Shot], text: Path | None) -> Iterator[str]:
    """The address of a running studio, with what the shots need in its folder."""
    from tests.studio.conftest import start, stop

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for shot in shots:
            if shot.needs is not None and text is not None:
                shot.needs(text, folder)
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


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="name", help="which; all unless told")
    parser.add_argument("--text", type=Path, help="a plain text, such as tinyshakespeare.txt")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - {shot.name for shot in SHOTS})
    if unknown:
        known = ", ".join(shot.name for shot in SHOTS)
        parser.error(f"there is no picture {', '.join(unknown)}: choose {known}")
    IMAGES.mkdir(exist_ok=True)
    wanted = []
    for shot in SHOTS:
        if options.names and shot.name not in options.names:
            continue
        if shot.needs is not None and options.text is None:
            print(f"{shot.name}: needs --text, and stays as it is")
        else:
            wanted.append(shot)
    with studio(wanted, options.text) as url, sync_playwright() as driver:
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
    main()
