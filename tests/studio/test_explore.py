"""Explore in a real browser: what is shown is the library's, and everything can be reached by hand."""

from __future__ import annotations

import base64
import io
import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import limelight as ll
from limelight.capture import Capture, Site
from limelight.views.facts import health_of, kinds
from limelight.views.order import findings
from tests.studio import samples
from tests.studio.conftest import Running, stop
from tests.studio.looking import close, figures, percent, violations

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def sample() -> Capture:
    return samples.text_capture()


def exact(site: Site) -> Site:
    """The site without what a pass in float32 may have told about its rows."""
    return replace(site, rows=None)


def map_of(page: Any, name: str = "Weights of") -> Any:
    return page.get_by_role("application", name=re.compile(name)).first


def pane(page: Any) -> Any:
    return page.get_by_role("complementary", name="Cell")


def click_cell(page: Any, row: int, column: int, rows: int, columns: int) -> None:
    box = map_of(page).bounding_box()
    x, y = (column + 0.5) / columns * box["width"], (row + 0.5) / rows * box["height"]
    map_of(page).click(position={"x": x, "y": y})


def shown_cell(page: Any) -> np.ndarray:
    """Everything the cell's pane says: products' sum, scaled, exponential, row's sum, weight, …"""
    return figures(pane(page).locator("article"))


def test_the_shelf_lists_the_captures_and_opens_one(open_tab: Open) -> None:
    page = open_tab("#/explore")
    cards = page.get_by_role("main").get_by_role("listitem")
    cards.filter(has_text="deeper / vision").wait_for()
    assert cards.filter(has_text="<b>sample</b>").count() == 1  # text, not a tag
    cards.filter(has_text="23 tokens").get_by_role("link").click()
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()
    assert page.url.endswith("#/explore/sample")


def test_files_that_cannot_be_opened_are_named(open_tab: Open) -> None:
    page = open_tab("#/explore")
    card = page.get_by_role("main").get_by_role("listitem").filter(has_text="broken.safetensors")
    card.get_by_text("not a safetensors file").wait_for()
    assert card.get_by_role("link").count() == 0


@pytest.mark.parametrize(
    "query", ["head=99.1", "head=0.4", "head=x.1", "with=1.99", "cell=99.1", "batch=7"]
)
def test_what_the_capture_does_not_have_leaves_the_address(open_tab: Open, query: str) -> None:
    page = open_tab(f"#/explore/sample?{query}")
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()
    page.wait_for_url("**#/explore/sample")


def test_the_grid_is_the_health_of_the_library(open_tab: Open, sample: Capture) -> None:
    page = open_tab("#/explore/sample")
    grid = page.get_by_role("grid")
    expected = sample.health()["saturated"]
    names = grid.get_by_role("gridcell").get_by_role("button")
    names.nth(11).wait_for()
    # The page begins with the cell that stands out, and with how each head looks at it.
    names.and_(page.get_by_role("button", name=re.compile(r"this cell \d"))).nth(11).wait_for()
    row, column = findings(sample, [health_of(site, 0) for site in sample.sites], kinds(sample))[
        0
    ].cell
    weight = sample[1].weights(rows=[row], head=1)[0][column]
    assert f"this cell {weight:.2f}" in names.nth(5).get_attribute("aria-label")
    page.get_by_label("Colour by").select_option("saturated")
    page.get_by_role(
        "button", name=re.compile("layer 1, head 1, saturated rows 86 %, saturated")
    ).wait_for()
    for site in range(3):
        for head in range(4):
            label = names.nth(site * 4 + head).get_attribute("aria-label")
            assert (
                f"layer {site}, head {head}, saturated rows {percent(expected[site, head])}"
                in label
            )


def test_an_entry_of_a_batch_shows_its_own_health(open_tab: Open) -> None:
    page = open_tab("#/explore/batch")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    head = page.locator(".pane.main")
    head.locator(".chip", has_text="healthy").wait_for()
    assert re.search(r"saturated rows \d+\s% ·", head.locator("p.figures").first.inner_text())
    page.get_by_label("Entry").select_option("1")
    head.locator(".chip", has_text="saturated").wait_for()
    page.wait_for_load_state("networkidle")
    assert any(url.endswith("/api/captures/batch/findings?batch=1") for url in asked)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_ring_of_a_chosen_head_leaves_its_number_free(open_tab: Open, width: int) -> None:
    page = open_tab("#/explore/sample?head=0.2", width=width)
    grid = page.get_by_role("grid")
    chosen = grid.locator("button[aria-pressed=true]")
    chosen.wait_for()
    ring = 4  # pixels around the head
    number = grid.get_by_role("columnheader", name="2", exact=True).bounding_box()
    assert number["y"] + number["height"] <= chosen.bounding_box()["y"] - ring


