"""Files of results that experiments left: what comes along, or another of its kind."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from limelight.errors import FileError
from limelight.intake import from_json, read_bounded

MOST_BYTES = 16 << 20  # of a file
Results = TypeVar("Results")


def read(
    path: Path | None,
    name: str,
    source: str,
    make: Callable[[dict[str, Any], dict[str, Any]], Results],
) -> Results:
    """What `make` makes of the facts and the rest of a file; without a path of the shipped `name`.

    `source` is the script whose results they are, for the error where `make` finds that they are
    not.
    """
    held = path or Path(str(files("limelight.learn.experiments"))) / name
    text = read_bounded(held, MOST_BYTES)
    try:
        data = from_json(text.decode())
        facts = dict(data["facts"])
        if not data["runs"] or not all(type(facts[count]) is int for count in ("steps", "seeds")):
            raise ValueError("no runs, or no numbers about them")
        return make(facts, data)
    except (ValueError, TypeError, KeyError):
        raise FileError(f"{held}: not the results of {source}") from None
