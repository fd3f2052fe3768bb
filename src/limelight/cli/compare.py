"""limelight compare: two captures beside one another, head by head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from limelight.cli._edge import JsonOption, console, print_json, right, show, table
from limelight.cli._looking import ForceOption, opened, progress, writable
from limelight.writing.terminal import shown

if TYPE_CHECKING:
    from limelight.capture import Comparison

CAPTURE = "a capture file (.safetensors), or one that comes along: llama, …"


def compare(
    first: Annotated[str, typer.Argument(help=f"The one: {CAPTURE}")],
    second: Annotated[str, typer.Argument(help="The other, of the same model or of its shape.")],
    most: Annotated[int, typer.Option(min=1, help="So many heads.")] = 10,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write a report, with maps, to this .html file."),
    ] = None,
    batch: Annotated[int, typer.Option(help="The entry of the batch that is compared.")] = 0,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Compare two captures: which heads changed how much between two prompts or two models.

    The tokens of the two texts are aligned. A row's change is the share of its attention that
    moved, from 0 to 1; a head's is the mean over its rows.
    """
    from limelight.capture import compare as beside

    if output is not None:
        writable(output, (".html", ".htm"), force)
    with progress("comparing the heads") as told:
        found = beside(opened(first), opened(second), batch=batch, progress=told)
    if output is not None:
        from limelight.report import write_comparison

        with progress(f"writing {output.name}"):
            write_comparison(found, output, names=(Path(first).stem, Path(second).stem), most=most)
    if json:
        print_json(found.to_dict())
        return
    _show(found, most, output)


def _show(found: Comparison, most: int, output: Any) -> None:
    out = console()
    out.print(found.title + "\n")
    changed = [one for one in found.strongest() if one.change > 0]
    if changed:
        view = table("layer", "head", "change", "its most", "at")
        for one in changed[:most]:
            texts = [shown(token.strip()) or repr(token) for token in one.tokens]
            said = texts[0] if texts[0] == texts[1] else " / ".join(texts)
            view.add_row(str(one.layer), str(one.head), f"{one.change:.3f}", f"{one.largest:.2f}",
                         Text(f"{said} ({one.rows[0]})"))  # fmt: skip
        show(out, right(view, 0, 1, 2, 3))
        out.print("change: the mean share of a row's attention that moved; its most: in the one "
                  "row that changed most", style="dim")  # fmt: skip
    else:
        out.print("no head changed")
    if output is not None:
        out.print(f"{output}: a report with the maps of both, and what lies between them")
