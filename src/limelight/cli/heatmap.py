"""limelight heatmap: the weights of a capture's heads, drawn to a file or in the terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limelight.arrays import index
from limelight.cli._edge import JsonOption, coloured, console, print_json, show
from limelight.cli._looking import (
    CaptureArgument,
    ForceOption,
    chosen,
    figure_tables,
    opened,
    progress,
    region,
    writable,
)
from limelight.errors import ArgumentError
from limelight.writing.numbers import counted
from limelight.writing.terminal import shown

if TYPE_CHECKING:
    from rich.console import Console

    from limelight.capture import Capture, Site
    from limelight.looking.heatmap import Heatmap
    from limelight.pictures import Picture

AS = ("map", "lines", "patches", "grid")
FOR = {"--pool": ("map",), "--size": ("map",), "--scale": ("map", "patches")}
LARGEST = 512  # bins a side, unless told
SHADES = " ░▒▓█"
MARGIN = 2  # characters left of a map in the terminal


def heatmap(
    capture: CaptureArgument,
    layer: Annotated[
        str | None, typer.Option(help="The layer's number (-1 for the last) or a site's name.")
    ] = None,
    head: Annotated[int | None, typer.Option(help="The head; without it all of the layer.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Draw it to this .png, .svg or .pdf file.")
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="Only these queries, as 100:356.", show_default="all")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Only these keys, as 100:356.", show_default="all")
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            help="What a bin of several cells shows: their max or mean.", show_default="max"
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(help="Colours by linear or log weight.", show_default="linear"),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(help="Bins a side.", show_default="one for each cell, 512 at most"),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="map, lines (query to key), patches (on the image), or grid (all heads).",
            show_default="map, or grid without a layer",
        ),
    ] = None,
    query: Annotated[
        int | None,
        typer.Option(help="With --as patches: the query whose look is shown.", show_default="0"),
    ] = None,
    figure: Annotated[
        str | None,
        typer.Option(
            help="With --as grid: the figure of health that colours a head.",
            show_default="max_prob",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="The entry of the batch that is shown.")] = 0,
    theme: Annotated[
        str | None, typer.Option(help="With -o: light or dark.", show_default="light")
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="The picture's title.", show_default="model, layer and head")
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Draw a head's weights from a capture, whole or in part, at any length.

    Without a layer it draws all heads at a glance. Without --output it draws in the terminal, and
    with --json it prints the numbers of the map.
    """
    kind = kind or ("grid" if layer is None else "map")
    held = opened(capture)
    if not held.sites:
        raise ArgumentError("the capture is empty: capture a run that has attention in it")
    site = None if layer is None else chosen(held, layer)
    where = "" if site is None else f" at {site.name}"
    if site is not None and head is not None:
        head = index(head, site.heads, "head", where)
    batch = index(batch, held.entries if site is None else site.batch, "batch entry", where)
    asked = Asked(kind, layer, head, batch, region(rows, "--rows"), region(columns, "--columns"))
    asked.check(output, {"--pool": pool, "--size": size, "--scale": scale}, query, figure)
    if theme is not None and output is None:
        raise ArgumentError(f"--theme {theme}: only for a picture; say where to with -o FILE")
    pool = "max" if pool is None else pool
    scale = "linear" if scale is None else scale
    query, figure = query or 0, figure or "max_prob"
    if output is not None:
        writable(output, (".png", ".svg", ".pdf"), force)
    room = _room(console()) if output is None and not json else None
    seen = None
    if site is not None and kind in ("map", "lines"):
        seen = _look(site, asked, pool, size, room)
    title = _title(held, site, head) if title is None else title
    look: dict[str, Any] = {"title": title, "theme": theme or "light"}
    if output is not None:
        picture = _draw(held, site, seen, asked, query=query, scale=scale, figure=figure, look=look)
        picture.save(output)
    if json:
        record = _record(site, seen, asked, output)
        print_json(record | _figure(held, figure) if kind == "grid" else record)
    elif output is not None:
        typer.echo(shown(f"{output}: {picture.description}"))
    elif seen is not None:
        _print(console(), seen, title, scale)
    else:
        _glance(console(), held, title, figure)


