"""limelight lessons: the course as files that run by themselves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from limelight.cli._edge import JsonOption, print_json
from limelight.cli._looking import ForceOption, writable
from limelight.errors import ArgumentError


def lessons(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write one .html file.", show_default="lessons.html"),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(
            help="Write static pages for a web host into this folder instead.", show_default=False
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(help="One interactive alone, as lab or step.", show_default="all of them"),
    ] = None,
    language: Annotated[str, typer.Option(help="That the pages open in: en, de or es.")] = "en",
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write the lessons as one HTML file, or as static pages, that run by themselves.

    The file opens from a disk, without a network and without limelight; progress is kept in the
    browser that shows it. What it opens on can be put behind its name, as a link from Learn has
    it: lessons.html#/learn/lab?lab.d_k=256. Every file holds all languages; the reader can choose.
    """
    from limelight.lessons import write_lessons, write_site

    if site is not None:
        if output is not None or part is not None:
            given = "--output" if output is not None else "--part"
            raise ArgumentError(f"--site writes all parts into its folder: leave out {given}")
        if os.path.exists(site) and not os.path.isdir(site):
            raise ArgumentError(f"--site {site} is a file: name a folder for the pages")
        if os.path.isdir(site) and os.listdir(site) and not force:
            raise ArgumentError(f"{site} holds files already: give --force to write among them")
        made = write_site(site, language=language)
        size = sum(path.stat().st_size for path in made)
        facts = {"folder": str(site), "files": [path.name for path in made], "bytes": size}
        told = f"{site}: {len(made)} files, {size / 1e6:.1f} MB; begin with index.html"
    else:
        target = output or Path(f"{part or 'lessons'}.html")
        writable(target, (".html", ".htm"), force)
        size = write_lessons(target, part, language=language)
        facts = {"file": str(target), "bytes": size, "part": part}
        told = f"{target}: {size / 1e6:.2f} MB, without a network"
    if json:
        print_json(facts)
    else:
        typer.echo(told)
