"""Surveys in the studio: listed apart from captures, all heads, one head, and what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from limelight.studio.app import create_app
from limelight.studio.folders import Folders
from limelight.studio.keys import Keys
from limelight.studio.studio import Studio
from limelight.survey import Survey
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