def test_what_stands_out_comes_in_the_librarys_order(open_tab: Open, sample: Capture) -> None:
    page = open_tab("#/explore/sample")
    page.get_by_role("button", name="What stands out").click()
    page.get_by_label("Colour by").select_option("entropy")
    listed = page.get_by_role("region", name="Heads").get_by_role("listitem")
    listed.first.wait_for()
    order = findings(sample, [health_of(site, 0) for site in sample.sites], kinds(sample))
    for place, one in enumerate(order):
        text = listed.nth(place).inner_text()
        assert f"layer {one.site}, head {one.head}" in text
        assert one.why in text
    listed.nth(0).get_by_role("button").click()
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()
    assert "order=found" in page.url


@pytest.mark.parametrize(("row", "column"), [(6, 2), (22, 0), (13, 13)])
def test_a_clicked_cell_shows_the_librarys_numbers(
    open_tab: Open, sample: Capture, row: int, column: int
) -> None:
    page = open_tab("#/explore/sample?head=1.1")
    click_cell(page, row, column, 23, 23)
    cell = exact(sample[1]).cell(row, column, head=1)
    page.get_by_text(f"layer 1, head 1, query {row}, key {column}", exact=False).wait_for()
    shown = shown_cell(page)
    vectors = [*cell.query, *cell.key, *cell.products]
    close(shown[: len(vectors)], vectors)
    rest = shown[len(vectors) :]
    expected = [
        cell.raw,
        cell.scaled,
        cell.exponential,
        cell.row_sum,
        cell.weight,
        *cell.value,
        *cell.contribution,
    ]
    close(rest, expected)


def test_a_hidden_cell_says_so(open_tab: Open) -> None:
    page = open_tab("#/explore/sample?head=0.0&cell=3.20")
    pane(page).get_by_text("Hidden").wait_for()


def test_the_map_is_walked_by_keyboard(open_tab: Open, sample: Capture) -> None:
    page = open_tab("#/explore/sample?head=2.3")
    map_of(page).wait_for()
    page.wait_for_load_state("networkidle")
    map_of(page).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.get_by_text("layer 2, head 3, query 3, key 1", exact=False).wait_for()
    close(shown_cell(page)[-11], exact(sample[2]).cell(3, 1, head=3).weight)
    page.keyboard.press("+")
    page.wait_for_url(re.compile(r"rows=[\d.]+-[\d.]+"))
    page.keyboard.press("0")
    page.wait_for_url(re.compile(r"cell=3\.1$"))


def test_a_chosen_token_has_the_room_of_its_bold_letters(browser: Any, studio: Running) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.add_init_script("""
        window.drawn = [];
        const { fillText } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...where) {
            window.drawn.push([text, this.font]);
            return fillText.call(this, text, ...where);
        };
    """)
    page.goto(f"{studio.origin}/?token={studio.token}#/explore/llama?head=11.1&cell=3.2")
    page.wait_for_function("() => window.drawn.some(([text, font]) => text === '0.86')")
    words = {text for text, font in page.evaluate("window.drawn") if font.startswith("600")}
    assert words == {"·watched", "·cat"}
    page.close()


def test_hovering_tells_row_and_column(open_tab: Open, sample: Capture) -> None:
    page = open_tab("#/explore/sample?head=0.2")
    map_of(page).wait_for()
    page.wait_for_load_state("networkidle")
    box = map_of(page).bounding_box()
    map_of(page).hover(position={"x": 3.5 / 23 * box["width"], "y": 17.5 / 23 * box["height"]})
    page.get_by_text("query 17").wait_for()
    page.get_by_text("key 3", exact=True).wait_for()
    weights = sample[0].weights(rows=[17], head=2)[0]
    best = int(weights.argmax())
    first = page.locator(".sight").first.get_by_role("listitem").first.inner_text()
    assert percent(weights[best], 1) in first


