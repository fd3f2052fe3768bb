"""The GPU's tests with the compiled Hopper kernels carried out, at every pace that a chip may have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from limelight.engines.gpu import absent
from limelight.engines.hopper import OLDEST
from tests.marks import later

lacking = absent(OLDEST)
pytestmark = pytest.mark.skipif(lacking is not None, reason=str(lacking))

ROOT = Path(__file__).parents[2]
LATE = "products,loads,stores"
FEW = (  # one of each: a diagonal, spans, an array, a bias by TMA, rows computed again with care
    "tests/gpu/test_forward.py::test_hopper[large-causal-128-bfloat16-health-hopper]",
    "tests/gpu/test_forward.py::test_hopper[large-sparse-bfloat16-output-hopper]",
    "tests/gpu/test_forward.py::test_hopper[large-bias-tiles-bfloat16-output-hopper]",
    "tests/gpu/test_contract.py::test_masked_values_do_not_leak[hopper]",
    "tests/gpu/test_nonfinite.py::test_every_case[sinks nan and 0-float16-hopper]",
    "tests/gpu/test_backward.py::test_hopper[large-documents-hopper]",
)
SOME = ("tests/gpu/test_forward.py", "tests/gpu/test_backward.py", "tests/gpu/test_dropout.py",
        "-k", "hopper and large and not -float16 and not deterministic and not decode")  # fmt: skip


def carried_out(*which: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.ptx.plugin",
               "-p", "no:cacheprovider", "--tb=short", *which]  # fmt: skip
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000)


def passes(*which: str) -> None:
    """What is named alone must run; of what is chosen by words some may skip."""
    done = carried_out(*which)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    named = sum("::" in one for one in which)
    assert (f"\n{named} passed in" if named else " passed") in done.stdout, done.stdout


def test_some_kernels() -> None:
    passes(*FEW)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "what", ["test_forward", "test_backward", "test_dropout", "test_contract", "test_nonfinite"]
)
def test_every_kernel(what: str) -> None:
    passes(f"tests/gpu/{what}.py", "-k", "hopper")


@pytest.mark.parametrize("turns", [7, *map(later, ("forward", "backward", 0, 1, 2))])
def test_whatever_goes_first_and_however_late(turns: str | int) -> None:
    passes(*FEW[:1], *FEW[-1:], "--late", LATE, "--turns", str(turns))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("turns", ["forward", "backward", 0])
def test_large_cases_late(turns: str | int) -> None:
    passes(*SOME, "--late", LATE, "--turns", str(turns))


@pytest.mark.parametrize("missing", [
    "wgmma.wait_group", *map(later, ("cp.async.bulk.wait_group", "fence.proxy.async")),
])  # fmt: skip
def test_what_is_missing_is_noticed(missing: str) -> None:
    done = carried_out(FEW[0], "--late", LATE, "--turns", "7", "--without", missing)
    assert done.returncode == 1, done.stdout[-3000:]
    assert "1 failed" in done.stdout
