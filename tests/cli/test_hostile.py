"""Whatever is typed or handed over: a right answer, or one plain line and exit code 2."""

from __future__ import annotations

import json
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from limelight.cli import app
from limelight.writing.terminal import HIDDEN

LONG = "x" * 5_000  # longer than any name of a file


def refused(*words: str) -> str:
    """The line that a command ends with."""
    done = CliRunner().invoke(app, list(words))
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2, done.stdout
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not HIDDEN.search(done.stderr.rstrip("\n"))
    return done.stderr


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("~" * 900 + "causal", "more than 100 masks"),
        (" & ".join(["causal"] * 900), "more than 100 masks"),
        ("~" * 9_000 + "causal", "is not a mask"),
        ("documents([[1], [2, 3]])", "ragged list"),
        (f"documents({'[' * 80}1{']' * 80})", "deeper in each other"),
        (f"lengths({2**63})", r"below 2\*\*63"),
        ("lengths([2, 3], queries=[1, 2, 3])", "for the same batch entries"),
        ("documents([[0], [1]], queries=[[0], [1], [2]])", "for the same batch entries"),
        (f"lengths({2**40})", "too large a mask"),
    ],
)
def test_masks_that_nobody_writes(expression: str, said: str) -> None:
    assert re.search(said, refused("mask", expression))


@pytest.mark.parametrize(
    "words",
    [
        ("heads", LONG), ("heatmap", LONG), ("report", LONG), ("watch", LONG), ("inspect", LONG),
        ("compare", LONG, LONG), ("inspect", "vit", "--image", LONG), ("studio", LONG),
        ("studio", f"{LONG}.safetensors"), ("studio", "--folder", LONG), ("lessons", "--site", LONG),
        ("lessons", "-o", f"{LONG}.html"), ("score", "--file", f"{LONG}.json"),
        ("experiment", "scaling", "--results", LONG), ("effects", f"{LONG}.gguf", "x"),
    ],
    ids=lambda words: f"{words[0]} {words[1][:9]}",
)  # fmt: skip
def test_names_that_no_file_has(words: tuple[str, ...]) -> None:
    refused(*words)


@pytest.mark.parametrize("words", [
    ("heatmap", "gpt", "--layer"), ("heatmap", "gpt", "--rows"), ("inspect", "smollm2", "--text", "x", "--layers"),
    ("report", "gpt", "--layers"), ("report", "gpt", "--heads"), ("mask", "causal", "--size"),
    ("saturate", "--d-k"), ("exercise", "--level"), ("exercise", "--sheet"), ("score", "--scale"),
])  # fmt: skip
def test_numbers_of_5000_digits(words: tuple[str, ...]) -> None:
    refused(*words, "9" * 5_000)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("command", ["watch", "heads", "heatmap", "inspect", "report"])
def test_files_that_the_system_does_not_let_be_read(command: str) -> None:
    refused(command, "/proc/self/mem", *(["--once"] if command == "watch" else []))


def results(name: str) -> dict[str, Any]:
    text = (files("limelight.learn.experiments") / f"{name}.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("name", ["scaling", "remedies"])
@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(runs=[]),
        lambda data: data["facts"].update(steps="[/x]\x1b[31m"),
        lambda data: data["facts"].pop("seeds"),
        lambda data: data["runs"][0].update(held_out="[/x]"),
        lambda data: data["runs"][0].update(loss=[[1.0]]),
        lambda data: data["runs"][0].update(loss=[]),
        lambda data: data["runs"][0].update(steps=[[]], more=1),
        lambda data: data["runs"][0].update({next(iter(data["runs"][0])): "[bold]‮"}),
    ],
)
def test_results_that_are_none(name: str, change: Any, tmp_path: Path) -> None:
    data = results(name)
    change(data)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(data))
    assert "not the results of" in refused("experiment", name, "--results", str(path))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"facts": NaN}', "\ud800"])
def test_results_that_are_no_json(text: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert "not the results of" in refused("experiment", "scaling", "--results", str(path))