def test_a_link_restores_exactly_what_is_shown(open_tab: Open) -> None:
    page = open_tab("#/explore/sample?head=1.1")
    page.get_by_label("Colour by").select_option("spread")
    click_cell(page, 9, 4, 23, 23)
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_label("Brightness").fill("3")
    page.get_by_role("button", name="Put another head beside it").click()
    page.get_by_role("button", name=re.compile("layer 0, head 2")).first.click()
    page.wait_for_url(re.compile("with=0.2"))
    page.wait_for_load_state("networkidle")
    page.get_by_role("button", name="Copy link").click()
    page.get_by_text(re.compile("Link copied|address bar")).wait_for()
    page.wait_for_timeout(500)
    link = page.url
    before = words(page)
    pixels = map_of(page, "layer 0, head 2").screenshot()
    hash_ = link[link.index("#") :]
    for part in (
        "head=1.1",
        "with=0.2",
        "figure=spread",
        "cell=9.4",
        "rows=",
        "columns=",
        "gain=8",
    ):
        assert part in hash_
    again = open_tab(hash_)
    again.get_by_text("layer 1, head 1, query 9, key 4", exact=False).wait_for()
    again.wait_for_load_state("networkidle")
    for _ in range(20):  # what is pointed at follows a moment later
        if words(again) == before:
            break
        again.wait_for_timeout(100)
    assert again.url == link
    assert words(again) == before
    assert map_of(again, "layer 0, head 2").screenshot() == pixels


def words(page: Any) -> list[str]:
    """All that the page shows, but for what it told a screen reader on the way."""
    text = page.get_by_role("main").evaluate(
        """main => {
          const copy = main.cloneNode(true);
          copy.querySelectorAll(".unseen, [role=status]").forEach((one) => one.remove());
          return copy.textContent;
        }"""
    )
    return str(text).split()


def test_back_goes_back(open_tab: Open) -> None:
    page = open_tab("#/explore/sample")
    page.get_by_role("button", name=re.compile("layer 2, head 0")).click()
    page.get_by_role("heading", name="Layer 2, head 0").wait_for()
    page.get_by_role("button", name="Lines").click()
    page.get_by_role("group", name="Lines of layer 2, head 0").wait_for()
    page.go_back()
    page.get_by_role("application", name=re.compile("Weights of layer 2, head 0")).wait_for()
    page.go_back()
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()


def test_two_heads_move_together(open_tab: Open) -> None:
    page = open_tab("#/explore/long?head=0.0&with=0.0")  # one head twice: equal pictures
    maps = page.get_by_role("application", name=re.compile("Weights of"))
    maps.nth(1).wait_for()
    page.wait_for_load_state("networkidle")
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_url(re.compile("rows="))
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)
    first, second = (seen(one) for one in maps.all())
    assert first.shape == second.shape
    assert np.abs(first - second).mean() < 0.5
    assert first.std() > 10


def test_a_head_is_compared_with_its_neighbour(open_tab: Open) -> None:
    for head, other in (("0.0", "layer 0, head 1"), ("2.3", "layer 2, head 2")):
        page = open_tab(f"#/explore/sample?head={head}")
        page.get_by_role("button", name="Put another head beside it").click()
        page.get_by_role("application", name=re.compile(f"Weights of {other}")).wait_for()
        page.get_by_role("heading", name=re.compile("Two heads Choosing a head")).wait_for()


def test_a_studio_that_has_stopped_is_said_so(
    browser: Any, start_studio: Callable[..., Running]
) -> None:
    running = start_studio()
    page = browser.new_page()
    page.goto(f"{running.origin}/?token={running.token}#/explore/llama")
    map_of(page, "layer 11, head 1").wait_for()
    page.wait_for_load_state("networkidle")
    stop(running)
    page.get_by_role("button", name=re.compile("layer 1, head 0")).click()
    gone = "The studio does not answer. Is it still running?"
    page.get_by_role("alert").get_by_text(f"The map could not be read. {gone}").wait_for()
    page.close()


