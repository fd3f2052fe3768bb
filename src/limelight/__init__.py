"""Scaled dot-product attention with the lights on."""

import importlib
from typing import TYPE_CHECKING, Any

from limelight.attention import Inspection, attention, inspect
from limelight.captures import captures
from limelight.cell import Cell
from limelight.engines import engines
from limelight.errors import LimelightError
from limelight.health import Health
from limelight.heatmap import Heatmap, heatmap, received, top, weights
from limelight.masks import Causal, Documents, Lengths, Mask, Prefix, Window
from limelight.reference import State, merge
from limelight.threads import set_threads
from limelight.trace import Trace, trace

if TYPE_CHECKING:
    from limelight.capture import Capture, Site
    from limelight.projections import SelfAttention
    from limelight.pyramid import Pyramid

__version__ = "0.1.0"

__all__ = [
    "Capture", "Causal", "Cell", "Documents", "Health", "Heatmap", "Inspection", "Lengths",
    "LimelightError", "Mask", "Prefix", "Pyramid", "SelfAttention", "Site", "State", "Trace",
    "Window", "attention", "captures", "engines", "heatmap", "inspect", "merge", "received",
    "set_threads", "top", "trace", "weights",
]  # fmt: skip

_LATER = {
    "Capture": "capture",
    "Pyramid": "pyramid",
    "SelfAttention": "projections",
    "Site": "capture",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
