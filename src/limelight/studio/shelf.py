"""Shelf: the captures a studio offers, opened when looked at and closed when long unused."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from limelight.capture import Capture, Site
from limelight.capture.comparison import Comparison
from limelight.capture.file import load
from limelight.capture.tensors import Foreign
from limelight.errors import FileError, LimelightError
from limelight.heads import Heads
from limelight.looking.pyramid import Pyramid
from limelight.studio.answers import NotFound
from limelight.studio.cache import Cache
from limelight.studio.folders import MOST_FILES, Folders, Listed, check, listing, opened
from limelight.studio.limits import Limits
from limelight.studio.measure import measure
from limelight.studio.work import Cancel
from limelight.survey import Survey
from limelight.survey.file import is_survey
from limelight.views.schema import Finding, Lit

ENDING = ".safetensors"
HEADS_KEPT = 128
LIVE_KEPT = 16  # captures of a live model, the last ones
PAIRS_KEPT = 16  # of heads beside one another
SURVEYS_KEPT = 8
ENTRIES_KEPT = 4  # of a batch, whose health and findings are at hand
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
        self.findings: Cache[list[Finding]] = Cache(ENTRIES_KEPT)
        self.kinds: Cache[Heads | None] = Cache(ENTRIES_KEPT)
        self.comparisons: Cache[Comparison] = Cache(PAIRS_KEPT)
        self._heads: Cache[Site] = Cache(HEADS_KEPT)
        self.bytes = 0  # of the file it was read from
        self.number = next(_NUMBERS)  # an id() may come again, and then with another's tiles
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

    def head(self, index: int, head: int, batch: int, cancel: Cancel, lit: Lit = "weight") -> Site:
        """One head of one batch entry as a site of its own, its row statistics at hand.

        lit="value" shows what each weight brings, w · ‖v·W_O‖ or, where W_O is not known, w · ‖v‖.
        """
        site = self.place(index, head, batch)
        if lit == "value":
            one = self.head(index, head, batch, cancel)
            return self._heads.get((index, head, batch, lit), one.by_value)
        key = (index, head, batch)
        return self._heads.get(key, lambda: measure(site.one(head, batch), cancel))

    def pyramid(
        self, index: int, head: int, batch: int, pool: str, cancel: Cancel, lit: Lit = "weight"
    ) -> Pyramid:
        """The tiles of one head."""
        one = self.head(index, head, batch, cancel, lit)
        key = (self.number, index, head, batch, pool, lit)
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
        self._open: Cache[Book] = Cache(
            limits.open_captures, limits.open_bytes, lambda book: book.bytes
        )
        self._facts: Cache[Any] = Cache(2 * MOST_FILES)
        self._surveys: Cache[Survey] = Cache(SURVEYS_KEPT)
        self._made: dict[str, Book] = {}
        self._live: dict[str, Book] = {}
        self._pyramids: Cache[Pyramid] = Cache(limits.pyramids)
        self._lock = threading.Lock()

    def facts(
        self, read: Callable[[Book], Facts], cancel: Cancel | None = None
    ) -> list[Facts | Damaged]:
        """`read` of every capture; somebody else's safetensors files are left out.

        Each file is read once and then only when it changes; nothing is kept open for it.
        """
        found = []
        for listed, origin in self._listed().values():
            if cancel is not None:
                cancel.check()
            key = (listed.path, *listed.version)
            fact = self._facts.get(key, partial(self._look, listed, origin, read))
            if fact is not None:
                found.append(fact)
        return [*found, *(read(book) for book in list(self._made.values()))]

    def book(self, name: str) -> Book:
        """The capture of that id."""
        made = self._made.get(name) or self._live.get(name)
        if made is not None:
            return made
        found = self._listed().get(name)
        if found is None:
            raise NotFound(f"there is no capture {name!r}: /api/captures lists those that are here")
        if self._is_survey(found[0]):
            raise NotFound(f"{name!r} is a survey, of many texts: /api/surveys/{name} has it")
        return self._opened(*found)

    def surveys(self, cancel: Cancel | None = None) -> list[tuple[str, Survey]]:
        """The surveys in the folders, by id; a file that is none is left out."""
        found = []
        for name, (listed, origin) in self._listed().items():
            if cancel is not None:
                cancel.check()
            if origin == "folder" and self._is_survey(listed):
                with suppress(LimelightError):
                    found.append((name, self.survey(name)))
        return found

    def survey(self, name: str) -> Survey:
        """The survey of that id."""
        listed = self._listed().get(name, (None, "folder"))[0]
        if listed is None or not self._is_survey(listed):
            raise NotFound(f"there is no survey {name!r}: /api/surveys lists those that are here")
        check(listed, self._limits.file_bytes)
        try:
            return self._surveys.get(
                (listed.path, *listed.version), partial(Survey.open, listed.path)
            )
        except FileError as error:
            raise FileError(str(error).removeprefix(f"{listed.path}: ")) from None

    def _is_survey(self, listed: Listed) -> bool:
        key = ("survey", listed.path, *listed.version)
        return bool(self._facts.get(key, partial(is_survey, listed.path)))

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

    def show(self, name: str, capture: Capture) -> Book:
        """A capture that changes with every key that is typed: not listed, and few are kept."""
        with self._lock:
            book = self._live.pop(name, None) or self._book(name, "made", capture)
            self._live[name] = book
            while len(self._live) > LIVE_KEPT:
                self._live.pop(next(iter(self._live)))
            return book

    def _look(
        self, listed: Listed, origin: Origin, read: Callable[[Book], Facts]
    ) -> Facts | Damaged | None:
        try:
            with opened(listed, sys.maxsize) as file:
                capture = load(listed.path, file=file, numbers=False)
            check(listed, self._limits.file_bytes)  # now: how large a foreign file is matters not
            return read(self._book(listed.id, origin, capture))
        except (Foreign, NotFound):
            return None
        except LimelightError as error:
            return Damaged(listed.id, str(error).removeprefix(f"{listed.path}: "))
        except Exception as error:  # one bad file is one entry, never a failed list
            return Damaged(listed.id, f"it cannot be shown ({type(error).__name__})")

    def _listed(self) -> dict[str, tuple[Listed, Origin]]:
        found: dict[str, tuple[Listed, Origin]] = {}
        for name, path in shipped().items():
            found[name] = (listing(name, path, path.parent.resolve(), path.stat()), "shipped")
        for listed in self._folders.find(ENDING).values():
            found.setdefault(listed.id.removesuffix(ENDING), (listed, "folder"))
        return found

    def _opened(self, listed: Listed, origin: Origin) -> Book:
        def read() -> Book:
            # What is in memory outlives whatever is done to the file, also in the middle of a pass.
            with opened(listed, self._limits.file_bytes) as file:
                book = self._book(listed.id, origin, load(listed.path, file=file))
            book.bytes = listed.size
            return book

        return self._open.get((listed.path, *listed.version), read)

    def _book(self, name: str, origin: Origin, capture: Capture) -> Book:
        share = self._limits.tile_bytes // self._limits.pyramids
        return Book(name.removesuffix(ENDING), origin, capture, self._pyramids, share)


def shipped() -> dict[str, Path]:
    """The captures inside the package, by name."""
    from limelight.capture.shipped import captures

    return {row.name: row.path for row in captures()}
