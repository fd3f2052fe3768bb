"""warm(): the GPU kernels that a model will need, compiled before it runs.

Triton compiles a kernel when its kind is first used and keeps it on disk. Each kind is one small
call in a process of its own, so that they are compiled beside each other; the model's first step
then finds them all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from typing import Any

from limelight.engines import find
from limelight.errors import EngineError

GPU = ("hopper", "triton")


@dataclass(frozen=True)
class Kind:
    """A kind of attention, as far as it decides which kernels are compiled.

    `mask` is written as `limelight mask` takes it, such as "causal & window(1023)"; lengths and the
    batch decide how rows are tiled, so give those that the model runs with.
    """

    size: int = 128
    heads: int = 8
    key_heads: int = 8
    queries: int = 2048
    keys: int = 2048
    mask: str = ""
    softcap: float | None = None
    sinks: bool = False
    dtype: str = "bfloat16"
    health: bool = False
    gradients: bool = False
    dropout: float = 0.0  # in training alone
    batch: int = 1


def kinds_of(kind: Kind, *, training: bool) -> list[Kind]:
    """What a model with this attention asks for: output, health, and gradients where it trains."""
    found = [replace(kind, health=health, dropout=0.0) for health in (False, True)]
    return [*found, replace(kind, gradients=True)] if training else found


def warm(
    kinds: list[Kind], *, progress: Callable[[int, int], None] | None = None
) -> dict[Kind, float]:
    """Compile the kernels of these kinds; the seconds that each took, 2 or 3 if all were there."""
    reasons = {name: find(name).missing() for name in GPU}
    if all(reasons.values()):
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise EngineError(f"there is nothing to warm: no GPU engine can run here. {why}")
    taken: dict[Kind, float] = {}
    with ThreadPoolExecutor(min(len(kinds) or 1, os.cpu_count() or 1)) as pool:
        running = {pool.submit(_apart, kind): kind for kind in kinds}
        for done in as_completed(running):
            taken[running[done]] = done.result()
            if progress is not None:
                progress(len(taken), len(kinds))
    return {kind: taken[kind] for kind in kinds}


def _apart(kind: Kind) -> float:
    """One kind in a process of its own."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "limelight.torch.warming", json.dumps(asdict(kind))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise EngineError(f"{kind} could not be compiled: {said}")
    return time.perf_counter() - start


def run(kind: Kind, device: str = "cuda") -> None:
    """One call of this kind, and its gradients where they are asked for."""
    import torch

    from limelight.masks.text import parse
    from limelight.torch import functional

    mask = parse(kind.mask) if kind.mask else None

    def drawn(heads: int, length: int) -> torch.Tensor:
        tensor = torch.randn(kind.batch, heads, length, kind.size, device=device)
        return tensor.to(getattr(torch, kind.dtype)).requires_grad_(kind.gradients)

    query = drawn(kind.heads, kind.queries)
    key, value = (drawn(kind.key_heads, kind.keys) for _ in range(2))
    options: dict[str, Any] = {"mask": mask, "softcap": kind.softcap, "dropout": kind.dropout}
    if kind.sinks:
        options["sinks"] = torch.zeros(kind.heads, device=device)
    if kind.health:
        output = functional.inspect(query, key, value, **options).output
    else:
        output = functional.attention(query, key, value, **options)
    if kind.gradients:
        output.sum().backward()


if __name__ == "__main__":
    run(Kind(**json.loads(sys.argv[1])))
