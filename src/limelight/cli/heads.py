"""limelight heads: heads of known kinds in a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from limelight.cli._edge import JsonOption, console, print_json, right, show, table, whole
from limelight.cli._looking import CaptureArgument, folded, opened, progress
from limelight.numbers import counted

if TYPE_CHECKING:
    from rich.console import Console

    from limelight.heads import Heads


def heads(
    capture: CaptureArgument,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Only this kind, in detail: previous, next, diagonal, sink, induction, bracket, "
            "uniform."
        ),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="So many heads of each kind.")] = 5,
    batch: Annotated[int, typer.Option(help="The entry of the batch that is judged.")] = 0,
    json: JsonOption = False,
) -> None:
    """Find heads of known kinds: previous token, induction, sink, brackets and more.

    A score is the mean share of a row's attention that lies where such a head looks; chance is
    what even attention would give. A head is one of a kind from the kind's threshold on, and from
    twice the chance.
    """
    from limelight.heads import find

    held = opened(capture)
    with progress("judging heads") as told:
        found = find(held, batch=batch, progress=told)
    if kind is not None:
        found.is_kind(kind)  # raises where there is no such kind
    if json:
        print_json(found.to_dict() if kind is None else _one(found, kind))
        return
    out = console()
    out.print(str(held.source.get("model", "capture")), style="bold", end="  ", markup=False)
    out.print(f"{counted(sum(found.heads), 'head')} in {counted(len(held), 'layer')}\n")
    if kind is None:
        _all(out, found, most)
    else:
        _detail(out, found, kind, most)


def _one(found: Heads, kind: str) -> dict[str, object]:
    """The record of one kind alone."""
    data = found.to_dict()
    heads = [{**head, "scores": {kind: head["scores"][kind]}} for head in data["heads"]]
    return {"kinds": [row for row in data["kinds"] if row["kind"] == kind], "heads": heads}


def _all(out: Console, found: Heads, most: int) -> None:
    view = whole(table("kind", "such a head", "there are", "the strongest, with score"), 0, 3)
    for name, meaning, best in found.lines(most):
        count = str(int(found.is_kind(name).sum())) if best else "–"
        told = folded(best, max(26, out.width - 64)) or "[dim]nothing to judge it by[/]"
        view.add_row(name, meaning, count, told)
    show(out, right(view, 2))
    out.print("L3H1: layer 3, head 1; ? = too weak to be one", style="dim")
    out.print("--kind induction shows a kind in detail", style="dim")


def _detail(out: Console, found: Heads, kind: str, most: int) -> None:
    from limelight.heads import KINDS

    least = next(row.threshold for row in KINDS if row.name == kind)
    view = table("layer", "head", "score", "chance", "rows", "")
    for site, head, score in found.best(kind, most):
        chance, rows = found.chance[kind][site, head], int(found.rows[kind][site, head])
        below = f"{least:g}" if score < least else "twice the chance"
        weak = "" if found.is_kind(kind)[site, head] else f"[dim]too weak: below {below}[/]"
        view.add_row(str(found.layers[site]), str(head), f"{score:.3f}", f"{chance:.3f}",
                     f"{rows:,}", weak)  # fmt: skip
    if view.row_count:
        show(out, right(view, 0, 1, 2, 3, 4))
    else:
        out.print(f"nothing to judge {kind} by: no row of this text has such a key")
