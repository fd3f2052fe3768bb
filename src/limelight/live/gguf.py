"""A GGUF file: its facts and its tensors, read with NumPy; quantised blocks by the gguf package.

    magic "GGUF", version, number of tensors, number of facts
    facts      a name, a type, a value each
    tensors    a name, the sizes (innermost first), a type and a place each
    data       aligned, one tensor after the other

Every length in the file is checked against what is there before it is used. The file is read, not
mapped: one that somebody shortens is an error, where a map would end the program.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight import intake
from limelight.errors import FileError

Array = NDArray[Any]
MAGIC, VERSIONS, ALIGNMENT = b"GGUF", (2, 3), 32
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
           12: "d"}  # fmt: skip
TEXT, LIST = 8, 9
PLAIN: dict[int, np.dtype[Any]] = {0: np.dtype("<f4"), 1: np.dtype("<f2")}  # what needs no package
MOST_AXES = 4
MOST_HEADER = 64 << 20  # bytes of facts and of the tensors' table; Gemma's 262,144 tokens take 16
MALFORMED = (struct.error, UnicodeDecodeError, KeyError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Entry:
    """Where a tensor stands."""

    kind: int
    shape: tuple[int, ...]  # outermost first
    place: int


class Gguf:
    """An open file: `facts`, the names of its tensors, and `array(name)` as float32."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = intake.open_plain(path)
        self._size, self._at = intake.state(self._file)[0], 0
        self._one_reader = threading.Lock()
        try:
            self._read()
        except BaseException as error:
            self._file.close()
            if isinstance(error, MALFORMED):
                raise self._damaged("its header is malformed, or the file was cut short") from None
            raise

    def __enter__(self) -> Gguf:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def array(self, name: str) -> Array:
        """A tensor as float32, its outermost axis first."""
        if name not in self.tensors:
            raise FileError(f"{self.path}: has no tensor {name}, as a model of this family has: "
                            f"limelight.hf.load runs others through Transformers")  # fmt: skip
        entry = self.tensors[name]
        if entry.kind in PLAIN:
            dtype = PLAIN[entry.kind]
            flat = self._bytes(name, entry, prod(entry.shape) * dtype.itemsize).view(dtype)
            return np.asarray(flat.reshape(entry.shape), np.float32)
        gguf = _package(self.path)
        try:
            kind = gguf.GGMLQuantizationType(entry.kind)
            shape = gguf.quant_shape_to_byte_shape(entry.shape, kind)
            held = self._bytes(name, entry, prod(shape)).reshape(shape)
            with np.errstate(all="ignore"):  # a damaged scale may be no number
                found: Array = gguf.dequantize(held, kind)
        except (ValueError, NotImplementedError, KeyError) as error:
            raise FileError(
                f"{self.path}: {name} is quantised in a way that gguf cannot read ({error}): take "
                f"a file that is quantised otherwise, such as Q8_0"
            ) from None
        return np.ascontiguousarray(found.reshape(entry.shape), np.float32)

    def _read(self) -> None:
        magic, version, tensors, facts = self._numbers("<4sIQQ")
        if magic != MAGIC or version not in VERSIONS:
            raise FileError(
                f"{self.path}: not a GGUF file of version 2 or 3: convert the model anew"
            )
        self.facts = {self._text(): self._value(self._number("I")) for _ in range(facts)}
        self.tensors: dict[str, Entry] = {}
        for _ in range(tensors):
            name, axes = self._text(), self._number("I")
            if axes > MOST_AXES:
                raise self._damaged(f"{name!r:.80} has {axes} axes")
            shape = tuple(reversed(self._numbers(f"<{axes}Q")))
            self.tensors[name] = Entry(self._number("I"), shape, self._number("Q"))
        aligned = self.facts.get("general.alignment", ALIGNMENT)
        if not isinstance(aligned, int) or aligned < 1:
            raise self._damaged(f"its alignment is {aligned!r:.80}")
        self._start = -(-self._at // aligned) * aligned
        numbers = sum(prod(entry.shape) for entry in self.tensors.values())
        if numbers > intake.NUMBERS_A_BYTE * self._size:  # many tensors may stand in one place
            raise self._damaged(f"it speaks of {numbers:,} numbers, and is {self._size:,} bytes")

    def _value(self, kind: int) -> Any:
        if kind == TEXT:
            return self._text()
        if kind != LIST:
            return self._number(NUMBERS[kind])
        inner, count = self._number("I"), self._number("Q")
        if count > self._size - self._at:
            raise self._damaged(f"it speaks of a list of {count:,}, and is smaller than that")
        if inner in (TEXT, LIST):
            return [self._value(inner) for _ in range(count)]
        return list(self._numbers(f"<{count}{NUMBERS[inner]}"))

    def _text(self) -> str:
        length = self._number("Q")
        if length > self._size - self._at:
            raise self._damaged("it ends inside a text")
        return self._take(length).decode("utf-8")

    def _number(self, form: str) -> Any:
        return self._numbers(f"<{form}")[0]

    def _numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self._take(struct.calcsize(form)))

    def _take(self, count: int) -> bytes:
        """The header's next bytes; fewer where the file ends, which nobody can unpack."""
        self._at += count
        if self._at > MOST_HEADER:
            raise self._damaged(f"its header is longer than {MOST_HEADER:,} bytes")
        with intake.reading(self.path):
            return self._file.read(count)

    def _bytes(self, name: str, entry: Entry, count: int) -> Array:
        begin = self._start + entry.place
        if begin + count <= self._size:
            with self._one_reader, intake.reading(self.path):  # layers are read side by side
                self._file.seek(begin)
                found = self._file.read(count)
            if len(found) == count:
                return np.frombuffer(found, np.uint8)
        raise self._damaged(f"{name} stands where the file has ended: it was cut short")

    def _damaged(self, why: str) -> FileError:
        return FileError(f"{self.path}: the file is damaged: {why}. {intake.ANEW}")


def _package(path: Path) -> Any:
    try:
        import gguf
    except ImportError:
        raise FileError(
            f"{path}: its weights are quantised, and unpacking them needs the gguf package: "
            f"pip install gguf"
        ) from None
    return gguf
