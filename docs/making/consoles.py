"""Console blocks: under each command, what it prints in a terminal of 80 columns.

Blocks marked `no-run` (a GPU, a model or a server needed) stay as they are. A long command may go
on after a backslash.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).parent.parent
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("**/*.md"))]
WIDTH = 80
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def filled(page: Path) -> str:
    """The page, with what its commands print now."""

    def block(found: re.Match[str]) -> str:
        parts = [f"$ {command}\n{printed(command)}" for command, _ in COMMAND.findall(found[1])]
        return "```console\n" + "\n".join(parts) + "```"

    return BLOCK.sub(block, page.read_text(encoding="utf-8"))


def printed(command: str) -> str:
    """What a limelight command says, each line without the blanks at its end."""
    name, *words = shlex.split(command.replace("\\\n", " "))
    if name != "limelight":
        raise ValueError(f"{command}: only limelight commands are run")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "limelight", *words],
            cwd=folder, capture_output=True, text=True, check=False, timeout=60,
            env={**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"},
        )  # fmt: skip
    lines = (done.stdout + done.stderr).strip().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def make() -> list[Path]:
    """Write what changed, and say which pages that were."""
    changed = []
    for page in PAGES:
        text = filled(page)
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            changed.append(page)
    return changed
