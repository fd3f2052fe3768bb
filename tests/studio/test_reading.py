"""Questions to a capture: which head, by the text and by the grid; light on the text itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import heads
from limelight.capture import Capture, Site
from limelight.views import looks
from limelight.views.facts import kinds
from tests.studio.conftest import Running
from tests.studio.looking import percent

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def llama() -> Capture:
    return ll.captures()["llama"]


def token(page: Any, at: int) -> Any:
    return page.locator(f'[data-t="{at}"]')


def strongest(page: Any) -> Any:
    return page.get_by_role("list", name="The strongest").get_by_role("button")


def says(page: Any) -> Any:
    return page.get_by_role("region", name="Text").locator(".says")


def test_which_head_makes_cat_look_at_curious_is_three_clicks_from_the_shelf(
    open_tab: Open, llama: Capture
) -> None:
    page = open_tab("#/explore")
    page.get_by_role("link", name=re.compile("SmolLM2-135M on a sentence")).click()
    token(page, 2).click()
    token(page, 1).click()
    page.get_by_text("How much of its attention “cat” gives “curious”").wait_for()
    found = heads.search(llama, query="cat", key="curious")
    assert [(one.layer, one.head) for one in found[:2]] == [(11, 1), (2, 1)]
    strongest(page).nth(4).wait_for()
    for place, one in enumerate(found[:5]):
        said = strongest(page).nth(place).inner_text().split("\n")
        assert said == [f"layer {one.layer}, head {one.head}", f"{one.weight:.2f}"]
    grid = page.get_by_role("grid", name="Layers by heads, coloured by this cell")
    labels = grid.get_by_role("button").evaluate_all("all => all.map(b => b.ariaLabel)")
    assert f"layer 2, head 1, this cell {found[1].weight:.2f}" in labels[2 * 9 + 1]
    strongest(page).nth(1).click()
    page.get_by_text("layer 2, head 1, query 2, key 1").wait_for()  # the cell is kept
    assert "head=2.1&cell=2.1" in page.url


def test_two_words_are_chosen_by_keyboard_alone(open_tab: Open) -> None:
    page = open_tab("#/explore/llama?head=0.0", width=390, dark=True)
    text = page.get_by_role("application", name=re.compile("The text"))
    text.focus()
    for key in ("End", "ArrowLeft", "Enter", "Home", "ArrowRight", "Escape", "Enter", "ArrowRight",
                "ArrowRight", "Enter"):  # fmt: skip
        page.keyboard.press(key)
    page.wait_for_url(re.compile(r"cell=1\.3"))
    page.get_by_text("How much of its attention “curious” gives “watched”").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("asked", "way", "sites"), [
    ("", "row", lambda cap: [cap[11].one(1)]),
    ("&light=layer", "row", lambda cap: [cap[11]]),
    ("&light=all&way=in", "column", lambda cap: cap.sites),
])  # fmt: skip
def test_the_text_glows_where_a_word_looks(
    open_tab: Open, llama: Capture, asked: str, way: Any, sites: Any
) -> None:
    page = open_tab(f"#/explore/llama?head=11.1&cell=5.4{asked}")
    place = {"row": 5, "column": 4}[way]
    for at in (place, 2):  # the open cell's, then what is pointed at
        if at == 2:
            token(page, 2).hover()
        light = looks.light(sites(llama), way, at)
        best = int(light.argmax())
        digits = 1 if light[best] < 0.1 else 0
        words = [word.strip() for word in llama.tokens[0]]
        says(page).get_by_text(f"{words[best]} {percent(light[best], digits)}").first.wait_for()
        glows = page.locator(".token").evaluate_all("all => all.map(t => t.style.backgroundColor)")
        lit = {n for n, colour in enumerate(glows) if colour}
        assert lit == {n for n in range(6) if light[n] >= 0.01 * light[best] and n != at}
    assert page.locator(".token.lamp").inner_text() == "cat"


def test_heads_by_a_kinds_score(open_tab: Open) -> None:
    page = open_tab("#/explore/llama-paragraph?head=0.0")
    page.get_by_label("Colour by").get_by_role("option", name="induction", exact=True).wait_for(
        state="attached"
    )
    page.get_by_label("Colour by").select_option("kind.induction")
    page.wait_for_url(re.compile(r"figure=kind\.induction"))
    cap = ll.captures()["llama-paragraph"]
    found = kinds(cap)
    assert found is not None
    site, head, score = found.best("induction")[0]
    said = strongest(page).first.inner_text().split("\n")
    assert said == [f"layer {cap.sites[site].layer}, head {head}", f"{score:.2f}"]


def test_the_api_tells_light_sightings_and_kinds(studio: Running, llama: Capture) -> None:
    for query, sites in (("&site=11&head=1", [llama[11].one(1)]), ("&site=11", [llama[11]]),
                         ("", llama.sites)):  # fmt: skip
        for side in ("row", "column"):
            reply = studio.ask(f"/api/captures/llama/light?side={side}&index=3{query}")
            found = np.frombuffer(reply.body, "<f4")
            np.testing.assert_allclose(found, looks.light(sites, side, 3), atol=1e-6)  # type: ignore[arg-type]
    seen = studio.get("/api/captures/llama/sightings?row=2&column=1")
    assert [(one["site"], one["head"], round(one["weight"], 2)) for one in seen[:2]] == [
        (11, 1, 0.93), (2, 1, 0.9),
    ]  # fmt: skip
    table = {one["name"]: one for one in studio.get("/api/captures/llama/kinds")}
    held = kinds(llama)
    assert held is not None
    assert table["previous"]["scores"][11][1] == round(float(held.scores["previous"][11, 1]), 4)
    for path, status in (("light?side=row&index=6", 400), ("light?side=row&index=0&head=1", 400),
                         ("light?side=row&index=0&site=99", 404),
                         ("sightings?row=9&column=0", 400)):  # fmt: skip
        assert studio.ask(f"/api/captures/llama/{path}").status == status


@pytest.mark.slow
def test_a_text_of_32k_tokens_is_read(open_tab: Open, studio: Running, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    length = 32_768
    query, key = (rng.standard_normal((1, 1, length, 8)).astype(np.float32) for _ in range(2))
    tokens = (tuple("\n" if n % 19 == 18 else f" w{n}" for n in range(length)),)
    site = Site("only", 0, query, key, mask=ll.Causal(), tokens=tokens)
    Capture((site,), tokens=tokens).save(studio.folder / "read32k.safetensors")
    page = open_tab("#/explore/read32k?head=0.0&cell=30000.29000")
    page.locator('.token.lamp[data-t="30000"]').wait_for(timeout=60_000)
    box = page.get_by_role("application", name=re.compile("The text")).bounding_box()
    lamp = page.locator(".token.lamp").bounding_box()
    assert box["y"] <= lamp["y"] <= box["y"] + box["height"]
    assert page.locator(".token").count() < 6_000
    best = int(site.weights(rows=[30_000], head=0)[0].argmax())
    says(page).get_by_text(tokens[0][best].strip()).first.wait_for(timeout=60_000)
    (studio.folder / "read32k.safetensors").unlink()


@pytest.mark.parametrize("side", ["row", "column"])
def test_light_over_more_keys_than_a_picture_has(side: Any) -> None:
    rng = np.random.default_rng(3)
    long, short = (rng.standard_normal((1, 2, length, 3)) for length in (16_391, 3))
    query, key = (short, long) if side == "row" else (long, short)
    site = Site("cross", 0, query, key, kind="cross")
    line = {"rows": [1]} if side == "row" else {"columns": [1]}
    expected = site.weights(**line).reshape(2, -1).mean(axis=0)
    np.testing.assert_allclose(looks.light([site], side, 1), expected, rtol=1e-5)
