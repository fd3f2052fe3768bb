"""The known kinds of a capture's heads, in words."""

from __future__ import annotations

from collections.abc import Callable

from limelight.arrays import index
from limelight.capture import Capture
from limelight.heads import find

WORDS = {"previous": "previous token", "next": "next token", "diagonal": "own token",
         "bracket": "bracket matching"}  # fmt: skip


def kinds(
    capture: Capture, batch: int = 0, progress: Callable[[int, int], None] | None = None
) -> dict[tuple[int, int], list[str]]:
    """The kinds of each head that has one, by (site, head); the best score first."""
    batch = index(batch, capture.entries, "batch entry")
    if not capture.sites or any(batch >= site.batch for site in capture.sites):
        return {}
    found = find(capture, batch=batch, progress=progress)
    named = {
        (site, head): [WORDS.get(kind, kind) for kind in found.kinds(site, head)]
        for site, heads in enumerate(found.heads)
        for head in range(heads)
    }
    return {place: words for place, words in named.items() if words}
