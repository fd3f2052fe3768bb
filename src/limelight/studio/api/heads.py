"""/api/captures/…/heads/{head}: one head, from a map of any size to a single cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np

from limelight.arrays import jsonable
from limelight.capture import Site
from limelight.errors import ArgumentError
from limelight.report import looks
from limelight.studio.api.asked import Few, Index, OfHead, Part, Pixels, Pool, part
from limelight.studio.endpoint import Binary, Endpoint, MediaTypes
from limelight.studio.work import Cancel

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

READABLE = 256  # tokens whose vectors are sent whole
SIDE = 256  # bins a side of a pyramid's tile
Numbers = list[float | None]
HERE = "/api/captures/{id}/sites/{site}/heads/{head}"


class HeadRows(msgspec.Struct, kw_only=True):
    query: list[Numbers]
    key: list[Numbers]
    value: list[Numbers] | None
    scale: float | None
    softcap: float | None
    sink: float | None
    mask: list[list[bool]] | None
    query_tokens: list[str]
    key_tokens: list[str]


class CellData(msgspec.Struct, kw_only=True):
    row: int
    column: int
    head: int
    batch: int
    query_token: str
    key_token: str
    query: Numbers
    key: Numbers
    products: Numbers
    raw: float | None
    scale: float | None
    scaled: float | None
    softcap: float | None
    capped: float | None
    bias: float | None
    biased: float | None
    allowed: bool
    logit: float | None
    row_max: float | None
    exponential: float | None
    row_sum: float | None
    weight: float | None
    value: Numbers | None
    contribution: Numbers | None


class Top(msgspec.Struct):
    index: int
    token: str
    weight: float | None


class Strip(msgspec.Struct, kw_only=True):
    """One row (a query over its keys) or one column (a key under its queries) of the weights."""

    side: str
    index: int
    token: str
    length: int
    values: Numbers  # pooled by maximum where the length is larger; null where nothing is allowed
    top: list[Top]
    total: float | None  # 1 for a row (less what a sink takes); for a column what the key receives


class Lines(msgspec.Struct, kw_only=True):
    """The strongest keys of each row: three lists of equal length."""

    rows: list[int]
    columns: list[int]
    weights: Numbers


class OfCell(OfHead, frozen=True, kw_only=True):
    row: Index
    column: Index


class OfTile(OfHead, frozen=True, kw_only=True):
    rows: Part | None = None
    columns: Part | None = None
    height: Pixels = 256
    width: Pixels = 256
    pool: Pool = "max"


class OfStrip(OfHead, frozen=True, kw_only=True):
    side: Literal["row", "column"]
    index: Index
    top: Few = 8


class OfLines(OfHead, frozen=True, kw_only=True):
    rows: Part
    k: Few = 4
    least: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.02


def head_rows(studio: Studio, asked: OfHead, _: Cancel) -> HeadRows:
    book = studio.shelf.book(asked.id)
    site = book.place(asked.site, asked.head, asked.batch).one(asked.head, asked.batch)
    if max(site.queries, site.keys) > READABLE:
        raise ArgumentError(
            f"{site.queries:,} × {site.keys:,} tokens: the vectors of a head are sent for up to "
            f"{READABLE}; longer ones are looked at by tile and cell"
        )
    allowed = None
    if site.mask is not None:
        shape = (1, 1, site.queries, site.keys)
        allowed = np.broadcast_to(site.mask.dense(*shape[2:]), shape)[0, 0]
    return HeadRows(
        query=jsonable(site.query[0, 0]),
        key=jsonable(site.key[0, 0]),
        value=None if site.value is None else jsonable(site.value[0, 0]),
        scale=site.scale,
        softcap=site.softcap,
        sink=None if site.sinks is None else float(site.sinks[0]),
        mask=None if allowed is None else allowed.tolist(),
        query_tokens=list(site.labels("query")),
        key_tokens=list(site.labels("key")),
    )


def cell(studio: Studio, asked: OfCell, _: Cancel) -> CellData:
    book = studio.shelf.book(asked.id)
    one = book.place(asked.site, asked.head, asked.batch).one(asked.head, asked.batch)
    found = looks.cell(one, asked.row, asked.column)
    return CellData(**{**found, "head": asked.head, "batch": asked.batch})


def tile(studio: Studio, asked: OfTile, cancel: Cancel) -> Binary:
    """height × width little-endian float32, NaN where no cell is allowed.

    A rectangle that is a tile of the pyramid comes from there: kept, and called off with its page.
    """
    book = studio.shelf.book(asked.id)
    site = book.head(asked.site, asked.head, asked.batch, cancel)
    rows = part(asked.rows, site.queries, "rows")
    columns = part(asked.columns, site.keys, "columns")
    shape = (asked.height, asked.width)
    cancel.check()
    address = _address(site, rows, columns, shape)
    if address is None:
        values = site.heatmap(shape, asked.pool, rows, columns).values
    else:
        pyramid = book.pyramid(asked.site, asked.head, asked.batch, asked.pool, cancel)
        values = pyramid.tile(*address, cancel)
    data = np.ascontiguousarray(values, "<f4").tobytes()
    return Binary(data, headers={"X-Shape": f"{asked.height},{asked.width}"})


def _address(
    site: Site, rows: tuple[int, int], columns: tuple[int, int], shape: tuple[int, int]
) -> tuple[int, int, int] | None:
    """The level, row and column of the pyramid's tile that is this rectangle, if one is."""
    spans = (rows, site.queries, shape[0]), (columns, site.keys, shape[1])
    longest = max(-(-(span[1] - span[0]) // bins) for span, _, bins in spans)
    level = (longest - 1).bit_length()
    step = SIDE << level
    for (start, stop), there, bins in spans:
        whole = start % step == 0 and stop == min(start + step, there)
        if not whole or bins != -(-(stop - start) >> level):
            return None
    return level, rows[0] // step, columns[0] // step


def strip(studio: Studio, asked: OfStrip, cancel: Cancel) -> Strip:
    found = looks.strip(_head(studio, asked, cancel), asked.side, asked.index, asked.top)
    return msgspec.convert(found, Strip)


def lines(studio: Studio, asked: OfLines, cancel: Cancel) -> Lines:
    site = _head(studio, asked, cancel)
    start, stop = part(asked.rows, site.queries, "rows")
    return msgspec.convert(looks.lines(site, start, stop, asked.k, asked.least), Lines)


def _head(studio: Studio, asked: OfHead, cancel: Cancel) -> Site:
    return studio.shelf.book(asked.id).head(asked.site, asked.head, asked.batch, cancel)


ENDPOINTS = (
    Endpoint(f"{HERE}/rows", head_rows, OfHead, HeadRows, "A head's vectors, up to 256 tokens."),
    Endpoint(HERE + "/cells/{row}/{column}", cell, OfCell, CellData, "One weight, computed."),
    Endpoint(f"{HERE}/tile", tile, OfTile, MediaTypes("application/octet-stream"),
             "A rectangle of the weights, pooled: height × width little-endian float32.",
             lane="look"),
    Endpoint(f"{HERE}/strip", strip, OfStrip, Strip, "One row or one column of the weights.",
             lane="look"),
    Endpoint(f"{HERE}/lines", lines, OfLines, Lines, "The strongest keys of each row.",
             lane="look"),
)  # fmt: skip
