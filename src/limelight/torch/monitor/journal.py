"""The monitor's file: JSON lines, written as training goes and read while it grows. No torch here.

docs/torch.md describes every kind of line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limelight.errors import FileError

FORMAT, VERSION = "limelight.monitor", 1


class Journal:
    """Appends lines to a file; each is complete on disk before the next begins."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            cut_short = self.path.exists() and not _ends_with_newline(self.path)
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise FileError(f"cannot write {self.path}: {error.strerror or error}") from None
        if cut_short:  # a run that was killed in mid-line
            self._file.write("\n")

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@dataclass
class Run:
    """What a file says so far; `update()` reads on from where the last one stopped."""

    path: Path
    header: dict[str, Any] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    active: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    _offset: int = 0

    @classmethod
    def open(cls, path: str | Path) -> Run:
        run = cls(Path(path))
        run.update()
        return run

    def update(self) -> bool:
        """Read the lines that were added; True if there were any."""
        found = False
        for line in self._new_lines():
            found = True
            self._take(line)
        return found

    def _take(self, line: dict[str, Any]) -> None:
        kind = line.get("kind")
        if kind == "run":
            self.header, self.end = line, None
            self.active.clear()
        elif kind == "record":
            self.records.append(line)
        elif kind == "alarm":
            self.alarms.append(line)
            at = (line["alarm"], line["site"], line["head"])
            if line["event"] == "raised":
                self.active[at] = line
            else:
                self.active.pop(at, None)
        elif kind == "end":
            self.end = line

    def _new_lines(self) -> Iterator[dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except OSError as error:
            raise FileError(f"cannot read {self.path}: {error.strerror or error}") from None
        complete = text.rpartition(b"\n")[0]
        first = self._offset == 0
        self._offset += len(complete) + 1 if complete or text.startswith(b"\n") else 0
        for raw in complete.splitlines():
            if not raw.strip():
                continue
            line = _parse(raw)
            if first and (line is None or line.get("format") != FORMAT):
                raise FileError(
                    f"{self.path} is not a monitor's file: its first line should say "
                    f'"format": "{FORMAT}"; limelight.torch.Monitor writes such files'
                )
            if first and line is not None and line.get("version", 0) > VERSION:
                raise FileError(
                    f"{self.path} has version {line['version']} of the format, and this "
                    f"limelight reads up to {VERSION}: update it"
                )
            first = False
            if line is not None:
                yield line


def _parse(raw: bytes) -> dict[str, Any] | None:
    """A line, or None for one that a killed run left cut short."""
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(0, 2)
        if file.tell() == 0:
            return True
        file.seek(-1, 2)
        return file.read(1) == b"\n"
