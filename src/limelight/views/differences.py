"""Differences: any two heads beside one another, of one capture or of two, their tokens aligned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from limelight.capture import Capture, Site
from limelight.capture.comparison import Comparison, compare
from limelight.views.schema import DifferenceInfo
from limelight.views.tiles import Span, Tile

HIDDEN_CHANGE = -2.0  # neither may look there: a difference is from −1 to 1


def two(first: Site, second: Site) -> Comparison:
    """Two heads, each a site of its own, as a comparison of one pair."""
    return compare(Capture((first,)), Capture((second,)))


def facts(found: Comparison) -> DifferenceInfo:
    """Which positions are one another's, and how much a row changes on average."""
    pair = found.pairs[0]
    return DifferenceInfo(
        query_tokens=list(pair.named("query")), key_tokens=list(pair.named("key")),
        first_queries=pair.queries.first.tolist(), second_queries=pair.queries.second.tolist(),
        first_keys=pair.keys.first.tolist(), second_keys=pair.keys.second.tolist(),
        change=None if np.isnan(found.change[0, 0]) else float(found.change[0, 0]),
    )  # fmt: skip


def tile(
    found: Comparison, rows: Span, columns: Span, shape: Span,
    progress: Callable[[int, int], None] | None = None,
) -> Tile:  # fmt: skip
    """A rectangle of second less first; in a bin what is furthest from 0."""
    seen = found.difference(0, 0, shape=shape, rows=rows, columns=columns, progress=progress)
    values = np.where(seen.empty, np.float32(HIDDEN_CHANGE), seen.values).astype(np.float32)
    return Tile(values, rows, columns)
