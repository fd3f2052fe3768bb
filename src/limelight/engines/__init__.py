"""The engines: one file each, and the table of what each can do.

A row of the table says what an engine can take, which module looks at the weights for it, and
whether it has a quick way. What the modules offer is written down in `protocol`. Dispatch,
documentation and tests all read this table.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from limelight.call import FLOATS, Call
from limelight.engines.protocol import Looks, Runs, RunsPages, RunsQuickly
from limelight.errors import EngineError
from limelight.reference import State


@dataclass(frozen=True)
class Engine:
    """What one engine can take, as data."""

    name: str
    summary: str
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    memory: str
    takes_tensors: bool  # torch tensors as they are; the others are handed NumPy views
    looks: str  # the module that looks at the weights
    quick: bool = False  # whether it has a way without a Call
    pages: bool = False  # whether it reads keys in pages

    @cached_property
    def module(self) -> Runs:
        module: Runs = _module(self.name)
        return module

    @cached_property
    def looking(self) -> Looks:
        module: Looks = _module(self.looks)
        return module

    def missing(self) -> str | None:
        """Why it cannot run on this machine, or None."""
        return self._missing

    @cached_property
    def _missing(self) -> str | None:
        return self.module.missing()

    def refuses(self, device: str, dtype: str) -> str | None:
        """Why it takes no arrays of this kind, or None."""
        if device not in self.devices:
            return f"it runs on {' or '.join(self.devices)}, and the arrays are on {device}"
        if dtype not in self.dtypes:
            return f"it takes {', '.join(self.dtypes)}, and the arrays are {dtype}"
        return self.missing()

    def cannot(self, call: Call) -> str | None:
        """Why it cannot do this call, or None."""
        reason = self.refuses(call.device, call.dtype)
        if reason is not None:
            return reason
        return self.module.cannot(call)


# From the plainest to the fastest: "auto" takes the last that can.
_CPU, _GPU, _SHORT = ("cpu",), ("cuda",), ("float32", "bfloat16", "float16")
ENGINES = (
    Engine("reference", "the definition, in float64", _CPU, FLOATS, "O(n²)", False,
           looks="_reference_pool"),
    Engine("numpy", "tiles over BLAS, no compiler needed", _CPU, FLOATS, "O(n)", False,
           looks="_numpy_pool"),
    Engine("native", "C++ with SIMD, fused", _CPU, _SHORT, "O(n)", True, looks="native",
           quick=True, pages=True),
    Engine("triton", "portable GPU kernels", _GPU, _SHORT, "O(n)", True, looks="gpu.looking",
           pages=True),
    Engine("hopper", "Gluon kernels for H100 and H200", _GPU, _SHORT[1:], "O(n)", True,
           looks="gpu.looking"),
)  # fmt: skip


def find(name: str) -> Engine:
    for engine in ENGINES:
        if engine.name == name:
            return engine
    known = ", ".join(engine.name for engine in ENGINES)
    raise EngineError(f"there is no engine {name!r}: choose auto, {known}")


def choose(call: Call, name: str = "auto") -> Engine:
    """The engine asked for, or for "auto" the fastest that can; an error says why none can."""
    if name == "auto":
        for engine in _candidates(call.device, call.dtype):
            if engine.module.cannot(call) is None:
                return engine
        if call.device == "meta":
            raise EngineError(
                "the arrays are on meta, where there are shapes and no numbers: make them, or load "
                "them, on a device that has them"
            )
        reasons = "; ".join(f"{engine.name}: {engine.cannot(call)}" for engine in ENGINES)
        raise EngineError(
            f"no engine can do this call. {reasons}. On the CPU there is one for every type: move "
            f"the arrays there"
        )
    engine = find(name)
    reason = engine.cannot(call)
    if reason is None:
        return engine
    able = [other.name for other in ENGINES if other.cannot(call) is None]
    raise EngineError(
        f"the engine {name!r} cannot do this call: {reason}. "
        + (f"These can: auto, {', '.join(able)}" if able else "No other engine here can either")
    )


def quick_path() -> Callable[[Any, Any, Any, bool], State | None]:
    """The quick way of the fastest engine that has one: see protocol.RunsQuickly."""
    name = next(engine.name for engine in reversed(ENGINES) if engine.quick)
    module: RunsQuickly = _module(name)
    return module.quick


def tensor_path() -> Callable[..., Any]:
    """The same engine's quick way for tensors: see protocol.RunsQuickly."""
    name = next(engine.name for engine in reversed(ENGINES) if engine.quick)
    module: RunsQuickly = _module(name)
    return module.forward_tensors


@cache
def paged_path(device: str, dtype: str) -> Callable[..., State | None] | None:
    """`forward` over keys in pages, of the fastest engine that has it: see protocol.RunsPages."""
    for engine in reversed(ENGINES):
        if engine.pages and engine.refuses(device, dtype) is None:
            module: RunsPages = _module(engine.name)
            return module.forward_paged
    return None


@dataclass(frozen=True)
class Table:
    """The engines and whether each is usable here."""

    rows: tuple[tuple[Engine, str | None], ...]

    def to_dict(self) -> list[dict[str, Any]]:
        return [
            {"engine": engine.name, "usable": reason is None, "missing": reason,
             "summary": engine.summary, "devices": list(engine.devices),
             "dtypes": list(engine.dtypes), "memory": engine.memory}
            for engine, reason in self.rows
        ]  # fmt: skip

    def __repr__(self) -> str:
        lines = [f"{'engine':<10} {'here':<5} {'on':<5} {'memory':<7} {'types':<36} what it is"]
        for engine, reason in self.rows:
            lines.append(
                f"{engine.name:<10} {'yes' if reason is None else 'no':<5} "
                f"{','.join(engine.devices):<5} {engine.memory:<7} {', '.join(engine.dtypes):<36} "
                f"{engine.summary}"
            )
        for engine, reason in self.rows:
            if reason is not None:
                lines.append(f"{engine.name} is missing here: {reason}")
        return "\n".join(lines)


def engines() -> Table:
    """The table of engines, and why one is missing on this machine.

    >>> [row["engine"] for row in engines().to_dict()]
    ['reference', 'numpy', 'native', 'triton', 'hopper']
    """
    return Table(tuple((engine, engine.missing()) for engine in ENGINES))


def _module(name: str) -> Any:
    return importlib.import_module(f"limelight.engines.{name}")


@cache
def _candidates(device: str, dtype: str) -> tuple[Engine, ...]:
    """The engines that take such arrays on this machine, fastest first."""
    return tuple(engine for engine in reversed(ENGINES) if engine.refuses(device, dtype) is None)
