"""/api/captures/…/heads/{head}: one head, from a map of any size to a single cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from limelight.capture import Site
from limelight.looking.pyramid import SIDE
from limelight.studio.api.asked import Few, Index, OfHead, Part, Pixels, part
from limelight.studio.endpoint import Binary, Endpoint, MediaTypes
from limelight.studio.work import Cancel
from limelight.views import looks, tiles
from limelight.views.schema import CellData, HeadRows, LinesData, Lit, Pool, Side, StripData

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

HERE = "/api/captures/{id}/sites/{site}/heads/{head}"


class OfCell(OfHead, frozen=True, kw_only=True):
    row: Index
    column: Index


class OfTile(OfHead, frozen=True, kw_only=True):
    rows: Part | None = None
    columns: Part | None = None
    height: Pixels = SIDE
    width: Pixels = SIDE
    pool: Pool = "max"
    lit: Lit = "weight"


class OfStrip(OfHead, frozen=True, kw_only=True):
    side: Side
    index: Index
    top: Few = 8


class OfLines(OfHead, frozen=True, kw_only=True):
    rows: Part
    k: Few = 4
    least: Annotated[float, msgspec.Meta(ge=0, le=1)] = looks.LEAST


def head_rows(studio: Studio, asked: OfHead, _: Cancel) -> HeadRows:
    book = studio.shelf.book(asked.id)
    one = book.place(asked.site, asked.head, asked.batch).one(asked.head, asked.batch)
    return looks.head_rows(one)


def cell(studio: Studio, asked: OfCell, _: Cancel) -> CellData:
    book = studio.shelf.book(asked.id)
    one = book.place(asked.site, asked.head, asked.batch).one(asked.head, asked.batch)
    return looks.cell(one, asked.row, asked.column, asked.head, asked.batch)


def tile(studio: Studio, asked: OfTile, cancel: Cancel) -> Binary:
    """height × width little-endian float32, coded as in limelight/views/tiles.py.

    A rectangle that is a tile of the pyramid comes from there: kept, and called off with its page.
    The header X-Cells says which cells the bins share out evenly.
    """
    book = studio.shelf.book(asked.id)
    one = book.head(asked.site, asked.head, asked.batch, cancel, asked.lit)
    rows = part(asked.rows, one.queries, "rows")
    columns = part(asked.columns, one.keys, "columns")
    shape = (asked.height, asked.width)
    cancel.check()
    address = tiles.address(one, rows, columns, shape)
    if address is None:
        made = tiles.tile(one, rows, columns, shape, asked.pool, cancel.told)
    else:
        pyramid = book.pyramid(asked.site, asked.head, asked.batch, asked.pool, cancel, asked.lit)
        made = tiles.of_pyramid(pyramid, address, cancel)
    cells = ",".join(f"{start}:{stop}" for start, stop in (made.rows, made.columns))
    return Binary(made.to_bytes(), headers={"X-Cells": cells})


def strip(studio: Studio, asked: OfStrip, cancel: Cancel) -> StripData:
    return looks.strip(_head(studio, asked, cancel), asked.side, asked.index, asked.top)


def lines(studio: Studio, asked: OfLines, cancel: Cancel) -> LinesData:
    site = _head(studio, asked, cancel)
    start, stop = part(asked.rows, site.queries, "rows")
    return looks.lines(site, start, stop, asked.k, asked.least)


def _head(studio: Studio, asked: OfHead, cancel: Cancel) -> Site:
    return studio.shelf.book(asked.id).head(asked.site, asked.head, asked.batch, cancel)


ENDPOINTS = (
    Endpoint(f"{HERE}/rows", head_rows, OfHead, HeadRows, "A head's vectors, up to 256 tokens."),
    Endpoint(HERE + "/cells/{row}/{column}", cell, OfCell, CellData, "One weight, computed."),
    Endpoint(f"{HERE}/tile", tile, OfTile, MediaTypes("application/octet-stream"),
             "A rectangle of the weights, pooled: height × width little-endian float32; −1 is "
             "hidden, NaN not a number.",
             lane="look"),
    Endpoint(f"{HERE}/strip", strip, OfStrip, StripData, "One row or one column of the weights.",
             lane="look"),
    Endpoint(f"{HERE}/lines", lines, OfLines, LinesData, "The strongest keys of each row.",
             lane="look"),
)  # fmt: skip
