"""The lessons without a studio: from a file, from a plain web server, a part alone, in a frame."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import limelight.notebook as nb
from limelight.lessons import PARTS, write_lessons, write_site
from limelight.lessons.data import STATE
from tests.studio import (
    test_learn,
    test_learn_apply,
    test_learn_scaling,
    test_learn_training,
)
from tests.studio.conftest import Watcher, missing_for_browser
from tests.studio.looking import percent, violations

CALM = ["0.2190", percent(0.324, 1), percent(0.95)]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing: the tests say what went wrong."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: Any) -> Path:
    if missing := missing_for_browser():
        pytest.skip(missing)
    made = tmp_path_factory.mktemp("lessons")
    write_lessons(made / "lessons.html")
    write_site(made / "site")
    return made


@pytest.fixture(scope="session")
def served(folder: Path) -> Iterator[str]:
    """The site from Python's own web server, which does nothing but send files."""
    handler = functools.partial(Quiet, directory=folder / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(params=["file", "site"])
def home(request: Any, folder: Path, served: str) -> str:
    return f"file://{folder}/lessons.html" if request.param == "file" else f"{served}/"


@pytest.fixture
def open_page(browser: Any, served: str) -> Iterator[Callable[..., Any]]:
    """Opens an address in a tab in which no request may leave the file or the folder's server."""
    contexts: list[Any] = []
    watcher = Watcher(served)

    def opened(address: str, *, width: int = 1440, height: int = 900, dark: bool = False) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        context.set_default_timeout(45_000)
        asked: list[str] = []
        watcher.attach(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.locator("#main").wait_for()
        page.asked = asked
        return page

    yield opened
    for context in contexts:
        context.close()
    assert watcher.problems == []


@pytest.fixture
def open_tab(open_page: Callable[..., Any], home: str) -> Callable[..., Any]:
    """As the studio's tests open theirs, so that they run here too."""

    def opened(path: str = "#/learn", **how: Any) -> Any:
        return open_page(f"{home}{path}", **how)

    return opened


def test_the_whole_course_runs_and_asks_nobody(open_tab: Callable[..., Any], home: str) -> None:
    page = open_tab()
    assert page.locator("nav[aria-label=Parts] a").evaluate_all(
        "links => links.map(link => link.hash.split('/')[2])"
    ) == list(PARTS)
    page.locator("#map").get_by_text("found in the model, not made up").wait_for()
    page.locator("#training .waiting").wait_for(state="detached")
    assert page.locator("#lab .value").all_inner_texts() == CALM
    assert page.locator("#example").get_by_text("8.829123").first.is_visible()
    apply = page.locator("#apply")
    for n in range(2):
        apply.get_by_role("textbox", name=f"key {n}").fill("99")
    apply.get_by_role("button", name="Check").click()
    apply.get_by_text("None of these is right.").wait_for()
    apply.get_by_role("button", name="Show me").click()
    apply.get_by_role("button", name="Go on").click()
    apply.get_by_role("heading", name="Scale", exact=True).wait_for()
    apply.get_by_role("button", name="Quiz").click()
    apply.get_by_text("Question 1 of").wait_for()
    own = {home, f"{home}lessons.js", f"{home}lessons.css"}
    assert {address.split("#")[0] for address in page.asked} <= own
    page.wait_for_url(re.compile("apply.question=1"))
    page.reload()
    apply.get_by_text("Question 1 of").wait_for()
    apply.get_by_role("button", name="Exercises").click()
    apply.get_by_role("heading", name="Scale", exact=True).wait_for()  # kept where it runs


def test_what_needs_the_studio_says_so(open_tab: Callable[..., Any]) -> None:
    page = open_tab()
    page.get_by_role("link", name="read a real model").click()
    page.get_by_text("limelight studio").first.wait_for()
    page.get_by_role("link", name="Back to the lessons").click()
    page.locator("#step").wait_for()


@pytest.mark.parametrize("part", PARTS)
def test_every_part_stands_alone(open_page: Callable[..., Any], served: str, part: str) -> None:
    page = open_page(f"{served}/{part}.html", width=1024, height=768)
    assert [each.get_attribute("id") for each in page.locator("section[id]").all()] == [part]
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 1024
    if not STATE[part]:
        return
    tools = page.locator(f"#{part} header")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    tools.get_by_role("button", name="Copy link").click()
    link = tools.get_by_role("textbox").input_value()
    assert set(re.findall(rf"{part}\.(\w+)=", link)) <= set(STATE[part])


def test_links_from_one_part_lead_to_the_whole_or_say_so(
    open_page: Callable[..., Any], served: str, tmp_path: Path
) -> None:
    page = open_page(f"{served}/lab.html")
    page.get_by_role("link", name="an answer of its own").click()
    page.wait_for_url(f"{served}/index.html#/learn/training")
    page.locator("#training").wait_for()
    write_lessons(tmp_path / "lab.html", "lab", d_k=9)
    page = open_page(f"file://{tmp_path}/lab.html")
    assert page.get_by_role("textbox", name="d k").input_value() == "9"
    page.get_by_role("link", name="an answer of its own").click()
    page.get_by_text("limelight lessons").wait_for()
    page.get_by_role("link", name="Back").click()
    assert page.get_by_role("textbox", name="d k").input_value() == "9"


def test_a_notebooks_frame_opens_on_its_state_and_works(
    open_page: Callable[..., Any], folder: Path
) -> None:
    frame = nb.lesson("lab", d_k=256, scaled=False)._repr_html_()
    (folder / "notebook.html").write_text(
        f"<!doctype html><meta charset=utf-8><main id=main>{frame}</main>", encoding="utf-8"
    )
    page = open_page(f"file://{folder}/notebook.html", width=1000)
    lab = page.frame_locator("iframe")
    field = lab.get_by_role("textbox", name="d k")
    field.wait_for()
    assert field.input_value() == "256"
    assert not lab.get_by_role("switch").is_checked()
    field.fill("7")
    lab.get_by_role("button", name="Start over").click()
    assert lab.locator(".value").first.inner_text() == "0.2190"


# Learn's own tests, on both forms.


def _again() -> Iterator[tuple[str, Any]]:
    for module in (test_learn, test_learn_apply, test_learn_scaling, test_learn_training):
        for name, found in vars(module).items():
            own = getattr(found, "__module__", "") == module.__name__
            if name.startswith("test_") and own and name not in NOT_HERE:
                yield f"{name}_too", pytest.mark.slow(found)


NOT_HERE = frozenset({
    # what the library alone can say of an answer, or what is asked of the studio itself
    "test_a_mistake_is_diagnosed_by_the_library",
})  # fmt: skip
step, lab, apply = test_learn.step, test_learn_scaling.lab, test_learn_apply.apply
part = test_learn_training.part
globals().update(_again())


def test_the_lessons_speak_another_language_without_a_studio(open_tab: Callable[..., Any]) -> None:
    page = open_tab("#/learn/lab?page.language=es")
    page.get_by_role("heading", name="Laboratorio de saturación").wait_for()
    assert page.locator("html").get_attribute("lang") == "es"
    choice = page.get_by_role("combobox", name="Idioma")
    assert choice.count() == 1  # in the header
    choice.select_option("de")
    page.get_by_role("heading", name="Sättigungslabor").wait_for()
    assert page.locator("#lab .verdict").inner_text().startswith("Gesund.")
    page.reload()
    page.get_by_role("heading", name="Sättigungslabor").wait_for()


def test_a_file_opens_in_its_language(open_page: Callable[..., Any], tmp_path: Path) -> None:
    target = tmp_path / "labor.html"
    write_lessons(target, "lab", language="de", d_k=128)
    for address in ("", "#/learn/lab?lab.d_k=256"):  # also where an address says nothing of it
        page = open_page(f"file://{target}{address}")
        page.get_by_role("heading", name="Sättigungslabor").wait_for()
        assert page.evaluate("document.documentElement.lang") == "de"
    page = open_page(f"file://{target}#/learn/lab?page.language=en")
    page.get_by_role("heading", name="Saturation lab").wait_for()
    page.reload()
    page.get_by_role("heading", name="Saturation lab").wait_for()


def test_exercises_are_checked_in_the_language(open_page: Callable[..., Any], folder: Path) -> None:
    page = open_page(f"file://{folder}/lessons.html#/learn/apply?apply.level=0&page.language=de")
    part = page.locator("#apply")
    for answers, said in (
        (("5", "2", "eins"), "'eins' ist keine Zahl."),
        (("5", "2", "-1"), "Vergleichen: Richtig."),
        (("5", "2", "-1"), "Die Scores wurden nicht skaliert"),
    ):
        for n, answer in enumerate(answers):
            part.get_by_role("textbox", name=f"Key {n}").fill(answer)
        part.get_by_role("button", name="Prüfen").click()
        part.get_by_text(said).wait_for()
    part.get_by_role("button", name="Zeig es mir").click()
    part.get_by_text("Key 0: 5 / √2 = 3.535534").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("language", ["en", "de", "es"])
def test_axe_finds_nothing_serious_in_any_language(
    open_page: Callable[..., Any], folder: Path, axe: str, language: str, dark: bool
) -> None:
    page = open_page(f"file://{folder}/lessons.html#/learn?page.language={language}", dark=dark)
    page.wait_for_function("code => document.documentElement.lang === code", arg=language)
    page.locator("#apply .board:not(.waiting)").wait_for()
    page.locator("#training .waiting").wait_for(state="detached")
    assert violations(page, axe) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_axe_finds_nothing_serious_in_a_part_alone(
    open_page: Callable[..., Any], tmp_path: Path, axe: str, part: str
) -> None:
    write_lessons(tmp_path / "part.html", part)
    page = open_page(f"file://{tmp_path}/part.html")
    page.locator(f"#{part}").wait_for()
    page.wait_for_timeout(500)
    assert violations(page, axe) == []
