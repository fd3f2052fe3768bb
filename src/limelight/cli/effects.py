"""limelight effects: which heads a model's answer hangs on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limelight.cli._edge import (
    JsonOption,
    console,
    headline,
    narrow,
    print_json,
    right,
    show,
    table,
)
from limelight.cli._looking import ForceOption, progress, writable
from limelight.errors import ArgumentError, FileError
from limelight.writing.numbers import counted, fixed, signed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from limelight.live import Effects

STRONG = 0.5  # of the largest change: from here on a cell stands out


def effects(
    model: Annotated[
        str,
        typer.Argument(
            help="gpt or code, which come along; smollm2; a .gguf file of the Llama family; or any "
            "language model that Transformers reads."
        ),
    ],
    text: Annotated[str, typer.Option(help="What the model reads.")],
    answer: Annotated[
        str | None,
        typer.Option(
            help='The next token that is followed, with its blank: " bird".',
            show_default="the likeliest",
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Another token: follow the lead of the answer over it.")
    ] = None,
    loss: Annotated[bool, typer.Option("--loss", help="Follow the loss on the text.")] = False,
    mean_over: Annotated[
        str | None,
        typer.Option(help="A head that is off gives its mean over this text, and not zero."),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="So many heads in the list below.")] = 8,
    csv: Annotated[
        Path | None, typer.Option(help="Write what each head does to this .csv file.")
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Switch every head of a model off in turn, and show what that does to its answer.

    The table has layers down and heads across. Each number is the change when that head alone is
    off: of the log-probability of the answer in nats (−0.69 halves the probability), of its lead
    over another token, or of the loss on the text.
    """
    if loss and (answer is not None or against is not None):
        raise ArgumentError("--loss is that of the text: leave out --answer and --against")
    if against is not None and answer is None:
        raise ArgumentError("--against is the other token of a pair: give --answer too")
    if csv is not None:
        writable(csv, (".csv",), force)
    found = _measure(model, text, answer=answer, against=against, loss=loss, mean_over=mean_over)
    if csv is not None:
        found.to_csv(csv)
    if json:
        print_json(found.to_dict())
        return
    out = console()
    layers, heads = found.change.shape
    size = f"{counted(layers, 'layer')} × {counted(heads, 'head')}"
    headline(out, found.source, f"{size}, {counted(len(found.tokens), 'token')}")
    out.print(f"{found.meaning}: {fixed(found.before, 3)} with every head on", markup=False)
    out.print("the change with one head off, layers down, heads across\n")
    for view in _tables(out, found):
        show(out, view)
    out.print("the heads that matter most here")
    view = right(table("layer", "head", "change"), 0, 1, 2)
    for layer, head, change in found.strongest(most):
        view.add_row(str(layer), str(head), signed(change, 3))
    show(out, view)


def _measure(name: str, text: str, **how: Any) -> Effects:
    """On the live model where it is one, else through Transformers."""
    from limelight import live

    if _live(name):
        with progress(f"loading {Path(name).name}") as told:
            loaded = live.load(name, progress=_counting(told))
        with progress(f"running {loaded.name} without each head") as told:
            return loaded.effects(text, progress=_counting(told), **how)
    from limelight import hf

    if hf.missing() is None and (why := live.missing(name)):
        raise FileError(why)
    with progress(f"loading {Path(name).name}"):
        load: Callable[[str], Any] = hf.load
        hf.quiet()
        theirs = load(name)
    with progress(f"running {theirs.name} without each head") as told:
        found: Effects = hf.effects(theirs, text, progress=_counting(told), **how)
        return found


def _live(name: str) -> bool:
    """Whether limelight runs it by itself: a name of its own, or a GGUF file of Llama's family."""
    from limelight import live
    from limelight.live.gguf import Gguf

    path = Path(name)
    if name in live.NAMES or path.suffix != ".gguf" or not os.path.isfile(path):
        return name in live.NAMES
    with Gguf(path) as file:
        return bool(file.facts.get("general.architecture") == "llama")


def _counting(told: Callable[[int, int], None]) -> Callable[[str], None]:
    """Progress in words, "layer 3 of 30", as numbers."""

    def tell(words: str) -> None:
        done, total = (int(n) for n in re.findall(r"\d+", words))
        told(done, total)

    return tell


def _tables(out: Console, found: Effects) -> Iterator[Table]:
    """In pieces where the terminal is too narrow for all heads."""
    import numpy as np
    from rich.text import Text

    change = found.change
    texts = [[signed(x, 2) for x in row] for row in change]
    wide = max(len(text) for row in texts for text in row) + (1 if narrow(out) else 2)
    step = max(1, (out.width - 12) // wide)
    largest = float(np.nanmax(np.abs(change), initial=0.0)) or 1.0
    for start in range(0, len(found.names), step):
        columns = range(start, min(start + step, len(found.names)))
        view = table("", *(found.names[h] for h in columns))
        view.padding = (0, 0, 0, 1)
        for layer, row in enumerate(texts):
            cells = [Text(row[h], style=_style(change[layer, h] / largest)) for h in columns]
            view.add_row(str(layer), *cells)
        yield right(view, *range(len(columns) + 1))


def _style(share: float) -> str:
    """Bold where a change stands out, dim where it is next to nothing; on any ground."""
    return "bold" if abs(share) >= STRONG else "dim" if not abs(share) >= STRONG / 10 else ""
