"""Inputs through readers, in a process of its own that has little memory and little time."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.mutate import mutated
from tests.fuzz.readers import READERS

MEMORY = 3 << 30  # bytes of address space beyond what the reader begins with
SECONDS = 20.0  # of work for one input; some hundred times what the slowest takes
PATIENCE = 120.0  # seconds by the clock, for an input that waits rather than works


@dataclass
class Tally:
    """What came of one reader's inputs."""

    reader: str
    read: int = 0
    refused: int = 0
    hangs: int = 0
    slowest: float = 0.0
    peak: int = 0  # bytes that the process held at most, over an input
    wrong: list[str] = field(default_factory=list)

    @property
    def inputs(self) -> int:
        return self.read + self.refused + self.hangs + len(self.wrong)


class Worker:
    """The process that reads; a new one where the last was killed or died."""

    def __init__(self) -> None:
        self.process: Any = None

    def ask(self, reader: str, path: Path) -> dict[str, Any]:
        if self.process is None or self.process.poll() is not None:
            self.close()
            self._start()
        self.process.stdin.write(json.dumps([reader, str(path)]) + "\n")
        self.process.stdin.flush()
        line = self._answer()
        if line is None:
            self.close()
            return {"outcome": "hang"}
        if not line:
            return {"outcome": f"wrong: the process ended with {self.process.wait()}"}
        found: dict[str, Any] = json.loads(line)
        return found

    def _answer(self) -> str | None:
        """Its line, or None after too much work or waiting: a busy machine is no hang."""
        enough, begun = self._worked() + SECONDS, time.monotonic()
        while self._worked() < enough and time.monotonic() < begun + PATIENCE:
            with contextlib.suppress(Empty):
                return self.lines.get(timeout=0.5)
        return None

    def _worked(self) -> float:
        """Seconds that the process has computed."""
        try:
            after_name = (
                Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            )
        except OSError:  # it has ended, and its last line is on the way
            return 0.0
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def _start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", str(MEMORY)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: Queue[str] = Queue()
        self.listener = Thread(
            target=self._listen, args=(self.process.stdout, self.lines), daemon=True
        )
        self.listener.start()
        assert self.lines.get(timeout=120) == "ready\n"

    @staticmethod
    def _listen(stream: Any, lines: Queue[str]) -> None:
        with stream:
            for line in stream:
                lines.put(line)
        lines.put("")

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(BrokenPipeError):  # what it was last asked, unsent
                self.process.stdin.close()
            self.listener.join()


def inputs(ending: str, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """The corpus, and then so many mutations of what is small in it."""
    found = {name: make() for name, make in corpus.CORPUS[ending].items()}
    yield from found.items()
    seeds = sorted(name for name, data in found.items() if len(data) < 20_000)
    rng = random.Random(f"{ending} {seed}")
    for number in range(count):
        name = "sound" if rng.random() < 0.7 else rng.choice(seeds)
        yield f"{name}, mutation {number} of seed {seed}", mutated(ending, found[name], rng)


def fuzz(count: int, seed: int = 1, keep: Path | None = None, tell: Any = None) -> list[Tally]:
    """Every reader over the corpus and `count` mutations; `keep` takes what went wrong."""
    tallies, worker = [], Worker()
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(worker):
        for reader in READERS.values():
            tally = Tally(reader.name)
            for number, (name, data) in enumerate(inputs(reader.ending, count, seed)):
                path = Path(folder) / f"x{reader.ending}"
                path.write_bytes(data)
                began = time.monotonic()
                said = worker.ask(reader.name, path)
                tally.slowest = max(tally.slowest, time.monotonic() - began)
                tally.peak = max(tally.peak, said.get("peak", 0))
                outcome = said["outcome"]
                if outcome in ("read", "refused"):
                    setattr(tally, outcome, getattr(tally, outcome) + 1)
                    continue
                if outcome == "hang":
                    tally.hangs += 1
                else:
                    tally.wrong.append(f"{name}: {outcome}")
                if keep is not None:
                    (keep / f"{reader.name.replace(' ', '-')}-{number}{reader.ending}").write_bytes(
                        data
                    )
            tallies.append(tally)
            if tell is not None:
                tell(tally)
    return tallies


def table(tallies: list[Tally]) -> str:
    """The tallies as text, with their sums."""
    from limelight.writing.tables import columns

    head = ("reader", "inputs", "read", "refused", "crashes", "hangs", "slowest, s", "peak, MB")
    lines = [(t.reader, f"{t.inputs:,}", f"{t.read:,}", f"{t.refused:,}", str(len(t.wrong)), str(t.hangs),
              f"{t.slowest:.1f}", f"{t.peak / 1e6:,.0f}") for t in tallies]  # fmt: skip
    sums = [sum(getattr(t, name) for t in tallies) for name in ("inputs", "read", "refused")]
    last = ("all", *(f"{n:,}" for n in sums), str(sum(len(t.wrong) for t in tallies)),
            str(sum(t.hangs for t in tallies)), f"{max(t.slowest for t in tallies):.1f}",
            f"{max(t.peak for t in tallies) / 1e6:,.0f}")  # fmt: skip
    return "\n".join(columns([head, *lines, last], left=[0]))
