"""The monitor's file as it is written."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from limelight.errors import FileError


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
        """What a full disk has not taken is given up."""
        with suppress(OSError):
            self._file.close()


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(0, 2)
        if file.tell() == 0:
            return True
        file.seek(-1, 2)
        return file.read(1) == b"\n"
