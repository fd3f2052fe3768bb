"""The docs as a site: a link that leads nowhere is found and named, and the reference is whole."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.house.names import LISTED, MODULES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("making.links")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "other.html").write_text(
        '<h2 id="here">x</h2><a href="../index.html#top">'
    )
    (tmp_path / "dot.svg").write_text("<svg/>")
    (tmp_path / "index.html").write_text(
        '<h1 id="top">x</h1><a href="deep/other.html#here">a</a> <a href="#top">b</a>'
        '<a href="https://elsewhere.example/none">c</a> <a href="deep/other.html#/learn/lab?d=1">d</a>'
        '<picture><source srcset="dot.svg 1x, dot.svg 2x"></picture><img src="dot.svg">'
    )
    return tmp_path


def test_a_whole_site_has_no_dead_link(
    links: Any, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert links.dead(site) == (7, [])
    assert links.main(str(site)) == 0
    assert "7 links within the site, 0 lead nowhere" in capsys.readouterr().out


@pytest.mark.parametrize(
    "link",
    ["gone.html", "deep/other.html#gone", "#gone", "deep", "/gone.svg"],
)
def test_a_link_that_leads_nowhere_is_named(links: Any, site: Path, link: str) -> None:
    (site / "index.html").write_text(f'<h1 id="top">x</h1><a href="{link}">')
    assert links.dead(site)[1] == [f"index.html: {link}"]
    assert links.main(str(site)) == 1


def test_every_public_name_is_in_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(DOCS))
    pages = importlib.import_module("making.site").API
    shown = {f"limelight.{part}" for parts in pages.values() for part in parts}
    modules = {"limelight", *(f"limelight.{each}" for each in MODULES)}
    missing = []
    for name in LISTED.read_text(encoding="utf-8").splitlines():
        module, _, own = name.rpartition(".")
        thing = getattr(importlib.import_module(module), own) if module in modules else None
        if inspect.isclass(thing) or inspect.isfunction(thing):
            home = thing.__module__
            if not {home, f"{home}.{thing.__qualname__}"} & shown:
                missing.append(name)
    assert missing == []
    site = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name for name in pages if f" api/{name}.md\n" not in site] == []


def test_a_mark_for_the_tests_does_not_break_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    hooks = importlib.import_module("making.site")
    page = SimpleNamespace(file=SimpleNamespace(src_uri="surveys.md"))
    shown = hooks.on_page_markdown("text\n```python no-run\n1\n```\n", page, None, None)
    assert shown == "text\n```python\n1\n```\n"


def test_a_site_that_was_not_built_is_no_whole_one(
    links: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert links.main(str(tmp_path)) == 1
    assert "make docs-site" in capsys.readouterr().err
