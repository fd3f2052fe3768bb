"""What differs between NumPy arrays and torch tensors; torch is never imported here."""

from __future__ import annotations

import operator
import sys
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError, ShapeError


def is_torch(array: Any) -> bool:
    """Whether it is a torch tensor; where torch was never imported, nothing is."""
    if type(array) is np.ndarray:
        return False
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(array: Any) -> Any:
    """The module whose exp, where and maximum take this array: numpy or torch."""
    return sys.modules["torch"] if is_torch(array) else np


def a_type(value: Any) -> str:
    """What came, in an error.

    >>> a_type(1), a_type([1]), a_type(np.ones(1))
    ('an int', 'a list', 'an ndarray')
    """
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' or name == 'ndarray' else 'a'} {name}"


def dtype_name(array: Any) -> str:
    return _name(array.dtype)


@cache
def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def is_integer(value: Any) -> bool:
    """A whole number, Python's or NumPy's; True and False are none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def index(given: Any, size: int, name: str, where: str = "") -> int:
    """A number from 0 to size − 1; negative ones count from the end, as everywhere in Python.

    >>> index(-1, 5, "head")
    4
    """
    try:
        place = operator.index(given)
    except TypeError:
        raise ArgumentError(f"{name} {given!r} is not a whole number") from None
    if not -size <= place < size:
        few = {0: "there is none", 1: f"there is one, {name} 0"}
        there = few.get(size, f"there are {size:,}, numbered from 0")
        raise ArgumentError(f"there is no {name} {place}{where}: {there}")
    return place % size


def consecutive(numbers: Any) -> bool:
    """Whether they rise by one, so that they are a region."""
    return bool((np.diff(numbers) == 1).all())


def expand(array: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast without a copy."""
    return array.expand(shape) if is_torch(array) else np.broadcast_to(array, shape)


def output_like(query: Any, size: int) -> Any:
    """Memory for an output [B, H, N, size] in the query's dtype, laid as torch's own would be.

    On the CPU that is the query's order of axes where a row has the query's size: after
    [batch, length, heads, size] comes the same, and the heads of a token lie side by side.
    """
    shape = (*query.shape[:3], size)
    if not is_torch(query):
        return np.empty(shape, query.dtype)
    torch = sys.modules["torch"]
    if query.device.type == "cpu" and size == query.shape[3]:
        found = torch.empty_like(query)
        if found.stride(3) == 1:
            return found
    return query.new_empty(shape)


def pick(part: Any, batch: int, head: int | None = None) -> Any:
    """One entry, and one head where one is named, of what broadcasts as [B|1, H|1, …]: a view."""
    if part is None:
        return None
    for axis, at in enumerate((batch, head)):
        if at is not None and part.shape[axis] > 1:
            part = part[(slice(None),) * axis + (slice(at, at + 1),)]
    return part


def crop(array: Any, rows: Any, columns: Any) -> Any:
    """Rows and columns, each a slice or single numbers, of what broadcasts as [..., Nq|1, Nk|1]."""
    array = array if array.shape[-2] == 1 else array[..., rows, :]
    return array if array.shape[-1] == 1 else array[..., columns]


def as_numpy(array: Any) -> Any:
    """A torch tensor as NumPy (bfloat16 widened, since NumPy has none); anything else as it is."""
    if not is_torch(array):
        return array
    if array.is_meta:
        raise ArgumentError(
            f"a tensor of shape {tuple(array.shape)} is on meta, where there are shapes and no "
            f"numbers to be read: make it, or load it, on a device that has them"
        )
    tensor = array.detach().cpu()
    return (tensor.float() if dtype_name(tensor) == "bfloat16" else tensor).numpy()


def read(array: Any) -> NDArray[Any]:
    """As a NumPy array: lists, and what any framework offers by `__array__`, or else by DLPack.

    Numbers whose bytes lie in another order than this machine's, as FITS files have them, are
    copied to it, and so are those whose dtype is a copy of NumPy's own: engines know it by itself.
    """
    dlpack = not hasattr(array, "__array__") and hasattr(array, "__dlpack__")
    try:
        found = np.from_dlpack(array) if dlpack else np.asarray(array)
        plain = found.dtype.isbuiltin or found.dtype.kind not in "fiu"
        return found if plain else found.astype(found.dtype.type)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArgumentError(
            f"the {type(array).__name__} cannot be read here ({error}): copy it to the CPU first"
        ) from None


def of_lists(given: Any, name: str) -> NDArray[Any]:
    """As a NumPy array, where it may be numbers in lists; nothing is copied that is one already."""
    try:
        return read(given)
    except ArgumentError:
        raise
    except ValueError:
        raise ShapeError(
            f"{name} is a ragged list: its rows have different lengths, or lie deeper in each "
            f"other than an array has axes"
        ) from None


def as_array(array: Any, name: str = "the array") -> NDArray[Any]:
    """As a NumPy array, whatever framework it is of, or of lists; bfloat16 widened."""
    found = of_lists(as_numpy(array), name)
    return found.astype(np.float32) if dtype_name(found) == "bfloat16" else found


def jsonable(array: Any) -> Any:
    """Nested lists of plain numbers; JSON knows no NaN and no infinity, so those become None."""
    array = np.asarray(array)
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    plain = array.astype(object)
    plain[~np.isfinite(array)] = None
    return plain.tolist()
