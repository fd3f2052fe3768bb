"""/api/captures/{id}/kinds: heads that are known to be of some kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from limelight.report.kinds import kinds
from limelight.studio.api.asked import OfEntry
from limelight.studio.endpoint import Endpoint
from limelight.studio.measure import measure
from limelight.studio.work import Cancel

if TYPE_CHECKING:
    from limelight.studio.studio import Studio


def capture_kinds(studio: Studio, asked: OfEntry, cancel: Cancel) -> dict[str, list[str]]:
    """site.head to its kinds; heads of no known kind are left out."""
    book = studio.shelf.book(asked.id)

    def find() -> dict[tuple[int, int], list[str]]:
        for site in book.capture.sites:
            measure(site, cancel)
        return kinds(book.capture, asked.batch, lambda _, __: cancel.check())

    found = book.kinds.get(asked.batch, find)
    return {f"{site}.{head}": names for (site, head), names in found.items()}


ENDPOINTS = (
    Endpoint("/api/captures/{id}/kinds", capture_kinds, OfEntry, dict[str, list[str]],
             "Heads of known kinds, by site and head.", lane="heavy"),
)  # fmt: skip
