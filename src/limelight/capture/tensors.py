"""The container: one safetensors file, written whole or not at all, read with NumPy alone.

    8 bytes       the header's length, little-endian
    header        JSON: each tensor's dtype, shape and place, and texts under "__metadata__"
    data          the tensors, one after the other

The format holds no code, so a file from anywhere is safe to open; every size in the header is
checked against the file before it is used. Beyond the format, a digest over header and data
(SHA-256, among the texts) shows a file that was damaged or edited.

Tensors are mapped, not read: a page comes from the disk when somebody looks at it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from limelight.errors import FileError
from limelight.writing import as_path, write_whole

MOST_HEADER = 100 << 20
DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "U8": np.dtype("u1"),
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
DIGEST = "sha256"

Array = NDArray[Any]


def write(
    path: str | os.PathLike[str], tensors: Mapping[str, Array], texts: Mapping[str, str]
) -> None:
    """The tensors and texts as a file."""
    target = as_path(path)
    named = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
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

    def fill(file: BinaryIO) -> None:
        file.write(len(encoded).to_bytes(8, "little"))
        file.write(encoded)
        for name in order:
            file.write(_bytes(named[name]))

    write_whole(target, fill)


class Foreign(FileError):
    """A sound file of somebody else's."""


def read(
    path: str | os.PathLike[str],
    *,
    mark: str | None = None,
    verify: bool = True,
    mapped: bool = True,
) -> tuple[dict[str, Array], dict[str, str]]:
    """The tensors and the texts; a file without the text `mark` is Foreign.

    Mapped tensors are copy-on-write views of the file: opened at once, but if somebody cuts the
    file short the system ends whatever process looks at what is gone. Otherwise they are read.
    """
    target = as_path(path)
    try:
        with open(target, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header, start = _header(file, size, target)
            data = None if mapped and size > start else np.fromfile(file, np.uint8, size - start)
    except OSError as error:
        raise FileError(f"{target}: cannot be read: {error.strerror or error}") from None
    texts = header.pop("__metadata__", {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise _damaged(target, "its texts are not texts")
    if mark is not None and mark not in texts:
        raise Foreign(f"{target}: a safetensors file, but not a {mark} capture")
    _check_table(header, size - start, target)
    if data is None:
        data = np.memmap(target, np.uint8, mode="c", offset=start)
    if data.size < size - start:
        raise _damaged(target, "it was cut short while it was read")
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
        try:
            tensors[name] = flat.reshape(entry["shape"])
        except (TypeError, ValueError):  # a table, or more and longer axes than an array has
            raise _damaged(target, f"its entry {name!r} is malformed") from None
    return tensors, texts


def _header(file: BinaryIO, size: int, target: Path) -> tuple[dict[str, Any], int]:
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or not 2 <= length <= MOST_HEADER:
        raise FileError(f"{target}: not a safetensors file")
    if length > size - 8:
        raise _damaged(target, "it ends inside its header")
    try:
        header = json.loads(file.read(length).decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise FileError(f"{target}: not a safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise FileError(f"{target}: not a safetensors file: its header is not a table")
    return header, 8 + length


def _check_table(table: dict[str, Any], room: int, target: Path) -> None:
    """Every entry well-formed; together they fill the data exactly, without gap or overlap."""
    places = []
    for name, entry in table.items():
        try:
            dtype, shape, (low, high) = entry["dtype"], entry["shape"], entry["data_offsets"]
            known = dtype in DTYPES
            whole = all(type(n) is int and n >= 0 for n in (*shape, low, high))
        except (KeyError, TypeError, ValueError):
            raise _damaged(target, f"its entry {name!r} is malformed") from None
        if not known:
            raise _damaged(target, f"{name!r} has the dtype {dtype!r}, which captures do not use")
        if not whole or high - low != math.prod(shape) * DTYPES[dtype].itemsize:
            raise _damaged(target, f"the size of {name!r} does not fit its shape")
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice")
    return table


def _damaged(target: Path, why: str) -> FileError:
    return FileError(f"{target}: the file is damaged: {why}")
