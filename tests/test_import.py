"""`import limelight` is quick and loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "triton", "transformers", "starlette", "uvicorn", "typer", "rich", "safetensors")


def fresh(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_nothing_heavy_is_loaded() -> None:
    loaded = fresh("import sys, limelight; print(' '.join(sys.modules))").split()
    assert "numpy" in loaded
    assert not [name for name in HEAVY if name in loaded]


def test_import_takes_less_than_a_fifth_of_a_second() -> None:
    """Of a processor's time: other work on the machine does not count."""
    code = "import time; start = time.process_time(); import limelight; print(time.process_time() - start)"
    assert min(float(fresh(code)) for _ in range(5)) < 0.2


def test_a_worked_example_without_torch() -> None:
    code = """
import sys
sys.modules["torch"] = None
import limelight as ll
print(ll.attention([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]]).round(2).tolist())
"""
    assert fresh(code).strip() == "[[8.83, 0.86]]"
