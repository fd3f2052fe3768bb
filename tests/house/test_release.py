"""The version is one: in the package, the changelog, the citation and the newest tag. What a release
runs on each wheel runs there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import limelight
from tests.house.support import ROOT, tomllib


def test_changelog_and_citation_have_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)$", changelog, re.MULTILINE)
    assert newest, "the newest entry of the changelog needs a version and a date"
    assert newest[1] == limelight.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {newest[1]}\n" in citation
    assert f"\ndate-released: {newest[2]}\n" in citation


def test_a_tag_on_this_commit_names_this_version() -> None:
    git = ["git", "-C", str(ROOT), "tag", "--points-at", "HEAD", "--list", "v*"]
    tags = subprocess.run(git, capture_output=True, text=True, check=False).stdout.split()
    assert tags in ([], [f"v{limelight.__version__}"])  # most commits are no release


def test_what_tries_a_wheel_has_what_it_needs(tmp_path: Path) -> None:
    """Wheels are made from the sdist, in a folder of its own that is the package and not the
    project; beside them are installed the extras that the table names and nothing else."""
    if {engine.name: why for engine, why in limelight.engines().rows}["native"]:
        pytest.skip("the native engine is not here")
    with open(ROOT / "pyproject.toml", "rb") as file:
        told = tomllib.load(file)
    table, extras = told["tool"]["cibuildwheel"], told["project"]["optional-dependencies"]
    python, script = table["test-command"].split()
    assert python == "python"
    there = {"limelight"} | {
        name for extra in table["test-extras"] for name in _packages(extras[extra])
    }
    absent = {name for each in extras.values() for name in _packages(each)} - there
    code = (
        f"import runpy, sys\nfor name in {sorted(absent)}: sys.modules[name] = None\n"
        f"runpy.run_path({script.format(package=ROOT)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the lessons are written" in done.stdout


def _packages(asked: list[str]) -> list[str]:
    return [re.split(r"[^\w-]", each)[0] for each in asked]
