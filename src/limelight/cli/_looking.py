"""What the commands that look at captures share: opening one, choosing in it, progress."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from limelight.errors import ArgumentError

if TYPE_CHECKING:
    from limelight.capture import Capture, Site

CaptureArgument = Annotated[
    Path, typer.Argument(help="A capture file (.safetensors), or one that comes along: llama, …")
]


def opened(path: Path) -> Capture:
    from limelight.captures import open as open_capture

    return open_capture(path)


def chosen(capture: Capture, layer: str) -> Site:
    """A site by its layer's number, or by its name."""
    return capture[int(layer) if layer.lstrip("-").isdigit() else layer]


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
    errors = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bars:
        task = bars.add_task(words, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
