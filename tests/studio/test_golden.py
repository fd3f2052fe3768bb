"""The figures that web/ keeps from the library are the library's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.marks import later

GOLDEN = Path(__file__).parents[2] / "web/golden"


@pytest.mark.parametrize("name", ["make.py", "check.py", later("curves.py")])
def test_golden_figures_are_up_to_date(name: str) -> None:
    run = subprocess.run(
        [sys.executable, GOLDEN / name, "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
