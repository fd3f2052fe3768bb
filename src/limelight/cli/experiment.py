"""limelight experiment: results that come along, as tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from limelight.cli._edge import JsonOption, console, print_json, right, show, table
from limelight.cli._looking import ForceOption, writable
from limelight.errors import ArgumentError

if TYPE_CHECKING:
    from limelight.learn.experiments import Remedies, Scaling

PICTURES = {
    "scaling": ("held-out", "start", "curves"),
    "remedies": ("held-out", "largest", "entropy", "loss"),
}


def experiment(
    name: Annotated[str, typer.Argument(help="Which: scaling or remedies.")] = "scaling",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Draw it to this .svg, .png or .pdf file.")
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(
            help="With -o: draw held-out; of scaling also start, or curves over the steps; of "
            "remedies largest (logit), entropy or loss over the steps.",
            show_default="held-out",
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
        typer.Option(
            help="Other results of examples/scaling.py or make_runs.py.",
            show_default="those shipped",
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """See whether 1/√d_k matters, or what saves a run whose attention dies, in trained models.

    scaling trains the same models with 1/√d_k, without it, and with 1/d_k; remedies trains one at
    learning rates that are too large, with nothing done, QKClip, a z-loss, an entropy floor, and
    normalised queries and keys.
    """
    from limelight.learn import experiments

    if name not in PICTURES:
        raise ArgumentError(f"there is no experiment {name!r}: choose {', '.join(PICTURES)}")
    _check(name, output, picture, d_k, theme)
    if output is not None:
        writable(output, (".svg", ".png", ".pdf"), force)
    found = experiments.scaling(results) if name == "scaling" else experiments.remedies(results)
    if output is not None:
        _draw(found, picture or "held-out", 256 if d_k is None else d_k, theme or "light", output)
    if json:
        print_json(found.to_dict())
        return
    if isinstance(found, experiments.Scaling):
        _show(found)
    else:
        _show_remedies(found)
    if output is not None:
        typer.echo(f"drew {picture or 'held-out'} to {output}")


def _check(
    name: str, output: Path | None, picture: str | None, d_k: int | None, theme: str | None
) -> None:
    """Options that would change nothing are a mistake."""
    drawing = {"--picture": picture, "--d-k": d_k, "--theme": theme}
    idle = [option for option, given in drawing.items() if given is not None]
    if output is None and idle:
        raise ArgumentError(f"{', '.join(idle)}: only for a picture; say where to with -o FILE")
    if picture is not None and picture not in PICTURES[name]:
        raise ArgumentError(f"--picture {picture}: of {name}, choose {', '.join(PICTURES[name])}")
    if d_k is not None and picture != "curves":
        raise ArgumentError("--d-k goes with --picture curves: the other pictures show every size")


def _draw(found: Scaling | Remedies, picture: str, d_k: int, theme: str, output: Path) -> None:
    from limelight.learn.experiments import Remedies, figures

    if isinstance(found, Remedies):
        if picture == "held-out":
            drawn = figures.rescued(found, theme=theme)
        else:
            drawn = figures.over_steps(found, picture, theme=theme)
    elif picture == "curves":
        drawn = figures.curves(found, d_k, theme=theme)
    else:
        drawn = {"held-out": figures.held_out, "start": figures.start}[picture](found, theme=theme)
    drawn.save(output)


def _show_remedies(found: Remedies) -> None:
    from limelight.learn.experiments import REMEDIES

    out = console(markup=True)
    facts = found.facts
    out.print(f"A small GPT at {len(found.rates)} learning rates: the mean held-out loss in "
              f"nats a character after {facts['steps']} steps, and how many of {facts['seeds']} "
              f"runs died by their attention.\n")  # fmt: skip
    head, *rows = found.table()
    view = table("", *(f"rate {rate}" for rate in head[1:]))
    for remedy, *cells in rows:
        view.add_row(REMEDIES.get(remedy, remedy), *cells)
    show(out, view)
    out.print("docs/remedies.md says what was done, and what follows.", style="dim")


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
