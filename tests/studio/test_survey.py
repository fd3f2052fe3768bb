"""Surveys in the studio: listed apart from captures, all heads, one head, and on the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from limelight.studio.app import create_app
from limelight.studio.folders import Folders
from limelight.studio.keys import Keys
from limelight.studio.studio import Studio
from limelight.survey import Survey
from tests.studio.conftest import Running
from tests.survey.samples import COUNTS, made


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[TestClient]:
    made(range(9)).save(tmp_path / "plays.safetensors")
    broken = (tmp_path / "plays.safetensors").read_bytes()
    (tmp_path / "broken.safetensors").write_bytes(broken[:-9] + bytes(9))
    studio, keys = Studio(Folders.of((tmp_path,))), Keys()
    app = create_app(studio, keys=keys, hosts=frozenset({"testserver"}), port=80)
    yield TestClient(app, headers={"Authorization": f"Bearer {keys.token}"})
    studio.work.stop()


def test_surveys_are_listed_and_are_no_damaged_captures(asked: TestClient) -> None:
    found = asked.get("/api/surveys").json()
    assert [(one["id"], one["texts"], one["heads"]) for one in found] == [("plays", 9, 3)]
    assert "plays" not in [one["id"] for one in asked.get("/api/captures").json()]
    assert asked.get("/api/damaged").json() == []


def test_all_heads_and_one_in_full(asked: TestClient, tmp_path: Path) -> None:
    survey = Survey.open(tmp_path / "plays.safetensors")
    info = asked.get("/api/surveys/plays").json()
    assert [len(row) for row in info["health"]["figures"]["entropy"]] == list(COUNTS)
    assert [kind["name"] for kind in info["kinds"]] == ["previous", "own"]
    head = asked.get("/api/surveys/plays/sites/1/heads/1").json()
    own = next(kind for kind in head["kinds"] if kind["title"] == "own")
    assert own["score"] == survey.heads.scores["own"][1, 1]
    assert own["error"] == survey.heads.errors["own"][1, 1]
    assert len(head["pattern"]) == len(head["places"])
    assert sum(head["histogram"]) == survey.histogram("max_prob", 1, 1).sum()
    assert head["tokens"][0]["share"] == survey.received(1, 1)[0]["share"]
    assert {one["kind"] for one in head["examples"]} <= {"previous token", "own"}


@pytest.mark.parametrize("path", [
    "/api/surveys/nowhere", "/api/surveys/plays/sites/2/heads/0", "/api/surveys/plays/sites/1/heads/2",
])  # fmt: skip
def test_what_is_not_there_is_said(asked: TestClient, path: str) -> None:
    answer = asked.get(path)
    assert answer.status_code == 404
    assert "there is no" in answer.text


def test_a_survey_is_no_capture(asked: TestClient) -> None:
    answer = asked.get("/api/captures/plays")
    assert answer.status_code == 404
    assert answer.json()["error"] == "'plays' is a survey, of many texts: /api/surveys/plays has it"


@pytest.fixture
def plays(studio: Running) -> Iterator[Survey]:
    """A survey in the folder of the studio that is looked at."""
    path, survey = studio.folder / "plays.safetensors", made(range(9))
    survey.save(path)
    yield survey
    path.unlink()


def test_a_head_that_did_not_come_leaves_the_others(
    browser: Any, studio: Running, plays: Survey
) -> None:
    page = browser.new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/explore/~survey/plays")
    grid = page.get_by_role("grid", name="Heads of the survey")
    page.route("**/heads/1", lambda route: route.abort())
    grid.get_by_role("button", name=re.compile("^layer 1, head 1:")).click()
    told = page.get_by_role("alert").get_by_text("The studio does not answer.")
    told.wait_for()
    grid.get_by_role("button", name=re.compile("^layer 1, head 0:")).click()
    page.get_by_role("region", name="Layer 1, head 0").wait_for()
    assert told.count() == 0
    page.close()


def test_a_survey_asked_for_as_a_capture_is_opened(
    browser: Any, studio: Running, plays: Survey
) -> None:
    page = browser.new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/explore/plays")
    page.get_by_role("grid", name="Heads of the survey").wait_for()
    assert page.url.endswith("#/explore/~survey/plays")
    page.goto(f"{studio.origin}/#/explore/~survey/sample")
    page.get_by_role("alert").get_by_text("There is no survey “sample” in the folders").wait_for()
    page.close()


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_a_head_of_a_survey_is_looked_at(
    open_tab: Callable[..., Any], plays: Survey, width: int, dark: bool
) -> None:
    page = open_tab("#/explore", width=width, dark=dark)
    page.get_by_role("link", name=re.compile("^plays")).click()
    page.get_by_role("heading", name="plays", level=1).wait_for()
    assert "2 layers × 3 heads · 9 texts" in page.locator("header p.facts").inner_text()
    grid = page.get_by_role("grid", name="Heads of the survey")
    grid.get_by_role("button", name=re.compile("^layer 1, head 1:")).click()
    part = page.get_by_role("region", name="Layer 1, head 1")
    own = part.get_by_role("listitem").filter(has_text=re.compile("^own"))
    score, error = (table["own"][1, 1] for table in (plays.heads.scores, plays.heads.errors))
    assert own.inner_text().split()[-3:] == [f"{score:.2f}", "±", f"{error:.2f}"]
    assert own.locator(".track").bounding_box()["width"] > 80  # long enough to tell bars apart
    assert part.get_by_role("img", name="Queries down, keys across").is_visible()
    named = {text.name for kind in ("own", "previous") for _, text in plays.examples(1, 1, kind)}
    shown = part.locator("blockquote small").all_inner_texts()
    assert shown
    assert {text.partition(":")[0] for text in shown} <= named
    page.get_by_label("Colour").select_option("own")
    seen = grid.get_by_role("button", name=re.compile("^layer 0, head 2:"))
    assert f"{plays.heads.scores['own'][0, 2]:.2f}" in seen.get_attribute("aria-label")
    for where, words in ((page.get_by_role("region", name="Heads"), "own 0 1"),
                         (part, "share of a row 0 ")):  # fmt: skip
        scale = where.locator(".legend").inner_text()
        assert " ".join(scale.split()).startswith(words)
    page.reload()  # the address knows the head and the colour
    part.wait_for()
    assert page.get_by_label("Colour").input_value() == "own"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
