"""The container: one safetensors file, written whole or not at all, read with NumPy alone.

    8 bytes       the header's length, little-endian
    header        JSON: each tensor's dtype, shape and place, and texts under "__metadata__"
    data          the tensors, one after the other

The format holds no code, so a file from anywhere is safe to open; every size in the header is
checked against the file before it is used. Beyond the format, a digest over header and data
(SHA-256, among the texts) shows a file that was damaged or edited.

Header and data come through one open file: whoever puts another in its place meanwhile changes
nothing, and a file that is written to while it is read is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from limelight.errors import FileError
from limelight.intake import ANEW, from_json, memory, open_plain, reading, state
from limelight.writing.files import as_path, whole

MOST_HEADER = 32 << 20
MOST_EMPTY = 1 << 20  # the axes of an array without numbers, those of 0 left out, multiplied
MOST_AXES = 8
LONGEST_NAME = 1_000
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "U8": np.dtype("u1"),
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
DIGEST = "sha256"
SAVED = "name one that Capture.save or Survey.save wrote"

Array = NDArray[Any]


def write(
    path: str | os.PathLike[str], tensors: Mapping[str, Array], texts: Mapping[str, str]
) -> None:
    """The tensors and texts as a file; booleans become bytes."""
    target = as_path(path)
    named = {
        name: np.ascontiguousarray(array, np.uint8 if array.dtype == np.bool_ else None)
        for name, array in tensors.items()
    }
    # Wide numbers first: then every tensor starts at a multiple of its number's size.
    order = sorted(named, key=lambda name: -named[name].dtype.itemsize)
    table, place = {}, 0
    for name in order:
        array = named[name]
        table[name] = {
            "dtype": NAMES[array.dtype.newbyteorder("<")],
            "shape": list(array.shape),
            "data_offsets": [place, place + array.nbytes],
        }
        place += array.nbytes
    digest = _begin(table, dict(texts))
    for name in order:
        digest.update(_bytes(named[name]))
    header = {"__metadata__": {**texts, DIGEST: digest.hexdigest()}, **table}
    encoded = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    if len(encoded) > MOST_HEADER:
        raise FileError(
            f"{target}: the header would take {len(encoded):,} bytes, more than readers accept: "
            f"capture fewer tokens or layers"
        )
    with whole(target) as file:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for name in order:
            file.write(_bytes(named[name]))


class Foreign(FileError):
    """A sound file of somebody else's."""


class Newer(FileError):
    """A sound file of a later limelight."""


class Watch:
    """A file that is mapped, as it was: `check` refuses it once somebody has written to it."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = os.fdopen(os.dup(file.fileno()), "rb")
        self._seen = state(file)
        weakref.finalize(self, self._file.close)

    def check(self) -> None:
        if state(self._file) != self._seen:
            raise FileError(f"{self._path}: the file was written to while it was mapped: open it "
                            f"again, and without mapped=True if it may change")  # fmt: skip

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy in another process maps nothing


def read(
    path: str | os.PathLike[str],
    *,
    file: BinaryIO | None = None,
    mark: str | None = None,
    verify: bool = True,
    mapped: bool = False,
    numbers: bool = True,
) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors and the texts; a file without the text `mark` is Foreign.

    file     the file that `path` names, where it is open already
    verify   compare the content with the digest
    mapped   views of the file, copied where they are written to: opened at once, but if somebody
             cuts the file short the system ends whatever process looks at what is gone
    numbers  False leaves the floats out: their arrays have the right shapes and no memory
    """
    target = as_path(path)
    with open_plain(target) if file is None else _lent(file) as opened, reading(target):
        try:
            return _read(target, opened, mark, verify and numbers, mapped, numbers)
        except MemoryError:
            raise no_room(target) from None


