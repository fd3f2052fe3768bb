"""limelight studio: the local web app."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from limelight.cli._edge import JsonOption, print_json
from limelight.errors import ArgumentError

AREAS = {".safetensors": "explore", ".jsonl": "watch"}  # where a file is looked at
SURVEY = "~survey"  # stands before a survey's name, where a capture's name stands alone


def studio(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Captures, surveys or training logs to offer, the first of them opened; a capture "
            "that comes along by its name.",
            show_default=False,
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Open the first two captures side by side, at the head that differs most.",
        ),
    ] = False,
    folder: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder whose captures, models and training logs may be opened; "
            "may be given several times.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port; the next free one if busy, 0 for any.", min=0, max=65535)
    ] = 8765,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another exact Host it answers to, as NAME:PORT, for a forwarded port.",
            show_default=False,
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Serve over TLS, with this certificate (PEM).", show_default=False),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            help="The certificate's key, where it is not in the same file.", show_default=False
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="A line for each request.")] = False,
    json: JsonOption = False,
) -> None:
    """Open the studio: learn attention by touching it, then read a real model."""
    try:
        from limelight.studio.folders import Folders
        from limelight.studio.keys import Keys
        from limelight.studio.serve import bind, check_certificate, serve
        from limelight.studio.studio import Studio
    except ModuleNotFoundError as error:
        raise ArgumentError(f"the studio needs the package {error.name}, which is not installed: "
                            f"pip install {error.name}") from None  # fmt: skip

    def say(text: str) -> None:
        typer.echo(text, err=json)

    named = _asked(files or [])
    folders = Folders.of(tuple(folder or ()), tuple(one for one in named if isinstance(one, Path)))
    place = _beside(named, folders.files) if compare else _place(named[:1], folders.files)
    started = Studio(folders)
    check_certificate(certificate, key)
    address = bind(host, port, say, secure=certificate is not None)

    def opened(keys: Keys) -> None:
        called = [f"limelight studio: {address.url(keys.token)}{place}", "Ctrl-C ends it."]
        said = [] if json else called
        if address.exposed:
            said.append(
                f"It listens on {host}: whoever reaches this machine and has that address can use "
                "it."
            )
        if address.exposed and certificate is None:
            said.append(
                "The token and all that is shown travel unencrypted: --certificate and --key "
                "serve it over TLS, an SSH tunnel carries it from 127.0.0.1."
            )
        if said:
            say("\n".join(said))  # at once: whoever has read the address has read it all
        if json:
            print_json({"url": address.url(keys.token) + place, "port": address.port})
        if not no_browser and _has_screen():
            webbrowser.open(address.url(keys.ticket) + place)

    serve(
        started, address, allow_hosts=tuple(allow_host or ()), opened=opened, verbose=verbose,
        certificate=certificate, key=key,
    )  # fmt: skip


def _asked(files: list[str]) -> list[str | Path]:
    """What was named: the captures and runs that come along by name, all others by path."""
    from limelight.capture.shipped import captures
    from limelight.journal.shipped import runs

    own = (*captures().names, *(run.name for run in runs()))
    named = [name if name in own else Path(name) for name in files]
    for path in named:
        if isinstance(path, Path) and path.suffix.lower() not in AREAS and not os.path.isdir(path):
            raise ArgumentError(
                f"{path}: the studio opens captures and surveys (.safetensors) and training logs "
                f"(.jsonl), and what comes along by name: {', '.join(own)}"
            )
    return named


def _place(named: list[str | Path], files: dict[str, Path]) -> str:
    """Where the page opens on the first of what was named: what follows the address."""
    if not named:
        return ""
    first, name = named[0], _name(named[0], files)
    if isinstance(first, Path):
        area = AREAS[first.suffix.lower()]
    else:
        from limelight.journal.shipped import TITLES

        area = "watch" if first in TITLES else "explore"
    if area == "explore" and isinstance(first, Path):
        from limelight.survey.file import is_survey

        area = f"explore/{SURVEY}" if is_survey(first) else area
    return f"#/{area}/{name}"


def _beside(named: list[str | Path], files: dict[str, Path]) -> str:
    """The same for two captures, at the head that differs most between them."""
    from limelight.capture import compare
    from limelight.cli._looking import opened, progress

    if len(named) < 2:
        raise ArgumentError(f"--compare takes two captures, and {len(named)} came: name both files")
    both = [opened(str(one)) for one in named[:2]]
    with progress("comparing the heads") as told:
        found = compare(*both, progress=told)
    most = found.strongest(1)
    if not most:
        raise ArgumentError(f"{named[0]} and {named[1]} have no row to compare")
    pair = found.pairs[most[0].site]
    names = [[site.name for site in one].index(at.name)
             for one, at in zip(both, (pair.first, pair.second), strict=True)]  # fmt: skip
    head, beside = (f"{site}.{most[0].head}" for site in names)
    one, other = (_name(which, files) for which in named[:2])
    return f"#/explore/{one}?head={head}&with={beside}&of={other}"


def _name(one: str | Path, files: dict[str, Path]) -> str:
    """How an address names it."""
    if isinstance(one, str):
        return one
    name = next(name for name, path in files.items() if path == one.resolve())
    return quote(name.removesuffix(one.suffix), safe="")


def _has_screen() -> bool:
    """Without a screen the only browsers are those that would take over the terminal."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