def test_what_failed_once_is_told_until_it_comes(browser: Any, studio: Running) -> None:
    page = browser.new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/explore/llama?head=11.1&cell=2.1")
    strongest = page.get_by_role("list", name="The strongest").get_by_role("button")
    strongest.filter(has_text="layer 11, head 1").wait_for()
    page.wait_for_load_state("networkidle")
    page.route("**/sightings?*", lambda route: route.abort())
    page.get_by_role("button", name=re.compile("every word looks at itself")).click()
    told = page.get_by_role("alert").get_by_text("The studio does not answer.")
    told.wait_for()
    page.unroute_all()
    page.get_by_role("button", name=re.compile("cat looks at curious")).click()
    told.wait_for(state="detached")
    page.close()


@pytest.mark.parametrize("where", ["explore", "watch"])
def test_a_list_that_does_not_come_is_not_looked_for(
    browser: Any, studio: Running, where: str
) -> None:
    page = browser.new_page()
    page.route("**/api/*", lambda route: route.abort())
    page.goto(f"{studio.origin}/?token={studio.token}#/{where}")
    page.get_by_role("alert").get_by_text("The studio does not answer.").last.wait_for()
    page.wait_for_load_state("networkidle")
    assert page.get_by_text("Looking for").count() == 0
    page.close()


def test_a_page_that_cannot_be_opened_is_said_in_words(browser: Any, studio: Running) -> None:
    page = browser.new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/learn")
    page.get_by_role("heading", name="Step through").wait_for()
    page.route("**/assets/*", lambda route: route.abort())
    page.get_by_role("link", name="Watch", exact=True).click()
    said = "Watch could not be opened. Is the studio still running? Then load this page again."
    page.get_by_role("alert").get_by_text(said, exact=True).wait_for()
    page.unroute_all()
    page.reload()
    page.get_by_role("heading", name="Watch a training run").wait_for()
    page.close()


def test_numbers_are_named_by_the_head_that_they_are_of(open_tab: Open) -> None:
    page = open_tab("#/explore/llama?head=11.1&cell=2.1")
    cell = page.get_by_role("complementary", name="Cell")
    cell.get_by_text("layer 11, head 1, query 2, key 1").wait_for()
    page.wait_for_load_state("networkidle")
    held: list[Any] = []
    waiting = True
    slow = re.compile("/cells/|/lines")
    page.route(slow, lambda route: held.append(route) if waiting else route.continue_())

    def choose(head: str) -> None:
        page.get_by_role("button", name=re.compile(f"^{head} ")).first.click()
        page.get_by_role("heading", name=head).wait_for()

    def answer() -> None:
        nonlocal waiting
        waiting = False
        for route in held:
            route.continue_()
        held.clear()

    choose("layer 2, head 1")
    assert "layer 11, head 1, query 2, key 1" in cell.inner_text().lower()
    answer()
    cell.get_by_text("layer 2, head 1, query 2, key 1").wait_for()
    page.get_by_role("button", name="Lines", exact=True).click()
    beams = page.locator("section.head svg path")
    beams.first.wait_for(state="attached")
    waiting = True
    choose("layer 11, head 1")
    beams.first.wait_for(state="detached")  # those of the other head
    answer()
    beams.first.wait_for(state="attached")


def test_the_light_on_an_image_is_told_of_its_own_patch(browser: Any, studio: Running) -> None:
    page = browser.new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/explore/vit?head=0.1&look=image&cell=9.10")
    told = page.get_by_text(re.compile("the brightest patch"))
    told.get_by_text("the patch in row 2, column 2").wait_for()
    page.wait_for_load_state("networkidle")
    said, held = told.inner_text(), []
    page.route("**/light?*", lambda route: held.append(route))
    picture = page.get_by_role("application", name=re.compile("looks at, .* patches"))
    picture.press("ArrowRight")
    page.get_by_role("application", name=re.compile("What the patch in row 2, column 3")).wait_for()
    assert told.inner_text() == said  # of the patch before, until its own comes
    held[0].abort()
    page.get_by_role("alert").get_by_text("The studio does not answer.").wait_for()
    assert told.count() == 0
    page.unroute_all()
    picture.press("ArrowRight")
    told.get_by_text("the patch in row 2, column 4").wait_for()
    page.close()


def test_a_map_that_takes_a_while_says_so(open_tab: Open) -> None:
    page = open_tab("#/explore")
    held: list[Any] = []
    page.route("**/tile?*", lambda route: held.append(route))
    page.evaluate("location.hash = '#/explore/sample'")
    page.get_by_text("Computing the map…").wait_for()
    for route in held:
        route.continue_()
    page.get_by_text("Computing the map…").wait_for(state="detached")


