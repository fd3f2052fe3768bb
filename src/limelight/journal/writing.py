"""The monitor's file as it is written."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from limelight.errors import FileError
from limelight.journal import FORMAT
from limelight.writing.files import as_path


class Journal:
    """Appends lines to a file; each is complete on disk before the next begins."""

    def __init__(self, path: str | Path) -> None:
        self.path = as_path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            first, last = _ends(self.path)
            if first and FORMAT.encode() not in first:
                raise FileError(
                    f"{self.path} holds something else than a monitor's lines, which would go to "
                    f"its end: name another file, or move it out of the way"
                )
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise FileError(f"cannot write {self.path}: {error.strerror or error}") from None
        if last not in (b"", b"\n"):  # a run that was killed in mid-line
            self._file.write("\n")

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """What a full disk has not taken is given up."""
        with suppress(OSError):
            self._file.close()


def _ends(path: Path) -> tuple[bytes, bytes]:
    """How a file's first line begins, and its last byte; empty where it has none or is a device."""
    if not path.is_file() or not path.stat().st_size:
        return b"", b""
    with path.open("rb") as file:
        first = file.readline(4096)
        file.seek(-1, 2)
        return first, file.read(1)
