"""How long things take on two cores, and that many pages at once do no harm.

Times are the best or the median of several: the machine that runs the tests has other things to do.
"""

from __future__ import annotations

import http.client
import random
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.studio import samples
from tests.studio.conftest import Running

psutil = pytest.importorskip("psutil")
CLIENTS = 32
MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def tokens_4k(studio: Running) -> str:
    """The address of a head of 4,099 tokens whose row statistics are there."""
    here = "/api/captures/long/sites/0/heads/0"
    studio.ask(f"{here}/tile")
    return here


def milliseconds(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_tile_of_4k_tokens_within_100_ms(studio: Running, tokens_4k: str, level: int) -> None:
    side = 256 << level
    places = [(r, c) for r in range(4096 // side) for c in range(r + 1)]
    random.Random(level).shuffle(places)
    taken = []
    for row, column in places[:9]:
        rows, columns = f"{row * side}:{(row + 1) * side}", f"{column * side}:{(column + 1) * side}"
        path = f"{tokens_4k}/tile?rows={rows}&columns={columns}&height=256&width=256"
        taken.append(milliseconds(lambda path=path: studio.ask(path)))
    assert statistics.median(taken) < 100, taken


def test_a_cell_and_an_answer_within_50_ms(studio: Running, tokens_4k: str) -> None:
    body = {"level": 2, "seed": 3, "step": "raw", "answer": ["1", "2", "3"]}
    for act in (
        lambda: studio.get(f"{tokens_4k}/cells/4000/17"),
        lambda: studio.ask("/api/exercise/check", "POST", body=body),
    ):
        assert statistics.median([milliseconds(act) for _ in range(9)]) < 50


@pytest.mark.parametrize("where", ["#/learn", "#/explore", "#/explore/sample", "#/watch/run"])
def test_first_paint_within_a_second(open_tab: Callable[..., Any], where: str) -> None:
    painted: list[float] = []
    while min(painted, default=1000) >= 1000:
        assert len(painted) < 3, painted
        page = open_tab(where, new=True)
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        painted.append(
            page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        )


def hammer(running: Running, seconds: float) -> tuple[int, list[str]]:
    """32 pages at once: tiles, cells, rows, listings, half of them hung up on."""
    end = time.monotonic() + seconds
    counted = [0] * CLIENTS
    wrong: list[str] = []

    def client(number: int) -> None:
        rng = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        key = {"Authorization": f"Bearer {running.token}"}
        while time.monotonic() < end:
            path = drawn(rng)
            try:
                connection.request("GET", path, headers=key)
                if rng.random() < 0.1:  # the page goes away
                    connection.close()
                    continue
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    wrong.append(f"{response.status} {path}")
            except (OSError, http.client.HTTPException) as error:
                wrong.append(f"{error!r} {path}")
                connection.close()
            counted[number] += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counted), wrong


def drawn(rng: random.Random) -> str:
    head = f"/api/captures/sample/sites/{rng.randrange(3)}/heads/{rng.randrange(4)}"
    long = "/api/captures/long/sites/0/heads/0"
    row, column = rng.randrange(16), rng.randrange(16)
    return rng.choice([
        "/healthz", "/api/captures", "/api/captures/sample", "/api/captures/sample/health",
        f"{head}/tile", f"{head}/cells/{rng.randrange(23)}/{rng.randrange(23)}",
        f"{head}/strip?side=row&index={rng.randrange(23)}", f"{head}/lines?rows=0:23",
        f"{long}/tile?rows={256 * row}:{256 * row + 256}&columns={256 * column}:{256 * column + 256}",
        f"{long}/strip?side=column&index={rng.randrange(4099)}", f"{long}/cells/{rng.randrange(4099)}/7",
        "/api/runs/run/view", f"/api/exercise?level=2&seed={rng.randrange(1000)}",
    ])  # fmt: skip


def memory(running: Running) -> float:
    return float(psutil.Process(running.process.pid).memory_info().rss) / MEBIBYTE


def hold_up(
    start_studio: Callable[..., Running], tmp_path: Path, warm: float, seconds: float
) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    samples.fill(folder)
    running = start_studio(folder=folder)
    _, wrong = hammer(running, warm)
    assert wrong == []
    before = memory(running)
    count, wrong = hammer(running, seconds)
    grown = memory(running) - before
    assert wrong == []
    assert count > 10 * seconds
    assert grown < 48, f"{grown:.0f} MiB more after {count} requests"
    assert running.get("/healthz") == {"status": "ok", "under_way": 0}


def test_32_pages_at_once(start_studio: Callable[..., Running], tmp_path: Path) -> None:
    hold_up(start_studio, tmp_path, 2, 4)


@pytest.mark.slow
def test_32_pages_at_once_for_a_minute(
    start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    hold_up(start_studio, tmp_path, 10, 60)
