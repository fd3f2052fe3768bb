"""`limelight studio FILE…`: the file that was named is the one that is opened."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from limelight.capture import compare
from limelight.capture.shipped import captures
from limelight.cli import app
from limelight.cli.studio import _asked, _beside
from limelight.errors import ArgumentError
from limelight.studio.folders import Folders
from tests.studio import samples
from tests.studio.conftest import Running
from tests.survey.samples import made


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


def test_a_log_opens_in_watch_and_a_name_is_what_comes_along(
    start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text("")
    assert start_studio(str(log)).url.endswith("#/watch/run")
    assert start_studio("llama", str(log)).url.endswith("#/explore/llama")
    assert start_studio("gpt-qkclip").url.endswith("#/watch/gpt-qkclip")


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


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_a_named_survey_is_opened_and_walked_by_keyboard(
    browser: Any, start_studio: Callable[..., Running], tmp_path: Path, width: int, dark: bool
) -> None:
    survey = made(range(9))
    survey.save(tmp_path / "plays.safetensors")
    running = start_studio(str(tmp_path / "plays.safetensors"))
    assert running.url.endswith("#/explore/~survey/plays")
    page = browser.new_page(viewport={"width": width, "height": 900},
                            color_scheme="dark" if dark else "light")  # fmt: skip
    page.goto(running.url)
    page.get_by_text("9 texts of").wait_for()
    grid = page.get_by_role("grid", name="Heads of the survey")
    grid.get_by_role("button").first.focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_url(re.compile(r"head=1\.1"))
    page.get_by_role("heading", name="Layer 1, head 1").wait_for()
    page.get_by_text(f"{survey.heads.scores['own'][1, 1]:.2f}").first.wait_for()
    page.get_by_label("Colour").select_option("own")
    page.wait_for_url(re.compile("by=own"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_two_captures_open_side_by_side_at_the_head_that_differs_most(
    capture: Path,
) -> None:
    files = {"my own.safetensors": capture}
    named = _asked(["bank-river", "bank-savings", str(capture)])
    found = compare(captures()["bank-river"], captures()["bank-savings"]).strongest(1)[0]
    at = f"{found.layer}.{found.head}"
    assert _beside(named, files) == f"#/explore/bank-river?head={at}&with={at}&of=bank-savings"
    assert re.match(r"#/explore/my%20own\?head=(\d\.\d)&with=\1&of=my%20own$",
                    _beside([capture, capture], files))  # fmt: skip
    with pytest.raises(ArgumentError, match="takes two captures, and 1 came"):
        _beside([capture], files)


@pytest.mark.parametrize(("name", "said"), [
    ("nothing.safetensors", "there is no such file"),
    ("notes.txt", "the studio opens captures and surveys (.safetensors) and training logs (.jsonl)"),
    (".", "is a folder: give it with --folder"),
])  # fmt: skip
def test_what_cannot_be_opened_is_said(tmp_path: Path, name: str, said: str) -> None:
    result = CliRunner().invoke(app, ["studio", "--no-browser", str(tmp_path / name)])
    assert result.exit_code != 0
    words = re.sub(r"\s+", " ", result.output + str(result.exception))
    assert said in words
