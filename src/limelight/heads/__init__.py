"""Heads: which of them does what, and which of them looks from here to there.

kinds    scores of every head for known kinds, and for kinds of one's own
search   the heads that look from one token to another
"""

from limelight.heads.kinds import (
    KINDS,
    LEAST_ROWS,
    NAMES,
    Heads,
    Kind,
    Score,
    brackets,
    find,
    pairs,
    repeats,
    scores,
)
from limelight.heads.search import Sighting, search

__all__ = [
    "KINDS",
    "LEAST_ROWS",
    "NAMES",
    "Heads",
    "Kind",
    "Score",
    "Sighting",
    "brackets",
    "find",
    "pairs",
    "repeats",
    "scores",
    "search",
]
