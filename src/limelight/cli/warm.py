"""limelight warm: compile the GPU kernels that a model will need."""

from __future__ import annotations

from typing import Annotated

import typer

from limelight.cli._edge import JsonOption, console, print_json, show, table
from limelight.cli._looking import progress


def warm(
    size: Annotated[int, typer.Option(help="The size of a head.")] = 128,
    heads: Annotated[int, typer.Option(help="Query heads.")] = 8,
    key_heads: Annotated[int | None, typer.Option(help="Key heads, if fewer.")] = None,
    batch: Annotated[int, typer.Option(help="Texts together.")] = 1,
    length: Annotated[int, typer.Option(help="Tokens of a text as the model sees it.")] = 2048,
    mask: Annotated[
        str, typer.Option(help="As limelight mask takes it; an empty text for none.")
    ] = "causal",
    softcap: Annotated[float | None, typer.Option(help="The cap of the logits.")] = None,
    sinks: Annotated[bool, typer.Option("--sinks", help="One more logit a head.")] = False,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32.")] = "bfloat16",
    decode: Annotated[bool, typer.Option("--decode", help="Also one token after a text.")] = False,
    training: Annotated[bool, typer.Option(help="Also the gradients.")] = True,
    dropout: Annotated[float, typer.Option(help="The share that falls in training.")] = 0.0,
    json: JsonOption = False,
) -> None:
    """Compile the GPU kernels that a model will need, before it runs."""
    from limelight.torch.warming import Kind, kinds_of
    from limelight.torch.warming import warm as compile_all

    whole = Kind(size, heads, key_heads or heads, length, length, mask, softcap, sinks, dtype,
                 dropout=dropout, batch=batch)  # fmt: skip
    kinds = kinds_of(whole, training=training)
    if decode:
        one = Kind(size, heads, key_heads or heads, 1, length, "", softcap, sinks, dtype,
                   batch=batch)  # fmt: skip
        kinds += kinds_of(one, training=False)
    with progress("compiling") as told:
        taken = compile_all(kinds, progress=told)
    if json:
        print_json([{**vars(kind), "seconds": seconds} for kind, seconds in taken.items()])
        return
    view = table("queries", "keys", "for", "seconds")
    for kind, seconds in taken.items():
        words = "gradients" if kind.gradients else "health" if kind.health else "output"
        view.add_row(f"{kind.queries:,}", f"{kind.keys:,}", words, f"{seconds:.1f}")
    show(console(), view)
