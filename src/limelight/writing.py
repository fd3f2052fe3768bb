"""Paths that a system can have, and files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from limelight.errors import FileError


def as_path(path: str | os.PathLike[str]) -> Path:
    """The path, unless no file can have it."""
    if "\0" in str(path):
        raise FileError(f"{str(path)!r} names no file: it holds a NUL character")
    return Path(path)


def write_whole(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Have `write` fill a file beside the target, then rename: no reader ever sees half of one.

    A symbolic link stays one, and what it points to is replaced; what is no file (a folder, a
    device) is left alone.
    """
    target, half = as_path(path), None
    try:
        real = target.resolve()
        if real.exists() and not real.is_file():
            raise FileError(f"{target}: cannot be written: it is there, and no file")
        # A name of its own, so that two writers of one target never share a half-written file.
        half = real.parent / f".{secrets.token_hex(8)}.part"
        with open(half, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(half, real)
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links
        said = getattr(error, "strerror", None) or error
        raise FileError(f"{target}: cannot be written: {said}") from None
    finally:
        if half is not None:
            half.unlink(missing_ok=True)
