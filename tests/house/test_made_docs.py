"""Generated pages are what docs/make.py makes of the results and captures that come along."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("**/*.md"))]


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module


@pytest.mark.parametrize("name", ["experiment", "remedies"])
def test_the_experiments_pages_and_figures(making: Any, name: str) -> None:
    page = making(f"making.{name}").filled()
    assert page.text() == page.path.read_text(encoding="utf-8"), f"run: python docs/make.py {name}"
    for path, svg in page.pictures.items():
        assert path.read_text(encoding="utf-8") == svg, path.name


@pytest.mark.parametrize("name", ["llama", "bert", "gpt", "code", "vit"])
def test_the_systems_pages(making: Any, name: str) -> None:
    if name in ("gpt", "code", "vit"):
        pytest.importorskip("torch")
    page = getattr(making("making.systems"), name)()
    assert page.text() == page.path.read_text(encoding="utf-8"), "run: python docs/make.py systems"
    assert all(path.exists() for path in page.pictures)


@pytest.mark.parametrize("name", ["gpu", "native", "readme"])
def test_pages_hold_the_saved_figures(making: Any, name: str) -> None:
    page = getattr(making("making.benches"), name)()
    assert page.text() == page.path.read_text(encoding="utf-8"), "run: python docs/make.py benches"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_commands_print_what_stands_under_them(making: Any, page: Path) -> None:
    consoles = making("making.consoles")
    text = page.read_text(encoding="utf-8")
    assert consoles.filled(page) == text, "run: python docs/make.py consoles"
    for block in consoles.BLOCK.findall(text):
        assert max(map(len, block.splitlines())) <= consoles.WIDTH, block


def _said(page: Path) -> str:
    """A page less its blocks of code."""
    return re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


def test_every_picture_is_shown_and_every_shown_one_exists() -> None:
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    shown = {
        (page.parent / target).resolve()
        for page in pages
        for target in re.findall(r'(?:src|srcset)="([^"]+)"', _said(page))
    }
    assert shown == set((DOCS / "images").resolve().iterdir())


def test_pictures_of_the_studio_show_nothing_invented() -> None:
    """Captures that come along, or what making/real.py makes: not the samples of the tests."""
    script = (DOCS / "screenshots.py").read_text(encoding="utf-8")
    assert "samples" not in script
    shown = re.findall(r'Shot\("[\w-]+", "#/(?:explore|watch)/([\w-]+)', script)
    shipped = {path.stem for path in (DOCS.parent / "src/limelight/capture/shipped").glob("*.s*")}
    made = set(re.findall(r'folder / "([\w-]+)\.', script))
    assert len(shown) == 4
    assert set(shown) <= shipped | made


@pytest.mark.slow
def test_the_run_that_is_drawn_is_a_training(making: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    making("making.real").training_run(DOCS / "learn.md", tmp_path / "run.jsonl", steps=11)
    lines = (tmp_path / "run.jsonl").read_text(encoding="utf-8").splitlines()
    records = [line for line in map(json.loads, lines) if line["kind"] == "record"]
    assert [record["step"] for record in records] == [0, 5, 10]
    assert all(len(record["sites"]) == 4 for record in records)


def test_a_marker_without_content_is_an_error(making: Any, tmp_path: Path) -> None:
    page = making("making.pages").Page(tmp_path / "page.md")
    page.path.write_text("<!-- made: table -->\nold\n<!-- end -->\n<!-- = share -->0<!-- / -->")
    with pytest.raises(ValueError, match=r"no content for \['share', 'table'\]"):
        page.text()
    page.table("table", ["a"], [["1"]])
    page.numbers["share"] = "0.5"
    assert (
        page.text()
        == "<!-- made: table -->\n| a |\n| --- |\n| 1 |\n<!-- end -->\n<!-- = share -->0.5<!-- / -->"
    )
    page.blocks["more"] = ""
    with pytest.raises(ValueError, match=r"no marker for \['more'\]"):
        page.text()
