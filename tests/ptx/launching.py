"""The Hopper engine on a machine without a GPU: its kernels compiled, and their PTX carried out."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tests.ptx import chips
from tests.ptx.machine import launch as run
from tests.ptx.memory import Described
from tests.ptx.pace import Pace
from tests.ptx.program import Program
from tests.ptx.text import parsed

pace = Pace()  # of the launches to come
without = ""  # what a line of PTX has that is left out of them
_programs: dict[str, Program] = {}


def adopt(processors: int = 3) -> None:
    """For the rest of this process kernels are launched on an H100 that is not there.

    It has so many multiprocessors. Tensors that are made for a GPU stay where all others are, and
    the Hopper engine's own kernels take calls however small.
    """
    import triton

    from limelight.engines import hopper
    from limelight.engines.gpu import blocks, launch, portable

    architecture, shared = chips.CHIPS["H100"]
    chips.adopt(architecture)
    triton.knobs.runtime.add_stages_inspection_hook = _until_ptx
    launch.Launch.__call__ = _carried_out  # type: ignore[method-assign]
    blocks.chip = lambda device: blocks.Chip(processors, shared)  # type: ignore[assignment]
    portable.tiny = lambda call: False
    hopper.PACKED_ROWS = 0
    torch.cuda.synchronize = lambda device=None: None  # type: ignore[assignment]
    _Here().__enter__()


class _Here(TorchFunctionMode):
    """What is asked of a GPU is done on the CPU."""

    def __torch_function__(self, what: Any, types: Any, given: Any = (), named: Any = None) -> Any:
        if what is torch.Tensor.cuda:
            return given[0]
        here = [_here(x) for x in given]
        return what(*here, **{name: _here(x) for name, x in (named or {}).items()})


def _here(place: Any) -> Any:
    """A GPU's name as the CPU's, anything else as it is."""
    if isinstance(place, (str, torch.device)) and str(place).startswith("cuda"):
        return "cpu" if isinstance(place, str) else torch.device("cpu")
    return place


def _until_ptx(*given: Any) -> tuple[str, str] | None:
    """Triton's hook: what it compiles ends at PTX, and is kept under a name of its own."""
    if not given:
        return "until PTX", "until PTX"
    given[1]["cubin"] = lambda source, metadata: b""
    return None


def _carried_out(self: Any, programs: int, *arguments: Any) -> None:
    """A launch, in the place of `Launch.__call__`."""
    from limelight.engines.gpu import launch

    bound = (*launch.bound(arguments), *self.constants)
    code = self.kernel.warmup(*bound, grid=(programs,), **self.options)
    text = code.asm["ptx"]
    if without:
        text = "\n".join(line for line in text.splitlines() if without not in line)
    if text not in _programs:
        _programs[text] = Program(parsed(text))
    kinds, metas = list(code.src.signature.values()), list(code.metadata.tensordesc_meta or ())
    given = _flat(bound, kinds, metas)
    warps, shared = code.metadata.num_warps, code.metadata.shared
    run(_programs[text], programs, warps, shared, [*given, 0, 0], _tensors(bound), pace)


def _flat(arguments: Any, kinds: list[Any], metas: list[dict[str, Any]]) -> list[Any]:
    """Arguments as PTX has them: without constants, descriptors followed by shape and strides."""
    found: list[Any] = []
    for argument, kind in zip(arguments, kinds, strict=True):
        if isinstance(kind, tuple):
            found += _flat(argument, list(kind), metas)
        elif kind == "constexpr":
            continue
        elif str(kind).startswith("tensordesc"):
            meta = metas.pop(0)
            tensor = argument.base
            swizzle = {0: 0, 1: 32, 2: 64, 3: 128}[meta["swizzle"]]
            found.append(Described(tensor, list(meta["block_size"]), swizzle))
            found += [*argument.shape, *argument.strides]
        elif isinstance(argument, torch.Tensor):
            found.append(argument.data_ptr())
        else:
            found.append(float(argument) if kind.startswith("fp") else int(argument))
    return found


def _tensors(arguments: Any) -> list[Any]:
    found: list[Any] = []
    for argument in arguments:
        if isinstance(argument, tuple):
            found += _tensors(argument)
        elif isinstance(argument, torch.Tensor):
            found.append(argument)
        elif hasattr(argument, "base"):
            found.append(argument.base)
    return found
