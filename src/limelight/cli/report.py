"""limelight report: a capture or a survey as one HTML file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limelight.cli._edge import JsonOption, print_json
from limelight.cli._looking import (
    CaptureArgument,
    ForceOption,
    listed_layers,
    progress,
    seen,
    which_layers,
    writable,
)
from limelight.errors import ArgumentError
from limelight.writing.numbers import counted

if TYPE_CHECKING:
    from limelight.capture import Capture
    from limelight.survey import Survey


def report(
    capture: CaptureArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write it to this .html file.", show_default="beside the capture"
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="The most the file may take, in megabytes.", min=0.1, max=2000, show_default="10"
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="Of the vectors that cells are computed from: float16 or float32.",
            show_default="float16",
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="The entry of the batch that is shown.", show_default="0")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The report's title.")] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            help="These heads with their exact vectors first, as 3.4,11.1 (layer.head).",
            show_default="those of known kinds, then those that look elsewhere than at rest",
        ),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Only these layers, as 0,3,10-14 or -1 for the last.")
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write a capture or a survey as one HTML file: health, heads, maps, without a network."""
    from limelight.capture import Capture
    from limelight.report import write_report
    from limelight.report.page import MEGABYTE

    target = output or Path(capture).with_suffix(".html")
    held = seen(capture)
    writable(target, (".html", ".htm"), force)
    if not isinstance(held, Capture):
        chosen = {"--budget": budget, "--precision": precision, "--batch": batch,
                  "--heads": heads, "--layers": layers}  # fmt: skip
        _survey(held, target, title, json, [name for name in chosen if chosen[name] is not None])
        return
    budget, precision = 10.0 if budget is None else budget, precision or "float16"
    held = held if layers is None else some_layers(held, layers)
    with progress("looking at the heads") as told:
        made = write_report(
            held, target, budget=round(budget * MEGABYTE), precision=precision, batch=batch or 0,
            title=title, first=None if heads is None else head_places(heads), progress=told,
        )  # fmt: skip
    facts = {"file": str(target), "bytes": made.size, "heads": made.heads,
             "heads_with_vectors": made.complete, "precision": precision}  # fmt: skip
    if json:
        print_json(facts)
        return
    some = f"{made.complete:,} of them" if made.complete < made.heads else "all of them"
    typer.echo(f"{target}: {made.size / MEGABYTE:.2f} MB, {counted(made.heads, 'head')}, {some} "
               f"with their vectors ({precision})")  # fmt: skip
    if made.complete < made.heads:
        typer.echo("A larger --budget gives more heads theirs.")


def _survey(held: Survey, target: Path, title: str | None, json: bool, idle: list[str]) -> None:
    from limelight.report import write_survey
    from limelight.report.page import MEGABYTE

    if idle:
        raise ArgumentError(f"a survey's report has all of its heads, and no vectors: leave out "
                            f"{', '.join(idle)}")  # fmt: skip
    with progress("drawing the heads"):
        size = write_survey(held, target, title=title)
    count = sum(held.counts)
    if json:
        print_json({"file": str(target), "bytes": size, "heads": count, "texts": held.texts})
        return
    typer.echo(f"{target}: {size / MEGABYTE:.2f} MB, {counted(count, 'head')} over "
               f"{counted(held.texts, 'text')}")  # fmt: skip


def head_places(text: str) -> list[tuple[int, int]]:
    """'3.4,11.1' as layers and heads."""
    try:
        pairs = [tuple(int(n) for n in part.split(".")) for part in text.split(",")]
        return [(layer, head) for layer, head in pairs]
    except ValueError:
        raise ArgumentError(f"--heads {text}: write heads as 3.4,11.1 (layer.head)") from None


def some_layers(capture: Capture, text: str) -> Capture:
    """The capture with those layers alone: '0,3,10-14', or '-1' for the last."""
    there = sorted({site.layer for site in capture})
    numbers = listed_layers(text) or []
    wanted = {there[n] if -len(there) <= n < 0 else n for n in numbers}
    kept = tuple(site for site in capture if site.layer in wanted)
    if not kept:
        raise ArgumentError(f"--layers {text}: the capture has {which_layers(there)}")
    return replace(capture, sites=kept)
