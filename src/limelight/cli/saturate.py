"""limelight saturate: what d_k does to a softmax, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from limelight.cli._edge import (
    JsonOption,
    bar,
    bar_room,
    column,
    console,
    narrow,
    print_json,
    right,
    show,
    table,
    vector,
    whole,
)
from limelight.errors import ArgumentError
from limelight.writing.numbers import counted, percent

if TYPE_CHECKING:
    from rich.console import Console

    from limelight.learn.saturation import Curve, Row

FIGURES = ("max_prob", "gradient", "spread", "entropy", "effective_keys")


def saturate(
    d_k: Annotated[
        str | None,
        typer.Option("--d-k", help="How many entries a key has, or several counts as 4,64,1024."),
    ] = None,
    scores: Annotated[
        str | None, typer.Option(help="Raw scores to compare, as 15,12,9; takes one --d-k.")
    ] = None,
    keys: Annotated[
        int | None, typer.Option(help="How many keys the query meets.", min=1, show_default="8")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(help="Over how many draws to average.", min=1, show_default="2000"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Which random numbers.", min=0, show_default="0")
    ] = None,
    json: JsonOption = False,
) -> None:
    """See what d_k does to a softmax, and what scaling does about it.

    Without --scores it draws queries and keys with standard normal entries: with one --d-k it shows
    a draw as it is and scaled, and the means; with several, the means at each.
    """
    from limelight.cli._looking import progress
    from limelight.learn import saturation

    sizes = [_size(part) for part in d_k.split(",")] if d_k is not None else []
    out = console(markup=True)
    if scores is not None:
        if len(sizes) != 1:
            raise ArgumentError("--scores needs one --d-k: the size of the keys they came from")
        drawn = {"--keys": keys, "--draws": draws, "--seed": seed}
        extra = [name for name, value in drawn.items() if value is not None]
        if extra:
            raise ArgumentError(f"with --scores nothing is drawn: leave out {' and '.join(extra)}")
        compared = saturation.compare(vector(scores, "--scores"), sizes[0])
        if json:
            print_json(compared.to_dict())
            return
        out.print(f"[bold]The same scores, as they are and divided by √{sizes[0]}[/]\n")
        _side_by_side(out, compared.unscaled, compared.scaled, sizes[0])
        return
    keys, seed = 8 if keys is None else keys, seed or 0
    with progress("drawing") as told:
        curve = saturation.curve(
            sizes or saturation.SIZES, keys=keys, draws=draws or 2000, seed=seed, progress=told
        )
    if len(sizes) != 1:
        if json:
            print_json(curve.to_dict())
        else:
            _table(out, curve)
        return
    pair = [saturation.draw(sizes[0], keys=keys, scaled=on, seed=seed) for on in (False, True)]
    if json:
        means = {"unscaled": curve.unscaled[0].to_dict(), "scaled": curve.scaled[0].to_dict()}
        print_json({"unscaled": pair[0].to_dict(), "scaled": pair[1].to_dict(), "mean": means})
        return
    have = f"{counted(keys, 'key')} with {counted(sizes[0], 'standard normal number')} each"
    out.print(f"[bold]One query and {have}[/]\n")
    _side_by_side(out, pair[0].row, pair[1].row, sizes[0])
    _table(out, curve)


def _side_by_side(out: Console, plain: Row, scaled: Row, d_k: int) -> None:
    """Two softmaxes over the same keys, and their figures side by side."""
    titles = ("Not scaled", f"Divided by √{d_k}")
    names = [f"key {j}" for j in range(len(plain.scores))]
    scores = [column(row.scores) for row in (plain, scaled)]
    room = bar_room(out, 40, names, ["score", *scores[0], *scores[1]], ["0.000000"])
    for title, row, texts in zip(titles, (plain, scaled), scores, strict=True):
        out.print(f"   [bold]{title}[/]")
        view = table("", "score", "weight", "")
        for name, score, weight in zip(names, texts, row.weights, strict=True):
            view.add_row(name, score, f"{weight:.6f}", bar(weight, room))
        show(out, right(view, 1, 2))
    view = table("", *titles)
    for name in FIGURES:
        pair = (f"{getattr(row, name):.4f}" for row in (plain, scaled))
        view.add_row(name.replace("_", " "), *pair)
    view.add_row("verdict", plain.verdict or "–", scaled.verdict or "–")
    show(out, right(view, 1, 2))


def _table(out: Console, curve: Curve) -> None:
    """Means over d_k, in two halves; the bars take the room there is."""
    first = curve.unscaled[0]
    have = f"{counted(first.draws, 'draw')} of one query and {counted(first.keys, 'key')}"
    out.print(f"[bold]Means over {have}[/]\n")
    headings = ["d_k", "score ±", "max prob", "gradient", "spread", "saturated"]
    if narrow(out):
        headings = [heading.replace(" ", "\n") for heading in headings]
    widest = [heading.split("\n") for heading in headings]
    widest[0] += [str(mean.d_k) for mean in curve.unscaled]
    widest[1] += [f"{mean.score_deviation:.2f}" for mean in curve.unscaled]
    widest[2] += ["0.000"]
    room = bar_room(out, 12, *widest)
    for title, means in (("Not scaled", curve.unscaled), ("Divided by √d_k", curve.scaled)):
        out.print(f"   [bold]{title}[/]")
        view = table(*headings[:3], "", *headings[3:])
        for mean in means:
            view.add_row(
                str(mean.d_k), f"{mean.score_deviation:.2f}", f"{mean.max_prob:.3f}",
                bar(mean.max_prob, room), f"{mean.gradient:.3f}", f"{mean.spread:.3f}",
                percent(mean.saturated, 1) if first.keys > 1 else "–",
            )  # fmt: skip
        show(out, right(whole(view, 0, 1, 2, 4, 5, 6), 0, 1, 2, 4, 5, 6))
    alone = "" if first.keys > 1 else "; one key leaves no choice, so none is judged"
    out.print(
        "score ±: standard deviation of the scores. max prob: the largest weight p. gradient: "
        f"p·(1−p). spread: entropy / ln(keys). saturated: draws with p ≥ 0.95{alone}.",
        style="dim",
    )


def _size(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"--d-k: {text.strip()!r} is not a whole number") from None
