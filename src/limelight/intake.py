"""Intake: what comes from outside is opened once, and bounded before anything is made of it."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from limelight.errors import FileError
from limelight.writing.files import as_path

MOST_VALUES = 2_000_000  # numbers, texts, lists and tables in one JSON text
DEEPEST = 64  # lists and tables inside each other
LONGEST_TEXT = 1 << 20  # characters of one text
LARGEST_INTEGER = 1 << 63
NUMBERS_A_BYTE = 8  # that a model may have for its weights, tied and computed ones included
ANEW = "Take another copy of the file, or make it anew"  # the way out of a damaged one


@contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """What the system says against reading a file, as an error of ours."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """A plain file, open for reading: a pipe or a device would wait, or never end."""
    target = as_path(path)
    with reading(target):
        # Without O_NONBLOCK opening a pipe waits until somebody writes to it.
        number = os.open(target, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise FileError(f"{target}: cannot be read: it is there, and no file. Name a plain file")
    return os.fdopen(number, "rb")


def read_bounded(path: str | os.PathLike[str], most: int) -> bytes:
    """The whole of a file of at most `most` bytes."""
    with open_plain(path) as file, reading(path):
        data = file.read(most + 1)
    if len(data) > most:
        raise FileError(f"{path}: longer than the {most:,} bytes that are read of such a file. "
                        f"{ANEW}")  # fmt: skip
    return data


def memory() -> int:
    """The bytes of memory that this machine has, as far as it tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1 << 40


def state(file: BinaryIO) -> tuple[int, ...]:
    """What changes when somebody writes to an open file."""
    seen = os.fstat(file.fileno())
    return seen.st_size, seen.st_mtime_ns, seen.st_ino


def from_json(text: str, *, longest: int = LONGEST_TEXT, most: int = MOST_VALUES) -> Any:
    """What a JSON text says, if it is one that can be worked with; a ValueError says why not.

    Refused: a name that occurs twice in a table, NaN and infinities, whole numbers beyond 64 bits,
    halves of characters, and more, longer or deeper than the bounds.

    >>> from_json('{"a": [1, 2.5, "b"]}')
    {'a': [1, 2.5, 'b']}
    >>> from_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the name 'a' occurs twice
    """
    if sum(text.count(sign) for sign in "[{,") > most:
        raise ValueError(f"it holds more than {most:,} values")
    try:
        found = json.loads(
            text, object_pairs_hook=_table, parse_constant=_constant, parse_int=_integer
        )
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} deep") from None
    _check(found, longest)
    return found


def _check(found: Any, longest: int) -> None:
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, str):
                check_text(value, longest)
            elif isinstance(value, float) and not math.isfinite(value):
                raise ValueError("a number in it is too large")
            elif isinstance(value, dict):
                for name in value:
                    check_text(name, longest)
                inner.extend(value.values())
            elif isinstance(value, list):
                inner.extend(value)
        if not inner:
            return
        level = inner
    raise ValueError(f"it is nested more than {DEEPEST} deep")


def check_text(text: str, longest: int) -> None:
    """Refuse a text that is longer, or that no encoding can write."""
    if len(text) > longest:
        raise ValueError(f"a text of {len(text):,} characters, and it may have {longest:,}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("a text in it holds half of a character") from None


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError(f"the name {_twice(name for name, _ in pairs)!r} occurs twice")
    return table


def _twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))[:80]  # type: ignore[func-returns-value]


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that JSON has")


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -LARGEST_INTEGER <= (number := int(digits)) < LARGEST_INTEGER:
        raise ValueError("a whole number in it has more than 64 bits")
    return number
