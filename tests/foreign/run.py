"""torch's and Transformers' own tests of attention, run where they are, with limelight in its place.

    python -m tests.foreign.run [torch] [transformers] [-- more for pytest]

The tests come from the sources of the installed versions: a checkout that LIMELIGHT_TORCH_SOURCES or
LIMELIGHT_TRANSFORMERS_SOURCES names, or one that git can bring; where there is neither, a suite is
skipped and says so. Nothing of theirs is kept in this tree. What fails is compared with known.txt: a
failure that is not there, or a line there that no longer fails, is an error.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KNOWN = HERE / "known.txt"


@dataclass(frozen=True)
class Suite:
    name: str
    home: str
    tests: tuple[str, ...]
    options: tuple[str, ...] = ()


SUITES = (
    Suite("torch", "https://github.com/pytorch/pytorch", ("test/test_transformers.py",)),
    Suite(
        "transformers",
        "https://github.com/huggingface/transformers",
        tuple(
            f"tests/models/{model}/test_modeling_{model}.py"
            for model in ("llama", "bert", "vit", "gpt2", "gemma2", "whisper", "clip")
        ),
        ("-k", "eager_matches_sdpa or eager_matches_batched"),
    ),
)


def sources(suite: Suite) -> Path | str:
    """Where the suite's tests are, or why they cannot be had."""
    named = os.environ.get(f"LIMELIGHT_{suite.name.upper()}_SOURCES")
    if named:
        return Path(named).resolve()
    version = importlib.metadata.version(suite.name).partition("+")[0]
    folder = ROOT / "build" / "foreign" / f"{suite.name}-{version}"
    if not folder.exists():
        short = (
            "--quiet",
            "--depth",
            "1",
            "--filter=blob:none",
            "--sparse",
            "--branch",
            f"v{version}",
        )
        # Transformers' tests read some of their own from utils/, which reads src/.
        top = sorted({"utils", "src", *(test.partition("/")[0] for test in suite.tests)})
        for command in (
            ("git", "clone", *short, suite.home, str(folder)),
            ("git", "-C", str(folder), "sparse-checkout", "set", *top),
        ):
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=600)
            except (OSError, subprocess.SubprocessError) as error:
                said = (getattr(error, "stderr", None) or b"").decode().strip().splitlines()
                return f"its tests cannot be had: {said[-1] if said else error}"
    return folder


def outcomes(suite: Suite, folder: Path, more: list[str]) -> dict[str, str]:
    """Each test and whether it passed, failed or was skipped."""
    report = ROOT / "build" / "foreign" / f"{suite.name}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "LIMELIGHT_FOREIGN": suite.name,
        # The plugin by its own name: theirs has tests/, too. Then what the caller wants before the
        # installed packages, such as the version that the sources are of.
        "PYTHONPATH": os.pathsep.join(
            (str(HERE), str(ROOT / "src"), *filter(None, (os.environ.get("PYTHONPATH"),)))
        ),
    }
    options = (
        "-q",
        "--tb=line",
        "-W",
        "ignore",
        "-p",
        "no:cacheprovider",
        "-p",
        "ours",
    )
    subprocess.run(
        (sys.executable, "-m", "pytest", *options, *suite.options, f"--junitxml={report}", *more,
         *suite.tests),
        cwd=folder, env=environment, check=False,
    )  # fmt: skip
    if not report.exists():
        return {}
    found = {}
    for case in xml.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        place = (case.get("classname") or "").rpartition(".")[2]
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if kinds else "passed"
        found[f"{place}::{case.get('name')}"] = outcome
    return found


def known(suite: Suite) -> dict[str, str]:
    """Patterns of tests that are known to fail, and why."""
    found = {}
    for line in KNOWN.read_text().splitlines():
        if line.startswith(f"{suite.name} "):
            _, pattern, reason = line.split(maxsplit=2)
            found[pattern] = reason
    return found


def main() -> int:
    given = sys.argv[1:]
    names, more = given, []
    if "--" in given:
        names, more = given[: given.index("--")], given[given.index("--") + 1 :]
    wrong = 0
    for suite in SUITES:
        if names and suite.name not in names:
            continue
        folder = sources(suite)
        if isinstance(folder, str):
            print(f"{suite.name}: skipped: {folder}")
            continue
        found = outcomes(suite, folder, more)
        if not found:
            print(f"{suite.name}: its tests could not be collected")
            wrong += 1
            continue
        expected = known(suite)
        failed = [test for test, outcome in found.items() if outcome == "failed"]
        fresh = [test for test in failed if not any(re.search(p, test) for p in expected)]
        stale = [p for p in expected if not more and not any(re.search(p, test) for test in failed)]
        counts = Counter(found.values())
        print(f"{suite.name}: {', '.join(f'{n:,} {outcome}' for outcome, n in counts.items())}")
        for pattern, reason in expected.items():
            print(f"  {sum(bool(re.search(pattern, test)) for test in failed)} × {reason}")
        for test in fresh:
            print(f"  not known: {test}")
        for pattern in stale:
            print(f"  known.txt says that {pattern} fails, and nothing does")
        wrong += len(fresh) + len(stale)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
