"""/api/captures: which captures there are, what is in one, how healthy its heads are."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from limelight.arrays import jsonable
from limelight.capture import Capture, Site
from limelight.health import Summary
from limelight.studio.answers import NotFound
from limelight.studio.api.asked import Index, OfCapture, OfSite
from limelight.studio.endpoint import Binary, Endpoint, Nothing
from limelight.studio.shelf import Book, Origin
from limelight.studio.work import Cancel

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

Numbers = list[float | None]
FIGURES = tuple(field.name for field in fields(Summary) if field.name != "rows")


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
    grid: tuple[int, int] | None
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


class OfPicture(OfCapture, frozen=True):
    batch: Index = 0


def captures(studio: Studio, _: Nothing, __: Cancel) -> list[CaptureSummary]:
    return studio.shelf.facts(summary)


def capture(studio: Studio, asked: OfCapture, _: Cancel) -> CaptureInfo:
    book = studio.shelf.book(asked.id)
    held = book.capture
    grid = held.grid
    return CaptureInfo(
        **msgspec.structs.asdict(summary(book)),
        source=held.source,
        key_tokens=_labels(held, "key"),
        query_tokens=_labels(held, "query"),
        grid=None if grid is None else (grid.rows, grid.columns),
        grid_start=0 if grid is None else grid.start,
        sites=[_site(index, site) for index, site in enumerate(held.sites)],
    )


def health(studio: Studio, asked: OfCapture, cancel: Cancel) -> HealthTable:
    """Every site's figures; one site after the other, so that it can be stopped between them."""
    book = studio.shelf.book(asked.id)
    rows = []
    for index in range(len(book.capture.sites)):
        cancel.check()
        rows.append(_health(book, index))
    return HealthTable(
        layers=[site.layer for site in book.capture.sites],
        heads=max((site.heads for site in book.capture.sites), default=0),
        figures={name: [row.figures[name] for row in rows] for name in FIGURES},
        verdicts=[row.verdicts for row in rows],
    )


def site_health(studio: Studio, asked: OfSite, _: Cancel) -> SiteHealth:
    book = studio.shelf.book(asked.id)
    book.site(asked.site)
    return _health(book, asked.site)


def image(studio: Studio, asked: OfPicture, _: Cancel) -> Binary:
    """The picture a vision model saw, as PNG."""
    held = studio.shelf.book(asked.id).capture
    if held.image is None or not 0 <= asked.batch < len(held.image):
        raise NotFound(f"{asked.id} has no picture {asked.batch}")
    return Binary(png(held.image[asked.batch]), "image/png")


def summary(book: Book) -> CaptureSummary:
    held = book.capture
    text = _text(held.source.get("text"))
    model = _text(held.source.get("model"))
    return CaptureSummary(
        id=book.id,
        origin=book.origin,
        title=_text(held.source.get("title")) or book.id.replace(":", " / "),
        model=model,
        text=text if len(text) <= 400 else f"{text[:399]}…",
        layers=len({site.layer for site in held.sites}),
        heads=max((site.heads for site in held.sites), default=0),
        tokens=max((max(site.keys, site.queries) for site in held.sites), default=0),
        image=held.image is not None,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _labels(held: Capture, side: str) -> list[list[str]]:
    """The texts of the longest site, or the capture's own: sites of a model mostly share them."""
    own = held.query_tokens if side == "query" and held.query_tokens else held.tokens
    if own or not held.sites:
        return [list(entry) for entry in own]
    site = max(held.sites, key=lambda site: site.keys)
    return [list(site.labels(side, batch)) for batch in range(site.batch)]


def _site(index: int, site: Site) -> SiteInfo:
    return SiteInfo(
        index=index, name=site.name, layer=site.layer, kind=site.kind, batch=site.batch,
        heads=site.heads, key_heads=site.key_heads, queries=site.queries, keys=site.keys,
        head_size=site.query.shape[3], value_size=0 if site.value is None else site.value.shape[3],
        scale=site.scale, softcap=site.softcap, sinks=site.sinks is not None,
        bias=site.bias is not None,
        mask="everything" if site.mask is None else site.mask.expression,
    )  # fmt: skip


def _health(book: Book, index: int) -> SiteHealth:
    def measure() -> SiteHealth:
        seen = book.site(index).health().summary()
        figures = {name: jsonable(getattr(seen, name)) for name in FIGURES}
        return SiteHealth(site=index, figures=figures, verdicts=seen.verdict.tolist())

    return book.keep(("health", index), measure)


def png(pixels: Any) -> bytes:
    """uint8 [height, width, 3] as a PNG file."""
    import struct
    import zlib

    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))  # fmt: skip

    out = io.BytesIO(b"\x89PNG\r\n\x1a\n")
    out.seek(0, io.SEEK_END)
    out.write(chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)))
    out.write(chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)))
    out.write(chunk(b"IEND", b""))
    return out.getvalue()


ENDPOINTS = (
    Endpoint("/api/captures", captures, Nothing, list[CaptureSummary], "The captures there are."),
    Endpoint("/api/captures/{id}", capture, OfCapture, CaptureInfo, "What is in one capture."),
    Endpoint("/api/captures/{id}/health", health, OfCapture, HealthTable,
             "Health figures of every head, layers down.", lane="heavy"),
    Endpoint("/api/captures/{id}/sites/{site}/health", site_health, OfSite, SiteHealth,
             "Health figures of one site's heads.", lane="heavy"),
    Endpoint("/api/captures/{id}/image", image, OfPicture, "image/png",
             "The picture a vision model saw."),
)  # fmt: skip