def _read(
    target: Path, file: BinaryIO, mark: str | None, verify: bool, mapped: bool, numbers: bool
) -> tuple[dict[str, Array], dict[str, str]]:
    before = state(file)
    size = before[0]
    header, start = _header(file, size, target)
    texts = header.pop("__metadata__", {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise _damaged(target, "its texts are not texts")
    if mark is not None and mark not in texts:
        raise Foreign(f"{target}: a safetensors file, but not a {mark} capture")
    _check_table(header, size - start, target)
    if not numbers:
        return _without_numbers(file, header, start), texts
    if mapped and size > start:
        data: Array = np.memmap(file, np.uint8, mode="c", offset=start)
    else:
        _fits(size, target)
        data = np.fromfile(file, np.uint8, size - start)
    if data.size < size - start or state(file) != before:
        raise FileError(f"{target}: it was written to while it was read: open it again")
    expected = texts.pop(DIGEST, None)
    if verify and expected is not None:
        digest = _begin(header, texts)
        digest.update(np.asarray(data).data)
        if digest.hexdigest() != expected:
            raise _damaged(target, "its content does not match its checksum")
    tensors = {}
    for name, entry in header.items():
        low, high = entry["data_offsets"]
        flat = np.asarray(data[low:high]).view(DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors, texts


def _without_numbers(file: BinaryIO, table: dict[str, Any], start: int) -> dict[str, Array]:
    """Masks and pictures as they are, floats as zeros that take no memory."""
    found: dict[str, Array] = {}
    for name, entry in table.items():
        dtype, (low, _) = DTYPES[entry["dtype"]], entry["data_offsets"]
        if dtype.kind == "f":
            found[name] = np.broadcast_to(np.zeros((), dtype), entry["shape"])
        else:
            file.seek(start + low)
            flat = np.fromfile(file, dtype, math.prod(entry["shape"]))
            if flat.size < math.prod(entry["shape"]):
                raise OSError("it was cut short while it was read")
            found[name] = flat.reshape(entry["shape"])
    return found


def _fits(size: int, target: Path) -> None:
    """Refuse what cannot be read into memory before the system ends the process for it."""
    if size > memory():
        raise FileError(f"{target}: {size:,} bytes, and this machine has {memory():,} of memory: "
                        f"mapped=True looks at a file where it is")  # fmt: skip


def no_room(target: object) -> FileError:
    return FileError(f"{target}: the memory does not suffice for it: mapped=True looks at a file "
                     f"where it is")  # fmt: skip


def _lent(file: BinaryIO) -> Any:
    file.seek(0)
    return contextlib.nullcontext(file)


def _header(file: BinaryIO, size: int, target: Path) -> tuple[dict[str, Any], int]:
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or not 2 <= length <= MOST_HEADER:
        raise FileError(f"{target}: not a safetensors file: {SAVED}")
    if length > size - 8:
        raise _damaged(target, "it ends inside its header")
    try:
        header = from_json(file.read(length).decode(), longest=MOST_HEADER)
    except ValueError as error:
        why = "" if isinstance(error, (json.JSONDecodeError, UnicodeError)) else f": {error}"
        raise FileError(
            f"{target}: not a safetensors file, for its header is not JSON{why}: {SAVED}"
        ) from None
    if not isinstance(header, dict):
        raise FileError(f"{target}: not a safetensors file, for its header is no table: {SAVED}")
    return header, 8 + length


def _check_table(table: dict[str, Any], room: int, target: Path) -> None:
    """Every entry well-formed; together they fill the data exactly, without gap or overlap."""
    places = []
    for name, entry in table.items():
        try:
            dtype, shape, (low, high) = entry["dtype"], entry["shape"], entry["data_offsets"]
            known = dtype in DTYPES if type(dtype) is str else None
            whole = all(type(n) is int and n >= 0 for n in (*shape, low, high))
            if (
                known is None
                or type(shape) is not list
                or len(shape) > MOST_AXES
                or len(name) > LONGEST_NAME
            ):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise _damaged(target, f"its entry {name[:LONGEST_NAME]!r} is malformed") from None
        if not known:
            raise _damaged(
                target, f"{name!r} has the dtype {dtype[:8]!r}, which captures do not use"
            )
        if not whole or high - low != math.prod(shape) * DTYPES[dtype].itemsize:
            raise _damaged(target, f"the size of {name!r} does not fit its shape")
        if low == high and math.prod(n or 1 for n in shape) > MOST_EMPTY:
            raise _damaged(target, f"{name!r} has no numbers, and axes of {shape}")
        places.append((low, high))
    end = 0
    for low, high in sorted(places):
        if low != end:
            raise _damaged(target, "its tensors leave gaps or overlap")
        end = high
    if end != room:
        what = "it was cut short" if end > room else "it has bytes that belong to nothing"
        raise _damaged(
            target, f"{what}: its header speaks of {end:,} bytes of data, and {room:,} follow"
        )


def _begin(table: dict[str, Any], texts: dict[str, str]) -> Any:
    """A digest that has seen the header, whatever the order of its entries."""
    canonical = json.dumps([table, texts], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode())


def _bytes(array: Array) -> Any:
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return little.reshape(-1).view(np.uint8).data


def _damaged(target: Path, why: str) -> FileError:
    return FileError(f"{target}: the file is damaged: {why}. {ANEW}")
