"""Fixtures for the studio's tests: a real server process, and a real browser that looks at it.

    studio    a running `limelight studio` on a free port, with a folder of its own
    browser   Chromium, driven by Playwright; the machine's own (LIMELIGHT_CHROMIUM names another)
    axe       the script that finds what people with other eyes and hands cannot use
    page      a tab that is let in; a console error, an uncaught exception or a request that is not
              for the studio fails the test that caused it

A window of the browser is dear, so one that a test leaves is emptied and used by the next. It waits
on a page of the studio's own, as another's would end the process that has compiled the scripts.

Where Chromium or the built page is missing the browser tests are skipped, saying so; with CI=true
that is an error, so that a machine that should run them cannot quietly leave them out.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.studio import samples

CHROMIUM = (
    os.environ.get("LIMELIGHT_CHROMIUM")
    or shutil.which("chromium-headless-shell")
    or "/usr/bin/chromium"
)
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
START_SECONDS = 30
Result = TypeVar("Result")


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@dataclass
class Running:
    """A studio process and how to talk to it."""

    process: subprocess.Popen[str]
    url: str
    folder: Path
    log: Path
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.url).query)["token"][0]

    @property
    def netloc(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def origin(self) -> str:
        return f"http://{self.netloc}"

    @property
    def port(self) -> int:
        return int(self.netloc.rpartition(":")[2])

    def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        body: Any = None,
        let_in: bool = True,
        headers: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> Reply:
        """One request; `let_in` adds the token, `headers` add or replace."""
        sent = {"Authorization": f"Bearer {self.token}"} if let_in else {}
        if body is not None and not isinstance(body, (bytes, Iterator)):
            body = json.dumps(body).encode()
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()},
                         response.read())  # fmt: skip
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Any:
        """A GET that must succeed, as JSON."""
        reply = self.ask(path, **options)
        assert reply.status == 200, (path, reply.status, reply.body[:500])
        return reply.json()


def start(folder: Path, log: Path, *options: str) -> Running:
    """Start a studio as a person would, and wait for the address it prints."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "limelight", "studio", "--no-browser", "--port", "0",
             "--json", "--folder", str(folder), *options],
            stdout=subprocess.PIPE, stderr=errors, text=True, env=environment,
        )  # fmt: skip
    assert process.stdout is not None
    lines = ""
    for line in process.stdout:
        lines += line
        if line.startswith("}"):
            break
    if not lines:
        process.wait(START_SECONDS)
        raise AssertionError(f"the studio did not start: {log.read_text()}")
    said = json.loads(lines)
    return Running(process, said["url"], folder, log, said)


def stop(running: Running) -> None:
    if running.process.poll() is None:
        running.process.send_signal(signal.SIGTERM)
        try:
            running.process.wait(5)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()
    assert running.process.stdout is not None
    running.process.stdout.close()


def run_alone(main: Coroutine[Any, Any, Result]) -> Result:
    """asyncio.run in a thread of its own: the browser's driver has a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main).result()


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One studio for all tests that only look at it."""
    folder = tmp_path_factory.mktemp("folder")
    samples.fill(folder)
    running = start(folder, tmp_path_factory.mktemp("log") / "studio.log")
    yield running
    stop(running)


@pytest.fixture
def start_studio(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts a studio of the test's own: start_studio("--verbose", folder=…)."""
    started: list[Running] = []

    def begin(*options: str, folder: Path | None = None) -> Running:
        (tmp_path / "folder").mkdir(exist_ok=True)
        log = tmp_path / f"studio-{len(started)}.log"
        started.append(start(folder or tmp_path / "folder", log, *options))
        return started[-1]

    yield begin
    for running in started:
        stop(running)


def missing_for_browser() -> str | None:
    """Why no page can be looked at here; None when it can."""
    import limelight.studio.pages as pages

    if not (shutil.which(CHROMIUM) or Path(CHROMIUM).exists()):
        return f"no Chromium at {CHROMIUM}: install it, or name one in LIMELIGHT_CHROMIUM"
    if not (pages.static_folder() / "index.html").is_file():
        return "the studio's page is not built: run `make web`"
    try:
        import playwright  # noqa: F401
    except ModuleNotFoundError:
        return "the package playwright is not installed"
    return None


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    missing = missing_for_browser()
    if missing:
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                  "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"],
        )  # fmt: skip
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def axe() -> str:
    if AXE.is_file():
        return AXE.read_text("utf-8")
    if os.environ.get("CI") == "true":
        pytest.fail("axe-core is not installed: run `npm ci` in web/")
    pytest.skip("axe-core is not installed: run `npm ci` in web/")


