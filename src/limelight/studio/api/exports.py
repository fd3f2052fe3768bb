"""What can be taken away: a head's map as PNG or SVG, a whole capture as a report.

All of it goes out as an attachment: nothing made from a capture is ever shown as a page of ours.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from limelight.pictures import heatmap as draw
from limelight.report import report
from limelight.studio.api.asked import Index, OfCapture, OfHead, Part, Pixels, part
from limelight.studio.endpoint import Binary, Endpoint, MediaTypes
from limelight.studio.measure import measure
from limelight.studio.work import Cancel
from limelight.views.facts import numbers
from limelight.views.schema import Pool

if TYPE_CHECKING:
    from limelight.studio.studio import Studio

SIDE = 512  # bins of a picture's longer side, where there are more cells
KINDS = {"png": "image/png", "svg": "image/svg+xml"}


class OfPicture(OfHead, frozen=True, kw_only=True):
    format: Literal["png", "svg"]
    rows: Part | None = None
    columns: Part | None = None
    side: Pixels = SIDE
    pool: Pool = "max"
    theme: Literal["light", "dark"] = "light"
    high: Annotated[float, msgspec.Meta(ge=1e-6, le=1)] | None = None  # the lit end


class OfReport(OfCapture, frozen=True, kw_only=True):
    batch: Index = 0
    budget: Annotated[int, msgspec.Meta(ge=1, le=200)] = 10  # megabytes
    precision: Literal["float16", "float32"] = "float16"


def picture(studio: Studio, asked: OfPicture, cancel: Cancel) -> Binary:
    book = studio.shelf.book(asked.id)
    site = book.head(asked.site, asked.head, asked.batch, cancel)
    rows = part(asked.rows, site.queries, "rows")
    columns = part(asked.columns, site.keys, "columns")
    shape = (min(asked.side, rows[1] - rows[0]), min(asked.side, columns[1] - columns[0]))
    cancel.check()
    seen = site.heatmap(shape, asked.pool, rows, columns, head=0, progress=cancel.told)
    layer, head = numbers(book.capture, asked.site, asked.head)
    drawn = draw(
        seen, tokens=site.labels("key"), query_tokens=site.labels("query"), theme=asked.theme,
        high=asked.high, title=f"{asked.id}, layer {layer}, head {head}",
    )  # fmt: skip
    cancel.check()
    data = drawn.png() if asked.format == "png" else drawn.svg().encode()
    name = f"{asked.id}-{layer}-{head}.{asked.format}"
    return Binary(data, KINDS[asked.format], attachment(name))


def capture_report(studio: Studio, asked: OfReport, cancel: Cancel) -> Binary:
    held = studio.shelf.book(asked.id).capture
    for site in held.sites:
        measure(site, cancel)
    made = report(held, budget=asked.budget * 1_000_000, precision=asked.precision,
                  batch=asked.batch, progress=cancel.told)  # fmt: skip
    return Binary(made.html.encode(), "text/html; charset=utf-8", attachment(f"{asked.id}.html"))


def attachment(name: str) -> dict[str, str]:
    """The header that makes it a file of a harmless name."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "file"
    return {"Content-Disposition": f'attachment; filename="limelight-{plain}"'}


ENDPOINTS = (
    Endpoint("/api/captures/{id}/sites/{site}/heads/{head}/picture", picture, OfPicture,
             MediaTypes("image/png", "image/svg+xml"), "A head's map as a PNG or SVG file.",
             lane="look"),
    Endpoint("/api/captures/{id}/report", capture_report, OfReport, MediaTypes("text/html"),
             "The capture as one self-contained HTML file.", lane="heavy"),
)  # fmt: skip
