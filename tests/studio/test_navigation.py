"""From one page of the studio straight to another, in one tab: nothing of the old one is asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

import limelight as ll

Open = Callable[..., Any]
OWN = ("sample", "batch", "long", "deeper:vision")


def show(page: Any, where: str) -> None:
    page.evaluate("to => { location.hash = to }", where)


def opened(page: Any, name: str) -> None:
    """Waits until the page shows that capture, down to a head's map."""
    page.locator(f"[data-path^='/api/captures/{quote(name, safe='')}/report']").wait_for()
    page.get_by_role("application", name="Weights of").wait_for()


def test_each_capture_opens_from_its_neighbours(open_tab: Open) -> None:
    names = [*(capture.name for capture in ll.captures()), *OWN]
    page = open_tab("#/explore")
    for name in (*names, *reversed(names)):
        show(page, f"#/explore/{quote(name, safe='')}")
        opened(page, name)


@pytest.mark.slow
def test_every_capture_opens_from_every_other(open_tab: Open) -> None:
    names = [*(capture.name for capture in ll.captures()), *OWN]
    page = open_tab("#/explore")
    for one, other in itertools.combinations(names, 2):
        for name in (one, other, one):
            show(page, f"#/explore/{quote(name, safe='')}")
            opened(page, name)


@pytest.mark.parametrize("from_", ["#/explore/llama", "#/watch/run"])
def test_a_page_that_is_left_asks_for_nothing_more(open_tab: Open, from_: str) -> None:
    page = open_tab(from_)
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    show(page, "#/learn/apply")
    page.get_by_role("heading", name="Apply now").wait_for()
    page.wait_for_load_state("networkidle")
    assert not [url for url in asked if "/apply" in url]


def test_from_learn_to_a_capture_and_back(open_tab: Open) -> None:
    page = open_tab("#/learn/map")
    page.locator("#map").get_by_role("link", name="Open it in Explore").click()
    page.get_by_role("application", name="Weights of").wait_for()
    page.go_back()
    page.get_by_role("heading", name="Apply now").wait_for()
    page.go_forward()
    page.get_by_role("application", name="Weights of").wait_for()
