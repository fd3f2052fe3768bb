"""Compiled kernels, started without Triton in between; see `direct.c`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import triton

CHECKED = triton.__version__.startswith("3.6.")  # whose kernels take arguments as written here
_LETTERS = {
    "constexpr": "-", "*": "p", "i1": "b", "u1": "b", "i8": "b", "u8": "b", "i16": "h", "u16": "h",
    "i32": "i", "u32": "i", "i64": "l", "u64": "l", "fp32": "f", "f32": "f", "fp64": "d",
}  # fmt: skip


class Compiled(NamedTuple):
    """A compiled kernel: `launch(*before, device, stream, programs, *arguments)` starts it."""

    launch: Callable[..., None]
    before: tuple[int, int, int, bool, str]
    layouts: list[Any]  # of the blocks that TMA moves, in shared memory


def compiled(made: Any, arguments: int) -> Compiled | None:
    """The way to what Triton made, which takes so many arguments before its constants.

    None where Triton has more to do for a launch than to start a program on one multiprocessor.
    """
    if not CHECKED or made is None or made.metadata.target.backend != "cuda":
        return None
    run, (warps, clustered, shared) = made.run, made.packed_metadata
    layouts = made.metadata.tensordesc_meta or []
    if (
        run.global_scratch_size or run.profile_scratch_size or run.launch_cooperative_grid
        or clustered != 1 or None in layouts
    ):  # fmt: skip
        return None
    word = _word(list(made.src.signature.values())[:arguments])
    before = made.function, 32 * warps, shared, bool(run.launch_pdl), word
    return Compiled(_launcher(), before, layouts)


def _word(signature: Iterable[Any]) -> str:
    """A signature in the letters of `direct.c`."""
    return "".join(map(_letter, signature))


def _letter(kind: str | tuple[Any, ...]) -> str:
    if isinstance(kind, tuple):
        return f"({_word(kind)})"
    if kind.startswith("tensordesc"):  # which come with their four lengths and strides
        axes = kind.partition("[")[2].partition("]")[0].count(",") + 1
        return "T" + "i" * axes + "l" * axes
    return _LETTERS["*" if kind.startswith("*") else kind]


def descriptor(tensor: Any, layout: dict[str, Any]) -> list[Any]:
    """What a kernel takes for a tensor that TMA moves: Triton's make_tensordesc_arg, without the
    object between, which checks what is known to fit; see `launch.reader`."""
    shape, strides = tensor.shape, tensor.stride()
    driver, kinds = _driver()
    filled = driver.fill_tma_descriptor(
        tensor.data_ptr(), layout["swizzle"], layout["elem_size"], kinds[layout["elem_type"]],
        layout["block_size"], shape, strides, 0,
    )  # fmt: skip
    return [filled, *shape, *strides]


@cache
def _driver() -> tuple[Any, dict[int, int]]:
    from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST

    return triton.runtime.driver.active.utils, TMA_DTYPE_DEVICE_TO_HOST


@cache
def _launcher() -> Callable[..., None]:
    """`launch` of direct.c, built as Triton builds its own launchers, and kept by it on disk."""
    from triton.backends.nvidia.driver import include_dirs, libraries, library_dirs
    from triton.runtime.build import compile_module_from_src

    built = compile_module_from_src(
        src=Path(__file__).with_suffix(".c").read_text(), name="limelight_direct",
        library_dirs=library_dirs(), include_dirs=include_dirs, libraries=libraries,
    )  # fmt: skip
    launch: Callable[..., None] = built.launch
    return launch
