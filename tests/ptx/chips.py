"""Triton without a GPU: a driver that names a chip which is not here, enough to compile for it.

Triton asks one driver for a process's target: whoever adopts it does so in a process of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triton.backends.compiler import GPUTarget

CHIPS = {"4090": (89, 99 << 10), "A100": (80, 163 << 10), "H100": (90, 227 << 10)}


class Absent:
    def __init__(self, architecture: int) -> None:
        self.architecture = architecture

    def get_current_target(self) -> GPUTarget:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def adopt(architecture: int) -> None:
    """From here on Triton compiles for that chip."""
    from triton import runtime

    runtime.driver.set_active(Absent(architecture))
