"""Folders: the files a studio may open, and no others.

A page never names a path. It names an id from a listing, and only files that were named at start,
or found by walking the folders named then, are in that listing: there is nothing to traverse. Links
are not followed out of a folder, and a file is checked again in the moment it is opened.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from limelight.capture.shipped import captures
from limelight.errors import ArgumentError, FileError
from limelight.intake import open_plain
from limelight.studio.answers import NotFound

MOST_FILES, DEEPEST = 2_000, 6
SKIPPED = frozenset({"node_modules", "__pycache__"})


@dataclass(frozen=True)
class Listed:
    """A file in a folder: `id` is its path below the folder with ':' between the parts."""

    id: str
    path: Path
    folder: Path
    size: int
    changed: int  # nanoseconds since 1970
    version: tuple[int, ...] = ()  # another where the file is another, or was written to


@dataclass(frozen=True)
class Folders:
    """The folders named at start, each by its real path, and single files by their ids."""

    roots: tuple[Path, ...] = ()
    files: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, given: tuple[Path, ...], files: tuple[Path, ...] = ()) -> Folders:
        for folder in given:
            if not os.path.isdir(folder):
                raise ArgumentError(f"--folder {folder}: there is no such folder")
        return cls(tuple(dict.fromkeys(folder.resolve() for folder in given)), _named(files))

    def told(self, text: str) -> str:
        """A sentence whose files go by their places in the folders: the rest of a path is ours."""
        for folder in (*self.roots, *(path.parent for path in self.files.values())):
            begins = re.escape(os.path.join(folder, ""))
            text = re.sub(rf"(?<![\w.:/\\~-]){begins}(?=[^\s/])", "", text)  # no path's middle
        return text

    def find(self, *endings: str) -> dict[str, Listed]:
        """Every file with one of the endings, by id; the first folder given wins a shared id.

        A file that was named itself wins over all.
        """
        found: dict[str, Listed] = {}
        for name, path in self.files.items():
            with suppress(OSError):  # it went away
                if path.suffix.lower() in endings:
                    found[name] = listing(name, path, path.parent, path.stat())
        for root in self.roots:
            for entry in _walk(root, root, DEEPEST):
                if entry.path.suffix.lower() in endings and len(found) < MOST_FILES:
                    found.setdefault(entry.id, entry)
        return found

    def get(self, name: str, *endings: str) -> Listed:
        """The listed file of that id, as it is now."""
        listed = self.find(*endings).get(name)
        if listed is None:
            kinds = " or ".join(endings)
            raise NotFound(f"there is no {kinds} file {name!r} in the folders this studio was "
                           f"started with")  # fmt: skip
        return listed


def _named(files: tuple[Path, ...]) -> dict[str, Path]:
    """Files by their names; one whose name is taken has its folder's before it."""
    taken = {row.path.name for row in captures()}
    found: dict[str, Path] = {}
    # Path.resolve would raise at a circle of links, which is no file here.
    for path in dict.fromkeys(Path(os.path.realpath(path)) for path in files):
        if not os.path.isfile(path):
            folder = os.path.isdir(path)
            why = "is a folder: give it with --folder" if folder else "there is no such file"
            raise ArgumentError(f"{path}: {why}")
        parts = path.parts[1:]
        names = (":".join(parts[-n:]) for n in range(1, len(parts) + 1))
        found[next(name for name in names if name not in found and name not in taken)] = path
    return found


def check(listed: Listed, most: int) -> Path:
    """The path, once more a plain file inside its folder and not too large."""
    try:
        real = listed.path.resolve(strict=True)
        seen = os.lstat(real)
    except (OSError, RuntimeError):
        raise NotFound(f"{listed.id}: the file is no longer there") from None
    if not real.is_relative_to(listed.folder) or not stat.S_ISREG(seen.st_mode):
        raise NotFound(f"{listed.id}: the file is not inside the folder it was listed from")
    if seen.st_size > most:
        raise FileError(f"{listed.id}: {seen.st_size:,} bytes, and the studio opens up to {most:,}")
    return real


def opened(listed: Listed, most: int) -> BinaryIO:
    """The file itself, open: what is checked is what is read, whatever its name leads to later."""
    try:
        file = open_plain(listed.path)
    except FileError:
        raise NotFound(f"{listed.id}: the file is no longer there") from None
    try:
        held, real = os.fstat(file.fileno()), check(listed, most)
        there = os.lstat(real)
        if (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino):
            raise NotFound(f"{listed.id}: the file was replaced while it was opened: try again")
    except OSError:
        file.close()
        raise NotFound(f"{listed.id}: the file is no longer there") from None
    except BaseException:
        file.close()
        raise
    return file


def listing(name: str, path: Path, folder: Path, seen: os.stat_result) -> Listed:
    version = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    return Listed(name, path, folder, seen.st_size, seen.st_mtime_ns, version)


def _walk(root: Path, folder: Path, depth: int) -> Iterator[Listed]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth and not entry.name.startswith(".") and entry.name not in SKIPPED:
                    yield from _walk(root, path, depth - 1)
            elif entry.is_file() and path.resolve(strict=True).is_relative_to(root):
                name = ":".join(path.relative_to(root).parts)
                # A name that is no UTF-8 has no place in JSON: its odd bytes as \\xff.
                name = os.fsencode(name).decode("utf-8", "backslashreplace")
                yield listing(name, path, root, entry.stat())
        except (OSError, RuntimeError, ValueError):
            continue  # a broken link, a loop of links, or a file that went away
