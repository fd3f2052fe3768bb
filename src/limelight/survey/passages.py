"""Texts for a survey, one by one: from a list, an iterator, a file or a folder.

A file's paragraphs are joined to passages of some length, so that heads have something to look at;
a passage never reaches from one file into the next. In a .jsonl file each line is a text: the
"text" of an object, or a string. A folder's files come in the order of their names, hidden ones and
what does not begin as UTF-8 left out.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limelight.errors import ArgumentError, FileError
from limelight.intake import from_json, open_plain, reading
from limelight.writing.files import as_path

CHARACTERS = 600  # from which a passage is long enough
LONGEST_LINE = 16 << 20  # bytes


@dataclass(frozen=True)
class Passage:
    """A text, or a list of token ids, and where it is from."""

    name: str
    text: Any


def passages(texts: Any, characters: int = CHARACTERS) -> Iterator[Passage]:
    """The texts of a survey, each with a name.

    texts       texts, lists of token ids or passages; or a path to a file or folder
    characters  paragraphs of a file are joined until they have so many; 0 leaves them alone
    """
    if isinstance(texts, (str, os.PathLike)):
        yield from _path(as_path(texts), characters)
        return
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise ArgumentError(f"a survey reads texts, and {type(texts).__name__} is none: give a "
                            f"list, an iterator, or a path to a file or folder")  # fmt: skip
    for at, text in enumerate(texts):
        yield text if isinstance(text, Passage) else Passage(f"text {at}", text)


def _path(path: Path, characters: int) -> Iterator[Passage]:
    if os.path.isdir(path):
        found = 0
        for file in _files(path):
            for passage in _file(file, str(file.relative_to(path)), characters):
                found += 1
                yield passage
        if not found:
            raise FileError(f"{path}: no text in this folder: a survey reads UTF-8 text files")
        return
    if not os.path.exists(path):
        raise FileError(f"{path}: there is no such file or folder; a text of your own goes into a "
                        f"list: [text]")  # fmt: skip
    yield from _file(path, path.name, characters)


def _files(folder: Path) -> Iterator[Path]:
    """Every file below that begins as a text, in the order of their names."""
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            file = Path(at, name)
            if not name.startswith(".") and os.path.isfile(file) and _begins(file):
                yield file


def _begins(path: Path) -> bool:
    with open_plain(path) as file, reading(path):
        start = file.read(4096)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    return b"\0" not in start


def _file(path: Path, name: str, characters: int) -> Iterator[Passage]:
    if path.suffix.lower() == ".jsonl":
        for at, line in enumerate(_lines(path), start=1):
            if line.strip():
                yield Passage(f"{name}, line {at}", _record(line, path, at))
        return
    held: list[str] = []
    began, at = 1, 0
    for at, line in enumerate(_lines(path), start=1):
        if not held and not line.strip():
            continue
        if not held:
            began = at
        held.append(line)
        if not line.strip() and sum(map(len, held)) >= characters:
            yield Passage(f"{name}, line {began}", "".join(held).rstrip())
            held = []
    if held:
        yield Passage(f"{name}, line {began}", "".join(held).rstrip())


def _lines(path: Path) -> Iterator[str]:
    with open_plain(path) as file, reading(path):
        first = True
        while data := file.readline(LONGEST_LINE + 1):
            if len(data) > LONGEST_LINE:
                raise FileError(f"{path}: a line has more than {LONGEST_LINE:,} bytes: break it "
                                f"into paragraphs")  # fmt: skip
            try:
                line = data.decode("utf-8-sig" if first else "utf-8")
            except UnicodeDecodeError:
                raise FileError(f"{path} is not UTF-8 text: save it as UTF-8") from None
            yield line.replace("\r\n", "\n")
            first = False


def _record(line: str, path: Path, at: int) -> str:
    try:
        found = from_json(line, longest=LONGEST_LINE)
    except ValueError as error:
        raise FileError(f"{path}, line {at}: not JSON that a survey reads: {error}") from None
    text = found.get("text") if isinstance(found, dict) else found
    if not isinstance(text, str):
        raise FileError(f'{path}, line {at}: each line is a text: {{"text": "…"}}, or a string')
    return text
