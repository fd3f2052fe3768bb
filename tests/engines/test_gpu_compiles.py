"""The GPU kernels compiled for chips that are not here: they must fit, and not be serialised.

Triton asks one driver for a process's target, so the compiling is done in processes of their own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from limelight.engines.gpu import absent
from limelight.engines.hopper import OLDEST
from tests.marks import quick
from tests.ptx.chips import CHIPS, adopt

lacking = absent(OLDEST)
pytestmark = pytest.mark.skipif(lacking is not None, reason=str(lacking))

SPILLED = 256  # bytes of registers that may be set aside, in the loop over masked blocks
HOPPER: dict[str, tuple[int, bool, dict[str, Any]]] = {
    "128, causal, health": (128, True, {"causal": True}),
    "128": (128, False, {}),
    "64, health": (64, True, {}),
    "64, causal": (64, False, {"causal": True}),
    "64, bias and mask": (64, True, {"dense": True, "bias": "float32"}),
    "128, softcap, sinks": (128, True, {"softcap": 20.0, "sinks": True}),
    "128, softcap, causal": (128, False, {"softcap": 20.0, "causal": True}),
    "128, bias, causal": (128, False, {"bias": "bfloat16", "causal": True}),
    "64, bias, health": (64, True, {"bias": "bfloat16"}),
    "256, causal": (256, False, {"causal": True}),
    "256, health": (256, True, {}),
    "64, dropout, health": (64, True, {"dropout": True}),
    "128, dropout, causal": (128, False, {"dropout": True, "causal": True}),
    "256, dropout": (256, True, {"dropout": True}),
}
GRADIENTS: dict[str, tuple[int, dict[str, Any]]] = {
    "64, causal": (64, {"causal": True}),
    "128, documents": (128, {"documents": True}),
    "128, entropy": (128, {"entropy": True}),
    "64, dropout": (64, {"dropout": True}),
    "128, dropout, causal": (128, {"dropout": True, "causal": True}),
    "128, bias, causal": (128, {"bias": "bfloat16", "causal": True}),
    "128, bias, entropy": (128, {"bias": "bfloat16", "entropy": True}),
    "64, bias, dropout": (64, {"bias": "bfloat16", "dropout": True}),
    "128": (128, {}),
    "128, grouped heads, causal": (128, {"group": 32, "causal": True}),
    "64, grouped heads, causal": (64, {"group": 64, "causal": True}),
    "128, grouped heads, dropout": (128, {"group": 32, "causal": True, "dropout": True}),
}
PORTABLE: dict[str, tuple[str, int, dict[str, Any]]] = {
    "4090, 64, bias and mask": ("4090", 64, {"dense": True, "bias": "float32"}),
    "4090, 128": ("4090", 128, {}),
    "4090, 256, softcap, sinks": ("4090", 256, {"softcap": 20.0, "sinks": True}),
    "A100, 128, bias and mask": ("A100", 128, {"dense": True, "bias": "float32"}),
    "H100, 128, causal": ("H100", 128, {"causal": True}),
    "H100, 256, bias and mask": ("H100", 256, {"dense": True, "bias": "float32"}),
    "4090, 128, dropout": ("4090", 128, {"dropout": True}),
}


@pytest.mark.parametrize("kind", quick(HOPPER))
def test_hopper(kind: str) -> None:
    _fits(_in_a_process("hopper", kind))


@pytest.mark.parametrize("kind", quick(GRADIENTS))
def test_gradients(kind: str) -> None:
    said = _in_a_process("gradients", kind)
    assert "ignored" not in said, said  # a warpgroup's own number of registers
    _fits(said)


def _fits(said: str) -> None:
    assert "serialized" not in said, said
    found = re.search(r"(\d+) bytes spill stores", said)
    assert found, said
    assert int(found[1]) <= SPILLED, said
    shared = re.search(r"(\d+) bytes shared", said)
    assert shared, said
    assert int(shared[1]) <= CHIPS["H100"][1], said


def test_other_lengths_are_the_same_kernel() -> None:
    from limelight.engines.gpu import launch
    from limelight.engines.gpu.hopper_forward import forward_kernel

    names = forward_kernel.arg_names[:-1]
    kinds = {
        launch._kind(tuple(number if name == "nk" else 1.0 for name in names), forward_kernel)
        for number in (1, 16, 1000, 1024, 1499)
    }
    assert len(kinds) == 1
    assert launch._kind((1, 16, 17)) != launch._kind((1, 17, 17))


@pytest.mark.slow
@pytest.mark.parametrize("kind", PORTABLE)
def test_portable(kind: str) -> None:
    bias = "bias" in kind
    used = dict(line.rsplit(" ", 1) for line in _in_a_process("portable", kind).splitlines())
    kernels = {name.split(",")[0] for name in used}
    wanted = {"forward_kernel", "rows_kernel", "query_kernel", "key_kernel"}
    assert kernels == wanted | ({"bias_kernel"} if bias else set())
    room = CHIPS[PORTABLE[kind][0]][1]
    assert all(int(shared) <= room for shared in used.values()), used


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_pages(chip: str) -> None:
    used = dict(line.rsplit(" ", 1) for line in _in_a_process("pages", chip).splitlines())
    assert {name.split(",")[0] for name in used} == {"decode_kernel", "forward_kernel"}
    assert all(int(shared) <= CHIPS[chip][1] for shared in used.values()), used


def _in_a_process(engine: str, kind: str) -> str:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.engines.test_gpu_compiles", engine, kind]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def compiling(architecture: int) -> list[tuple[Any, Any, tuple[Any, ...]]]:
    """Launches from here on compile for that chip alone, into this list: kernel, its code, call."""
    from limelight.engines.gpu import launch

    found: list[tuple[Any, Any, tuple[Any, ...]]] = []

    def compile_only(self: launch.Launch, programs: int, *arguments: Any) -> None:
        every = (*launch.bound(arguments), *self.constants)
        code = self.kernel.warmup(*every, grid=(programs,), **self.options)
        found.append((self.kernel, code, self.constants))

    adopt(architecture)
    launch.Launch.__call__ = compile_only  # type: ignore[method-assign]
    return found


def call_of(size: int, what: dict[str, Any]) -> Any:
    import torch

    import limelight as ll
    from limelight.call import prepare
    from limelight.dropout import Dropout

    n = 2048
    q, k, v = (torch.zeros(1, 2, n, size, dtype=torch.bfloat16) for _ in range(3))
    q = q.repeat(1, what.get("group", 1), 1, 1)
    mask = torch.ones(n, n, dtype=torch.bool).tril() if what.get("dense") else None
    mask = ll.Causal() if what.get("causal") else mask
    mask = ll.Documents([i // 500 for i in range(n)]) if what.get("documents") else mask
    return prepare(
        q, k, v, mask=mask,
        bias=torch.zeros(n, n, dtype=getattr(torch, kind)) if (kind := what.get("bias")) else None, softcap=what.get("softcap"),
        sinks=torch.zeros(2) if what.get("sinks") else None,
        dropout=Dropout(0.1, torch.tensor([1, 2])) if what.get("dropout") else None,
    )  # fmt: skip


def hopper(kind: str) -> str:
    """What ptxas says of the kernel that a call of this kind would start on an H100 or H200."""
    from limelight.engines import hopper
    from limelight.engines.gpu import hopper_forward, launch

    size, health, what = HOPPER[kind]
    compiled = compiling(90)
    call = call_of(size, what)
    hopper.tiles(call, health, launch.empty_state)(call)
    return assembled(compiled, hopper_forward.forward_kernel)


def gradients(kind: str) -> str:
    """The same of the kernel of a backward pass."""
    import torch

    from limelight.engines import hopper
    from limelight.engines.gpu import blocks, hopper_backward
    from limelight.reference import State

    size, what = GRADIENTS[kind]
    compiled = compiling(90)
    blocks.chip = lambda device: blocks.Chip(132, CHIPS["H100"][1])  # type: ignore[assignment]
    call = call_of(size, what)
    rows = torch.zeros(call.query.shape[:3])
    state = State(torch.zeros_like(call.query), rows, rows, rows)
    entropy = rows if what.get("entropy") else None
    hopper.backward(call, state, torch.zeros_like(call.query), grad_entropy=entropy)
    configs = [each[0] for kernel, _, each in compiled if kernel is hopper_backward.backward_kernel]
    assert [config.SHARED.value for config in configs] == [what.get("group", 1) > 1]
    return assembled(compiled, hopper_backward.backward_kernel)


def assembled(compiled: Any, kernel: Any) -> str:
    """What ptxas says of a kernel among those compiled."""
    from triton.backends.nvidia.compiler import get_ptxas

    code = next(code for other, code, _ in compiled if other is kernel)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(code.asm["ptx"])
        done = subprocess.run(
            [get_ptxas(90).path, "-v", "-arch=sm_90a", str(source), "-o", "/dev/null"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    return f"{done.stdout}{done.stderr}{code.metadata.shared} bytes shared"


def portable(kind: str) -> str:
    """The kernels of a forward and a backward pass on a chip, and their bytes of shared memory."""
    import torch

    from limelight.engines.gpu import blocks, gradients, launch, portable
    from limelight.reference import State

    chip, size, what = PORTABLE[kind]
    architecture, shared = CHIPS[chip]
    compiled = compiling(architecture)
    blocks.chip = lambda device: blocks.Chip(100, shared)  # type: ignore[assignment]
    call = call_of(size, what)
    portable.tiles(call, True, launch.empty_state)(call)
    rows = torch.zeros(call.query.shape[:3])
    state = State(torch.zeros_like(call.query), rows, rows, rows)
    gradients.backward(call, state, torch.zeros_like(call.query), None, None)
    return in_shared(compiled)


def pages(chip: str) -> str:
    """The kernels over keys in pages, for one new token and for many."""
    import torch

    from limelight.engines.gpu import blocks, paged

    architecture, shared = CHIPS[chip]
    compiled = compiling(architecture)
    blocks.chip = lambda device: blocks.Chip(100, shared)  # type: ignore[assignment]
    rows = torch.zeros(2, 512, 128, dtype=torch.bfloat16)
    table = torch.zeros(3, 16, dtype=torch.int32)
    for count in (1, 100):
        query = torch.zeros(3, 8, count, 128, dtype=torch.bfloat16)
        spans = torch.zeros(3, 1, count, 1, 2, dtype=torch.int32)
        paged.forward(query, rows, rows, table, 16, spans, None, 0.1, None, True)
    return in_shared(compiled)


def in_shared(compiled: Any) -> str:
    """What was compiled, and its bytes of shared memory."""
    return "\n".join(
        f"{kernel.__name__}, {constants} {code.metadata.shared}"
        for kernel, code, constants in compiled
    )


if __name__ == "__main__":
    kinds = {"hopper": hopper, "gradients": gradients, "portable": portable, "pages": pages}
    print(kinds[sys.argv[1]](sys.argv[2]))
