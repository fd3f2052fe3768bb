"""Pictures of the studio, taken from a real browser: for the README, and to look at while working.

    python web/shots.py                        every part of Learn, wide and narrow, light and dark
    python web/shots.py --out docs/images --only learn-map learn-future --widths 1440 --themes dark

Starts a studio of its own on a free port and ends it. Needs playwright and a Chromium; another than
/usr/bin/chromium is named in LIMELIGHT_CHROMIUM.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("LIMELIGHT_CHROMIUM", "/usr/bin/chromium")


def _stage(name: str) -> Callable[[Any], None]:
    return lambda page: page.locator("#step").get_by_role("tab", name=name, exact=True).click()


def _collapse(page: Any) -> None:
    """Scaling off at a large d_k."""
    page.locator("#lab").get_by_role("switch").click()
    page.locator("#lab").get_by_role("textbox", name="d k").fill("512")
    page.evaluate("document.activeElement.blur()")


# name → (address, what to do first, what to picture; None is the window)
SHOTS: dict[str, tuple[str, Callable[[Any], None] | None, str | None]] = {
    "learn": ("#/learn", None, None),
    "learn-step": ("#/learn/step", _stage("Scores"), "#step .card"),
    "learn-step-weights": ("#/learn/step", _stage("Weights"), "#step .card"),
    "learn-map": ("#/learn/map", None, "#map .card"),
    "learn-lab": ("#/learn/lab", None, "#lab .card"),
    "learn-lab-collapsed": ("#/learn/lab", _collapse, "#lab .card"),
    "learn-example": ("#/learn/example", None, "#example .card"),
    "learn-scaling": ("#/learn/scaling", None, "#scaling .card >> nth=0"),
    "learn-training": ("#/learn/training", None, "#training"),
    "learn-apply": ("#/learn/apply", None, "#apply .card"),
    "learn-future": ("#/learn/future", None, "#future .card"),
    "explore": ("#/explore/llama?head=11.1&cell=2.1", None, None),
}


@contextmanager
def studio() -> Iterator[str]:
    """The address of a running studio, with its token."""
    command = [
        sys.executable,
        "-m",
        "limelight.cli",
        "studio",
        "--no-browser",
        "--port",
        "0",
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("}"):
                break
        yield json.loads(said)["url"]
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("build/shots"))
    parser.add_argument("--only", nargs="+", choices=SHOTS, default=list(SHOTS))
    parser.add_argument("--widths", nargs="+", type=int, default=[1440, 360])
    parser.add_argument("--themes", nargs="+", choices=("light", "dark"), default=["light", "dark"])
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)

    from playwright.sync_api import sync_playwright

    with studio() as url, sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        for width in asked.widths:
            for theme in asked.themes:
                context = browser.new_context(
                    viewport={"width": width, "height": 900}, color_scheme=theme,
                    reduced_motion="reduce", device_scale_factor=2,
                )  # fmt: skip
                for name in asked.only:
                    address, first, what = SHOTS[name]
                    page = context.new_page()
                    page.goto(url + address)
                    page.wait_for_load_state("networkidle")
                    page.locator(".waiting").first.wait_for(state="detached")
                    if first:
                        first(page)
                    target = page.locator(what) if what else page
                    if what:  # in one piece, below the header that stays on top
                        tall = int(target.bounding_box()["height"])
                        page.set_viewport_size({"width": width, "height": tall + 400})
                        target.evaluate("part => scrollTo(0, part.offsetTop - 200)")
                    target.screenshot(path=asked.out / f"{name}-{width}-{theme}.png")
                    page.close()
                context.close()
        browser.close()
    print(f"{len(asked.only) * len(asked.widths) * len(asked.themes)} pictures in {asked.out}")


if __name__ == "__main__":
    main()
