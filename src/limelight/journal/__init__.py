"""The training monitor's file: JSON lines, written as training goes and read while it grows.

docs/torch.md describes every kind of line. Writing needs nothing beyond Python, reading no torch.
"""

from __future__ import annotations

from typing import Literal, get_args

FORMAT, VERSION = "limelight.monitor", 1
Figure = Literal[
    "max_logit", "max_prob", "entropy", "spread", "peaked", "saturated", "not_a_number"
]
FIGURES: tuple[str, ...] = get_args(Figure)
