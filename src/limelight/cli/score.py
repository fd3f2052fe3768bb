"""limelight score: one attention worked through, with every number in view."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from limelight.cli._edge import (
    JsonOption,
    bar,
    column,
    console,
    matrix,
    print_json,
    right,
    show,
    table,
)
from limelight.errors import ArgumentError

if TYPE_CHECKING:
    from rich.console import Console

    from limelight.by_hand import ByHand
    from limelight.trace import Trace

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
        float | None,
        typer.Option(help="What the dot products are multiplied by.", show_default="1/√d_k"),
    ] = None,
    no_scale: Annotated[bool, typer.Option("--no-scale", help="Leave the scaling out.")] = False,
    softcap: Annotated[
        float | None, typer.Option(help="Bend scores s to c·tanh(s/c).", show_default="none")
    ] = None,
    causal: Annotated[
        bool, typer.Option("--causal", help="Hide later keys; the last query sees them all.")
    ] = False,
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="Beside it, each step rounded as on paper.")
    ] = False,
    digits: Annotated[int, typer.Option(help="Digits that --by-hand rounds to.")] = 2,
    json: JsonOption = False,
) -> None:
    """Work one attention through, step by step, with every number.

    Without numbers of your own it shows the worked example. A JSON file holds an object with
    "query", "keys", "values" and, if wanted, "tokens", "scale", "softcap", "causal"; a CSV file
    has one vector a line, its role first: query,2,1 then key,2,1 and value,10,0.
    """
    from limelight.by_hand import by_hand as on_paper
    from limelight.masks import Causal
    from limelight.trace import trace

    given = _gather(query, keys, values, file)
    if tokens is not None:
        given["tokens"] = [name.strip() for name in tokens.split(",")]
    if no_scale and scale is not None:
        raise ArgumentError("--no-scale and --scale say different things: give one of them")
    found = trace(
        given["query"],
        given["keys"],
        given["values"],
        mask=Causal() if causal or given.get("causal") else None,
        scale=1.0 if no_scale else scale if scale is not None else given.get("scale"),
        softcap=softcap if softcap is not None else given.get("softcap"),
        tokens=given.get("tokens"),
    )
    paper = on_paper(found, digits) if by_hand else None
    if json:
        data = found.to_dict()
        if paper is not None:
            data["by_hand"] = paper.to_dict()
        print_json(_one_row(data) if given["single"] else data)
        return
    out = console()
    for row in range(found.call.queries):
        if row:
            out.rule(style="dim")
        _show(out, found, row)
        if paper is not None:
            _compare(out, found, paper, row)


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


def _show(out: Console, found: Trace, row: int) -> None:
    """The four steps of one query."""
    import numpy as np

    from limelight.numbers import number, operand
    from limelight.numbers import vector as written

    call, names = found.call, _names(found)
    query = np.asarray(call.query, np.float64)[0, 0, row]
    key, value = (np.asarray(side, np.float64)[0, 0] for side in (call.key, call.value))
    step = {name: table[0, 0, row] for name, table in vars(found.steps).items()}
    seen = step["allowed"]
    title = (
        f"query {row}"
        if found.tokens is None
        else f"query {row} {escape(repr(found.tokens[0][row]))}"
    )
    out.print(f"[bold]{title}[/] = {written(query)}, {call.keys} keys, d_k = {call.head_size}\n")

    out.print("[bold]1  Compare[/]: the dot product of the query with each key")
    view = table("", "key", "products", "", "score")
    for j, score in enumerate(column(step["raw"])):
        pairs = zip(query[:4], key[j][:4], strict=True)
        terms = " + ".join(f"{operand(q)}·{operand(k)}" for q, k in pairs)
        more = " + …" if len(query) > 4 else ""
        view.add_row(names[j], written(key[j], 4), terms + more, "=", score)
    show(out, right(view, 4))

    out.print(f"[bold]2  Scale[/]: {_scaling(call.scale, call.head_size)}")
    capped = call.softcap is not None
    view = table("", "score", "scaled", *(["capped"] if capped else []), *([""] * (not seen.all())))
    columns = [column(step[name]) for name in ("raw", "scaled", *(["capped"] if capped else []))]
    for j, cells in enumerate(zip(*columns, strict=True)):
        view.add_row(names[j], *cells, *([] if seen[j] else ["hidden by the mask"]))
    if capped:
        cap = number(call.softcap or 0.0)
        out.print(f"   and cap: {cap} · tanh(scaled / {cap})")
    show(out, right(view, 1, 2, *([3] if capped else [])))

    largest = step["max_logit"] if seen.any() else 0.0
    shifts = np.where(seen, step["logits"] - largest, 0.0)
    power = np.where(seen, np.exp(shifts), 0.0)
    out.print("[bold]3  Normalise[/]: softmax, e to the power of each score over the sum of all")
    view = table("", "score − largest", "e to that", "÷ sum", "")
    columns = [column(numbers) for numbers in (shifts, power, step["weights"])]
    for j, row_cells in enumerate(zip(*columns, strict=True)):
        shown = row_cells if seen[j] else ("hidden", "0", "0")
        view.add_row(names[j], *shown, bar(step["weights"][j]))
    view.add_section()
    view.add_row("sum", "", number(power.sum()), number(step["weights"].sum()), "")
    show(out, right(view, 1, 2, 3))

    out.print("[bold]4  Mix[/]: each value times its weight, all added")
    view = table("", "weight", "", "value", "", "contribution")
    for j, weight in enumerate(column(step["weights"])):
        mixed = written(step["weights"][j] * value[j], 4) if seen[j] else "nothing: it is hidden"
        view.add_row(names[j], weight, "×", written(value[j], 4), "=", mixed)
    view.add_section()
    view.add_row("output", "", "", "", "", f"[bold]{written(step['output'])}[/]")
    show(out, right(view, 1))
    out.print(_verdict(found, row, names))


def _scaling(scale: float, size: int) -> str:
    from limelight.numbers import number

    if scale == 1.0:
        return "left out, so the scores stay as they are"
    if scale == 1.0 / math.sqrt(size):
        return f"divide by √d_k = √{size} = {number(math.sqrt(size))}"
    return f"multiply by {number(scale)}"


def _verdict(found: Trace, row: int, names: list[str]) -> str:
    """What the row's health says, in a sentence."""
    import numpy as np

    weights = found.steps.weights[0, 0, row]
    health = found.health
    keys = int(np.asarray(health.keys).reshape(-1)[row])
    if keys == 0:
        return "There is no key to look at, so the output is 0."
    top = int(weights.argmax())
    share = f"{names[top]} dominates with {weights[top]:.1%} of the weight".replace("%", " %")
    if keys == 1:
        return f"{share}: it is the only one in view."
    figures = ", ".join(
        f"{name.replace('_', ' ')} {float(np.asarray(getattr(health, name)).reshape(-1)[row]):.4f}"
        for name in ("max_prob", "gradient", "spread")
    )
    return f"{share}. The row is {health.verdict.reshape(-1)[row]}: {figures}."


def _compare(out: Console, found: Trace, paper: ByHand, row: int) -> None:
    """Exact beside by hand, saying which is which."""
    out.print(
        f"\n[bold]By hand[/]: every number written with {paper.digits} digits, and the output "
        f"mixed from the weights as written.\nThe exact column is the answer; the other is what "
        f"paper gives.\n"
    )
    view = table("step", "exact", f"by hand, {paper.digits} digits")
    for name in ("raw", "scaled", "weights", "output"):
        exact, rough = (getattr(side, name)[row] for side in (found, paper))
        view.add_row(name, _numbers(exact, 6), _numbers(rough, paper.digits))
    show(out, view)


def _numbers(row: Any, digits: int) -> str:
    return ", ".join(f"{x:.{digits}f}" for x in row.tolist()).replace("-", "−")


def _names(found: Trace) -> list[str]:
    if found.tokens is None:
        return [f"key {j}" for j in range(found.call.keys)]
    return [f"key {j} {escape(repr(token))}" for j, token in enumerate(found.tokens[1])]
