"""limelight captures: the captures that come along."""

from __future__ import annotations

from typing import Annotated

import typer

from limelight.cli._edge import JsonOption, console, indented, print_json, right, show, table, whole

FACTS = ("title", "model", "text", "selection", "weights", "licence", "package", "made", "command")


def captures(
    name: Annotated[
        str | None, typer.Argument(help="One of them, to see where it came from.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the captures that come along: models, texts, licences, and how each was made."""
    from limelight.capture.shipped import captures as shipped

    found = shipped()
    one = None if name is None else found.row(name)
    if json:
        print_json((found if one is None else one).to_dict())
        return
    out = console()
    if one is None:
        head, *lines = found.table()
        view = right(whole(table(*head[:-1]), 0), 2, 3, 4)
        for line in lines:
            view.add_row(*line[:-1])
        show(out, view)
        out.print("limelight captures NAME says where one came from; limelight inspect NAME looks "
                  "into it.", style="dim")  # fmt: skip
        return
    for fact in FACTS:
        if one.source.get(fact):
            out.print(fact, style="bold")
            indented(out, str(one.source[fact]).rstrip(), 3)