@dataclass(frozen=True)
class Asked:
    """What is to be drawn."""

    kind: str
    layer: str | None
    head: int | None
    batch: int
    rows: slice | None
    columns: slice | None

    def check(
        self, output: Path | None, told: dict[str, Any], query: int | None, figure: str | None
    ) -> None:
        from limelight.capture.health import check_figure
        from limelight.views.palette import SCALES

        if self.kind not in AS:
            raise ArgumentError(f"--as {self.kind}: choose {', '.join(AS)}")
        if self.layer is None and self.kind != "grid":
            raise ArgumentError(f"--as {self.kind} needs --layer")
        if self.kind == "grid" and self.layer is not None:
            raise ArgumentError("--as grid shows all layers: leave out --layer")
        if self.kind == "grid" and self.head is not None:
            raise ArgumentError(f"--head {self.head} is a head of one layer: give --layer too")
        if self.kind != "patches" and query is not None:
            raise ArgumentError(f"--query {query} goes with --as patches: --rows chooses queries "
                                f"of a map")  # fmt: skip
        if self.kind != "grid" and figure is not None:
            raise ArgumentError(f"--figure {figure} colours the grid of all heads: leave out "
                                f"--layer, or --figure")  # fmt: skip
        if self.kind in ("lines", "patches") and self.head is None:
            raise ArgumentError(f"--as {self.kind} draws one head: give --head")
        if self.kind in ("patches", "grid") and (self.rows or self.columns):
            raise ArgumentError(f"--as {self.kind} shows all: leave out --rows and --columns")
        if self.kind == "grid" and self.batch:
            raise ArgumentError("--as grid shows all entries of the batch together: leave out "
                                "--batch, or give --layer")  # fmt: skip
        if self.kind in ("lines", "patches") and output is None:
            raise ArgumentError(f"--as {self.kind} draws to a file: give --output")
        told = {name: given for name, given in told.items() if given is not None}
        idle = [name for name in told if self.kind not in FOR[name]]
        if idle:
            raise ArgumentError(f"--as {self.kind} takes no {' or '.join(idle)}: leave out")
        if told.get("--scale", "linear") not in SCALES:
            raise ArgumentError(f"--scale {told['--scale']}: choose {' or '.join(SCALES)}")
        if figure is not None:
            check_figure(figure)


def _title(held: Capture, site: Site | None, head: int | None) -> str:
    parts = [str(held.source.get("model", ""))]
    if site is not None:
        parts += [f"layer {site.layer}" if site.kind == "self" else site.name]
    if head is not None:
        parts.append(f"head {head}")
    return " · ".join(part for part in parts if part)


def _look(site: Site, asked: Asked, pool: str, size: int | None, room: int | None) -> Heatmap:
    """The map of one head [P, Q], or of all heads [Hq, P, Q]; at most `room` bins a side."""
    from limelight.looking import regions
    from limelight.looking.heatmap import heatmap_of

    if site.call.empty:
        raise ArgumentError(f"{site.name} has {counted(site.heads, 'head')} of {site.queries:,} × "
                            f"{site.keys:,} cells: there is nothing to show")  # fmt: skip
    spans = (regions.span(asked.rows, site.queries, "--rows", "queries"),
             regions.span(asked.columns, site.keys, "--columns", "keys"))  # fmt: skip
    shape = [size if size is not None else min(LARGEST, stop - start) for start, stop in spans]
    shape = [min(room or side, side) for side in regions.picture(shape)]
    one = asked.head is not None
    call = site.call.one_head(asked.head or 0, asked.batch) if one else site.call
    with progress("pooling the weights") as told:
        known = site.statistics.logsumexp
        known = known[asked.batch, asked.head][None, None] if one else known
        seen = heatmap_of(call, shape=(shape[0], shape[1]), pool=pool, rows=spans[0],
                          columns=spans[1], logsumexp=known, progress=told)  # fmt: skip
    return seen.head(0, 0) if one else seen.head(asked.batch)


def _draw(
    held: Capture, site: Any, seen: Any, asked: Asked, *, query: int, scale: str, figure: str,
    look: dict[str, Any],
) -> Picture:  # fmt: skip
    from limelight import pictures

    if asked.kind == "grid":
        with progress("looking at the heads"):
            return pictures.head_grid(held, figure=figure, thumbnails=32, **look)
    if asked.kind == "patches":
        if held.image is None or held.grid is None:
            raise ArgumentError("this capture has no image: --as patches is for vision models")
        query = index(query, site.queries, "query")
        weights = site.weights(rows=[query], head=asked.head, batch=asked.batch)[0]
        look = {**look, "title": f"{look['title']} · query {query}"}
        return pictures.patches(held.image[asked.batch], weights, grid=held.grid, query=query,
                                scale=scale, **look)  # fmt: skip
    keys = site.labels("key", asked.batch) if site.tokens else None
    queries = site.labels("query", asked.batch) if site.query_tokens else None
    if asked.kind == "map":
        return pictures.heatmap(seen, tokens=keys, query_tokens=queries, scale=scale, **look)
    (r0, r1), (c0, c1) = seen.rows, seen.columns
    if seen.shape != (r1 - r0, c1 - c0):
        raise ArgumentError(f"{r1 - r0:,} × {c1 - c0:,} tokens are too many for lines: choose some "
                            f"with --rows and --columns, or draw a map")  # fmt: skip
    return pictures.lines(seen.values, tokens=keys and keys[c0:c1],
                          query_tokens=queries and queries[r0:r1], **look)  # fmt: skip


