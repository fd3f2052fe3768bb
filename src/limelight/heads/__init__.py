"""Heads: which of them does what, and which of them looks from here to there.

kinds    scores of every head for known kinds, and for kinds of one's own
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
    brackets,
    find,
    pairs,
    repeats,
    scores,
)
from limelight.heads.search import Sighting, search
from limelight.heads.telling import telling

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
    "telling",
]
