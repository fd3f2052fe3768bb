"""Heads: which of them does what, and which of them looks from here to there.

kinds    scores of every head for known kinds, and for kinds of one's own
places   where in a text the kinds look that go by tokens
search   the heads that look from one token to another
telling  the one cell of a head to look at first
"""

from limelight.heads.kinds import (
    KINDS,
    LEAST_ROWS,
    NAMES,
    Heads,
    Kind,
    Score,
    find,
    looks,
    pairs,
    scores,
)
from limelight.heads.places import brackets, duplicates, pieces, repeats, separators
from limelight.heads.search import Sighting, between, search
from limelight.heads.telling import telling

__all__ = [
    "KINDS",
    "LEAST_ROWS",
    "NAMES",
    "Heads",
    "Kind",
    "Score",
    "Sighting",
    "between",
    "brackets",
    "duplicates",
    "find",
    "looks",
    "pairs",
    "pieces",
    "repeats",
    "scores",
    "search",
    "separators",
    "telling",
]
