"""Captures that come along: real attention of five kinds of models, to look at without any model.

    captures()            what there is: names, models, texts, licences, how each was made
    find("llama")         the file of that name; a path to a capture of one's own stays as it is
    open("llama")         the capture itself

Each is one safetensors file beside this one, below a megabyte in half precision, and read with
NumPy alone. examples/make_captures.py makes them all; each carries where it came from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limelight.errors import ArgumentError, FileError
from limelight.writing.tables import columns

if TYPE_CHECKING:
    from limelight.capture import Capture

HERE, ENDING = Path(__file__).parent, ".safetensors"
ORDER = ("llama", "llama-paragraph", "bert", "bank-river", "bank-savings", "gpt", "code", "vit")


@dataclass(frozen=True, eq=False)
class Shipped:
    """One capture that comes along. Its facts are read from the file when first asked for."""

    name: str
    path: Path

    @property
    def bytes(self) -> int:
        return self.path.stat().st_size

    @cached_property
    def source(self) -> dict[str, Any]:
        """Where it came from: title, model, text, licence, command, and what was selected."""
        return self._listed.source

    @property
    def shape(self) -> dict[str, int]:
        """How many sites, query heads a site, batch entries and positions."""
        sites = self._listed.sites
        return {
            "sites": len(sites), "heads": max(site.heads for site in sites),
            "batch": sites[0].batch, "tokens": max(site.keys for site in sites),
        }  # fmt: skip

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(site.name for site in self._listed.sites)

    def open(self) -> Capture:
        from limelight.capture import Capture

        return Capture.open(self.path)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: all of it."""
        return {
            "name": self.name, "file": self.path.name, "bytes": self.bytes, **self.shape,
            "site_names": list(self.sites), "source": self.source,
        }  # fmt: skip

    def __repr__(self) -> str:
        facts = {key: self.source.get(key, "") for key in ("title", "licence", "command")}
        return f"Shipped({self.name!r}: {'; '.join(str(fact) for fact in facts.values() if fact)})"

    @cached_property
    def _listed(self) -> Capture:
        from limelight.capture import Capture

        return Capture.open(self.path, verify=False)


@dataclass(frozen=True, eq=False)
class Captures:
    """What there is: `captures()["llama"]` opens one, `captures().to_dict()` says everything."""

    rows: tuple[Shipped, ...]

    def __getitem__(self, name: str) -> Capture:
        """The capture of that name, opened."""
        return self.row(name).open()

    def row(self, name: str) -> Shipped:
        """The capture of that name, as it is listed."""
        for row in self.rows:
            if row.name == name:
                return row
        raise ArgumentError(f"no capture {name!r} comes along: choose {', '.join(self.names)}")

    def __iter__(self) -> Iterator[Shipped]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)

    def to_dict(self) -> list[dict[str, Any]]:
        return [row.to_dict() for row in self.rows]

    def table(self) -> list[tuple[str, ...]]:
        """Headings, then for each capture its name, what it is, and its size in words."""
        lines: list[tuple[str, ...]] = [
            ("name", "what it is", "layers × heads", "tokens", "kB", "licence")
        ]
        for row in self.rows:
            has = row.shape
            count = f"{has['batch']} × {has['tokens']}" if has["batch"] > 1 else str(has["tokens"])
            lines.append((
                row.name, str(row.source.get("title", "")), f"{has['sites']} × {has['heads']}",
                count, f"{row.bytes / 1000:.0f}", str(row.source.get("licence", "")),
            ))  # fmt: skip
        return lines

    def __repr__(self) -> str:
        lines = self.table()
        return "\n".join(columns(lines, left=range(len(lines[0]))))

    def _repr_html_(self) -> str:
        from html import escape

        head, *rows = self.table()
        cells = ["".join(f"<td style='text-align:left'>{escape(c)}</td>" for c in row)
                 for row in rows]  # fmt: skip
        heading = "".join(f"<th style='text-align:left'>{escape(c)}</th>" for c in head)
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>"


def captures() -> Captures:
    """The captures that come along.

    >>> captures().names
    ('llama', 'llama-paragraph', 'bert', 'bank-river', 'bank-savings', 'gpt', 'code', 'vit')
    >>> captures()["llama"][11].cell(2, 1, head=1).weight > 0.9  # cat looks at curious
    True
    """
    found = {path.name.removesuffix(ENDING): path for path in HERE.glob(f"*{ENDING}")}
    order = sorted(found, key=lambda name: (*ORDER, name).index(name))
    return Captures(tuple(Shipped(name, found[name]) for name in order))


def find(which: str | os.PathLike[str]) -> Path:
    """The file of a capture: a shipped one by its name, any other by its path.

    A bare name means the shipped one; ./name is the file of that name here.
    """
    text = os.fspath(which)
    shipped = {row.name: row.path for row in captures()}
    if text in shipped:
        return shipped[text]
    path = Path(text)
    if not os.path.exists(path) and path.name == text and not path.suffix:
        raise FileError(f"{text}: there is no such file, and no such capture comes along: those "
                        f"are {', '.join(shipped)}")  # fmt: skip
    return path


def open(which: str | os.PathLike[str]) -> Capture:
    """A shipped capture by its name, any other by its path."""
    from limelight.capture import Capture

    return Capture.open(find(which))


# ll.captures is the function above: these make ll.captures.open("llama") work too.
captures.find, captures.open = find, open  # type: ignore[attr-defined]
