"""Console blocks: under each command, what it prints in a terminal of 80 columns.

Blocks marked `no-run` (a GPU, a model or a server needed) stay as they are. A long command may go
on after a backslash.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("**/*.md"))]
WIDTH = 80
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


# A page's commands in one process, so that the library is imported once.
RUN = """
import contextlib, io, json, os, sys, tempfile
from limelight.__main__ import main
said = []
for words in json.loads(sys.stdin.read()):
    sys.argv = ["limelight", *words]
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out), \\
            contextlib.redirect_stderr(errors), contextlib.suppress(SystemExit):
        os.chdir(folder)
        main()
    os.chdir("/")
    for stream in (out, errors):
        stream.flush()
    said.append("".join(stream.buffer.getvalue().decode() for stream in (out, errors)))
print(json.dumps(said))
"""


def filled(page: Path) -> str:
    """The page, with what its commands print now."""
    text = page.read_text(encoding="utf-8")
    commands = [command for block in BLOCK.findall(text) for command, _ in COMMAND.findall(block)]
    said = iter(printed(commands))

    def block(found: re.Match[str]) -> str:
        parts = [f"$ {command}\n{next(said)}" for command, _ in COMMAND.findall(found[1])]
        return "```console\n" + "\n".join(parts) + "```"

    return BLOCK.sub(block, text)


def printed(commands: list[str]) -> list[str]:
    """What each limelight command says, its lines without the blanks at their ends."""
    every = [shlex.split(command.replace("\\\n", " ")) for command in commands]
    if wrong := [words for words in every if words[0] != "limelight"]:
        raise ValueError(f"{shlex.join(wrong[0])}: only limelight commands are run")
    if not every:
        return []
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps([words[1:] for words in every]),
        capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"},
    )  # fmt: skip
    return [
        "".join(f"{line.rstrip()}\n" for line in said.strip().splitlines())
        for said in json.loads(done.stdout)
    ]


def make() -> list[Path]:
    """Write what changed, and say which pages that were."""
    changed = []
    for page in PAGES:
        text = filled(page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            changed.append(page)
    return changed
