"""The GPU's tests in many processes, each taking the next few from one list.

    PYTHONPATH=src:. python -m tests.gpu.side_by_side [--processes 15] [--seconds 500] [more for pytest]

Compiling is most of what they do, and Triton keeps on disk what one process has compiled: tests that
stand beside each other want the same kernels, so a process takes several. After so many seconds none
is taken any more, and what is left is counted.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

FEW = 8  # tests taken together
PLACE, UNTIL = "LIMELIGHT_TESTS_TAKEN", "LIMELIGHT_TESTS_UNTIL"


def _taken(place: Path) -> int:
    """Where the next few begin; they are this process's."""
    with place.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        first = int(file.read() or 0)
        file.seek(0)
        file.write(str(first + FEW))
    return first


class Taking:
    """What a process runs, and what came of it."""

    def __init__(self, place: Path, until: float) -> None:
        self.place, self.until = place, until
        self.outcomes: dict[str, str] = {}
        self.count = 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        self.count = len(items)
        while time.time() < self.until and (first := _taken(self.place)) < len(items):
            several = items[first : first + FEW]
            for item, following in zip(several, [*several[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    return True
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        told = {"count": self.count, "outcomes": Counter(self.outcomes.values())}
        self.place.with_suffix(f".{os.getpid()}").write_text(json.dumps(told))


def pytest_configure(config: pytest.Config) -> None:
    if PLACE in os.environ:
        taking = Taking(Path(os.environ[PLACE]), float(os.environ[UNTIL]))
        config.pluginmanager.register(taking, "taking")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--seconds", type=float, default=3600.0)
    given, more = parser.parse_known_args()
    named = any(Path(word.split("::")[0]).exists() for word in more)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "taken"
        place.write_text("0")
        told = {PLACE: str(place), UNTIL: str(time.time() + given.seconds), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.gpu.side_by_side",
                   "-p", "no:cacheprovider", "--tb=short", *more, *([] if named else ["tests/gpu"])]  # fmt: skip
        logs = [place.with_suffix(f".log{i}") for i in range(given.processes)]
        processes = []
        for log in logs:
            with log.open("w") as file:
                processes.append(subprocess.Popen(command, env={**os.environ, **told}, stdout=file,
                                                  stderr=subprocess.STDOUT))  # fmt: skip
        codes = [process.wait() for process in processes]
        outcomes: Counter[str] = Counter()
        counts = set()
        for process in processes:
            result = place.with_suffix(f".{process.pid}")
            if result.exists():
                found = json.loads(result.read_text())
                outcomes.update(found["outcomes"])
                counts.add(found["count"])
        for log, code in zip(logs, codes, strict=True):
            if code:
                print(log.read_text())
    left = max(counts, default=0) - sum(outcomes.values())
    said = [f"{outcomes[name]} {name}" for name in ("passed", "failed", "skipped")]
    print(", ".join([*said, f"{left} not taken"]))
    return 1 if any(codes) or left else 0


if __name__ == "__main__":
    sys.exit(main())