def seen(area: Any) -> np.ndarray:
    """A map as it is drawn, its tokens too: a screenshot begins at a whole pixel, and a map need not."""
    drawn = area.evaluate("map => map.parentElement.querySelector('canvas').toDataURL()")
    image = Image.open(io.BytesIO(base64.b64decode(drawn.partition(",")[2]))).convert("RGBA")
    paper = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(paper, image).convert("L"), np.float64)


def test_two_heads_move_together_by_parts_of_a_cell_and_a_link_restores_them(
    open_tab: Open,
) -> None:
    page = open_tab("#/explore/sample?head=1.1&with=1.1")
    maps = page.get_by_role("application", name=re.compile("Weights of"))
    maps.nth(1).wait_for()
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_load_state("networkidle")
    before = seen(maps.nth(1))
    maps.nth(0).scroll_into_view_if_needed()
    box = maps.nth(0).bounding_box()
    cell = 4 * box["width"] / 23
    page.mouse.move(box["x"] + 200, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 200 - cell / 3, box["y"] + 200 - cell / 5, steps=3)
    page.mouse.up()
    page.mouse.move(5, 5)
    page.wait_for_url(re.compile(r"rows=[\d.]+-[\d.]+"))
    page.wait_for_timeout(400)
    first, second = (seen(one) for one in maps.all())
    assert np.abs(first - second).mean() < 0.5
    assert np.abs(before - second).mean() > 3
    again = open_tab(page.url[page.url.index("#") :])
    maps = again.get_by_role("application", name=re.compile("Weights of"))
    maps.nth(1).wait_for()
    again.wait_for_load_state("networkidle")
    again.wait_for_timeout(300)
    for area in maps.all():
        assert np.abs(seen(area) - first).mean() < 0.5


def test_a_long_map_zooms_down_to_single_cells(open_tab: Open) -> None:
    page = open_tab("#/explore/long?rows=4030-4060&columns=4030-4060&cell=4043.4041")
    cell = samples.long_capture().sites[0].cell(4043, 4041)
    page.get_by_text("query 4043, key 4041").wait_for()
    close(shown_cell(page)[-3:], [cell.exponential, cell.row_sum, cell.weight])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("button", name="Whole").click()
    page.wait_for_load_state("networkidle")
    # The whole is a handful of pooled tiles, never the sixteen million cells.
    assert len([url for url in asked if "/tile?" in url]) <= 8


def test_a_fast_drag_asks_only_for_what_stays_in_view(open_tab: Open) -> None:
    page = open_tab("#/explore/long?rows=0-256&columns=0-256")
    page.wait_for_load_state("networkidle")
    map_of(page).evaluate("map => map.scrollIntoView({block: 'center'})")
    box = map_of(page).bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for _ in range(4):
        page.mouse.move(*middle)
        page.mouse.down()
        page.mouse.move(middle[0] - 200, middle[1] - 200, steps=5)
        page.mouse.up()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(400)
    rows = re.search(r"rows=([\d.]+)-", page.url)
    assert rows
    assert float(rows[1]) > 100


def test_the_keyboard_zooms_where_it_stands(open_tab: Open) -> None:
    page = open_tab("#/explore/long?cell=3301.17")
    area = map_of(page)
    area.focus()
    page.keyboard.press("ArrowDown")
    for _ in range(9):
        page.keyboard.press("+")
    page.wait_for_url(re.compile("rows="))
    page.wait_for_timeout(400)
    for name, at in (("rows", 3302), ("columns", 17)):
        low, high = map(float, re.search(rf"{name}=([\d.]+)-([\d.]+)", page.url).groups())  # type: ignore[union-attr]
        assert low <= at < high
        assert high - low < 4099 / 30
    page.keyboard.press("Enter")
    page.get_by_text("query 3302, key 17").wait_for()


def test_lines_of_a_short_and_of_a_long_text(open_tab: Open, sample: Capture) -> None:
    page = open_tab("#/explore/sample?head=1.1&look=lines&cell=6.2")
    lines = page.get_by_role("group", name="Lines of layer 1, head 1")
    lines.wait_for()
    weights = sample[1].weights(rows=[6], head=1)[0]
    shares = [percent(w) for w in weights if w >= 0.005]
    page.wait_for_function(
        "count => document.querySelectorAll('.share').length === count", arg=len(shares)
    )
    assert lines.locator(".share").all_inner_texts() == shares
    page = open_tab("#/explore/long?look=lines&cell=2000.0")
    page.get_by_text("queries 1,980 to 2,019").wait_for()
    page.get_by_role("button", name="Later queries").click()
    page.get_by_text("queries 2,020 to 2,059").wait_for()


