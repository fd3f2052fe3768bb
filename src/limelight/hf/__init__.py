"""limelight for Hugging Face Transformers: run any model on it, and see what its heads do.

    register()              attn_implementation="limelight" for every model with the interface
    load(name)              a model from a folder, a GGUF, the hub's cache or a package; safely
    capture(model)          a context: what the model attends to inside it becomes a Capture
    off(model, heads=…)     a context: the model without some of its heads
    patch(model, …)         a context: some heads read what they read in another text
    effects(loaded, text)   what each head's absence does, layers × heads
    serving(model)          a context: continuous batching, whose cache lies in pages
    survey(model, texts)    what its heads do over any number of texts, as a Survey
    induction(model)        a survey of random tokens that come twice
    missing()               why no model can be run here; None where one can

Names load when first used: `import limelight.hf` imports neither torch nor Transformers.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

from limelight.errors import EngineError

_HOMES = {
    "register": "registration",
    "capture": "capturing",
    "load": "loading",
    "Loaded": "loading",
    "quiet": "registration",
    "off": "switching",
    "patch": "switching",
    "effects": "measuring",
    "serving": "continuous",
    "survey": "surveying",
    "induction": "surveying",
}

NEEDED = {"torch": "2.11", "transformers": "5.4"}  # 5.4 is the first to call masks as it does now

__all__ = [*_HOMES, "missing"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if why := missing():
        raise EngineError(why)
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def missing() -> str | None:
    """Why no model can be run here; None where one can."""
    for package, least in NEEDED.items():
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = "none"
        if version == "none" or _numbers(version) < _numbers(least):
            return (
                f"running a model needs {package} {least} or later, and here is {version}: "
                f"in limelight's checkout, pip install -e '.[models]'"
            )
    return None


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version such as 5.22.2 or 2.13.0+cpu."""
    return tuple(int(part) for part in version.split(".")[:2])


def __dir__() -> list[str]:
    return sorted(__all__)
