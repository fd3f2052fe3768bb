"""The version is one: in the package, the changelog, the citation and the newest tag."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import limelight

ROOT = Path(__file__).parents[2]


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
