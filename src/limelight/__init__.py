"""Scaled dot-product attention with the lights on."""

import importlib
from typing import TYPE_CHECKING, Any

from limelight.attention import Inspection, attention, inspect
from limelight.engines import engines
from limelight.engines.threads import set_threads
from limelight.errors import LimelightError
from limelight.health import Health
from limelight.looking.heatmap import Heatmap, heatmap
from limelight.looking.weights import received, top, weights
from limelight.masks import Causal, Documents, Lengths, Mask, Prefix, Window
from limelight.offers import offer
from limelight.reference import State, merge
from limelight.worked.cell import Cell
from limelight.worked.trace import Trace, trace

if TYPE_CHECKING:
    from limelight.capture import Capture, Comparison, Site, compare
    from limelight.capture.shipped import captures
    from limelight.learn.projections import SelfAttention
    from limelight.looking.pyramid import Pyramid
    from limelight.notebook import show
    from limelight.survey import Survey

__version__ = "0.2.0"

__all__ = [
    "Capture", "Causal", "Cell", "Comparison", "Documents", "Health", "Heatmap", "Inspection",
    "Lengths", "LimelightError", "Mask", "Prefix", "Pyramid", "SelfAttention", "Site", "State",
    "Survey", "Trace", "Window", "attention", "captures", "compare", "engines", "heatmap",
    "inspect", "merge", "received", "set_threads", "show", "top", "trace", "weights",
]  # fmt: skip

_LATER = {
    "Capture": "capture",
    "Comparison": "capture",
    "captures": "capture.shipped",
    "compare": "capture",
    "Pyramid": "looking.pyramid",
    "SelfAttention": "learn.projections",
    "Site": "capture",
    "Survey": "survey",
    "show": "notebook",
}


# Modules that whoever names them gets, as `ll.hf.load`, without an import of their own.
_MODULES = ("heads", "hf", "learn", "lessons", "live", "notebook", "pictures", "report", "torch")


def _notebook() -> Any:
    from limelight import notebook

    return notebook


def _pictures() -> Any:
    from limelight import pictures

    return pictures


def _tensors() -> Any:
    from limelight.torch import functional

    return functional


def _subclasses() -> Any:
    from limelight.torch import subclasses

    return subclasses


offer(notebook=_notebook, pictures=_pictures, tensors=_tensors, subclasses=_subclasses)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
