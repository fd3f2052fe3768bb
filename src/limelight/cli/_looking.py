"""What the commands that look at captures share: opening one, choosing in it, progress."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from limelight.cli._edge import console, table
from limelight.errors import ArgumentError, FileError
from limelight.writing.files import wrong_ending
from limelight.writing.numbers import counted, ranged

if TYPE_CHECKING:
    from limelight.capture import Capture, HealthTables, Site
    from limelight.survey import Survey

CaptureArgument = Annotated[
    str, typer.Argument(help="A capture file (.safetensors), or one that comes along: llama, …")
]

ForceOption = Annotated[bool, typer.Option("--force", "-f", help="Replace a file that is there.")]

NUMBER = r"-?\d{1,9}"  # of a layer
MOST_LAYERS = 4_096
COLOURS = {"saturated": "red", "peaked": "yellow", "healthy": "", "": "dim"}


def writable(path: Path, endings: tuple[str, ...], force: bool) -> None:
    """Refuse, before any work is done, a file that cannot or should not be written."""
    if wrong := wrong_ending(path, endings):
        raise FileError(wrong)
    if not os.path.isdir(path.resolve().parent):
        raise FileError(f"{path}: there is no folder {path.parent} to write it to")
    unoccupied(path, force)


def unoccupied(path: Path, force: bool) -> None:
    if os.path.exists(path) and not force:  # a name that no file can have exists nowhere
        raise ArgumentError(f"{path} is there already: give --force to replace it")


def opened(capture: str) -> Capture:
    from limelight.capture.shipped import open as open_capture

    return open_capture(capture)


def seen(path: str) -> Capture | Survey:
    """A capture or a survey, by what the file says it is."""
    from limelight.survey import Survey
    from limelight.survey.file import is_survey

    return Survey.open(path) if os.path.isfile(path) and is_survey(path) else opened(path)


def chosen(capture: Capture, layer: str) -> Site:
    """A site by its layer's number, or by its name."""
    if re.fullmatch(NUMBER, layer) is None:
        return capture[layer]
    layers = sorted({site.layer for site in capture})
    if int(layer) not in layers and not -len(layers) <= int(layer) < 0:
        raise ArgumentError(f"there is no layer {layer}: the capture has {which_layers(layers)}")
    return capture[int(layer)]


def which_layers(layers: list[int]) -> str:
    return f"{counted(len(layers), 'layer')}, {ranged(layers)}"


def listed_layers(text: str | None) -> list[int] | None:
    """'0,3,10-14,-1' as numbers; None for all."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        both = re.fullmatch(rf"({NUMBER})|(\d{{1,9}})-(\d{{1,9}})", part)
        first, last = (0, -1) if both is None else (int(both[1] or both[n]) for n in (2, 3))
        if first > last:
            raise ArgumentError(f"--layers {text}: {part!r} is no layer: write 0,3,10-14 or -1")
        if last - first > MOST_LAYERS:
            raise ArgumentError(f"--layers {text}: no model has {last - first + 1:,} layers")
        found += range(first, last + 1)
    return found


def figure_tables(tables: HealthTables, figure: str, width: int) -> Iterator[Table]:
    """Layers × heads of one figure, in pieces where the terminal is too narrow for all heads."""
    from limelight.capture.health import cell

    numbers, words, names = tables[figure], tables.verdict, tables.names()
    heads = numbers.shape[1]
    texts = [[cell(figure, n, word) for n, word in zip(*pair, strict=True)]
             for pair in zip(numbers, words, strict=True)]  # fmt: skip
    wide = max((len(text) for row in texts for text in row), default=1) + 2
    step = max(1, (width - 6 - max(len(name) for name in names)) // wide)
    for start in range(0, heads, step):
        columns = range(start, min(start + step, heads))
        view = table("", *(str(h) for h in columns))
        view.padding = (0, 0, 0, 1)
        for column in view.columns:
            column.justify = "right"
        for at, name in enumerate(names):
            row = [Text(texts[at][h], style=COLOURS[words[at, h]]) for h in columns]
            view.add_row(name, *row)
        yield view


def region(text: str | None, option: str) -> slice | None:
    """'100:356', '100:', ':-1' or '7' as a slice; None for all."""
    if text is None:
        return None
    start, colon, stop = text.strip().partition(":")
    try:
        first = int(start) if start or not colon else None
        if not colon:
            return slice(first, (int(start) + 1) or None)
        return slice(first, int(stop) if stop else None)
    except ValueError:
        raise ArgumentError(f"{option} {text}: write a region as 100:356, 100: or :356") from None


def folded(parts: Iterable[str], width: int) -> str:
    """The parts with commas between, in lines of that width; none is broken inside.

    >>> folded(["L1H2 0.83", "L0H0 0.50?", "L4H3 0.41?"], 24)
    'L1H2 0.83, L0H0 0.50?,\\nL4H3 0.41?'
    """
    whole = ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
    return textwrap.fill(whole, width).replace("\N{NO-BREAK SPACE}", " ")


@contextmanager
def progress(words: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr that is gone when its work is done; nothing where nobody looks.

    Gives the function to tell of progress: (done, all).
    """
    errors = console(stderr=True)
    if not errors.is_terminal:
        yield lambda done, total: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    with Progress(*columns, console=errors, transient=True) as bars:
        task = bars.add_task(words, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
