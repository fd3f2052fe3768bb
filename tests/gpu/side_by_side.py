"""The GPU's tests in many processes, each taking the next few from one list.

    PYTHONPATH=src:. python -m tests.gpu.side_by_side [--processes 15] [--seconds 500] [more for pytest]

Compiling is most of what they do, and Triton keeps on disk what one process has compiled: tests that
stand beside each other want the same kernels, so a process takes several. After so many seconds none
is taken any more; what is still under way after as many as --grace is cut off and named, and what is
left is counted.
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
    """What a process runs; what it begins and what comes of it is written down as it happens."""

    def __init__(self, place: Path, until: float) -> None:
        self.place, self.until = place, until
        self.told = place.with_suffix(f".{os.getpid()}").open("a", buffering=1)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = session.items
        self._tell("count", len(items))
        while time.time() < self.until and (first := _taken(self.place)) < len(items):
            several = items[first : first + FEW]
            for item, following in zip(several, [*several[1:], None], strict=True):
                self._tell(item.nodeid, "cut off")
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    return True
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self._tell(report.nodeid, report.outcome)

    def _tell(self, what: str, of: str | int) -> None:
        print(json.dumps([what, of]), file=self.told)


def pytest_configure(config: pytest.Config) -> None:
    if PLACE in os.environ:
        taking = Taking(Path(os.environ[PLACE]), float(os.environ[UNTIL]))
        config.pluginmanager.register(taking, "taking")


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--grace", type=float, default=60.0)
    given, more = parser.parse_known_args()
    named = any(Path(word.split("::")[0]).exists() for word in more)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "taken"
        place.write_text("0")
        until = time.time() + given.seconds
        told = {PLACE: str(place), UNTIL: str(until), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.gpu.side_by_side",
                   "-p", "no:cacheprovider", "--tb=short", *more, *([] if named else ["tests/gpu"])]  # fmt: skip
        logs = [place.with_suffix(f".log{i}") for i in range(given.processes)]
        processes = []
        for log in logs:
            with log.open("w") as file:
                processes.append(subprocess.Popen(command, env={**os.environ, **told}, stdout=file,
                                                  stderr=subprocess.STDOUT))  # fmt: skip
        codes = [_ended(process, until + given.grace) for process in processes]
        outcomes: dict[str, str] = {}
        count = 0
        for process in processes:
            result = place.with_suffix(f".{process.pid}")
            found = (
                dict(map(json.loads, result.read_text().splitlines())) if result.exists() else {}
            )
            count = max(count, found.pop("count", 0))
            outcomes |= found
        for log, code in zip(logs, codes, strict=True):
            if code:
                print(log.read_text())
    for name, outcome in outcomes.items():
        if outcome == "cut off":
            print(f"cut off: {name}")
    counted = Counter(outcomes.values())
    left = count - len(outcomes)
    said = [f"{counted[name]} {name}" for name in ("passed", "failed", "skipped", "cut off")]
    print(", ".join([*said, f"{left} not taken"]))
    return 1 if any(codes) or left else 0


def _ended(process: subprocess.Popen[bytes], until: float) -> int:
    """The code of a process, which may run until then."""
    try:
        return process.wait(max(0.0, until - time.time()))
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
