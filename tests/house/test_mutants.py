"""tests/mutants.py has lines to change in every module that it names, and tests that should see it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_there_is_something_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", list(sys.path))
    from tests import mutants

    every = [list(mutants.mutants(target)) for target in mutants.TARGETS]
    assert all(every)
    assert sum(map(len, every)) >= 60
    for target in mutants.TARGETS:
        files = [test for test in target.tests if test.startswith("tests/")]
        assert files, target.name
        assert all((ROOT / file).exists() for file in files), target.name