def _record(site: Any, seen: Any, asked: Asked, output: Path | None) -> dict[str, Any]:
    record: dict[str, Any] = {"as": asked.kind, "file": None if output is None else str(output)}
    if site is not None:
        record |= {"site": site.name, "layer": site.layer, "head": asked.head, "batch": asked.batch}
    if seen is not None:
        record |= {"rows": seen.rows, "columns": seen.columns, "pool": seen.pool,
                   "shape": seen.shape, "values": seen.values}  # fmt: skip
    return record


def _figure(held: Capture, figure: str) -> dict[str, Any]:
    tables = held.health()
    return {"figure": figure, "sites": tables.names(), "values": tables[figure]}


def _glance(out: Console, held: Capture, title: str, figure: str) -> None:
    """All heads in the terminal: one figure of each, marked by its verdict."""
    from limelight.capture.health import TITLES

    out.print(title, style="bold")
    out.print(f"{TITLES[figure]}, layers down, heads across (~ peaked, ! saturated)")
    for view in figure_tables(held.health(), figure, out.width):
        show(out, view)
    out.print("--layer 0 draws that layer's maps; -o heads.png draws all heads", style="dim")


def _print(out: Console, seen: Heatmap, title: str, scale: str) -> None:
    """Maps in the terminal: two bins a character, or a shade each where there is no colour."""
    from limelight.views.palette import Scale

    (r0, r1), (c0, c1) = seen.rows, seen.columns
    out.print(title, style="bold")
    out.print(f"queries {r0:,}:{r1:,} down, keys {c0:,}:{c1:,} across{_pooled(seen)}")
    maps = [seen] if seen.values.ndim == 2 else [seen.head(n) for n in range(len(seen.values))]
    fit = Scale.of(seen.values, scale)
    for head, one in enumerate(maps):
        if len(maps) > 1:
            out.print(f"head {head}", style="dim")
        _colours(out, fit, one) if coloured(out) else _shades(out, fit, one)
    out.print(f"{_largest(seen)}; -o map.png draws it in full", style="dim")


def _largest(seen: Heatmap) -> str:
    """What the numbers of a map come to."""
    import numpy as np

    if seen.empty.all():
        return "the mask allows nothing here"
    numbers = seen.values[~np.isnan(seen.values)]
    strange = int((~seen.empty).sum()) - len(numbers)
    if not len(numbers):
        return "what the mask allows here is not a number"
    what = "weight" if seen.pool == "max" or not _pooled(seen) else "mean of a bin"
    also = f", not a number in {counted(strange, 'bin')}" if strange else ""
    return f"the largest {what} is {numbers.max():.4g}{also}"


def _room(out: Console) -> int:
    """Bins across a terminal: one a character, or two characters each where there is no colour."""
    return max(8, (out.width - MARGIN) // (1 if coloured(out) else 2))


def _pooled(seen: Heatmap) -> str:
    """What a bin of several cells is."""
    spans = zip((seen.rows, seen.columns), seen.shape, strict=True)
    height, width = (math.ceil((stop - start) / bins) for (start, stop), bins in spans)
    if height == width == 1:
        return ""
    bins = f"{seen.shape[0]} × {seen.shape[1]} bins"
    return f"\n{bins}, each the {seen.pool} of up to {height} × {width} cells"


def _shades(out: Console, fit: Any, seen: Heatmap) -> None:
    import numpy as np

    shares = fit.share(seen.values)
    marks = np.array(list(SHADES))[np.rint(np.nan_to_num(shares) * 4).astype(np.intp)]
    for row in np.where(np.isnan(shares), np.where(seen.empty, "·", "?"), marks):
        out.print("  " + "".join(mark * 2 for mark in row))


def _colours(out: Console, fit: Any, seen: Heatmap) -> None:
    from rich.text import Text

    from limelight.views.palette import css

    colours = fit.paint(seen.values, "dark", seen.empty)
    for top in range(0, len(colours), 2):
        line = Text("  ")
        for column in range(colours.shape[1]):
            below = css(colours[top + 1, column]) if top + 1 < len(colours) else "default"
            line.append("▀", style=f"{css(colours[top, column])} on {below}")
        out.print(line)
