"""/api/captures: which captures there are, what is in one, how healthy its heads are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from limelight.capture import Site
from limelight.errors import ArgumentError
from limelight.heads import Heads, Sighting, search
from limelight.studio.answers import NotFound
from limelight.studio.api.asked import Index, OfCapture, OfEntry, OfSite
from limelight.studio.endpoint import Binary, Endpoint, MediaTypes, Nothing
from limelight.studio.measure import measure
from limelight.studio.shelf import Book, Damaged
from limelight.studio.work import Cancel
from limelight.views import facts, looks
from limelight.views.order import findings
from limelight.views.schema import (
    CaptureInfo,
    CaptureSummary,
    Finding,
    HealthTable,
    KindScores,
    Side,
    SiteHealth,
)
from limelight.writing.png import encode

if TYPE_CHECKING:
    from limelight.studio.studio import Studio


class OfSiteEntry(OfSite, frozen=True):
    batch: Index = 0


class OfSightings(OfEntry, frozen=True, kw_only=True):
    row: Index
    column: Index


class OfLight(OfEntry, frozen=True, kw_only=True):
    side: Side
    index: Index
    site: Index | None = None
    head: Index | None = None
    rollout: bool = False


def captures(studio: Studio, _: Nothing, cancel: Cancel) -> list[CaptureSummary]:
    return [
        found for found in studio.shelf.facts(summary, cancel) if not isinstance(found, Damaged)
    ]


def damaged(studio: Studio, _: Nothing, cancel: Cancel) -> list[Damaged]:
    return [found for found in studio.shelf.facts(summary, cancel) if isinstance(found, Damaged)]


def capture(studio: Studio, asked: OfCapture, _: Cancel) -> CaptureInfo:
    book = studio.shelf.book(asked.id)
    return facts.facts(book.capture, book.id, book.origin)


def health(studio: Studio, asked: OfEntry, cancel: Cancel) -> HealthTable:
    """Every site's figures, one site after the other."""
    book = studio.shelf.book(asked.id)
    rows = [_health(book, index, asked.batch, cancel) for index in range(len(book.capture.sites))]
    return facts.health_table(book.capture, rows)


def site_health(studio: Studio, asked: OfSiteEntry, cancel: Cancel) -> SiteHealth:
    return _health(studio.shelf.book(asked.id), asked.site, asked.batch, cancel)


def capture_findings(studio: Studio, asked: OfEntry, cancel: Cancel) -> list[Finding]:
    """What to look at first, first: every head with its kinds and a sentence."""
    book = studio.shelf.book(asked.id)

    def find() -> list[Finding]:
        found = _kinds(book, asked.batch, cancel)
        health = [facts.health_of(site, asked.batch) for site in book.capture.sites]
        return findings(book.capture, health, found, asked.batch)

    return book.findings.get(asked.batch, find)


def capture_kinds(studio: Studio, asked: OfEntry, cancel: Cancel) -> list[KindScores]:
    """Every head's score for each kind; none where the sites have not all that entry."""
    return facts.kind_tables(_kinds(studio.shelf.book(asked.id), asked.batch, cancel))


def sightings(studio: Studio, asked: OfSightings, cancel: Cancel) -> list[Sighting]:
    """Every head with a weight at that cell, the strongest first."""
    capture = studio.shelf.book(asked.id).capture
    return search(capture, query=asked.row, key=asked.column, batch=asked.batch,
                  progress=cancel.told)  # fmt: skip


