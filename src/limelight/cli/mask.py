"""limelight mask: a mask as a picture."""

from __future__ import annotations

from typing import Annotated

import typer

from limelight.cli._edge import JsonOption, console, print_json
from limelight.errors import ArgumentError
from limelight.writing.numbers import counted, percent

MOST_CELLS = 1 << 22  # beyond, JSON carries the blocks alone
LONGEST = 1 << 20  # queries or keys that are drawn and counted
MOST_BLOCKS = 1 << 24  # a byte each


def mask(
    expression: Annotated[
        str, typer.Argument(help="Such as causal, 'causal & window(3, 0)' or '~prefix(2)'.")
    ] = "causal",
    size: Annotated[
        str | None,
        typer.Option(help="Queries and keys, as 8 or 4x8.", show_default="the mask's own"),
    ] = None,
    block: Annotated[int, typer.Option(help="Side of the blocks that are counted.", min=1)] = 128,
    json: JsonOption = False,
) -> None:
    """Draw a mask: which keys each query may attend to.

    Masks: causal, window(left, right), lengths(keys), documents([ids]), prefix(n), combined with
    &, | and ~ as in Python. Rows are queries, columns are keys; the last query stands on the last
    key unless align='top-left' says otherwise.
    """
    from limelight.masks.text import parse

    found = parse(expression)
    queries, keys = found._size() if size is None else _size(size)
    _check(queries, keys, block)
    blocks = found.blocks(queries, keys, (block, block))
    kinds = {"empty": 0, "partial": 1, "full": 2}
    counts = {name: int((blocks == kind).sum()) for name, kind in kinds.items()}
    rows = found.allowed(queries, keys).count()
    # One number a row and batch entry; where every row is alike there is just one.
    share = float(rows.mean()) / keys if rows.size and keys else 0.0
    if json:
        small = queries * keys <= MOST_CELLS
        print_json({
            "expression": found.expression, "queries": queries, "keys": keys, "share": share,
            "dense": found.dense(queries, keys) if small else None,
            "block": block, "blocks": blocks, "block_counts": counts,
        })  # fmt: skip
        return
    out = console(markup=True)
    size = f"{counted(queries, 'query')} × {counted(keys, 'key')}"
    out.print(f"[bold]{found.expression}[/], {size}", soft_wrap=True)
    most = max(1, min(32, (out.width + 1) // 2))  # characters across, with blanks between
    if queries and keys:
        out.print(found.draw(queries, keys, most), soft_wrap=True)
    cut = max(queries, keys) > most
    legend = "■ allowed  · hidden" + ("  ▒ partly allowed" if cut else "")
    out.print(f"{legend}   rows are queries, columns are keys", style="dim")
    out.print(f"{percent(share, 1)} of the cells are allowed")
    if max(queries, keys) > block:
        listing = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        out.print(f"Blocks of {block} × {block}: {listing}; engines skip the empty ones")


def _check(queries: int, keys: int, block: int) -> None:
    """What is drawn and counted must fit in memory."""
    if max(queries, keys) > LONGEST:
        raise ArgumentError(
            f"{queries:,} × {keys:,} is too large a mask to draw: {LONGEST:,} a side are the most"
        )
    count = -(-queries // block) * -(-keys // block)
    if count > MOST_BLOCKS:
        raise ArgumentError(
            f"{queries:,} × {keys:,} are {count:,} blocks of {block} × {block}, too many to count: "
            f"give a larger --block"
        )


def _size(text: str) -> tuple[int, int]:
    parts = text.lower().replace("×", "x").split("x")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or min(numbers) < 0:
        raise ArgumentError(f"--size {text!r}: write 8 for 8 × 8, or 4x8 for 4 queries and 8 keys")
    return numbers[0], numbers[-1]
