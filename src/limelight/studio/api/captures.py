"""/api/captures: which captures there are, what is in one, how healthy its heads are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from limelight.arrays import jsonable
from limelight.capture.health import FIGURES
from limelight.pictures.png import encode
from limelight.report.facts import facts, health_of
from limelight.report.facts import summary as brief
from limelight.studio.answers import NotFound
from limelight.studio.api.asked import Index, OfCapture, OfEntry, OfSite
from limelight.studio.endpoint import Binary, Endpoint, MediaTypes, Nothing
from limelight.studio.measure import measure
from limelight.studio.shelf import Book, Damaged, Origin
from limelight.studio.work import Cancel

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

Numbers = list[float | None]


class CaptureSummary(msgspec.Struct, kw_only=True):
    id: str
    origin: Origin
    title: str
    model: str
    text: str
    layers: int
    heads: int
    tokens: int
    image: bool


class SiteInfo(msgspec.Struct, kw_only=True):
    index: int
    name: str
    layer: int
    kind: str
    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    head_size: int
    value_size: int
    scale: float | None
    softcap: float | None
    sinks: bool
    bias: bool
    mask: str


class CaptureInfo(CaptureSummary, kw_only=True):
    source: dict[str, Any]
    key_tokens: list[list[str]]
    query_tokens: list[list[str]]
    grid: list[int] | None
    grid_start: int
    sites: list[SiteInfo]


class SiteHealth(msgspec.Struct, kw_only=True):
    """One row of the grid: figure → one number a head."""

    site: int
    figures: dict[str, Numbers]
    verdicts: list[str]


class HealthTable(msgspec.Struct, kw_only=True):
    layers: list[int]
    heads: int
    figures: dict[str, list[Numbers]]
    verdicts: list[list[str]]


class OfSiteEntry(OfSite, frozen=True):
    batch: Index = 0


def captures(studio: Studio, _: Nothing, __: Cancel) -> list[CaptureSummary]:
    return [found for found in studio.shelf.facts(summary) if not isinstance(found, Damaged)]


def damaged(studio: Studio, _: Nothing, __: Cancel) -> list[Damaged]:
    return [found for found in studio.shelf.facts(summary) if isinstance(found, Damaged)]


def capture(studio: Studio, asked: OfCapture, _: Cancel) -> CaptureInfo:
    book = studio.shelf.book(asked.id)
    return msgspec.convert({**facts(book.capture), **_named(book)}, CaptureInfo)


def health(studio: Studio, asked: OfEntry, cancel: Cancel) -> HealthTable:
    """Every site's figures, one site after the other."""
    book = studio.shelf.book(asked.id)
    rows = [_health(book, index, asked.batch, cancel) for index in range(len(book.capture.sites))]
    return HealthTable(
        layers=[site.layer for site in book.capture.sites],
        heads=max((site.heads for site in book.capture.sites), default=0),
        figures={name: [row.figures[name] for row in rows] for name in FIGURES},
        verdicts=[row.verdicts for row in rows],
    )


def site_health(studio: Studio, asked: OfSiteEntry, cancel: Cancel) -> SiteHealth:
    return _health(studio.shelf.book(asked.id), asked.site, asked.batch, cancel)


def image(studio: Studio, asked: OfEntry, _: Cancel) -> Binary:
    """The picture a vision model saw, as PNG."""
    held = studio.shelf.book(asked.id).capture
    if held.image is None or not 0 <= asked.batch < len(held.image):
        raise NotFound(f"{asked.id} has no picture {asked.batch}")
    return Binary(encode(held.image[asked.batch]), "image/png")


def summary(book: Book) -> CaptureSummary:
    return msgspec.convert({**brief(book.capture), **_named(book)}, CaptureSummary)


def _named(book: Book) -> dict[str, str]:
    title = brief(book.capture)["title"] or book.id.replace(":", " / ")
    return {"id": book.id, "origin": book.origin, "title": title}


def _health(book: Book, index: int, batch: int, cancel: Cancel) -> SiteHealth:
    site = book.site(index)
    entries = book.capture.entries
    if batch >= entries:
        raise NotFound(f"there is no batch entry {batch} in {book.id}: there are {entries}")

    def summed() -> SiteHealth:
        seen = health_of(measure(site, cancel), batch)
        figures = {name: jsonable(getattr(seen, name)) for name in FIGURES}
        return SiteHealth(site=index, figures=figures, verdicts=seen.verdict.tolist())

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
    Endpoint("/api/captures/{id}/image", image, OfEntry, MediaTypes("image/png"),
             "The picture a vision model saw."),
)  # fmt: skip
