"""`limelight studio FILE…`: the file that was named is the one that is opened."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from limelight.cli import app
from limelight.studio.folders import Folders
from tests.studio import samples
from tests.studio.conftest import Running


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "my own.safetensors"
    samples.text_capture().save(path)
    return path


def test_a_named_capture_is_opened(
    browser: Any, start_studio: Callable[..., Running], capture: Path
) -> None:
    running = start_studio(str(capture))
    assert running.url.endswith("#/explore/my%20own")
    assert "my own" in [one["id"] for one in running.get("/api/captures")]
    page = browser.new_page()
    page.goto(running.url)
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()
    page.close()


def test_a_log_opens_in_watch_and_a_name_is_a_capture_that_comes_along(
    start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text("")
    assert start_studio(str(log)).url.endswith("#/watch/run")
    assert start_studio("llama", str(log)).url.endswith("#/explore/llama")


def test_files_of_one_name_are_told_apart(tmp_path: Path, capture: Path) -> None:
    others = [tmp_path / "a" / capture.name, tmp_path / "b" / capture.name]
    for other in others:
        other.parent.mkdir()
        shutil.copy(capture, other)
    shipped = tmp_path / "llama.safetensors"
    shutil.copy(capture, shipped)
    named = Folders.of((), (capture, *others, shipped, capture)).files
    assert list(named) == [
        "my own.safetensors", "a:my own.safetensors", "b:my own.safetensors",
        f"{tmp_path.name}:llama.safetensors",
    ]  # fmt: skip
    assert set(Folders.of((), (capture,)).find(".safetensors")) == {capture.name}
    capture.unlink()
    assert Folders(files={capture.name: capture}).find(".safetensors") == {}


@pytest.mark.parametrize(("name", "said"), [
    ("nothing.safetensors", "there is no such file"),
    ("notes.txt", "the studio opens captures (.safetensors) and training logs (.jsonl)"),
    (".", "is a folder: give it with --folder"),
])  # fmt: skip
def test_what_cannot_be_opened_is_said(tmp_path: Path, name: str, said: str) -> None:
    result = CliRunner().invoke(app, ["studio", "--no-browser", str(tmp_path / name)])
    assert result.exit_code != 0
    words = re.sub(r"\s+", " ", result.output + str(result.exception))
    assert said in words
