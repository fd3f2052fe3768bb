"""Paths that a system can have, and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from limelight.errors import ArgumentError, FileError

try:
    import fcntl
except ImportError:  # Windows, where nobody can remove a file that is open
    fcntl = None  # type: ignore[assignment]

PART = ".limelight-*.part"  # a file that is being written
JUST_BEGUN = 60  # seconds for which an empty part may be one that its writer has yet to lock


def as_path(path: str | os.PathLike[str]) -> Path:
    """The path, unless no file can have it."""
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"a file is named by a text or a Path, and {path!r} is neither")
    if "\0" in str(path):
        raise FileError(f"{str(path)!r} names no file: it holds a NUL character")
    return Path(path)


def wrong_ending(path: Path, endings: tuple[str, ...]) -> str:
    """What is wrong with a name that must end as one of the kinds of file; empty where it does.

    >>> wrong_ending(Path("a.txt"), (".png", ".svg", ".pdf"))
    'a.txt ends in .txt: give a name that ends in .png, .svg or .pdf'
    """
    if path.suffix.lower() in endings:
        return ""
    ends = f"ends in {path.suffix}" if path.suffix else "has no ending"
    kinds = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
    return f"{path} {ends}: give a name that ends in {kinds}"


@contextlib.contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file beside the target, to be filled and then renamed: no reader ever sees half of one.

        with whole("x.html") as file:
            file.write(page)

    What fails inside leaves the target as it was. A symbolic link stays one, and what it points to
    is replaced; what is no file (a folder, a device) is left alone. What a writer that was killed
    left behind the next one removes.
    """
    target, half = as_path(path), None
    try:
        real = target.resolve()
        if real.exists() and not real.is_file():
            what = "a folder" if real.is_dir() else "no plain file"
            raise FileError(f"{target}: cannot be written: it is {what}")
        _clear(real.parent)
        # A name of its own, so that two writers of one target never share a half-written file.
        half = real.parent / PART.replace("*", secrets.token_hex(8))
        with open(half, "xb") as file:
            _lock(file, wait=True)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                os.replace(half, real)
        if fcntl is None:  # Windows renames only what is closed
            os.replace(half, real)
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links
        said = getattr(error, "strerror", None) or error
        raise FileError(f"{target}: cannot be written: {said}") from None
    finally:
        if half is not None:
            half.unlink(missing_ok=True)


def _clear(folder: Path) -> None:
    """Remove the parts that no living process holds: a lock ends with whoever held it."""
    for part in folder.glob(PART):
        with contextlib.suppress(OSError), open(part, "r+b") as file:
            seen = os.fstat(file.fileno())
            begun = seen.st_size or time.time() - seen.st_mtime > JUST_BEGUN
            if begun and _lock(file, wait=False):
                part.unlink()


def _lock(file: BinaryIO, wait: bool) -> bool:
    """Whether the file is ours now."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
