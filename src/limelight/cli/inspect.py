"""limelight inspect: which heads of a model do what, on a text or an image of one's own."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from limelight.cli._edge import JsonOption, console, headline, print_json, right, show, table, whole
from limelight.cli._looking import (
    COLOURS,
    ForceOption,
    figure_tables,
    folded,
    listed_layers,
    progress,
    writable,
)
from limelight.errors import ArgumentError, EngineError, FileError
from limelight.intake import read_bounded
from limelight.writing.numbers import counted

if TYPE_CHECKING:
    from limelight.capture import Capture, HealthTables
    from limelight.heads import Heads


MOST_TEXT = 64 << 20  # bytes of a text file


def inspect(
    model: Annotated[
        str,
        typer.Argument(
            help="A model folder, a .gguf file, a name in the Hugging Face cache, smollm2, minilm; "
            "or a saved capture (.safetensors), or one that comes along (llama, bert, …)."
        ),
    ],
    text: Annotated[str | None, typer.Option(help="What the model reads.")] = None,
    file: Annotated[Path | None, typer.Option(help="A text file that the model reads.")] = None,
    image: Annotated[Path | None, typer.Option(help="An image that the model looks at.")] = None,
    layers: Annotated[
        str | None, typer.Option(help="Only these layers, as 0,3,10-14 or -1 for the last.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Cut the text to so many tokens.")
    ] = None,
    generate: Annotated[
        int, typer.Option(min=0, help="Let the model write so many tokens more.")
    ] = 0,
    figure: Annotated[
        str, typer.Option(help="The figure to show: max_prob, entropy, spread, saturated, …")
    ] = "max_prob",
    save: Annotated[
        Path | None, typer.Option(help="Write the capture to this .safetensors file.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write every figure of every head to this .csv file.")
    ] = None,
    values: Annotated[bool, typer.Option("--values", help="Keep the values too.")] = False,
    half: Annotated[
        bool, typer.Option("--half", help="With --save: in float16, half the size.")
    ] = False,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Show what a model's heads do on a text or an image: their health and what they look at."""
    from limelight import heads as kinds
    from limelight.capture.health import check_figure

    started = time.perf_counter()
    check_figure(figure)
    if save is not None:
        writable(save, (".safetensors",), force)
    if csv is not None:
        writable(csv, (".csv",), force)
    if half and save is None:
        raise ArgumentError("--half is how --save writes: give --save too")
    found = _capture(model, text, file, image, listed_layers(layers), tokens, generate, values)
    with progress("judging the heads") as told:
        tables = found.health()
        seen = kinds.find(found, progress=told)
    if save is not None:
        with progress(f"writing {save.name}"):
            found.save(save, dtype="float16" if half else None)
    if csv is not None:
        tables.to_csv(csv)
    spent = time.perf_counter() - started
    if json:
        print_json(_record(found, tables, seen, spent, save))
    else:
        _show(found, tables, seen, figure, spent, save)


def _capture(
    model: str, text: str | None, file: Path | None, image: Path | None, layers: Any,
    tokens: int | None, generate: int, values: bool,
) -> Capture:  # fmt: skip
    from limelight.capture.shipped import captures
    from limelight.capture.shipped import open as open_capture

    given = [name for name, what in (("--text", text), ("--file", file), ("--image", image))
             if what is not None]  # fmt: skip
    saved = os.path.isfile(model) and Path(model).suffix == ".safetensors"
    if saved or model in captures().names:
        making = {"--layers": layers, "--tokens": tokens, "--generate": generate or None,
                  "--values": values or None}  # fmt: skip
        given += [name for name, what in making.items() if what is not None]
        if given:
            raise ArgumentError(f"{model} is a capture, made already: leave out {', '.join(given)}")
        return open_capture(model)
    _look_for(model)
    if len(given) != 1:
        came = f"got {' and '.join(given)}" if given else "got none"
        raise ArgumentError(f"give the model one of --text, --file and --image, and {came}")
    if file is not None:
        text = _read(file)
    os.environ.setdefault("TQDM_DISABLE", "1")  # one progress bar at a time: ours
    with progress(f"loading {Path(model).name}"):
        from limelight import hf

        hf.quiet()
        loaded = hf.load(model)
    count, done = _layer_count(loaded.model, layers), itertools.count(1)
    with progress(f"running {loaded.name}") as told:
        found: Capture = loaded.capture(
            text, image, layers=layers, values=values, tokens=tokens, generate=generate,
            progress=None if generate else lambda _: told(next(done), count),
        )  # fmt: skip
        return found