def test_patches_lie_over_the_image(open_tab: Open) -> None:
    page = open_tab("#/explore/deeper%3Avision?head=1.2&look=image")
    image = page.get_by_role(
        "application", name=re.compile("What the patch in row 4, column 4 looks at")
    )
    image.wait_for()
    seen = page.get_by_alt_text("what the model saw")
    assert seen.evaluate("image => image.decode().then(() => image.naturalWidth)") == 112
    box = image.bounding_box()
    image.click(position={"x": 0.5 / 7 * box["width"], "y": 6.5 / 7 * box["height"]})
    page.get_by_role(
        "application", name=re.compile("What the patch in row 7, column 1 looks at")
    ).wait_for()
    page.keyboard.press("ArrowRight")
    page.get_by_role(
        "application", name=re.compile("What the patch in row 7, column 2 looks at")
    ).wait_for()
    query = 1 + 6 * 7 + 1
    weights = samples.image_capture().sites[1].weights(rows=[query], head=2)[0]
    page.get_by_text(f"{weights[1:].max() * 100:.1f} %").first.wait_for()
    page.get_by_role("button", name=re.compile(r"^\[class\]")).click()
    page.get_by_role("application", name=re.compile(r"What \[class\] looks at")).wait_for()


@pytest.mark.parametrize("format_", ["PNG", "SVG"])
def test_a_picture_is_saved(open_tab: Open, tmp_path: Path, format_: str) -> None:
    page = open_tab("#/explore/sample?head=1.1&rows=0-7&columns=0-7", accept_downloads=True)
    map_of(page).wait_for()
    with page.expect_download() as saved:
        page.get_by_role("button", name=f"Save {format_}").click()
    path = tmp_path / "picture"
    saved.value.save_as(path)
    assert path.read_bytes().startswith({"PNG": b"\x89PNG", "SVG": b"<svg"}[format_])


def test_a_saved_picture_has_the_models_numbers_and_the_screens_brightness(
    open_tab: Open, tmp_path: Path
) -> None:
    page = open_tab("#/explore/batch?head=1.2&gain=4", accept_downloads=True)
    map_of(page, "layer 17, head 2").wait_for()
    with page.expect_request("**/picture?*") as asked, page.expect_download() as saved:
        page.get_by_role("button", name="Save SVG").click()
    assert saved.value.suggested_filename == "limelight-batch-17-2.svg"
    assert asked.value.url.endswith("&high=0.25")
    path = tmp_path / "picture.svg"
    saved.value.save_as(path)
    assert ">0.25<" in path.read_text()  # the lit end of the legend
    assert "layer 17, head 2" in path.read_text()


def test_a_report_is_saved(open_tab: Open, tmp_path: Path) -> None:
    page = open_tab("#/explore/sample", accept_downloads=True)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save report").click()
    path = tmp_path / "report.html"
    saved.value.save_as(path)
    assert "limelight-data" in path.read_text()


def test_a_capture_that_is_not_there_is_said(browser: Any, studio: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/explore/nothing")
    assert "There is no capture “nothing”" in page.get_by_role("alert").inner_text()
    context.close()


def test_the_token_leaves_the_address(open_tab: Open, studio: Any) -> None:
    page = open_tab("#/explore/sample?head=1.1")
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()
    assert studio.token not in page.url
    assert page.evaluate("document.cookie") == ""  # HttpOnly
    assert studio.token not in page.evaluate(
        "JSON.stringify({...localStorage}) + document.referrer"
    )


@pytest.mark.parametrize(
    "where",
    ["#/explore", "#/explore/sample?head=1.1&cell=6.2", "#/explore/sample?look=lines", "#/watch", "#/watch/run"],
)  # fmt: skip
def test_nothing_is_wider_than_the_page(open_tab: Open, where: str) -> None:
    page = open_tab(where, width=360)
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for width in (3840, 1440, 768, 360, 320):  # narrower each time: what was wide must give way
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_load_state("networkidle")
        page.evaluate("new Promise(drawn => setTimeout(() => requestAnimationFrame(drawn), 100))")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width


@pytest.mark.parametrize(
    "where",
    ["#/explore", "#/explore/sample?head=1.1&cell=6.2", "#/explore/sample?order=found&with=0.1", "#/explore/sample?look=lines",
     "#/explore/deeper%3Avision?look=image", "#/watch", "#/watch/run"],
)  # fmt: skip
def test_axe_finds_nothing_serious(open_tab: Open, axe: str, where: str) -> None:
    page = open_tab(where)
    page.wait_for_load_state("networkidle")
    assert violations(page, axe) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, axe) == []
    headings = page.locator("main :is(h1, h2, h3, h4)")
    levels = headings.evaluate_all("all => all.map(one => Number(one.tagName[1]))")
    assert all(below <= above + 1 for above, below in itertools.pairwise(levels)), levels


