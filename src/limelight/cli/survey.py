"""limelight survey: what a model's heads do over a file or a folder of texts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from limelight.cli._edge import JsonOption, console, headline, print_json
from limelight.cli._looking import ForceOption, progress, writable
from limelight.errors import FileError
from limelight.writing.numbers import counted

if TYPE_CHECKING:
    from limelight.survey import Survey


def survey(
    model: Annotated[
        str,
        typer.Argument(
            help="A model folder, a .gguf file, a name in the Hugging Face cache, smollm2, minilm."
        ),
    ],
    texts: Annotated[
        Path, typer.Argument(help="A text file, a .jsonl of texts, or a folder of such files.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write it to this .safetensors file.",
            show_default="MODEL-TEXTS.safetensors",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Of each text at most.", show_default="512, or what it reads"),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Texts that run together.")] = 8,
    characters: Annotated[
        int, typer.Option(min=0, help="Join a file's paragraphs to passages of about so many.")
    ] = 600,
    most: Annotated[int | None, typer.Option(min=1, help="Only the first so many texts.")] = None,
    saved: Annotated[
        float, typer.Option(min=0, help="Seconds between two savings of what is unfinished.")
    ] = 30.0,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """Survey a model's heads over any number of texts: exact figures, kinds, patterns; in a file.

    What was stopped goes on where it was when the same command is given again. Under torchrun each
    rank takes its share, and one file comes out.
    """
    if not os.path.exists(texts):
        raise FileError(f"{texts}: there is no such file or folder")
    target = output or Path(f"{Path(model).stem}-{texts.stem}.safetensors")
    writable(target, (".safetensors",), force)
    with _ranks() as rank:
        found = _survey(model, texts, target, tokens, batch, characters, most, saved, rank == 0)
        if rank:
            return
        found.save(target)
    if json:
        print_json({"file": str(target), **found.to_dict()})
        return
    _show(found, target)


def _survey(
    model: str, texts: Path, target: Path, tokens: int | None, batch: int, characters: int,
    most: int | None, saved: float, told: bool,
) -> Survey:  # fmt: skip
    import itertools

    from limelight.survey import passages

    os.environ.setdefault("TQDM_DISABLE", "1")  # one progress bar at a time: ours
    count = sum(1 for _ in itertools.islice(passages(texts, characters), most))
    with progress(f"loading {Path(model).name}") if told else _silent():
        from limelight import hf

        hf.quiet()
        loaded = hf.load(model)
    words = f"{loaded.name} reads {counted(count, 'text')}"
    with progress(words) if told else _silent() as tell:
        found: Survey = hf.survey(
            loaded, itertools.islice(passages(texts, characters), most), tokens=tokens,
            batch=batch, checkpoint=target.with_name(f"{target.name}.unfinished"), saved=saved,
            source={"texts": texts.name}, progress=lambda done: tell(done, count),
        )  # fmt: skip
    return found


@contextmanager
def _silent() -> Iterator[Any]:
    yield lambda *_: None


@contextmanager
def _ranks() -> Iterator[int]:
    """Under torchrun, a group of all processes while the survey runs; which of them this is."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
        yield 0
        return
    from torch import distributed

    distributed.init_process_group("gloo")
    try:
        yield distributed.get_rank()
    finally:
        distributed.destroy_process_group()


def _show(found: Survey, target: Path) -> None:
    from limelight.cli.heads import all_kinds

    out = console()
    size = f"{counted(sum(found.counts), 'head')} in {counted(len(found.sites), 'layer')}"
    read = f"{counted(found.texts, 'text')} of {found.tokens:,} tokens"
    headline(out, found.source.get("model", "model"), f"{size}, {read}\n")
    all_kinds(out, found.heads, 5)
    if found.cut:
        out.print(f"{counted(found.cut, 'text')} longer than --tokens: cut", style="dim")
    out.print(f"{target}: look at it with limelight report, heads or studio", markup=False)