def light(studio: Studio, asked: OfLight, cancel: Cancel) -> Binary:
    """Little-endian float32, coded as in limelight/views/tiles.py: one a key, or one a query.

    The mean over the heads of a site where no head is named, over all where no site is; or a row
    followed through all layers.
    """
    book = studio.shelf.book(asked.id)
    if asked.rollout:
        if asked.side == "column" or asked.site is not None or asked.head is not None:
            raise ArgumentError("rollout=true follows a row through all layers: ask for side=row "
                                "and name neither site nor head")  # fmt: skip
        places = [book.place(index, 0, asked.batch) for index in range(len(book.capture.sites))]
        rolled = looks.rollout([site.entry(asked.batch) for site in places], asked.index)
        return Binary(rolled.astype("<f4").tobytes())
    if asked.site is not None and asked.head is not None:
        places = [book.head(asked.site, asked.head, asked.batch, cancel)]
    elif asked.head is not None:
        raise ArgumentError(f"head={asked.head} is a head of a site: name the site too")
    else:
        count = len(book.capture.sites)
        wanted = range(count) if asked.site is None else [asked.site]
        places = [book.place(index, 0, asked.batch) for index in wanted]

    def ready() -> Iterator[Site]:
        for site in places:
            cancel.check()
            if asked.side == "column":  # a column needs every row's sum
                measure(site, cancel)
            yield site.entry(asked.batch if site.batch > 1 else 0)

    return Binary(looks.light(ready(), asked.side, asked.index).astype("<f4").tobytes())


def image(studio: Studio, asked: OfEntry, _: Cancel) -> Binary:
    """The picture a vision model saw, as PNG."""
    held = studio.shelf.book(asked.id).capture
    if held.image is None or not 0 <= asked.batch < len(held.image):
        raise NotFound(f"{asked.id} has no picture {asked.batch}")
    return Binary(encode(held.image[asked.batch]), "image/png")


def summary(book: Book) -> CaptureSummary:
    return facts.summary(book.capture, book.id, book.origin)


def _kinds(book: Book, batch: int, cancel: Cancel) -> Heads | None:
    def find() -> Heads | None:
        for site in book.capture.sites:
            measure(site, cancel)
        return facts.kinds(book.capture, batch, cancel.told)

    return book.kinds.get(batch, find)


def _health(book: Book, index: int, batch: int, cancel: Cancel) -> SiteHealth:
    site = book.site(index)
    entries = book.capture.entries
    if batch >= entries:
        raise NotFound(f"there is no batch entry {batch} in {book.id}: there are {entries}")

    def summed() -> SiteHealth:
        return facts.site_health(index, facts.health_of(measure(site, cancel), batch))

    found: SiteHealth = book.health.get((index, batch), summed)
    return found


ENDPOINTS = (
    Endpoint("/api/captures", captures, Nothing, list[CaptureSummary], "The captures there are."),
    Endpoint("/api/damaged", damaged, Nothing, list[Damaged],
             "Files in the folders that should hold a capture and cannot be opened."),
    Endpoint("/api/captures/{id}", capture, OfCapture, CaptureInfo, "What is in one capture."),
    Endpoint("/api/captures/{id}/health", health, OfEntry, HealthTable,
             "Health figures of every head of one batch entry, layers down.", lane="heavy"),
    Endpoint("/api/captures/{id}/sites/{site}/health", site_health, OfSiteEntry, SiteHealth,
             "Health figures of one site's heads, of one batch entry.", lane="heavy"),
    Endpoint("/api/captures/{id}/findings", capture_findings, OfEntry, list[Finding],
             "What was found of every head, what to look at first first.", lane="heavy"),
    Endpoint("/api/captures/{id}/kinds", capture_kinds, OfEntry, list[KindScores],
             "Every head's score for each known kind.", lane="heavy"),
    Endpoint("/api/captures/{id}/sightings", sightings, OfSightings, list[Sighting],
             "Which heads look from a query to a key, the strongest first.", lane="look"),
    Endpoint("/api/captures/{id}/light", light, OfLight, MediaTypes("application/octet-stream"),
             "What a query looks at, or who looks at a key: of a head, or the mean over a site's "
             "heads, or over all; little-endian float32, −1 hidden, NaN not a number.",
             lane="look"),
    Endpoint("/api/captures/{id}/image", image, OfEntry, MediaTypes("image/png"),
             "The picture a vision model saw."),
)  # fmt: skip
