"""Lessons as files: what lies in them, what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import limelight as ll
from limelight.cli import app
from limelight.errors import ArgumentError, FileError
from limelight.lessons import PARTS, lessons, lessons_data, write_lessons, write_site
from limelight.studio import pages

built = pytest.mark.skipif(
    not (pages.static_folder() / "lessons.js").is_file(), reason="the pages are not built"
)


def held(page: str) -> dict:
    found = re.search(r'id="limelight-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found.group(1))


def test_a_page_of_one_part_holds_what_it_needs_and_no_more() -> None:
    assert lessons_data("lab").answers == {}
    assert lessons_data("lab").exercises == []
    assert list(lessons_data("scaling").answers) == [
        "/api/experiments/scaling", "/api/experiments/remedies",
    ]  # fmt: skip
    whole = lessons_data()
    assert {each.info["level"] for each in whole.exercises} == {0, 1, 2, 3, 4, 5}
    assert set(lessons_data("map").answers) < set(whole.answers)


def test_the_state_to_open_on_stands_in_the_address() -> None:
    assert lessons_data().address == "#/learn"
    made = lessons_data("lab", {"d_k": 256, "scaled": False})
    assert made.address == "#/learn/lab?lab.d_k=256&lab.scaled=0"
    made = lessons_data("example", {"query": [[2, 1]], "keys": [[1, 0], [0, 1], [-1, 2]]})
    assert made.address == "#/learn/example?example.query=2%2C1&example.keys=1%2C0%3B0%2C1%3B-1%2C2"


@pytest.mark.parametrize(
    ("part", "state", "message"),
    [
        ("labs", {}, "there is no part 'labs': choose input, step, map, lab"),
        (None, {"d_k": 3}, "belongs to one part"),
        ("lab", {"dk": 3}, "lab has no 'dk' to open on: it knows d_k, scaled, keys, draw"),
    ],
)
def test_what_is_not_there_is_refused(part: str | None, state: dict, message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        lessons_data(part, state)


def test_the_language_to_open_in_stands_in_the_address() -> None:
    assert lessons_data(language="de").address == "#/learn?page.language=de"
    made = lessons_data("lab", {"d_k": 256}, language="es")
    assert made.address == "#/learn/lab?lab.d_k=256&page.language=es"
    with pytest.raises(ArgumentError, match="no texts in 'fr': choose en, de, es"):
        lessons_data(language="fr")


@built
def test_pages_in_another_language(tmp_path: Path) -> None:
    page = lessons("lab", language="de", d_k=64)
    assert '<html lang="de">' in page
    assert "<title>Attention, bei Licht besehen</title>" in page
    assert held(page)["address"] == "#/learn/lab?lab.d_k=64&page.language=de"
    write_site(tmp_path / "site", language="es")
    for name in ("index.html", "lab.html"):
        page = (tmp_path / "site" / name).read_text(encoding="utf-8")
        assert '<html lang="es">' in page
        assert "page.language=es" in held(page)["address"]
    with pytest.raises(ArgumentError, match="no texts in 'fr'"):
        write_site(tmp_path / "other", language="fr")
    assert not (tmp_path / "other").exists()
    assert "page.language=de" in ll.notebook.lesson("lab", language="de")._repr_html_()


@built
def test_one_file_loads_nothing(tmp_path: Path) -> None:
    target = tmp_path / "lessons.html"
    size = write_lessons(target)
    page = target.read_text(encoding="utf-8")
    assert size == len(page.encode()) < 2_500_000
    assert "default-src 'none'" in page
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', page.split("<script", 1)[0]) == []
    assert held(page)["part"] is None


@built
def test_a_site_has_a_page_for_each_part(tmp_path: Path) -> None:
    made = write_site(tmp_path / "new" / "folder")
    assert {path.name for path in made} == {
        "index.html", "lessons.js", "lessons.css", *(f"{part}.html" for part in PARTS)
    }  # fmt: skip
    page = (tmp_path / "new/folder/lab.html").read_text(encoding="utf-8")
    assert (held(page)["part"], held(page)["home"]) == ("lab", "index.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be written"):
        write_site(tmp_path / "file")


@built
def test_a_notebook_shows_a_part_in_a_frame() -> None:
    shown = ll.notebook.lesson("lab", d_k=64)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "lab.d_k=64" in shown
    assert '"' not in shown.split('srcdoc="', 1)[1].split('" title=', 1)[0]
    assert "MB" in repr(ll.notebook.lesson("lab"))
    with pytest.raises(ArgumentError, match="height=0: give it in pixels"):
        ll.notebook.lesson("lab", height=0)


@built
def test_the_command(tmp_path: Path) -> None:
    def run(*args: str) -> tuple[int, str]:
        said = CliRunner().invoke(app, ["lessons", *args])
        return said.exit_code, (said.stdout + said.stderr).replace("\n", "")

    target, folder = str(tmp_path / "lab.html"), str(tmp_path / "site")
    assert run("--part", "lab", "-o", target)[0] == 0
    assert Path(target).read_text(encoding="utf-8") == lessons("lab")
    assert "give --force" in run("-o", target)[1]
    assert run("--site", folder)[0] == 0
    spoken = str(tmp_path / "labor.html")
    assert run("--part", "lab", "--language", "de", "-o", spoken)[0] == 0
    assert Path(spoken).read_text(encoding="utf-8") == lessons("lab", language="de")
    assert "choose en, de, es" in run("--language", "fr", "-o", str(tmp_path / "y.html"))[1]
    assert "holds files already" in run("--site", folder)[1]
    assert run("--site", folder, "--force", "--json")[0] == 0
    assert "leave out --part" in run("--site", folder, "--part", "lab")[1]
    assert "lab.html is a file: name a folder for the pages" in run("--site", target)[1]
    assert (
        "choose input, step, map, lab" in run("--part", "labs", "-o", str(tmp_path / "x.html"))[1]
    )
    assert not (tmp_path / "x.html").exists()
