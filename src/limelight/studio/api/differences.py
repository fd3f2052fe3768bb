"""/api/captures/…/heads/{head}/against: one head and another beside it, of this capture or any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limelight.capture.comparison import Comparison
from limelight.looking.pyramid import SIDE
from limelight.studio.api.asked import Index, Name, OfHead, Part, Pixels, part
from limelight.studio.endpoint import Binary, Endpoint, MediaTypes
from limelight.studio.work import Cancel
from limelight.views import differences
from limelight.views.schema import DifferenceInfo

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

HERE = "/api/captures/{id}/sites/{site}/heads/{head}/against"


class OfTwo(OfHead, frozen=True, kw_only=True):
    other: Name
    other_site: Index
    other_head: Index
    other_batch: Index = 0


class OfChange(OfTwo, frozen=True, kw_only=True):
    rows: Part | None = None
    columns: Part | None = None
    height: Pixels = SIDE
    width: Pixels = SIDE


def against(studio: Studio, asked: OfTwo, cancel: Cancel) -> DifferenceInfo:
    return differences.facts(_two(studio, asked, cancel))


def against_tile(studio: Studio, asked: OfChange, cancel: Cancel) -> Binary:
    """height × width little-endian float32: second less first, −2 where neither may look."""
    found = _two(studio, asked, cancel)
    pair = found.pairs[0]
    rows = part(asked.rows, len(pair.queries), "rows")
    columns = part(asked.columns, len(pair.keys), "columns")
    shape = (min(asked.height, rows[1] - rows[0]), min(asked.width, columns[1] - columns[0]))
    made = differences.tile(found, rows, columns, shape, cancel.told)
    cells = ",".join(f"{start}:{stop}" for start, stop in (made.rows, made.columns))
    return Binary(made.to_bytes(), headers={"X-Cells": cells})


def _two(studio: Studio, asked: OfTwo, cancel: Cancel) -> Comparison:
    book = studio.shelf.book(asked.id)
    first = book.head(asked.site, asked.head, asked.batch, cancel)
    other = studio.shelf.book(asked.other)
    second = other.head(asked.other_site, asked.other_head, asked.other_batch, cancel)
    key = (asked.site, asked.head, asked.batch, other.number, asked.other_site, asked.other_head,
           asked.other_batch)  # fmt: skip
    return book.comparisons.get(key, lambda: differences.two(first, second))


ENDPOINTS = (
    Endpoint(HERE, against, OfTwo, DifferenceInfo,
             "Which positions of two heads' texts are one another's, and how much they differ.",
             lane="look"),
    Endpoint(f"{HERE}/tile", against_tile, OfChange, MediaTypes("application/octet-stream"),
             "A rectangle of the difference, pooled: height × width little-endian float32 from −1 "
             "to 1; −2 is hidden, NaN not a number.", lane="look"),
)  # fmt: skip
