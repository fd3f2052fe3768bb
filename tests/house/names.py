"""The public names, as `names.txt` beside this file lists them.

python -m tests.house.names     writes the list anew
"""

from __future__ import annotations

import importlib
from pathlib import Path

import limelight
from limelight.cli import app
from limelight.cli._lazy import LazyGroup

LISTED = Path(__file__).with_name("names.txt")
MODULES = (
    "heads",
    "hf",
    "learn.experiments",
    "lessons",
    "live",
    "masks",
    "notebook",
    "pictures",
    "report",
    "survey",
    "torch",
)


def public() -> list[str]:
    """Every name that others may rely on, one a line, and the commands."""
    found = [f"limelight.{name}" for name in limelight.__all__]
    found += [f"limelight.captures.{name}" for name in vars(limelight.captures)]
    for name in MODULES:
        module = importlib.import_module(f"limelight.{name}")
        names = getattr(module, "__all__", None) or [
            own
            for own, thing in vars(module).items()
            if not own.startswith("_") and getattr(thing, "__module__", "") == module.__name__
        ]
        found += [f"limelight.{name}.{own}" for own in names]
    assert app.info.name == "limelight"
    found += [f"$ limelight {command}" for command in LazyGroup.table]
    return sorted(set(found))


if __name__ == "__main__":
    LISTED.write_text("\n".join(public()) + "\n", encoding="utf-8")
