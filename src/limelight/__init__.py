"""Scaled dot-product attention with the lights on."""

from limelight.attention import Inspection, attention, inspect
from limelight.engines import engines
from limelight.errors import LimelightError
from limelight.health import Health
from limelight.masks import Causal, Documents, Lengths, Mask, Prefix, Window
from limelight.reference import State, merge
from limelight.trace import Trace, trace

__version__ = "0.1.0"

__all__ = [
    "Causal", "Documents", "Health", "Inspection", "Lengths", "LimelightError", "Mask", "Prefix",
    "State", "Trace", "Window", "attention", "engines", "inspect", "merge", "trace",
]  # fmt: skip
