"""The API's numbers are the library's."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from limelight.capture import Capture
from limelight.capture.tensors import SAVED
from limelight.heads import find
from limelight.learn import exercises
from limelight.looking.pyramid import Pyramid
from limelight.views.facts import health_of
from limelight.views.order import findings
from limelight.views.tiles import HIDDEN, coded, of_pyramid
from tests.studio import samples
from tests.studio.conftest import Running

HEAD = "/api/captures/sample/sites/1/heads/1"


@pytest.fixture(scope="module")
def sample() -> Capture:
    return samples.text_capture()


def floats(studio: Running, path: str) -> Any:
    reply = studio.ask(path)
    assert reply.status == 200, reply.body
    shape = [int(n) for n in re.findall(r"(?:height|width)=(\d+)", path)]
    return np.frombuffer(reply.body, "<f4").reshape(shape)


def test_the_captures_are_listed_and_others_left_out(studio: Running) -> None:
    listed = {entry["id"]: entry for entry in studio.get("/api/captures")}
    assert {"sample", "long", "deeper:vision"} <= set(listed)
    assert not {"broken", "notes", "run"} & set(listed)
    assert studio.get("/api/damaged") == [
        {"id": "broken.safetensors", "why": f"not a safetensors file: {SAVED}"}
    ]
    assert (listed["sample"]["layers"], listed["sample"]["heads"], listed["sample"]["tokens"]) == (
        3,
        4,
        23,
    )
    assert listed["sample"]["origin"] == "folder"
    assert listed["deeper:vision"]["image"]


def test_a_capture_tells_its_sites_and_tokens(studio: Running, sample: Capture) -> None:
    info = studio.get("/api/captures/sample")
    assert info["key_tokens"] == [list(samples.tokens(23))]
    assert [site["name"] for site in info["sites"]] == [site.name for site in sample.sites]
    assert info["sites"][0]["mask"] == "Causal()"
    assert (info["sites"][0]["heads"], info["sites"][0]["key_heads"]) == (4, 2)
    vision = studio.get("/api/captures/deeper%3Avision")
    assert (vision["grid"], vision["grid_start"]) == ([7, 7], 1)


def test_the_health_is_the_librarys(studio: Running, sample: Capture) -> None:
    table = studio.get("/api/captures/sample/health")
    tables = sample.health()
    for figure in ("max_prob", "entropy", "saturated", "max_logit"):
        np.testing.assert_array_equal(np.array(table["figures"][figure]), tables[figure])
    assert table["verdicts"] == tables.verdict.tolist()
    row = studio.get("/api/captures/sample/sites/1/health")
    assert row["figures"]["entropy"] == table["figures"]["entropy"][1]


@pytest.mark.parametrize("batch", [0, 1])
def test_the_health_is_that_of_one_entry(studio: Running, batch: int) -> None:
    held = samples.batch_capture()
    table = studio.get(f"/api/captures/batch/health?batch={batch}")
    for index, site in enumerate(held.sites):
        alone = replace(site, query=site.query[batch : batch + 1], key=site.key[batch : batch + 1],
                        tokens=(), query_tokens=()).health().summary()  # fmt: skip
        np.testing.assert_allclose(table["figures"]["entropy"][index], alone.entropy, rtol=1e-6)
        assert table["figures"]["rows"][index] == [13] * 3
        assert table["verdicts"][index] == alone.verdict.tolist()
        row = studio.get(f"/api/captures/batch/sites/{index}/health?batch={batch}")
        assert row["figures"]["entropy"] == table["figures"]["entropy"][index]
    assert (table["verdicts"][0][0] == "saturated") == (batch == 1)


def test_the_findings_are_the_librarys(studio: Running, sample: Capture) -> None:
    found = studio.get("/api/captures/sample/findings")
    expected = findings(sample, [health_of(site, 0) for site in sample.sites], find(sample))
    assert found == msgspec.json.decode(msgspec.json.encode(expected))
    assert len(found) == 12


def test_cells_are_the_librarys(studio: Running, sample: Capture) -> None:
    for row, column in ((5, 2), (0, 0), (22, 22), (3, 20)):
        cell = studio.get(f"{HEAD}/cells/{row}/{column}")
        assert cell == json.loads(
            json.dumps(replace(sample[1]).cell(row, column, head=1).to_dict())
        )
    assert studio.get(f"{HEAD}/cells/3/20")["logit"] is None  # hidden: −inf is not JSON


def test_the_vectors_of_a_short_head(studio: Running, sample: Capture) -> None:
    rows = studio.get(f"{HEAD}/rows")
    np.testing.assert_array_equal(np.array(rows["query"]), sample[1].query[0, 1])
    np.testing.assert_array_equal(np.array(rows["key"]), sample[1].key[0, 0])
    np.testing.assert_array_equal(np.array(rows["mask"]), np.tri(23, dtype=bool))
    reply = studio.ask("/api/captures/long/sites/0/heads/0/rows")
    assert reply.status == 400
    assert "256" in reply.json()["error"]


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_tiles_are_the_pyramids(studio: Running, pool: str) -> None:
    site = samples.long_capture().sites[0]
    pyramid = Pyramid(site, 0, pool=pool)
    here = "/api/captures/long/sites/0/heads/0/tile"
    for level, row, column in (
        (0, 7, 3),
        (0, 16, 16),
        (2, 1, 0),
        (4, 1, 0),
        (pyramid.levels - 1, 0, 0),
    ):
        down, across = pyramid.cells(level, row, column)
        made = of_pyramid(pyramid, (level, row, column))
        expected = made.values
        query = (f"rows={down.start}:{down.stop}&columns={across.start}:{across.stop}"
                 f"&height={expected.shape[0]}&width={expected.shape[1]}&pool={pool}")  # fmt: skip
        np.testing.assert_array_equal(floats(studio, f"{here}?{query}"), expected)
        cells = f"{made.rows[0]}:{made.rows[1]},{made.columns[0]}:{made.columns[1]}"
        assert studio.ask(f"{here}?{query}").headers["x-cells"] == cells


def test_any_other_rectangle_is_a_heatmap(studio: Running) -> None:
    site = samples.long_capture().sites[0]
    here = (
        "/api/captures/long/sites/0/heads/0/tile?rows=1000:1307&columns=11:902&height=37&width=53"
    )
    expected = coded(site.heatmap((37, 53), "max", (1000, 1307), (11, 902), head=0))
    np.testing.assert_allclose(floats(studio, here), expected, rtol=1e-5)


def test_a_row_and_a_column(studio: Running, sample: Capture) -> None:
    weights = sample[1].weights(head=1)
    row = studio.get(f"{HEAD}/strip?side=row&index=6")
    assert row["values"][7:] == [HIDDEN] * 16
    np.testing.assert_allclose(np.array(row["values"][:7]), weights[6, :7], rtol=1e-5)
    assert row["top"][0]["index"] == int(weights[6].argmax())
    assert row["total"] == pytest.approx(1.0, abs=1e-5)
    column = studio.get(f"{HEAD}/strip?side=column&index=0&top=3")
    assert column["total"] == pytest.approx(float(weights[:, 0].sum()), rel=1e-5)
    assert len(column["top"]) == 3
    assert column["token"] == samples.HOSTILE[0]
    long = studio.get("/api/captures/long/sites/0/heads/0/strip?side=row&index=4098")
    assert (long["length"], len(long["values"])) == (4099, 512)


def test_lines_are_the_strongest_keys(studio: Running, sample: Capture) -> None:
    found = studio.get(f"{HEAD}/lines?rows=3:9&k=2&least=0.1")
    weights = sample[1].weights(head=1)
    assert set(found["rows"]) <= set(range(3, 9))
    for row, column, weight in zip(found["rows"], found["columns"], found["weights"], strict=True):
        assert weight == pytest.approx(float(weights[row, column]), rel=1e-4)
        assert weight >= 0.1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/captures/none", "no capture"),
        ("/api/captures/sample/sites/3/heads/0/tile", "no site 3"),
        ("/api/captures/sample/sites/0/heads/4/tile", "no head 4"),
        (f"{HEAD}/tile?batch=1", "no batch entry 1"),
        ("/api/captures/sample/health?batch=1", "no batch entry 1"),
        ("/api/captures/sample/sites/0/health?batch=1", "no batch entry 1"),
        (f"{HEAD}/tile?rows=5:5", "rows"),
        (f"{HEAD}/tile?rows=0:24", "23"),
        (f"{HEAD}/tile?rows=9:2", "rows"),
        (f"{HEAD}/tile?rows=-1:3", "regex"),
        (f"{HEAD}/tile?rows=0:99999999999999999999", "regex"),
        (f"{HEAD}/tile?height=0", ">= 1"),
        (f"{HEAD}/tile?height=1000000", "<= 1024"),
        (f"{HEAD}/tile?width=NaN", "int"),
        (f"{HEAD}/tile?pool=sum", "sum"),
        (f"{HEAD}/tile?colour=red", "colour"),
        (f"{HEAD}/tile?pool=max&pool=mean", "twice"),
        (f"{HEAD}/tile?id=other", "twice"),
        (f"{HEAD}/cells/23/0", "row 23"),
        (f"{HEAD}/cells/0/23", "column 23"),
        (f"{HEAD}/cells/0/99999999999999", "<="),
        (f"{HEAD}/strip?side=row&index=23", "row 23"),
        (f"{HEAD}/strip?side=up&index=2", "up"),
        (f"{HEAD}/lines?rows=0:23&k=65", "<= 64"),
        (f"{HEAD}/lines?rows=0:23&least=NaN", "least"),
        ("/api/captures/long/sites/0/heads/0/lines?rows=0:4000", "512"),
        (f"{HEAD}/picture?format=gif", "gif"),
        ("/api/captures/sample/image", "no picture"),
        ("/api/captures/sample/report?budget=0", ">= 1"),
        ("/api/captures/sample/report?batch=7", "batch"),
        ("/api/exercise?level=99&seed=1", "level"),
        ("/api/exercise?level=1", "seed"),
        ("/api/exercise?level=1&seed=-1", ">= 0"),
        ("/api/runs/none", "no .jsonl"),
        ("/api/runs/not-a-run", "is not a monitor's file"),
        ("/api/runs/run/view?figure=mood", "mood"),
        ("/api/runs/run/view?bins=0", ">= 1"),
        ("/api/nothing", "nothing at"),
    ],
)
def test_what_cannot_be_had_is_said(studio: Running, path: str, said: str) -> None:
    reply = studio.ask(path)
    assert reply.status in (400, 404), (reply.status, reply.body)
    assert said in reply.json()["error"]


def test_a_browser_gets_a_page_where_nothing_is(studio: Running) -> None:
    reply = studio.ask("/nothing<b>", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (reply.status, reply.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"There is nothing at /nothing&lt;b&gt;" in reply.body
    assert b"<a href=/>" in reply.body


def test_pictures_are_files(studio: Running) -> None:
    png = studio.ask(f"{HEAD}/picture?format=png&high=0.5&theme=dark")
    assert png.body.startswith(b"\x89PNG")
    svg = studio.ask(f"{HEAD}/picture?format=svg&rows=0:7&columns=0:7")
    assert svg.body.startswith(b"<svg")
    assert b"<img" not in svg.body
    assert b"<script" not in svg.body
    for reply in (png, svg):
        assert reply.headers["content-disposition"].startswith("attachment")
    image = studio.ask("/api/captures/deeper%3Avision/image")
    assert (image.status, image.headers["content-type"]) == (200, "image/png")


def test_exercises_are_the_librarys(studio: Running) -> None:
    asked = studio.get("/api/exercise?level=2&seed=5")
    exercise = exercises.generate(2, 5)
    assert asked["query"] == list(exercise.query)
    assert [level["level"] for level in asked["levels"]] == list(exercises.LEVELS)
    body = {"level": 2, "seed": 5, "step": "raw", "answer": [str(x) for x in exercise.raw]}
    reply = studio.ask("/api/exercise/check", "POST", body=body)
    assert (reply.status, reply.json()["right"]) == (200, True)
    wrong = studio.ask(
        "/api/exercise/check", "POST", body={**body, "answer": ["NaN", "x", "1e999"]}
    )
    assert (wrong.status, wrong.json()["verdict"]) == (200, "unreadable")
    shown = studio.ask("/api/exercise/show", "POST", body={"level": 2, "seed": 5, "step": "output"})
    assert shown.json()["exact"] == exercise.output.tolist()
    assert studio.get("/api/quiz") == [
        question.to_dict(answers=True) for question in exercises.QUIZ
    ]


def test_a_capture_with_nan_and_infinity_is_served(start_studio: Any, tmp_path: Any) -> None:
    folder = tmp_path / "sick"
    folder.mkdir()
    capture = samples.text_capture(13)
    capture.sites[0].query[0, 0, 3] = np.nan
    capture.sites[1].query[0, 1, 4, 0] = np.inf
    capture.sites[2].key[0, 0, 5, 1] = -np.inf
    capture.save(folder / "sick.safetensors")
    running = start_studio(folder=folder)
    for path in ("/api/captures", "/api/captures/sick", "/api/captures/sick/health",
                 "/api/captures/sick/findings"):  # fmt: skip
        running.get(path)
    for site in range(3):
        for head in range(2):
            here = f"/api/captures/sick/sites/{site}/heads/{head}"
            for path in ("rows", "cells/3/1", "cells/4/0", "cells/6/5", "strip?side=row&index=3",
                         "strip?side=column&index=5", "lines?rows=0:13"):  # fmt: skip
                running.get(f"{here}/{path}")
            for path in ("tile", "picture?format=png", "picture?format=svg"):
                assert running.ask(f"{here}/{path}").status == 200
    assert running.ask("/api/captures/sick/report").status == 200


def test_many_at_once_get_the_same(studio: Running) -> None:
    answers: list[Any] = []

    def ask() -> None:
        answers.append(studio.ask(f"{HEAD}/tile").body)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 16
    assert len(set(answers)) == 1
