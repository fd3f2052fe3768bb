"""Whatever a request asks for: an answer or the sender's error, soon, and nothing in the log."""

from __future__ import annotations

import random
import re
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from limelight.capture import comparison
from limelight.looking import heatmap
from limelight.studio.app import create_app
from limelight.studio.folders import Folders
from limelight.studio.keys import Keys
from limelight.studio.studio import Studio
from limelight.studio.work import Cancel
from tests.studio import samples
from tests.studio.conftest import Running

NAMES = ("sample", "sample", "run", "nothing")
ODD = (
    "0", "-1", "1", "2", "999999999999", "9" * 400, "1e5", "NaN", "inf", "", "\0", "‮", "0.5", "true", "null",
    "[]", "1:2", "5:3", "0:0", "0:9999999999", "-1:3", "../../etc/passwd", "a" * 3_000, "१", "1_0", " 1", "+1",
    "0x1", "row", "column", "png", "svg", "max", "mean", "de", "%", "&", "[/x]",
)  # fmt: skip
VALUES = (
    0, -1, 1, 2**63, -(2**70), 10**400, 1.5, 1e308, None, True, "", "x" * 5_000, "‮", [], {}, [[]], [None],
    ["a"] * 50, [1, 2, 3], [[1, 2], [3, 4]], {"a": 1}, [{"layer": 0, "head": 0}], "the cat",
)  # fmt: skip
HEAVY = ("/api/live", "/api/learn/", "/api/models")  # where a model runs


class Sender:
    """Fills every address of the API with what nobody means, the same for the same seed."""

    def __init__(self, studio: Running, seed: int) -> None:
        self.rng, self.api = random.Random(seed), studio.get("/api/openapi.json")
        self.rows = [
            (path, method.upper(), told)
            for path, methods in self.api["paths"].items()
            for method, told in methods.items()
            if not path.startswith(HEAVY) and (path, method) != ("/api/captures", "post")
        ]

    def one(self) -> tuple[str, str, Any]:
        path, method, told = self.rng.choice(self.rows)
        address = re.sub(r"\{(\w+)\}", self._part, path)
        given = [(p["name"], self._value(p["schema"])) for p in told.get("parameters", [])
                 if p["in"] == "query" and (p.get("required") or self.rng.random() < 0.5)]  # fmt: skip
        if given:
            address += "?" + "&".join(f"{name}={quote(value)}" for name, value in given)
        return method, address, self._body(told) if method == "POST" else None

    def _part(self, found: re.Match[str]) -> str:
        if found[1] == "id":
            return quote(self.rng.choice(NAMES), safe="")
        sound = self.rng.random() < 0.8
        return quote(self.rng.choice(("0", "1", "2") if sound else ODD), safe="")

    def _value(self, schema: dict[str, Any]) -> str:
        if "enum" in schema and self.rng.random() < 0.5:
            return str(self.rng.choice(schema["enum"]))
        return self.rng.choice(("0", "1", "2", "3") if self.rng.random() < 0.3 else ODD)

    def _body(self, told: dict[str, Any]) -> Any:
        schema = told["requestBody"]["content"]["application/json"]["schema"]
        while "$ref" in schema:
            schema = self.api["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        asked = set(schema.get("required", ()))
        return {name: self.rng.choice(VALUES) for name in schema["properties"]
                if name in asked or self.rng.random() < 0.6}  # fmt: skip


def hail(studio: Running, count: int, seed: int) -> Counter[int]:
    sender, came = Sender(studio, seed), Counter[int]()
    for _ in range(count):
        method, address, body = sender.one()
        reply = studio.ask(address, method, body=body, timeout=60)
        assert reply.status < 500, (method, address, body, reply.body[:300])
        if "json" in reply.headers["content-type"]:
            reply.json()
        came[reply.status] += 1
    return came


def test_parameters_that_nobody_means(studio: Running) -> None:
    came = hail(studio, 400, seed=1)
    assert set(came) <= {200, 400, 404, 409}, came
    assert came[200] > 20  # enough of it is sound that more than the checking is tried
    assert came[400] > 100


@pytest.mark.slow
def test_thousands_of_parameters(studio: Running) -> None:
    print(hail(studio, 8_000, seed=2))


RANGES = [
    "bytes=" + ",".join(f"{n}-{n}" for n in range(0, 2_000, 2)), "bytes=" + "-," * 6_000, "bytes=5-2",
    "bytes=" + "9" * 5_000 + "-", "bytes=-0", "bytes=" + "0-99999999," * 1_000, "furlongs=0-1",
]  # fmt: skip


@pytest.mark.parametrize("asked", RANGES, ids=lambda text: text[:14])
def test_ranges_that_nobody_reads(studio: Running, asked: str) -> None:
    page = studio.ask("/", headers={"Range": asked})
    assert page.status in (200, 206, 400, 416)
    assert len(page.body) < 100_000


def test_a_page_that_leaves_in_the_middle_of_its_body(start_studio: Callable[..., Running]) -> None:
    running = start_studio()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as connection:
            connection.sendall(
                f"POST /api/exercise/check HTTP/1.1\r\nHost: {running.netloc}\r\n"
                f"Authorization: Bearer {running.token}\r\nContent-Type: application/json\r\n"
                f"Content-Length: 100\r\n\r\n{{".encode()
            )
    assert running.get("/healthz")["status"] == "ok"
    assert running.log.read_text() == ""


@pytest.mark.parametrize(
    "path",
    [
        "tile?rows=1:22&columns=3:21&height=9&width=9",
        "picture?format=svg&rows=1:22",
        "against/tile?other=sample&other_site=0&other_head=1&height=2&width=2",
    ],
)
def test_a_rectangle_is_called_off_with_its_page(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the third step of many, and not only before the first."""
    monkeypatch.setattr(heatmap, "STEP", 4)
    monkeypatch.setattr(comparison, "CELLS", 4)
    samples.text_capture().save(tmp_path / "sample.safetensors")
    studio, keys, told = Studio(Folders.of((tmp_path,))), Keys(), []
    app = create_app(studio, keys=keys, hosts=frozenset({"testserver"}), port=80)
    page = TestClient(app, headers={"Authorization": f"Bearer {keys.token}"})
    address = f"/api/captures/sample/sites/0/heads/0/{path}"
    assert page.get(address).status_code == 200
    monkeypatch.setattr(Cancel, "told", lambda self, *_: (told.append(self.set), self.check()))
    assert page.get(address).status_code == 200
    steps = len(told)
    assert steps > 5
    told.clear()
    monkeypatch.setattr(
        Cancel, "told", lambda self, *_: (told.append(len(told) > 1 and self.set()), self.check())
    )
    assert page.get(address).status_code != 200
    assert len(told) == 3
    studio.work.stop()
