"""limelight heads: heads of known kinds in a capture, a survey, or on random tokens twice."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from limelight.cli._edge import (
    JsonOption,
    console,
    headline,
    narrow,
    print_json,
    right,
    show,
    table,
    whole,
)
from limelight.cli._looking import ForceOption, folded, progress, seen, writable
from limelight.errors import ArgumentError
from limelight.writing.numbers import counted, percent
from limelight.writing.terminal import shown

if TYPE_CHECKING:
    from rich.console import Console

    from limelight.capture import Capture
    from limelight.heads import Heads
    from limelight.survey import Survey
    from limelight.survey.survey import Pull

LEAST = 0.3  # weight of a look that is asked for, unless told


def heads(
    capture: Annotated[
        str,
        typer.Argument(
            help="A capture or a survey (.safetensors), or a capture that comes along: llama, …; "
            "with --induction a model."
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            help="Only this kind, in detail: previous, next, diagonal, sink, induction, "
            "induction-2, duplicate, separator, word, bracket, uniform."
        ),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="So many heads of each kind.")] = 5,
    batch: Annotated[int, typer.Option(help="The entry of the batch that is judged.")] = 0,
    looks_from: Annotated[
        str | None,
        typer.Option("--from", help="Heads that look from this token, or position, as cat or 2."),
    ] = None,
    looks_to: Annotated[
        str | None, typer.Option("--to", help="… to this one; either may be left out.")
    ] = None,
    at_least: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="With --from or --to: from this weight on.", show_default=str(LEAST)
        ),
    ] = None,
    induction: Annotated[
        bool,
        typer.Option(
            "--induction",
            help="Run a model (a folder, a .gguf file, smollm2) on random tokens that come twice, "
            "and judge its heads by them.",
        ),
    ] = False,
    csv: Annotated[
        Path | None, typer.Option(help="Write every kind's score of every head to this .csv file.")
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Find heads of known kinds: previous token, induction, sink, brackets and more.

    A score is the mean share of a row's attention that lies where such a head looks; chance is
    what even attention would give. A head is one of a kind from the kind's threshold on, from
    twice the chance, and from five rows.
    """
    looks = looks_from is not None or looks_to is not None
    for name, given in (("--kind", kind), ("--csv", csv)):
        if looks and given is not None:
            raise ArgumentError(f"{name} is of heads judged over the text, --from and --to ask for "
                                f"one look: give the one or the other")  # fmt: skip
    if at_least is not None and not looks:
        raise ArgumentError("--at-least is the weight of one look: give --from or --to too")
    if csv is not None:
        writable(csv, (".csv",), force)
    held = _repeated(capture) if induction else seen(capture)
    if looks:
        least = LEAST if at_least is None else at_least
        _looks(held, _place(looks_from), _place(looks_to), least, most, batch, json)
        return
    found = _judged(held, batch)
    if kind is not None:
        found.is_kind(kind)  # raises where there is no such kind
    if csv is not None:
        found.to_csv(csv)
    if json:
        print_json(found.to_dict() if kind is None else _one(found, kind))
        return
    out = console()
    size = f"{counted(sum(found.heads), 'head')} in {counted(len(found.sites), 'layer')}\n"
    headline(out, held.source.get("model", "capture"), size)
    if kind is None:
        all_kinds(out, found, most)
    else:
        _detail(out, found, kind, most)


def _judged(held: Capture | Survey, batch: int) -> Heads:
    from limelight.heads import find
    from limelight.survey import Survey

    if isinstance(held, Survey):
        return held.heads
    with progress("judging heads") as told:
        return find(held, batch=batch, progress=told)


def _repeated(model: str) -> Survey:
    """A survey of random tokens that come twice."""
    os.environ.setdefault("TQDM_DISABLE", "1")  # one progress bar at a time: ours
    with progress(f"loading {Path(model).name}"):
        from limelight import hf

        hf.quiet()
        loaded = hf.load(model)
    with progress(f"{loaded.name} reads random tokens twice") as told:
        found: Survey = hf.induction(loaded, progress=told)
        return found


