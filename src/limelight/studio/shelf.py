"""Shelf: the captures a studio offers, opened when looked at and closed when long unused."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from limelight.errors import LimelightError
from limelight.studio.answers import NotFound
from limelight.studio.folders import Folders, Listed, check
from limelight.studio.limits import Limits

CAPTURES = ".safetensors"
Origin = Literal["shipped", "folder", "made"]


@dataclass(frozen=True, eq=False)
class Book:
    """One capture on the shelf: where it is from, and the capture itself."""

    id: str
    origin: Origin
    capture: Any
    kept: dict[Any, Any] = field(default_factory=dict)  # what views keep of it: pyramids, labels
    lock: threading.Lock = field(default_factory=threading.Lock)


class Shelf:
    """Shipped captures first, then those in the folders, then those made in this session."""

    def __init__(self, folders: Folders, limits: Limits) -> None:
        self._folders = folders
        self._limits = limits
        self._open: OrderedDict[tuple[str, int, int], Book] = OrderedDict()
        self._made: dict[str, Book] = {}
        self._lock = threading.Lock()

    def books(self) -> list[Book]:
        """Every capture that opens; a safetensors file that holds none is left out."""
        found = []
        for listed, origin in self._listed().values():
            try:
                found.append(self._opened(listed, origin))
            except LimelightError:
                continue
        return [*found, *self._made.values()]

    def book(self, name: str) -> Book:
        """The capture of that id."""
        if name in self._made:
            return self._made[name]
        found = self._listed().get(name)
        if found is None:
            raise NotFound(f"there is no capture {name!r}: /api/captures lists those that are here")
        return self._opened(*found)

    def add(self, name: str, capture: Any) -> Book:
        """A capture made in this session, kept until the studio ends."""
        with self._lock:
            taken = {*self._made, *self._listed()}
            free = next(f"{name}{tail}" for tail in _tails() if f"{name}{tail}" not in taken)
            book = self._made[free] = Book(free, "made", capture)
            while len(self._made) > self._limits.made_captures:
                self._made.pop(next(iter(self._made)))
            return book

    def _listed(self) -> dict[str, tuple[Listed, Origin]]:
        found: dict[str, tuple[Listed, Origin]] = {}
        for name, path in shipped().items():
            seen = path.stat()
            listed = Listed(name, path, path.parent.resolve(), seen.st_size, seen.st_mtime_ns)
            found[name] = (listed, "shipped")
        for listed in self._folders.find(CAPTURES).values():
            found.setdefault(listed.id.removesuffix(CAPTURES), (listed, "folder"))
        return found

    def _opened(self, listed: Listed, origin: Origin) -> Book:
        from limelight.capture import Capture

        key = (listed.id, listed.size, listed.changed)
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
        capture = Capture.open(check(listed, self._limits.file_bytes))
        book = Book(listed.id.removesuffix(CAPTURES), origin, capture)
        with self._lock:
            self._open[key] = book
            while len(self._open) > self._limits.open_captures:
                self._open.popitem(last=False)
        return book


def shipped() -> dict[str, Path]:
    """The captures inside the package, by name."""
    from importlib.resources import files

    folder = Path(str(files("limelight"))) / "captures"
    return {path.name.removesuffix(CAPTURES): path for path in sorted(folder.glob(f"*{CAPTURES}"))}


def _tails() -> Any:
    yield ""
    number = 2
    while True:
        yield f"-{number}"
        number += 1
