"""`import limelight` is quick and loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "triton", "transformers", "starlette", "uvicorn", "typer", "rich", "safetensors")


def fresh(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_nothing_heavy_is_loaded() -> None:
    loaded = fresh("import sys, limelight; print(' '.join(sys.modules))").split()
    assert "numpy" in loaded
    assert not [name for name in HEAVY if name in loaded]


def test_modules_come_when_they_are_named() -> None:
    code = """
import sys
import limelight as ll
cap = ll.captures()["gpt"]
print(len(ll.heads.find(cap).scores) > 5, ll.live.load("gpt").run("the").tokens)
print("torch" in sys.modules, hasattr(ll, "head"))
"""
    assert fresh(code).splitlines() == ["True ('t', 'h', 'e')", "False False"]


def test_modules_of_torch_come_when_they_are_named() -> None:
    pytest.importorskip("transformers")
    code = "import limelight as ll; print(callable(ll.torch.capture), callable(ll.hf.survey))"
    assert fresh(code).strip() == "True True"


def test_import_takes_less_than_a_fifth_of_a_second() -> None:
    """Of a processor's time, or twice NumPy's where that alone takes a tenth: other work on the
    machine does not count, and a slow one is allowed for."""
    code = """
from time import process_time
start = process_time()
import numpy
middle = process_time()
import limelight
print(middle - start, process_time() - start)
"""
    times = [tuple(map(float, fresh(code).split())) for _ in range(5)]
    numpy, whole = (min(column) for column in zip(*times, strict=True))
    assert whole < max(0.2, 2 * numpy)


def test_a_worked_example_without_torch() -> None:
    code = """
import sys
sys.modules["torch"] = None
import limelight as ll
print(ll.attention([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]]).round(2).tolist())
"""
    assert fresh(code).strip() == "[[8.83, 0.86]]"


def test_training_needs_numpy_and_torch_alone() -> None:
    """A checkout on a GPU machine has neither the terminal's packages nor the studio's."""
    pytest.importorskip("torch")
    code = f"""
import os, sys
for name in {(*HEAVY[1:], "msgspec", "websockets")}: sys.modules[name] = None
import limelight.torch, torch
with limelight.torch.Monitor(limelight.torch.SelfAttention(8, heads=2), os.devnull) as monitor:
    monitor.step()
print(limelight.attention(*torch.ones(3, 1, 2, 4)).sum().item())
"""
    assert fresh(code).strip() == "8.0"