@dataclass
class Watcher:
    """What went wrong in a tab: nothing should. No name but the studio's is resolved."""

    origin: str
    problems: list[str] = field(default_factory=list)

    def attach(self, context: Any) -> None:
        context.on("request", self._asked)
        context.on("page", self._listen)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:", "blob:", "file:")):
            self.problems.append(f"asked the network for {request.url}")

    def _listen(self, page: Any) -> None:
        page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        page.on("console", lambda message: self._console(message))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console {message.type}: {message.text}")


@dataclass
class Window:
    """A window of the browser, which one test after another has to itself."""

    context: Any
    watcher: Watcher
    page: Any

    @classmethod
    def of(cls, browser: Any, **options: Any) -> Window:
        context = browser.new_context(**options)
        context.set_default_timeout(45_000)
        watcher = Watcher("")
        watcher.attach(context)
        return cls(context, watcher, context.new_page())

    def empty(self) -> None:
        """As if nobody had been here: other tabs, storage, history, routes and the mouse."""
        for other in self.context.pages:
            if other is not self.page:
                other.close()
        self.page.unroute_all()
        self.page.evaluate("sessionStorage.clear(), localStorage.clear()")
        self.page.goto(f"{self.watcher.origin}/healthz")
        self.page.mouse.move(-9, -9)
        self.context.clear_cookies()
        self.context.clear_permissions()
        driver = self.context.new_cdp_session(self.page)
        driver.send("Page.resetNavigationHistory")
        everything = {"origin": self.watcher.origin, "storageTypes": "all"}
        driver.send("Storage.clearDataForOrigin", everything)
        driver.detach()


@pytest.fixture(scope="session")
def windows(browser: Any) -> list[Window]:
    """Those that are open and empty."""
    return []


@pytest.fixture
def open_tab(browser: Any, studio: Running, windows: list[Window]) -> Iterator[Callable[..., Any]]:
    """Opens tabs of chosen width, colour scheme and so on: open_tab(width=360, dark=True).

    `new` asks for a window in which nothing is cached, as does every option of the browser.
    """
    own: list[Window] = []
    shared: list[Window] = []

    def opened(
        path: str = "#/learn", *, width: int = 1440, height: int = 900, dark: bool = False,
        new: bool = False, **options: Any,
    ) -> Any:  # fmt: skip
        if new or options:
            own.append(window := Window.of(browser, **options))
        else:
            shared.append(window := windows.pop() if windows else Window.of(browser))
        window.watcher.origin = studio.origin
        window.watcher.problems.clear()
        page = window.page
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(media="null", color_scheme="dark" if dark else "light",
                           reduced_motion="reduce")  # fmt: skip
        page.goto(f"{studio.origin}/?token={studio.token}{path}")
        page.locator("main > p.wait").first.wait_for(state="detached")  # the area is loaded
        return page

    yield opened
    problems = [problem for window in own + shared for problem in window.watcher.problems]
    for window in shared + own:
        if window in own or window.page.is_closed():
            window.context.close()
        else:
            window.empty()
            windows.append(window)
    assert problems == []


@pytest.fixture
def page(open_tab: Callable[..., Any]) -> Any:
    """A wide, light tab on the studio's front page."""
    return open_tab()
