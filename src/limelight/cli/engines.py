"""limelight engines: the table of what can run here."""

from __future__ import annotations

from typing import Annotated

import typer

from limelight.cli._edge import JsonOption, console, print_json, show, table


def engines(
    json: JsonOption = False,
    usable: Annotated[bool, typer.Option("--usable", help="Only those that can run here.")] = False,
) -> None:
    """List the engines, and why one is missing on this machine."""
    from limelight.engines import engines as rows

    found = [row for row in rows().to_dict() if row["usable"] or not usable]
    if json:
        print_json(found)
        return
    view = table("engine", "here", "on", "memory", "types", "what it is")
    for row in found:
        view.add_row(
            row["engine"], "[green]yes[/]" if row["usable"] else "[yellow]no[/]",
            ", ".join(row["devices"]), row["memory"], ", ".join(row["dtypes"]), row["summary"],
        )  # fmt: skip
    out = console(markup=True)
    show(out, view)
    for row in found:
        if row["missing"]:
            out.print(
                f"[bold]{row['engine']}[/] is missing here: {row['missing']}", highlight=False
            )
