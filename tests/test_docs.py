"""README and docs run: python blocks in order, and console blocks print what they say they print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of one language, less those marked `no-run` (a GPU, a model, a server needed)."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [code for name, mark, code in found if name == language and "no-run" not in mark]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=named)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "console")], ids=named)
def test_console_blocks_print_what_they_show(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "console"):
        for command, shown in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            words = shlex.split(command)
            assert words[0] == "limelight", f"{command}: only limelight commands are run"
            done = subprocess.run(
                [sys.executable, "-m", "limelight.cli", *words[1:]],
                cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
                env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
            )  # fmt: skip
            printed = [line.rstrip() for line in (done.stdout + done.stderr).strip().splitlines()]
            expected = [line.rstrip() for line in shown.strip().splitlines()]
            assert printed == expected, f"{named(page)}: $ {command}"


def test_the_readme_says_where_the_command_is() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    between = text[text.index("## Two commands") : text.index("## Five minutes")]
    for words in (".venv/bin/limelight", "source .venv/bin/activate", "pip install -e '.[models]'"):
        assert words in between


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_extras_are_installed_from_the_checkout(page: Path) -> None:
    """limelight is on no index: `pip install limelight[…]` would find nothing, or another's."""
    assert "limelight[" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=named)
def test_links_and_pictures_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{named(page)} points to {target}"