def _place(text: str | None) -> str | int | None:
    """A position where it is a number, else a token."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return text


def _looks(
    held: Capture | Survey, query: Any, key: Any, at_least: float, most: int, batch: int, json: bool
) -> None:
    """The heads that look from one token to another."""
    from limelight.heads import search
    from limelight.survey.survey import Pull

    found = search(held, query=query, key=key, at_least=at_least, batch=batch)
    if json:
        print_json([asdict(each) for each in found])
        return
    if found and isinstance(found[0], Pull):
        _pulls(found, most)
        return
    out = console()
    if not found:
        out.print(f"no head looks there with {at_least:g} or more: --at-least asks for less")
        return
    view = table("layer", "head", "weight", "from", "to")
    for each in found[:most]:
        view.add_row(str(each.layer), str(each.head), f"{each.weight:.2f}",
                     Text(f"{shown(each.query.strip())} ({each.row})"),
                     Text(f"{shown(each.key.strip())} ({each.column})"))  # fmt: skip
    show(out, right(view, 0, 1, 2))
    if len(found) > most:
        out.print(f"and {len(found) - most} more: --most {len(found)} shows them", style="dim")


def _pulls(found: list[Pull], most: int) -> None:
    """The heads that give a token most, over a survey."""
    out = console()
    view = table("layer", "head", "of its attention", "each time")
    for each in found[:most]:
        view.add_row(str(each.layer), str(each.head), percent(each.weight, 1), f"{each.given:.2f}")
    show(out, right(view, 0, 1, 2, 3))
    out.print("of its attention: the share that the token gets; each time: the weight that comes "
              "to one such token, summed over the queries", style="dim")  # fmt: skip


def _one(found: Heads, kind: str) -> dict[str, object]:
    """The record of one kind alone."""
    data = found.to_dict()
    heads = [{**head, "scores": {kind: head["scores"][kind]}} for head in data["heads"]]
    return {"kinds": [row for row in data["kinds"] if row["kind"] == kind], "heads": heads}


def all_kinds(out: Console, found: Heads, most: int) -> None:
    close = narrow(out)  # no room for what such a head does: --kind says it
    said = () if close else ("such a head",)
    view = table("kind", *said, "rows", "there are", "the strongest, with score")
    last = len(view.columns) - 1
    for name, meaning, best in found.lines(most):
        count = str(int(found.is_kind(name).sum())) if best else "–"
        room = out.width - (34 if close else 72)
        told = folded(best, max(24, room)) or Text("nothing to judge it by", "dim")
        view.add_row(name, *((meaning,) if said else ()), f"{found.judged(name):,}", count, told)
    show(out, right(whole(view, 0, last), last - 2, last - 1))
    out.print("L3H1: layer 3, head 1; ? = too weak to be one, or from too few rows", style="dim")
    out.print("--kind induction shows a kind in detail", style="dim")


def _detail(out: Console, found: Heads, kind: str, most: int) -> None:
    from limelight.heads import LEAST_ROWS

    least = next(row.threshold for row in found.known if row.name == kind)
    errors = bool(found.errors)
    view = table("layer", "head", "score", *(("±",) if errors else ()), "chance", "rows", "")
    for site, head, score in found.best(kind, most):
        chance, rows = found.chance[kind][site, head], int(found.rows[kind][site, head])
        below = f"{least:g}" if score < least else "twice the chance"
        why = f"too weak: below {below}" if rows >= LEAST_ROWS else "from too few rows to say"
        weak = "" if found.is_kind(kind)[site, head] else why
        error = found.error(kind, site, head)
        plus = ("–" if error is None else f"{error:.3f}",) if errors else ()
        view.add_row(str(found.layers[site]), str(head), f"{score:.3f}", *plus, f"{chance:.3f}",
                     f"{rows:,}", Text(weak, "dim"))  # fmt: skip
    if view.row_count:
        show(out, right(view, *range(len(view.columns) - 1)))
    else:
        out.print(f"nothing to judge {kind} by: no row of this text has such a key")
