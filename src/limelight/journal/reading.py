"""The monitor's file as the terminal and the studio read it while it grows: typed lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec

from limelight.errors import FileError
from limelight.intake import open_plain, reading
from limelight.journal import FIGURES, FORMAT, VERSION, Figure

CHUNK, LONGEST_LINE = 4 << 20, 8 << 20  # bytes

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Numbers = list[float | None]


class Bound(msgspec.Struct):
    """A bound of the monitor: the alarm of that name is raised where a figure crosses it."""

    name: str
    figure: str
    raise_at: float
    above: bool = True
    clear_at: float | None = None


class RunLine(msgspec.Struct, tag_field="kind", tag="run"):
    """The first line, and again each time training resumes into the same file."""

    format: str
    version: int
    model: str = ""
    every: int | None = None
    started: float | None = None
    alarms: list[dict[str, Any]] = []

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise ValueError(f"the format is {self.format}")

    def bounds(self) -> list[Bound]:
        """Those of the bounds that can be read."""
        found = []
        for alarm in self.alarms:
            with suppress(msgspec.ValidationError):
                found.append(msgspec.convert(alarm, Bound))
        return found


class SiteLine(msgspec.Struct):
    """One site of a record; its figures have one entry a head."""

    name: str
    layer: int
    heads: Count
    max_logit: Numbers
    max_prob: Numbers
    entropy: Numbers
    spread: Numbers
    peaked: Numbers
    saturated: Numbers
    not_a_number: Numbers

    def __post_init__(self) -> None:
        if any(len(getattr(self, figure)) != self.heads for figure in FIGURES):
            raise ValueError(f"{self.name}: a figure has not one entry a head")


class RecordLine(msgspec.Struct, tag_field="kind", tag="record"):
    """The health of every head at one step."""

    step: Count
    time: float
    sites: list[SiteLine]
    loss: float | None = None
    lr: float | None = None


class AlarmLine(msgspec.Struct, tag_field="kind", tag="alarm"):
    """A head crossed a bound, or came back."""

    event: Literal["raised", "cleared"]
    step: Count
    alarm: str
    site: str
    layer: int
    head: Count
    figure: Figure
    value: float
    bound: float


class ClippedHead(msgspec.Struct):
    """A head that was scaled back: its logits, the largest `max_logit`, became `factor` times."""

    site: str
    head: Count
    max_logit: float
    factor: float


class ClipLine(msgspec.Struct, tag_field="kind", tag="clip"):
    """What QKClip did after one step."""

    step: Count
    limit: float
    heads: list[ClippedHead]


class EndLine(msgspec.Struct, tag_field="kind", tag="end"):
    """The monitor was closed, or the training loop raised."""

    reason: str


Line = RunLine | RecordLine | AlarmLine | ClipLine | EndLine
_decoder = msgspec.json.Decoder(Line)
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass
class Tail:
    """The lines of a file that were not read before, as it grows.

    A line counts once it is complete. One that is damaged, lacks what its kind must have, or is of
    an unknown kind is left out, and costs itself alone.
    """

    path: Path
    most_bytes: int | None = None
    opener: Callable[[], BinaryIO] | None = None  # where the path alone may not be opened
    _place: int = 0
    _first: bytes = b""

    def begun_anew(self) -> bool:
        """Whether the file is another than the one read so far; it is then read from its start."""
        with self._open() as file, reading(self.path):
            same = file.read(len(self._first)) == self._first and file.seek(0, 2) >= self._place
        if not same:
            self._place, self._first = 0, b""
        return not same

    def lines(self) -> Iterator[tuple[Line, bytes]]:
        """Each new line, and the bytes it was read from."""
        for text in self._complete():
            try:
                line = _decoder.decode(text)
            except UNREADABLE:
                line = None
            if not self._first:
                if not isinstance(line, RunLine):
                    raise FileError(
                        f"{self.path.name} is not a monitor's file: its first line should say "
                        f'"format": "{FORMAT}"; limelight.torch.Monitor writes such files'
                    )
                self._first = text
            if isinstance(line, RunLine) and line.version > VERSION:
                raise FileError(
                    f"{self.path.name} has version {line.version} of the format, and this "
                    f"limelight reads up to {VERSION}: update it"
                )
            self._place += len(text) + 1
            if line is not None:
                yield line, text

    def _complete(self) -> Iterator[bytes]:
        with self._open() as file, reading(self.path):
            end, left = file.seek(self._place), b""
            while chunk := file.read(CHUNK):
                end += len(chunk)
                if self.most_bytes is not None and end > self.most_bytes:
                    raise FileError(
                        f"{self.path.name} is longer than {self.most_bytes:,} bytes: "
                        f"log every few more steps, or cut the file"
                    )
                *lines, left = (left + chunk).split(b"\n")
                if len(left) > LONGEST_LINE:
                    raise FileError(f"{self.path.name}: a line of more than {LONGEST_LINE:,} bytes")
                yield from lines

    def _open(self) -> BinaryIO:
        return open_plain(self.path) if self.opener is None else self.opener()


def is_journal(path: Path) -> bool:
    """Whether the first line says that a monitor wrote it."""
    try:
        with open_plain(path) as file, reading(path):
            return isinstance(_decoder.decode(file.readline(CHUNK)), RunLine)
    except (FileError, *UNREADABLE):
        return False
