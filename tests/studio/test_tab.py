"""The secret of a tab, in a real browser: neighbours share it, other ports get nothing for a cookie."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.studio.conftest import Running


@pytest.fixture
def neighbour() -> Iterator[tuple[str, list[str]]]:
    """Another program's page on this machine: its address, and the cookies that it was sent."""
    sent: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>another port</title>")

        def log_message(self, *_: Any) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", sent
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_cookie_that_another_port_was_sent_opens_nothing(
    browser: Any, studio: Running, neighbour: tuple[str, list[str]]
) -> None:
    address, sent = neighbour
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/explore/sample")
    page.get_by_role("application", name="Weights of").wait_for()
    page.goto(address)
    assert any(f"limelight-{studio.port}=" in cookies for cookies in sent)  # the browser does that
    for cookies in sent:
        stolen = {"Cookie": cookies, "Origin": studio.origin, "Sec-Fetch-Site": "same-origin"}
        assert studio.ask("/api/captures", let_in=False, headers=stolen).status == 401
        assert studio.ask("/api/captures/sample", let_in=False, headers=stolen).status == 401
        assert b"limelight-tab" not in studio.ask("/", let_in=False, headers=stolen).body
    assert (
        page.evaluate("sessionStorage.length") == 0
    )  # what the studio's tab holds is its origin's
    context.close()


def test_a_tab_opened_later_asks_its_neighbour_and_a_reload_keeps_it(
    open_tab: Callable[..., Any], studio: Running
) -> None:
    first = open_tab("#/explore/sample")
    later = first.context.new_page()
    later.goto(f"{studio.origin}/#/explore/sample?head=1.1")
    later.get_by_role("heading", name="Layer 1, head 1").wait_for()
    first.close()
    later.reload()
    later.get_by_role("heading", name="Layer 1, head 1").wait_for()
    assert studio.token not in later.content()


def test_a_tab_of_a_studio_that_is_gone_asks_the_neighbour_that_has_the_new_one(
    browser: Any, studio: Running
) -> None:
    context = browser.new_context()
    old, new = context.new_page(), context.new_page()
    for page in (old, new):
        page.goto(f"{studio.origin}/?token={studio.token}#/explore/sample")
        page.get_by_role("application", name="Weights of").wait_for()
    old.evaluate("sessionStorage.setItem('limelight-tab', 'of-a-studio-that-is-gone')")
    old.reload()
    old.get_by_role("application", name="Weights of").wait_for()
    held = [page.evaluate("sessionStorage.getItem('limelight-tab')") for page in (old, new)]
    assert held[0] == held[1]
    context.close()


def test_a_tab_without_neighbours_says_what_to_do(browser: Any, studio: Running) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/learn")
    page.wait_for_load_state("networkidle")
    page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    page.goto(f"{studio.origin}/#/explore")
    alert = page.get_by_role("alert").first
    alert.wait_for()
    assert "open the address that was printed" in alert.inner_text()
    context.close()
