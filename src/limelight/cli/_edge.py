"""What every command shares: JSON out, tables out, numbers in."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from limelight.errors import ArgumentError

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def console() -> Console:
    """Where people's output goes: the terminal's width and colours, or plain text in a pipe."""
    return Console(highlight=False)


def table(*headings: str, title: str | None = None) -> Table:
    """An empty table in the house look: no frame, one rule under the headings."""
    view = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for heading in headings:
        view.add_column(heading)
    return view


def print_json(data: Any) -> None:
    """Strict JSON on stdout: what is not a finite number becomes null."""
    typer.echo(json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False))


def plain(data: Any) -> Any:
    """Arrays and NumPy numbers to lists and numbers; NaN and infinities to None."""
    if isinstance(data, dict):
        return {str(key): plain(item) for key, item in data.items()}
    if hasattr(data, "tolist"):
        return plain(data.tolist())
    if isinstance(data, (list, tuple)):
        return [plain(item) for item in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data


def number(text: str, name: str) -> float:
    """One finite number; a typographic minus and a fraction such as 1/2 are understood."""
    top, slash, bottom = text.strip().replace("−", "-").partition("/")
    try:
        value = float(top) / (float(bottom) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not math.isfinite(value):
        raise ArgumentError(f"{name}: {text.strip()!r} is not a number")
    return value


def vector(text: str, name: str) -> list[float]:
    """'2,1' or '2 1' or '[2, 1]' to [2.0, 1.0]."""
    parts = text.strip().strip("[]()").replace(",", " ").split()
    if not parts:
        raise ArgumentError(f"{name}: no numbers in {text!r}: write them as 2,1")
    return [number(part, name) for part in parts]


def matrix(text: str, name: str) -> list[list[float]]:
    """'2,1;1,0' (or JSON lists) to [[2.0, 1.0], [1.0, 0.0]]; every row as long as the first."""
    text = text.strip()
    if text.startswith("[["):
        text = text[1:-1].replace("],", "];") if text.endswith("]]") else text
    rows = [vector(row, name) for row in text.strip().strip(";").split(";")]
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        counts = ", ".join(str(len(row)) for row in rows)
        raise ArgumentError(
            f"{name}: the rows have {counts} numbers: separate rows by ';' and numbers by ',', "
            f"each row with as many as the others"
        )
    return rows
