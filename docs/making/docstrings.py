"""Docstrings as Markdown for the site: examples as code, columns of name and meaning as tables."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROW = re.compile(r"^(\S[^`|]*?)\s{2,}(\S.*)$")


class Readable(griffe.Extension):
    """Written for a terminal, docstrings align columns with blanks; a page has tables for that."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = readable(obj.docstring.value)


def readable(text: str) -> str:
    """
    >>> print(readable("Twice.\\n\\n>>> 1 + 1\\n2"))
    Twice.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return "\n\n".join(_part(part) for part in re.split(r"\n\s*\n", text.strip()))


def _part(part: str) -> str:
    lines = part.split("\n")
    if lines[0].startswith(">>>"):
        return "\n".join(["```pycon", *lines, "```"])
    rows: list[list[str]] = []
    for line in lines:
        found = ROW.match(line)
        if found and not line.startswith(" "):
            rows.append([found[1], found[2]])
        elif line.startswith("    ") and rows:
            rows[-1][1] += " " + line.strip()
        else:
            return part
    if len(rows) < 2:
        return part
    body = [f"| `{name}` | {meaning} |" for name, meaning in rows]
    return "\n".join(["| | |", "|---|---|", *body])
