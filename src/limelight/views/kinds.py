"""The known kinds of a capture's heads, in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from limelight.arrays import index, jsonable
from limelight.capture import Capture
from limelight.heads import Heads, find
from limelight.views.schema import KindScores

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


def tables(found: Heads | None) -> list[KindScores]:
    """Every kind that at least one head can be judged by, with all heads' scores."""
    if found is None:
        return []
    return [
        KindScores(
            name=kind.name, title=words(kind.name), meaning=kind.meaning, threshold=kind.threshold,
            scores=jsonable(found.scores[kind.name].round(4)),
            chance=jsonable(found.chance[kind.name].round(4)),
            rows=np.nan_to_num(found.rows[kind.name]).astype(int).tolist(),
        )
        for kind in found.known if found.judged(kind.name)
    ]  # fmt: skip


def words(kind: str) -> str:
    return WORDS.get(kind, kind)
