"""Training runs that come along: a monitor's files, to look at without training anything.

    runs()                what there is: names, what was done, files
    find("gpt-qkclip")    the file of that name; a path to a run of one's own stays as it is

A small GPT at a learning rate at which its attention dies, with nothing done and with each of four
remedies (docs/remedies.md). examples/make_runs.py makes them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from limelight.errors import FileError

HERE, ENDING = Path(__file__).parent, ".jsonl"
TITLES = {
    "gpt-nothing-done": "Too large a rate, and nothing done",
    "gpt-qkclip": "Too large a rate, with QKClip at a logit of 100",
    "gpt-z-loss": "Too large a rate, with a z-loss on attention",
    "gpt-entropy-floor": "Too large a rate, with a floor for the entropy",
    "gpt-qk-norm": "Too large a rate, with normalised queries and keys",
}


@dataclass(frozen=True)
class Shipped:
    """One run that comes along."""

    name: str
    title: str
    path: Path


def runs() -> tuple[Shipped, ...]:
    """The runs that come along.

    >>> [run.name for run in runs()][:2]
    ['gpt-nothing-done', 'gpt-qkclip']
    """
    return tuple(Shipped(name, title, HERE / f"{name}{ENDING}") for name, title in TITLES.items())


def find(which: str | os.PathLike[str]) -> Path:
    """The file of a run: a shipped one by its name, any other by its path.

    A bare name means the shipped one; ./name is the file of that name here.
    """
    text = os.fspath(which)
    if text in TITLES:
        return HERE / f"{text}{ENDING}"
    path = Path(text)
    if not os.path.exists(path) and path.name == text and not path.suffix:
        raise FileError(f"{text}: there is no such file, and no such run comes along: those are "
                        f"{', '.join(TITLES)}")  # fmt: skip
    return path
