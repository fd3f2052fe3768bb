"""Shelf: the captures a studio offers, opened when looked at and closed when long unused."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from limelight.capture import Capture, Site
from limelight.capture.tensors import Foreign
from limelight.errors import LimelightError
from limelight.pyramid import Pyramid
from limelight.studio.answers import NotFound
from limelight.studio.cache import Cache
from limelight.studio.folders import Folders, Listed, check
from limelight.studio.limits import Limits
from limelight.studio.measure import measure
from limelight.studio.work import Cancel

ENDING = ".safetensors"
HEADS_KEPT = 128
ENTRIES_KEPT = 4  # of a batch, whose health and kinds are at hand
_NUMBERS = itertools.count()
Origin = Literal["shipped", "folder", "made"]
Facts = TypeVar("Facts")


class Book:
    """One open capture, and what is worth keeping of it."""

    def __init__(
        self, name: str, origin: Origin, capture: Capture, pyramids: Cache[Pyramid], tile_bytes: int
    ) -> None:
        self.id = name
        self.origin = origin
        self.capture = capture
        self.health: Cache[Any] = Cache(ENTRIES_KEPT * max(1, len(capture.sites)))
        self.kinds: Cache[dict[tuple[int, int], list[str]]] = Cache(ENTRIES_KEPT)
        self._heads: Cache[Site] = Cache(HEADS_KEPT)
        self._number = next(_NUMBERS)  # an id() may come again, and then with another's tiles
        self._pyramids = pyramids
        self._tile_bytes = tile_bytes

    def site(self, index: int) -> Site:
        sites = self.capture.sites
        if not 0 <= index < len(sites):
            raise NotFound(f"there is no site {index} in {self.id}: it has {len(sites)}, from 0 on")
        return sites[index]

    def place(self, index: int, head: int, batch: int) -> Site:
        """The site, when it has such a head and batch entry."""
        site = self.site(index)
        for name, given, there in (("head", head, site.heads), ("batch entry", batch, site.batch)):
            if not 0 <= given < there:
                raise NotFound(f"there is no {name} {given} at {site.name}: there are {there}")
        return site

    def head(self, index: int, head: int, batch: int, cancel: Cancel) -> Site:
        """One head of one batch entry as a site of its own, its row statistics at hand."""
        site = self.place(index, head, batch)
        key = (index, head, batch)
        return self._heads.get(key, lambda: measure(site.one(head, batch), cancel))

    def pyramid(self, index: int, head: int, batch: int, pool: str, cancel: Cancel) -> Pyramid:
        """The tiles of one head."""
        one = self.head(index, head, batch, cancel)
        key = (self._number, index, head, batch, pool)
        return self._pyramids.get(key, lambda: Pyramid(one, 0, pool=pool, budget=self._tile_bytes))


@dataclass(frozen=True)
class Damaged:
    """A file that should hold a capture, and why it cannot be opened."""

    id: str
    why: str


class Shelf:
    """Shipped captures first, then those in the folders, then those made since the start."""

    def __init__(self, folders: Folders, limits: Limits) -> None:
        self._folders = folders
        self._limits = limits
        self._open: Cache[Book] = Cache(limits.open_captures)
        self._facts: dict[tuple[Path, int, int], Any] = {}
        self._made: dict[str, Book] = {}
        self._pyramids: Cache[Pyramid] = Cache(limits.pyramids)
        self._lock = threading.Lock()

    def facts(self, read: Callable[[Book], Facts]) -> list[Facts | Damaged]:
        """`read` of every capture; somebody else's safetensors files are left out.

        Each file is read once and then only when it changes; nothing is kept open for it.
        """
        found = []
        for listed, origin in self._listed().values():
            key = _version(listed)
            if key not in self._facts:
                self._facts[key] = self._look(listed, origin, read)
            if self._facts[key] is not None:
                found.append(self._facts[key])
        return [*found, *(read(book) for book in self._made.values())]

    def book(self, name: str) -> Book:
        """The capture of that id."""
        if name in self._made:
            return self._made[name]
        found = self._listed().get(name)
        if found is None:
            raise NotFound(f"there is no capture {name!r}: /api/captures lists those that are here")
        return self._opened(*found)

    def add(self, name: str, capture: Capture) -> Book:
        """A capture made since the start, kept until newer ones push it out."""
        taken = self._listed()
        with self._lock:
            names = itertools.chain([name], (f"{name}-{n}" for n in itertools.count(2)))
            free = next(n for n in names if n not in taken and n not in self._made)
            book = self._made[free] = self._book(free, "made", capture)
            while len(self._made) > self._limits.made_captures:
                self._made.pop(next(iter(self._made)))
            return book

    def _look(
        self, listed: Listed, origin: Origin, read: Callable[[Book], Facts]
    ) -> Facts | Damaged | None:
        try:
            capture = Capture.open(check(listed, sys.maxsize), verify=False)
            check(listed, self._limits.file_bytes)  # now: how large a foreign file is matters not
        except (Foreign, NotFound):
            return None
        except LimelightError as error:
            where = f"{listed.path.resolve()}: "
            return Damaged(listed.id, str(error).removeprefix(where))
        return read(self._book(listed.id, origin, capture))

    def _listed(self) -> dict[str, tuple[Listed, Origin]]:
        found: dict[str, tuple[Listed, Origin]] = {}
        for name, path in shipped().items():
            seen = path.stat()
            listed = Listed(name, path, path.parent.resolve(), seen.st_size, seen.st_mtime_ns)
            found[name] = (listed, "shipped")
        for listed in self._folders.find(ENDING).values():
            found.setdefault(listed.id.removesuffix(ENDING), (listed, "folder"))
        return found

    def _opened(self, listed: Listed, origin: Origin) -> Book:
        def read() -> Book:
            # What is in memory outlives whatever is done to the file, also in the middle of a pass.
            mapped = listed.size > self._limits.read_bytes
            capture = Capture.open(check(listed, self._limits.file_bytes), mapped=mapped)
            return self._book(listed.id, origin, capture)

        return self._open.get(_version(listed), read)

    def _book(self, name: str, origin: Origin, capture: Capture) -> Book:
        share = self._limits.tile_bytes // self._limits.pyramids
        return Book(name.removesuffix(ENDING), origin, capture, self._pyramids, share)


def shipped() -> dict[str, Path]:
    """The captures inside the package, by name."""
    from limelight.captures import captures

    return {row.name: row.path for row in captures()}


def _version(listed: Listed) -> tuple[Path, int, int]:
    return listed.path, listed.size, listed.changed
