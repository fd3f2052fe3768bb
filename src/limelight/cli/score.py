"""limelight score: one attention worked through, with every number in view."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from limelight.cli._edge import JsonOption, console, matrix, number, print_json
from limelight.errors import ArgumentError
from limelight.writing.numbers import counted

WORKED = {"query": "2,1", "keys": "2,1;1,0;0,-1", "values": "10,0;0,8;1,1"}


def score(
    query: Annotated[str | None, typer.Option(help="One query, as 2,1; more by ';'.")] = None,
    keys: Annotated[str | None, typer.Option(help="Keys, as '2,1;1,0;0,-1'.")] = None,
    values: Annotated[str | None, typer.Option(help="Values, one for each key.")] = None,
    file: Annotated[
        Path | None, typer.Option(help="Read them from a .json or .csv file instead.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(help="A name for each key, as 'the,cat,sat'.")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="What the dot products are multiplied by, as 0.125 or 1/8.",
            show_default="1/√d_k",
            metavar="NUMBER",
        ),
    ] = None,
    no_scale: Annotated[bool, typer.Option("--no-scale", help="Leave the scaling out.")] = False,
    softcap: Annotated[
        str | None,
        typer.Option(help="Bend scores s to c·tanh(s/c).", show_default="none", metavar="NUMBER"),
    ] = None,
    causal: Annotated[
        bool, typer.Option("--causal", help="Hide later keys; the last query sees them all.")
    ] = False,
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="Beside it, each step rounded as on paper.")
    ] = False,
    digits: Annotated[
        int | None, typer.Option(help="Digits that --by-hand rounds to.", show_default="2")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Work one attention through, step by step, with every number.

    Without numbers of your own it shows the worked example. A JSON file holds an object with
    "query", "keys", "values" and, if wanted, "tokens", "scale", "softcap", "causal"; a CSV file
    has one vector a line, its role first: query,2,1 then key,2,1 and value,10,0.
    """
    from limelight.cli._worked import Worked
    from limelight.masks import Causal
    from limelight.worked.by_hand import by_hand as on_paper
    from limelight.worked.trace import trace

    given = _gather(query, keys, values, file)
    if tokens is not None:
        given["tokens"] = [name.strip() for name in tokens.split(",")]
    if no_scale and scale is not None:
        raise ArgumentError("--no-scale and --scale say different things: give one of them")
    if digits is not None and not by_hand:
        raise ArgumentError("--digits is what --by-hand rounds to: give --by-hand too")
    _check_sizes(given)
    if given.get("tokens") is not None:
        _check_tokens(given)
    found = trace(
        given["query"],
        given["keys"],
        given["values"],
        mask=Causal() if causal or given.get("causal") else None,
        scale=1.0 if no_scale else _typed(scale, "--scale", given.get("scale")),
        softcap=_cap(_typed(softcap, "--softcap", given.get("softcap"))),
        tokens=given.get("tokens"),
    )
    paper = on_paper(found, 2 if digits is None else digits) if by_hand else None
    if json:
        data = found.to_dict()
        if paper is not None:
            data["by_hand"] = paper.to_dict()
        print_json(_one_row(data) if given["single"] else data)
        return
    out = console(markup=True)
    for row in range(found.call.queries):
        if row:
            out.rule(style="dim")
        worked = Worked(out, found, row)
        worked.show()
        if paper is not None:
            worked.beside(paper)


def _check_sizes(given: dict[str, Any]) -> None:
    """As the library does, in terms of what was typed."""
    queries, keys, values = (np.atleast_2d(given[name]) for name in ("query", "keys", "values"))
    if queries.shape[1] != keys.shape[1]:
        raise ArgumentError(
            f"a query of size {queries.shape[1]} has no dot product with a key of size "
            f"{keys.shape[1]}: give both as many numbers; ';' stands between keys"
        )
    if len(keys) != len(values):
        raise ArgumentError(
            f"{counted(len(keys), 'key')} but {counted(len(values), 'value')}: each key goes with "
            f"one value; ';' stands between values"
        )


def _check_tokens(given: dict[str, Any]) -> None:
    """One name a key; the queries take the last of them, as they stand at the end of the text."""
    names, keys, queries = (len(given[name]) for name in ("tokens", "keys", "query"))
    if names != keys:
        raise ArgumentError(
            f"{counted(names, 'token')} for {counted(keys, 'key')}: give one name for each key, "
            f"separated by commas"
        )
    if queries > keys:
        raise ArgumentError(
            f"{counted(names, 'token')} for {counted(queries, 'query')}: the queries have the "
            f"names of the last keys, and there are fewer keys than queries: leave the tokens out"
        )


def _typed(text: str | None, name: str, otherwise: float | None) -> float | None:
    return otherwise if text is None else number(text, name)


def _cap(softcap: float | None) -> float | None:
    if softcap is not None and softcap <= 0:
        raise ArgumentError(
            f"a softcap of {softcap:g}: give a number above 0, or none to cap nothing"
        )
    return softcap


def _gather(
    query: str | None, keys: str | None, values: str | None, file: Path | None
) -> dict[str, Any]:
    """The numbers, from the line or the file, or the worked example's.

    "single" says that the query came as one vector, not as a list of them.
    """
    line = {"query": query, "keys": keys, "values": values}
    missing = [f"--{name}" for name, text in line.items() if text is None]
    if file is not None:
        if len(missing) < 3:
            raise ArgumentError("the numbers come from --file or from the line, not from both")
        from limelight.cli._files import read

        return read(file)
    if len(missing) == 3:
        line, missing = dict(WORKED), []
    if missing:
        raise ArgumentError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: give "
            f"--query, --keys and --values, or --file"
        )
    given: dict[str, Any] = {name: matrix(text or "", f"--{name}") for name, text in line.items()}
    return {**given, "single": ";" not in str(line["query"]) and "[[" not in str(line["query"])}


def _one_row(data: dict[str, Any]) -> dict[str, Any]:
    """A query given as a vector has vectors for answers: without the axis of queries."""
    nested = {name: _one_row(data[name]) for name in ("health", "by_hand") if name in data}
    by_key = ("key", "value", "tokens", "digits")
    return {
        name: item[0] if isinstance(item, list) and name not in by_key else item
        for name, item in data.items()
    } | nested
