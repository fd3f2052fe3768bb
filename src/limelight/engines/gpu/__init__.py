"""What the GPU engines are made of.

Kernels: hopper_forward and hopper_backward (Gluon), with hopper_powers and hopper_drops; forward,
decode, again, backward, edges, pool, classify (Triton), on the common ground of cells, with drops.
Running them: launch and kept for all; blocks, portable, paged, gradients and looking for the Triton
ones; hopper_gradients for the Hopper backward; masks and plan for what a mask allows; interpreter
for a CPU. Names that moved in Gluon are in moved.
"""

from __future__ import annotations

import importlib.util


def absent(oldest: tuple[int, int]) -> str | None:
    """What of torch and Triton, from this version on, is not installed."""
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: pip install {name}"
    import triton

    found: str = triton.__version__
    if tuple(map(int, found.split(".")[:2])) < oldest:
        wanted = ".".join(map(str, oldest))
        return f"it needs Triton {wanted} or later, and here is {found}: pip install -U torch"
    return None
