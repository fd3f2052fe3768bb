"""The figures of bench/results in the pages of the engines."""

from __future__ import annotations

from pathlib import Path

from making.pages import DOCS, Page

RESULTS = DOCS.parent / "bench" / "results"


def make() -> list[Path]:
    return gpu().write()


def gpu() -> Page:
    """docs/gpu.md with the tables of an H200, as bench/gpu.py --write left them."""
    page = Page(DOCS / "gpu.md")
    page.blocks["h200"] = (RESULTS / "h200.md").read_text(encoding="utf-8").strip("# \n")
    return page
