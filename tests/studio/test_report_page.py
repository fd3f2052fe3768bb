"""The report in a real browser, from a file, without a network; and the notebook's widget."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limelight import notebook
from limelight.capture import Capture, Site
from limelight.report import bundle, write_report
from limelight.report.page import built
from tests.studio import samples
from tests.studio.conftest import Watcher
from tests.studio.looking import close, figures, violations

Open = Callable[..., Any]
MAP = re.compile("Weights of")
# A walk begins at the cell that is open; from the corner on it is counted.
TO_THE_CELL = ("Home", *("PageUp",) * 3, *("ArrowDown",) * 6, *("ArrowRight",) * 2, "Enter")


@pytest.fixture
def open_file(browser: Any) -> Iterator[Open]:
    contexts: list[Any] = []
    watcher = Watcher("file://")

    def opened(path: Path, *, width: int = 1440, dark: bool = False, **options: Any) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True, reduced_motion="reduce",
            color_scheme="dark" if dark else "light", **options,
        )  # fmt: skip
        contexts.append(context)
        context.set_default_timeout(45_000)
        watcher.attach(context)
        page = context.new_page()
        page.on(
            "dialog",
            lambda dialog: (watcher.problems.append(f"dialog {dialog.message}"), dialog.dismiss()),
        )
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert watcher.problems == []


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(samples.text_capture(), path, precision="float32")
    return path


def shown(page: Any) -> np.ndarray:
    return figures(page.get_by_role("complementary", name="Cell").locator("article"))


def test_what_stands_out_comes_first_with_a_sentence(open_file: Open, file: Path) -> None:
    page = open_file(file)
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()
    first = page.get_by_role("region", name="Heads").get_by_role("listitem").first.inner_text()
    assert "layer 1, head 1" in first
    assert "95 % or more on one key" in first
    summary = page.get_by_role("region", name="Summary").inner_text()
    assert re.search(r"11\s*of no known kind", summary)
    assert "What stands out most: layer 1, head 1" in summary


def test_a_cell_is_worked_out_from_the_numbers_in_the_file(open_file: Open, file: Path) -> None:
    page = open_file(file)
    area = page.get_by_role("application", name=MAP)
    area.focus()
    for key in TO_THE_CELL:
        page.keyboard.press(key)
    page.get_by_text("layer 1, head 1, query 6, key 2").wait_for()
    cell = samples.text_capture()[1].cell(6, 2, head=1)
    close(
        shown(page),
        [*cell.query, *cell.key, *cell.products, cell.raw, cell.scaled, cell.exponential, cell.row_sum, cell.weight,
         *cell.value, *cell.contribution],
    )  # fmt: skip


def test_on_paper_no_list_is_cut(open_file: Open, file: Path) -> None:
    page = open_file(file)
    heads = page.get_by_role("region", name="Heads").locator("ol")
    heads.wait_for()
    cut = "list => list.scrollHeight > list.clientHeight"
    assert heads.evaluate(cut)
    page.emulate_media(media="print")
    assert not heads.evaluate(cut)


def test_on_paper_it_is_light_and_has_nothing_to_press(open_file: Open, file: Path) -> None:
    page = open_file(file, dark=True)
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()
    page.emulate_media(media="print")
    assert page.get_by_role("heading", level=1).is_visible()
    buttons = page.get_by_role("button", name=re.compile("Light or dark|Save PNG|Show all|Whole"))
    assert not any(button.is_visible() for button in buttons.all())
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_hostile_tokens_are_text(open_file: Open, file: Path) -> None:
    page = open_file(file)
    page.get_by_role("button", name="Lines").click()
    lines = page.get_by_role("group", name=re.compile("Lines of"))
    lines.wait_for()
    texts = lines.get_by_role("button").all_inner_texts()
    assert texts[0] == samples.HOSTILE[0]
    assert texts[1] == samples.HOSTILE[1]
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("document.querySelectorAll('script').length") == 2
    assert all("‮" not in text for text in texts)


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_and_axe_finds_nothing_serious(
    open_file: Open, file: Path, axe: str, width: int, dark: bool
) -> None:
    page = open_file(file, width=width, dark=dark)
    page.get_by_role("application", name=MAP).wait_for()
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page, axe) == []


def test_a_head_without_its_vectors_says_so(open_file: Open, tmp_path: Path) -> None:
    capture = samples.long_capture(5003)
    path = tmp_path / "long.html"
    write_report(capture, path)
    page = open_file(path)
    assert page.get_by_text("the vectors of this head are not in this file").count() == 2
    page.get_by_role("application", name=MAP).click()
    page.get_by_text("are not in this file, so single cells").wait_for()


def test_the_address_restores_what_is_shown(open_file: Open, file: Path) -> None:
    page = open_file(file)
    page.get_by_role("button", name="Layers").click()
    page.get_by_role("button", name=re.compile("layer 2, head 3")).click()
    page.get_by_role("heading", name="Layer 2, head 3").wait_for()
    address = page.url
    assert "head=2.3" in address
    page.goto("about:blank")
    page.goto(address)
    page.get_by_role("heading", name="Layer 2, head 3").wait_for()


def test_sinks_softcap_bias_and_a_cross_site_are_worked_out_too(
    open_file: Open, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    site = Site(
        "cross", 0, rng.standard_normal((1, 2, 5, 6)).astype(np.float32),
        rng.standard_normal((1, 1, 7, 6)).astype(np.float32), rng.standard_normal((1, 1, 7, 3)).astype(np.float32),
        scale=0.7, softcap=2.0, sinks=np.array([0.5, -1.0], np.float32), kind="cross",
        bias=np.where(rng.random((1, 2, 5, 7)) < 0.2, -np.inf, rng.standard_normal((1, 2, 5, 7))).astype(np.float32),
    )  # fmt: skip
    path = tmp_path / "cross.html"
    write_report(Capture((site,)), path, precision="float32")
    page = open_file(path)
    for row, column in ((0, 0), (4, 6), (2, 3)):
        page.evaluate(f"location.hash = '#/explore?head=0.1&cell={row}.{column}'")
        page.get_by_text(f"layer 0, head 1, query {row}, key {column}").wait_for()
        cell = replace(site).cell(row, column, head=1)  # a fresh site, without float32 sums
        numbers = shown(page)
        weights = [n for n in numbers if abs(n - cell.weight) <= 1e-12]
        assert weights, (row, column, cell.weight, numbers)


WIDGET = """<!doctype html><html><body style="margin:0"><div id="out"></div><script type="module">
import widget from "./widget.js";
window.sent = []; const heard = [];
const model = {
  get: (name) => window.state[name],
  send: (content) => { window.sent.push(content); },
  on: (name, callback) => heard.push(callback),
  off: (name, callback) => heard.splice(heard.indexOf(callback), 1),
};
window.reply = (message, buffers = []) => heard.forEach((callback) => callback(message, buffers));
window.listeners = () => heard.length;
window.end = widget.render({ model, el: document.getElementById("out") });
</script></body></html>"""


def widget_page(
    open_file: Open, tmp_path: Path, capture: Capture, budget: int, **options: Any
) -> Any:
    """The widget as a notebook mounts it, with a kernel that the test plays."""
    made = bundle(capture, budget=budget, precision="float32")
    state = {"data": made.to_json(), "style_sheet": built("widget.css")}
    inline = f"<script>window.state = {json.dumps(state).replace('<', chr(92) + 'u003c')};</script>"
    # A module cannot be imported from a file, but from its own text.
    module = "data:text/javascript;base64," + base64.b64encode(built("widget.js").encode()).decode()
    html = WIDGET.replace('"./widget.js"', json.dumps(module))
    html = html.replace('<div id="out">', f'{inline}<div id="out">')
    path = tmp_path / "notebook.html"
    path.write_text(html)
    return open_file(path, **options)


def test_the_widget_draws_and_works_cells_out(open_file: Open, tmp_path: Path) -> None:
    capture = notebook.as_capture(samples.text_capture()[1], head=1)
    page = widget_page(open_file, tmp_path, capture, 10**6)
    area = page.get_by_role("application", name=MAP)
    area.wait_for()
    assert page.get_by_role("grid").count() == 0  # one head: nothing to choose from
    area.focus()
    for key in TO_THE_CELL:
        page.keyboard.press(key)
    page.get_by_text("query 6, key 2").wait_for()
    cell = samples.text_capture()[1].cell(6, 2, head=1)
    assert any(abs(number - cell.weight) <= 1e-12 for number in shown(page))


def test_one_head_says_which_it_was_and_needs_no_kernel(open_file: Open, tmp_path: Path) -> None:
    capture = notebook.as_capture(samples.text_capture()[1], head=2)
    page = widget_page(open_file, tmp_path, capture, 10**6)
    page.get_by_role("heading", name="layer 1, head 2").wait_for()
    page.get_by_role("application", name=MAP).click(position={"x": 5, "y": 100})
    page.locator(".sights").get_by_text(re.compile(r"\d\s%")).first.wait_for()
    page.get_by_role("button", name="Lines").click()
    page.get_by_role("group", name="Lines of layer 1, head 2").wait_for()
    assert page.evaluate("window.sent.length") == 0


@pytest.mark.parametrize("rem", [10, 13, 16])
@pytest.mark.parametrize("width", [400, 800, 1600])
def test_the_widget_fits_its_output_cell(
    open_file: Open, tmp_path: Path, width: int, rem: int
) -> None:
    """Also where the notebook's own text is small: its rem is not the widget's."""
    page = widget_page(open_file, tmp_path, samples.text_capture(), 10**6, width=width)
    page.add_style_tag(content=f"html {{ font-size: {rem}px }}")
    page.get_by_role("application", name=MAP).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # Nothing is cut off, no control too small to hit, no text too small to read.
    for control in page.get_by_role("button").all()[:6]:
        assert control.bounding_box()["height"] >= 17
    sizes = page.locator(".report p, .report button, .report label").evaluate_all(
        "found => found.map(part => parseFloat(getComputedStyle(part).fontSize))"
    )
    assert min(sizes) >= 11
    spill = page.evaluate(
        """() => {
          const root = document.querySelector(".limelight-widget").shadowRoot;
          return [...root.querySelectorAll(".pane")].filter((pane) => pane.scrollWidth > pane.clientWidth + 1).length;
        }"""
    )
    assert spill == 0
    outside = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert outside == "rgba(0, 0, 0, 0)"  # its styles stay inside


def test_the_widget_follows_the_notebooks_theme(open_file: Open, tmp_path: Path) -> None:
    page = widget_page(open_file, tmp_path, samples.text_capture(7), 10**6)
    page.get_by_role("application", name=MAP).wait_for()
    host = page.locator(".limelight-widget")
    light = host.evaluate("host => getComputedStyle(host).backgroundColor")
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.wait_for_function(
        "before => getComputedStyle(document.querySelector('.limelight-widget')).backgroundColor !== before",
        arg=light,
    )
    page.evaluate(
        "delete document.body.dataset.jpThemeLight; document.body.className = 'vscode-light'"
    )
    page.wait_for_function(
        "before => getComputedStyle(document.querySelector('.limelight-widget')).backgroundColor === before",
        arg=light,
    )
    assert page.evaluate("document.documentElement.hasAttribute('data-theme')") is False


def test_the_widget_asks_the_kernel_for_what_it_lacks(open_file: Open, tmp_path: Path) -> None:
    capture = samples.long_capture(1500)
    page = widget_page(open_file, tmp_path, capture, 120_000)
    page.get_by_role("application", name=MAP).wait_for()
    page.wait_for_function("() => window.sent.some(message => message.ask === 'tile')")

    def serve() -> None:
        for asked in page.evaluate("() => window.sent.splice(0)"):
            found, arrays = notebook.answer(capture, 0, asked)
            page.evaluate(
                """([id, found, arrays]) => window.reply({id, found}, arrays.map((text) =>
                new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer)))""",
                [asked["id"], found, [base64.b64encode(array).decode() for array in arrays]],
            )

    serve()
    page.get_by_role("application", name=MAP).click()
    page.wait_for_function("() => window.sent.some(message => message.ask === 'cell')")
    serve()
    page.get_by_text(re.compile("query 7..?, key 7..?")).wait_for()
    page.evaluate("() => window.end()")
    assert page.evaluate("() => window.listeners()") == 0
    assert page.locator(".limelight-widget").count() == 0
