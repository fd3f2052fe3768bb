"""README and docs run: python blocks in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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


def test_the_files_of_the_walks_exist() -> None:
    """A bare name is a file somewhere; one with folders stands there."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = [path.relative_to(ROOT).as_posix() for folder in ("src", "csrc", "tests", "web/src")
             for path in (ROOT / folder).rglob("*.*") if "static" not in path.parts]  # fmt: skip
    told = re.findall(r"`([\w/]+\.(?:py|h|cpp|ts))`", text)
    assert len(told) > 30
    assert [
        name for name in told if not any(f"/{file}".endswith(f"/{name}") for file in files)
    ] == []
