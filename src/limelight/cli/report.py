"""limelight report: a capture as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from limelight.cli._edge import JsonOption, print_json
from limelight.cli._looking import CaptureArgument, ForceOption, opened, progress, writable
from limelight.writing.numbers import counted


def report(
    capture: CaptureArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write it to this .html file.", show_default="beside the capture"
        ),
    ] = None,
    budget: Annotated[
        float, typer.Option(help="The most the file may take, in megabytes.", min=0.1, max=2000)
    ] = 10.0,
    precision: Annotated[
        str, typer.Option(help="Of the vectors that cells are computed from: float16 or float32.")
    ] = "float16",
    batch: Annotated[int, typer.Option(help="The entry of the batch that is shown.")] = 0,
    title: Annotated[str | None, typer.Option(help="The report's title.")] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write a capture as one HTML file: health, heads, maps and cells, without a network."""
    from limelight.report import write_report
    from limelight.report.page import MEGABYTE

    target = output or Path(capture).with_suffix(".html")
    held = opened(capture)
    writable(target, (".html", ".htm"), force)
    with progress("looking at the heads") as told:
        made = write_report(
            held, target, budget=round(budget * MEGABYTE), precision=precision, batch=batch,
            title=title, progress=told,
        )  # fmt: skip
    facts = {"file": str(target), "bytes": made.size, "heads": made.heads,
             "heads_with_vectors": made.complete, "precision": precision}  # fmt: skip
    if json:
        print_json(facts)
        return
    typer.echo(f"{target}: {made.size / MEGABYTE:.2f} MB, {counted(made.heads, 'head')}, the "
               f"vectors of {made.complete:,} of them as {precision}")  # fmt: skip
    if made.complete < made.heads:
        typer.echo("A larger --budget keeps more of them.")