def test_the_shelf_opens_what_comes_along_at_a_head_worth_seeing(open_tab: Open) -> None:
    """Each card leads to a weight that carries its row, as its words say."""
    page = open_tab("#/explore")
    page.get_by_text("First: cat looks at curious").wait_for()
    links = page.locator("a.card").evaluate_all(
        "found => found.map(card => card.getAttribute('href'))"
    )
    seen = set()
    for link in links:
        name = link.removeprefix("#/explore/").partition("?")[0]
        if "?" not in link:
            assert name in ("sample", "batch", "long", "deeper%3Avision")
            continue
        seen.add(name)
        site, head = map(int, re.search(r"head=(\d+)\.(\d+)", link).groups())  # type: ignore[union-attr]
        row, column = map(int, re.search(r"cell=(\d+)\.(\d+)", link).groups())  # type: ignore[union-attr]
        assert ll.captures()[name].sites[site].cell(row, column, head=head).weight > 0.4, link
    assert seen == {capture.name for capture in ll.captures()}
    page.get_by_role("link", name=re.compile("SmolLM2-135M on a sentence")).click()
    page.get_by_text("layer 11, head 1, query 2, key 1").wait_for()


@pytest.mark.parametrize("width", [1440, 768, 360])
@pytest.mark.parametrize("beside", ["", "&with=0.1"])
def test_what_is_measured_later_moves_nothing(open_tab: Open, width: int, beside: str) -> None:
    page = open_tab("#/explore", width=width)
    page.wait_for_load_state("networkidle")
    held: list[Any] = []
    waiting = True
    for late in ("**/health*", "**/kinds*"):
        page.route(late, lambda route: held.append(route) if waiting else route.continue_())
    page.goto(page.url.partition("#")[0] + f"#/explore/sample?head=1.1{beside}")
    map_of(page).wait_for()
    page.wait_for_timeout(300)
    place = "map => map.getBoundingClientRect().top + scrollY"
    before = map_of(page).evaluate(place)
    assert page.locator(".chip").count() == 0
    waiting = False
    for route in held:
        route.continue_()
    page.locator(".chip").first.wait_for()
    page.wait_for_timeout(300)
    assert map_of(page).evaluate(place) == pytest.approx(before, abs=1)


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_kinds_show_that_they_are_being_looked_for(open_tab: Open, width: int, dark: bool) -> None:
    page = open_tab("#/explore", width=width, dark=dark)
    held: list[Any] = []
    waiting = True
    page.route("**/kinds*", lambda route: held.append(route) if waiting else route.continue_())
    page.goto(page.url.partition("#")[0] + "#/explore/sample?head=1.1&figure=kind.sink")
    heads = page.get_by_role("region", name="Heads", exact=True)
    colour = heads.get_by_label("Colour by")
    heads.get_by_text("Being looked for.", exact=True).wait_for()
    heads.get_by_role("status").get_by_text("Looking for what each head does…").wait_for()
    assert colour.locator("option:disabled").all_text_contents()[-1] == "Kinds: being looked for…"
    assert colour.input_value() == "kind.sink"
    waiting = False
    for route in held:
        route.continue_()
    colour.locator("optgroup[label=Kinds]").wait_for(state="attached")
    heads.get_by_text(re.compile("^Share of its attention that ")).wait_for()
    assert heads.get_by_text("looked for").count() == 0
    assert colour.input_value() == "kind.sink"
