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


def studio(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Captures or training logs to offer, the first of them opened; a capture that "
            "comes along by its name.",
            show_default=False,
        ),
    ] = None,
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

    paths, first = _asked(files or [])
    folders = Folders.of(tuple(folder or ()), paths)
    place = _place(first, folders.files)
    started = Studio(folders)
    check_certificate(certificate, key)
    address = bind(host, port, say, secure=certificate is not None)

    def opened(keys: Keys) -> None:
        said = [f"limelight studio: {address.url(keys.token)}{place}", "Ctrl-C ends it."]
        if json:
            print_json({"url": address.url(keys.token) + place, "port": address.port})
            said = []
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
        if not no_browser and _has_screen():
            webbrowser.open(address.url(keys.ticket) + place)

    serve(
        started, address, allow_hosts=tuple(allow_host or ()), opened=opened, verbose=verbose,
        certificate=certificate, key=key,
    )  # fmt: skip


def _asked(files: list[str]) -> tuple[tuple[Path, ...], str | Path | None]:
    """The paths among what was named, and which capture or file is opened."""
    from limelight.capture.shipped import captures

    own = captures().names
    paths = tuple(Path(name) for name in files if name not in own)
    for path in paths:
        if path.suffix.lower() not in AREAS and not path.is_dir():
            raise ArgumentError(
                f"{path}: the studio opens captures (.safetensors) and training logs (.jsonl), and "
                f"the captures that come along by name: {', '.join(own)}"
            )
    if not files:
        return paths, None
    return paths, files[0] if files[0] in own else Path(files[0])


def _place(first: str | Path | None, files: dict[str, Path]) -> str:
    """Where the page opens: what follows the address."""
    if first is None:
        return ""
    if isinstance(first, str):
        return f"#/explore/{first}"
    name = next(name for name, path in files.items() if path == first.resolve())
    ending = first.suffix
    return f"#/{AREAS[ending.lower()]}/{quote(name.removesuffix(ending), safe='')}"


def _has_screen() -> bool:
    """Without a screen the only browsers are those that would take over the terminal."""
    return sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