def _look_for(model: str) -> None:
    """A model that is not there is said before what it should read."""
    if not model.strip():
        raise ArgumentError("the model's name is empty: give a folder, a .gguf file or a name")
    from limelight import hf

    if why := hf.missing():
        raise EngineError(why)
    from limelight.hf.places import place_of

    place_of(model)


def _layer_count(model: Any, layers: Any) -> int:
    from limelight.hf.recorder import layer_numbers

    return len(layer_numbers(model)) if layers is None else len(layers)


def _read(path: Path) -> str:
    try:
        return read_bounded(path, MOST_TEXT).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(f"{path}: not UTF-8 text; an image goes with --image") from None


def _record(
    found: Capture, tables: HealthTables, seen: Heads, spent: float, save: Path | None
) -> dict[str, Any]:
    return {
        "source": found.source,
        "sites": [{"site": site.name, "layer": site.layer, "kind": site.kind, "heads": site.heads,
                   "queries": site.queries, "keys": site.keys,
                   "mask": None if site.mask is None else site.mask.expression}
                  for site in found],
        "health": tables.to_dict(),
        "kinds": seen.to_dict(),
        "seconds": spent,
        "peak_memory_bytes": _peak(),
        "saved": None if save is None else str(save),
    }  # fmt: skip


def _show(
    found: Capture, tables: HealthTables, seen: Heads, figure: str, spent: float, save: Path | None
) -> None:
    from limelight.capture.health import TITLES

    out = console()
    site = found.sites[0]
    words = tables.verdict
    size = (f"{counted(len(found), 'layer')} × {counted(site.heads, 'head')}, "
            f"{site.queries:,} × {counted(site.keys, 'token')}")  # fmt: skip
    headline(out, found.source.get("model", "capture"), size)
    counts = [Text(f"{int((words == word).sum())} {word}", COLOURS[word] or "green")
              for word in ("healthy", "peaked", "saturated")]  # fmt: skip
    if strange := int((tables["not_a_number"] > 0).sum()):
        counts.append(Text(f"{strange} with rows that are not a number", "red"))
    out.print("heads:", Text(", ").join(counts), end="\n\n")
    out.print(f"{TITLES[figure]}, layers down, heads across (~ peaked, ! saturated)")
    for view in figure_tables(tables, figure, out.width):
        show(out, view)
    view = whole(table("kind", "such a head", "rows", "the strongest"), 0, 3)
    for name, meaning, best in seen.lines():
        view.add_row(
            name,
            meaning,
            f"{seen.judged(name):,}",
            folded(best, max(26, out.width - 60)) or Text("the text gives it no chance", "dim"),
        )
    out.print("heads of known kinds (? = too weak to be one, or from too few rows)")
    show(out, right(view, 2))
    out.print(f"{spent:.1f} s, {_peak() / 1e9:.2f} GB at most", style="dim")
    if save is not None:
        folder = shlex.quote(str(save.parent))
        out.print(f"saved to {save} ({save.stat().st_size / 1e6:,.1f} MB)", soft_wrap=True)
        out.print(f"limelight studio --folder {folder} shows it", soft_wrap=True)


def _peak() -> int:
    """The most memory that this process has held, in bytes."""
    if sys.platform == "win32":
        return 0
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
