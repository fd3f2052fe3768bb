"""The Hopper kernel compiled for its chip where there is none: it must fit, and not be serialised.

Triton asks one driver for a process's target, so the compiling is done in processes of their own.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed")

SPILLED = 256  # bytes of registers that may be set aside, in the loop over masked blocks
KINDS: dict[str, tuple[int, bool, dict[str, Any]]] = {
    "64, health": (64, True, {}),
    "64, causal": (64, False, {"causal": True}),
    "64, bias and mask": (64, True, {"dense": True, "bias": True}),
    "128": (128, False, {}),
    "128, causal, health": (128, True, {"causal": True}),
    "128, softcap, sinks": (128, True, {"softcap": 20.0, "sinks": True}),
    "256, causal": (256, False, {"causal": True}),
    "256, health": (256, True, {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_compiles(kind: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.engines.test_hopper_compiles", kind]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "serialized" not in done.stdout, done.stdout
    found = re.search(r"(\d+) bytes spill stores", done.stdout)
    assert found, done.stdout
    assert int(found[1]) <= SPILLED, done.stdout


def report(size: int, health: bool, what: dict[str, Any]) -> str:
    """What ptxas says of the kernel that a call of this kind would start on an H100 or H200."""
    import torch
    from triton import knobs, runtime
    from triton.backends.compiler import GPUTarget

    import limelight as ll
    from limelight.call import prepare
    from limelight.engines import hopper
    from limelight.engines.gpu import hopper_forward, launch

    class Absent:
        """A driver without a device: enough to compile."""

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

    compiled: list[Any] = []

    def compile_only(self: launch.Launch, grid: tuple[int, int, int], *arguments: Any) -> None:
        if self.kernel is hopper_forward.forward_kernel:
            every = (*launch.bound(arguments), *self.constants)
            compiled.append(self.kernel.warmup(*every, grid=grid, **self.options))

    runtime.driver.set_active(Absent())
    launch.Launch.__call__ = compile_only  # type: ignore[method-assign]
    n = 2048
    q, k, v = (torch.zeros(1, 2, n, size, dtype=torch.bfloat16) for _ in range(3))
    dense = torch.ones(n, n, dtype=torch.bool).tril() if what.get("dense") else None
    call = prepare(
        q, k, v, mask=ll.Causal() if what.get("causal") else dense,
        bias=torch.zeros(n, n) if what.get("bias") else None, softcap=what.get("softcap"),
        sinks=torch.zeros(2) if what.get("sinks") else None,
    )  # fmt: skip
    hopper.tiles(call, health)(call)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(compiled[0].asm["ptx"])
        done = subprocess.run(
            [knobs.nvidia.ptxas.path, "-v", "-arch=sm_90a", str(source), "-o", "/dev/null"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return done.stdout + done.stderr


if __name__ == "__main__":
    print(report(*KINDS[sys.argv[1]]))
