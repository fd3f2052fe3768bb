"""Files are whole or not there; links stay links, devices and folders are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from limelight.errors import ArgumentError, FileError
from limelight.writing.files import as_path, whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_bytes(b"before")

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(FileError, match="cannot be written: No space left"),
        whole(target) as file,
    ):
        fail(file)
    assert target.read_bytes() == b"before"
    with whole(target) as file:
        file.write(b"after")
    assert target.read_bytes() == b"after"
    assert os.listdir(tmp_path) == ["x"]


def test_what_names_no_file_is_refused() -> None:
    for given in (None, 5, b"x", ["x"]):
        with (
            pytest.raises(ArgumentError, match=r"a file is named by a text or a Path, and .* is"),
            whole(given),  # type: ignore[arg-type]
        ):
            raise AssertionError
    with pytest.raises(FileError, match="it holds a NUL character"):
        as_path("a\0b")


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "x", tmp_path / "link"
    target.write_bytes(b"before")
    link.symlink_to(target)
    with whole(link) as file:
        file.write(b"after")
    assert link.is_symlink()
    assert target.read_bytes() == b"after"


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("pipe", "folder", "circle", "x" * 300, "missing/x", "a\0b"):
        before = sorted(os.listdir(tmp_path))
        with (
            pytest.raises(FileError, match=r"cannot be written|names no file"),
            whole(tmp_path / name) as file,
        ):
            file.write(b"x")
        assert sorted(os.listdir(tmp_path)) == before


def killed_while_writing(folder: Path) -> None:
    """A process that writes a megabyte of a file and is killed."""
    code = (
        "import os, signal, sys; from limelight.writing.files import whole\n"
        "with whole(sys.argv[1]) as file:\n"
        "    file.write(b'x' * 2**20); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder / "x")], check=False)
    assert done.returncode == -signal.SIGKILL


def test_what_a_killed_writer_left_the_next_one_removes(tmp_path: Path) -> None:
    killed_while_writing(tmp_path)
    (left,) = os.listdir(tmp_path)
    (tmp_path / "other.part").write_bytes(b"somebody else's")
    with whole(tmp_path / "x") as slow:
        slow.write(b"slow")
        slow.flush()
        with whole(tmp_path / "y") as quick:  # leaves the other one alone
            quick.write(b"quick")
    assert left not in os.listdir(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["other.part", "x", "y"]
    assert (tmp_path / "x").read_bytes() == b"slow"


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written: it is a folder"), whole(tmp_path):
        pass
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="it is no plain file"), whole(tmp_path / "pipe"):
        pass
