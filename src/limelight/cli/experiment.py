"""limelight experiment: does 1/√d_k matter? Results that come along, as tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limelight.cli._edge import JsonOption, console, print_json, right, show, table
from limelight.cli._looking import ForceOption, writable
from limelight.errors import ArgumentError

if TYPE_CHECKING:
    from limelight.learn.experiments import Scaling

PICTURES = ("held-out", "start", "curves")


def experiment(
    name: Annotated[str, typer.Argument(help="Which: so far there is scaling.")] = "scaling",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Draw it to this .svg, .png or .pdf file.")
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(
            help="With -o: draw held-out, start, or curves over the steps.", show_default="held-out"
        ),
    ] = None,
    d_k: Annotated[
        int | None,
        typer.Option("--d-k", help="With --picture curves: the head size.", show_default="256"),
    ] = None,
    theme: Annotated[
        str | None, typer.Option(help="With -o: light or dark.", show_default="light")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Other results of examples/scaling.py.", show_default="those shipped"),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """See whether 1/√d_k matters: the same models trained with it, without it, and with 1/d_k."""
    from limelight.learn.experiments import scaling

    if name != "scaling":
        raise ArgumentError(f"there is no experiment {name!r}: choose scaling")
    _check(output, picture, d_k, theme)
    if output is not None:
        writable(output, (".svg", ".png", ".pdf"), force)
    found = scaling(results)
    if output is not None:
        _draw(found, picture or "held-out", 256 if d_k is None else d_k, theme or "light", output)
    if json:
        print_json(found.to_dict())
    else:
        _show(found)
        if output is not None:
            typer.echo(f"drew {picture or 'held-out'} to {output}")


def _check(output: Path | None, picture: str | None, d_k: int | None, theme: str | None) -> None:
    """Options that would change nothing are a mistake."""
    drawing = {"--picture": picture, "--d-k": d_k, "--theme": theme}
    idle = [name for name, given in drawing.items() if given is not None]
    if output is None and idle:
        raise ArgumentError(f"{', '.join(idle)}: only for a picture; say where to with -o FILE")
    if d_k is not None and picture != "curves":
        raise ArgumentError("--d-k goes with --picture curves: the other pictures show every size")


def _draw(found: Scaling, picture: str, d_k: int, theme: str, output: Path) -> None:
    from limelight.learn.experiments import figures

    if picture not in PICTURES:
        raise ArgumentError(f"--picture {picture}: choose {', '.join(PICTURES)}")
    if picture == "curves":
        drawn = figures.curves(found, d_k, theme=theme)
    else:
        drawn = {"held-out": figures.held_out, "start": figures.start}[picture](found, theme=theme)
    drawn.save(output)


def _show(found: Scaling) -> None:
    from limelight.learn.experiments import SETTINGS, ends

    out = console(markup=True)
    facts = found.facts
    out.print(f"Held-out loss in nats a character after {facts['steps']} steps, mean ± half the "
              f"range over {facts['seeds']} seeds; lower is better.\n")  # fmt: skip
    for setting in found.settings:
        out.print(f"[bold]{setting}[/]: {SETTINGS.get(setting, '')}")
        view = right(table("d_k", *found.scales), *range(1 + len(found.scales)))
        for size in found.sizes:
            runs = [found.at(setting, scale, size) for scale in found.scales]
            best = min(run.held_out.mean() for run in runs)
            view.add_row(str(size), *(
                f"[bold]{ends(run.held_out)}[/]" if run.held_out.mean() == best
                else ends(run.held_out) for run in runs
            ))  # fmt: skip
        show(out, view)
    out.print("docs/experiment.md says what was done, and what follows.", style="dim")
