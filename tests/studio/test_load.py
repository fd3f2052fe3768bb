"""16 pages at once while the folder under them is added to, emptied, replaced and corrupted."""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from limelight.errors import FileError
from tests.fuzz import corpus
from tests.studio import samples
from tests.studio.conftest import Running

CLIENTS, NAMES, MEBIBYTE = 16, 8, 2**20
FINE = {200, 400, 404}  # what is there, what is damaged, what has gone


class Meddler:
    """Does to a folder what people, programs and accidents do."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rng, self.done = folder, random.Random(1), Counter[str]()
        self.whole = [corpus.saved(samples.text_capture(n)) for n in (5, 11, 23)]
        made = (make() for make in corpus.CAPTURES.values())
        self.hostile = [data for data in made if len(data) < 2**16]

    def act(self) -> None:
        path = self.folder / f"{self.rng.randrange(NAMES)}.safetensors"
        log = self.folder / f"{self.rng.randrange(3)}.jsonl"
        what = self.rng.choice(["save", "save", "remove", "copy over", "cut", "corrupt", "hostile", "link",
                                "log on", "log anew", "log garbage"])  # fmt: skip
        self.done[what] += 1
        try:
            self._do(what, path, log)
        except (OSError, FileError):  # nothing there, or links that lead in a circle
            path.unlink(missing_ok=True)

    def _do(self, what: str, path: Path, log: Path) -> None:
        whole = self.rng.choice(self.whole)
        match what:
            case "save":
                samples.text_capture(self.rng.choice([5, 7, 13])).save(path)
            case "remove":
                path.unlink()
            case "copy over":  # as `cp`: the same file, emptied and filled
                path.write_bytes(whole)
            case "cut":
                os.truncate(path, self.rng.randrange(len(whole)))
            case "corrupt":
                with path.open("r+b") as file:
                    file.seek(self.rng.randrange(2_000))
                    file.write(self.rng.randbytes(8))
            case "hostile":
                path.write_bytes(self.rng.choice(self.hostile))
            case "link":
                path.unlink(missing_ok=True)
                path.symlink_to(self.folder / f"{self.rng.randrange(NAMES)}.safetensors")
            case "log on":
                samples.write_lines(log, samples.run_lines(3)[1:], "a")
            case "log anew":
                samples.write_lines(log, samples.run_lines(self.rng.randrange(1, 20)))
            case "log garbage":
                log.write_bytes(self.rng.randbytes(500))


def asked(rng: random.Random) -> str:
    name, head = rng.randrange(NAMES), f"sites/{rng.randrange(3)}/heads/{rng.randrange(4)}"
    return rng.choice([
        "/api/captures", "/api/captures", "/api/damaged", "/api/runs", f"/api/captures/{name}",
        f"/api/captures/{name}/{head}/tile", f"/api/captures/{name}/{head}/cells/1/1",
        f"/api/captures/{name}/health", f"/api/runs/{rng.randrange(3)}", f"/api/runs/{rng.randrange(3)}/view",
        f"/api/captures/{name}/{head}/picture", "/healthz", "/api/captures/steady",
    ])  # fmt: skip


def hammer(running: Running, meddler: Meddler, seconds: float) -> tuple[Counter[int], list[str]]:
    """Every client asks one thing after the other; what came, by status, and what went wrong."""
    end, statuses, wrong = time.monotonic() + seconds, Counter[int](), []

    def client(number: int) -> None:
        rng = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=60)
        while time.monotonic() < end:
            path = asked(rng)
            try:
                connection.request(
                    "GET", path, headers={"Authorization": f"Bearer {running.token}"}
                )
                response = connection.getresponse()
                body = response.read()
                statuses[response.status] += 1
                if response.status not in FINE or (
                    path.endswith("steady") and response.status != 200
                ):
                    wrong.append(f"{response.status} {path}: {body[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                wrong.append(f"{error!r} {path}")
                connection.close()
        connection.close()

    threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        meddler.act()
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    return statuses, wrong


def hold_up(
    start_studio: Callable[..., Running], tmp_path: Path, warm: float, seconds: float
) -> None:
    folder = tmp_path / "meddled"
    folder.mkdir()
    samples.text_capture(9).save(folder / "steady.safetensors")
    running, meddler = start_studio(folder=folder), Meddler(folder)
    held = psutil.Process(running.process.pid)
    _, wrong = hammer(running, meddler, warm)
    assert wrong == []
    before = held.memory_info().rss / MEBIBYTE
    statuses, wrong = hammer(running, meddler, seconds)
    after = held.memory_info().rss / MEBIBYTE
    print(f"{CLIENTS} clients, {seconds:.0f} s: {statuses.total():,} answers {dict(statuses)}, "
          f"{meddler.done.total():,} changes of the folder, {before:.0f} MiB before and {after:.0f} after")  # fmt: skip
    assert wrong == []
    assert statuses[200] > seconds
    assert after - before < 64
    assert running.get("/healthz")["status"] == "ok"
    assert running.log.read_text() == ""


def test_16_pages_on_a_folder_that_changes(
    start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    hold_up(start_studio, tmp_path, 3, 5)


@pytest.mark.slow
def test_16_pages_for_three_minutes(start_studio: Callable[..., Running], tmp_path: Path) -> None:
    hold_up(start_studio, tmp_path, 20, 180)
