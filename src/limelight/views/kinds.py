"""The known kinds of a capture's heads, in words."""

from __future__ import annotations

from collections.abc import Callable

from limelight.arrays import index
from limelight.capture import Capture
from limelight.heads import Heads, find

WORDS = {"previous": "previous token", "next": "next token", "diagonal": "own token",
         "bracket": "bracket matching", "induction-2": "induction by two",
         "duplicate": "duplicate token", "separator": "separators", "word": "own word"}  # fmt: skip


def kinds(
    capture: Capture, batch: int = 0, progress: Callable[[int, int], None] | None = None
) -> Heads | None:
    """The scores of one batch entry's heads; None where no site, or not every one, has it."""
    batch = index(batch, capture.entries, "batch entry")
    if not capture.sites or any(batch >= site.batch for site in capture.sites):
        return None
    return find(capture, batch=batch, progress=progress)


def words(kind: str) -> str:
    return WORDS.get(kind, kind)
