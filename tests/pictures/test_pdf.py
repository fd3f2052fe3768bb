"""Pictures as PDF: a file that readers open, with the same marks and text that can be searched."""

from __future__ import annotations

import re
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from limelight import pictures
from limelight.pictures.pdf import WIDTHS, _width
from limelight.pictures.scene import Box, Label, Picture, Pixels, Stroke, Trail

STREAM = re.compile(rb"stream\n(.*?)\nendstream", re.DOTALL)


def content(pdf: bytes) -> str:
    """The page's own marks."""
    return zlib.decompress(STREAM.findall(pdf)[0]).decode("latin-1")


def sample() -> Picture:
    colours = np.zeros((2, 3, 3), np.uint8)
    colours[0, 0] = (255, 0, 0)
    colours[1, 2] = (0, 0, 255)
    marks = (
        Box(10, 10, 30, 20, "#00ff00", edge="#000000"),
        Pixels(50, 10, 60, 40, colours),
        Label(10, 60, "café (a\\b) – 0.5", "#000000", anchor="start"),
        Label(150, 60, "end", "#000000", anchor="end", bold=True),
        Stroke(10, 80, 110, 95, "#ff0000", width=2.0, opacity=0.5, bent=True),
        Stroke(10, 85, 110, 85, "#0000ff", opacity=0.25),
        Trail(((10, 90), (60, 95), (110, 90)), "#000000", dash=(2.0, 1.0)),
    )
    return Picture(160, 100, marks, description="one of each → here")


def test_every_object_begins_where_the_table_says() -> None:
    pdf = sample().pdf()
    start = int(re.search(rb"startxref\n(\d+)", pdf)[1])  # type: ignore[index]
    assert pdf[start:].startswith(b"xref\n")
    places = [int(n) for n in re.findall(rb"(\d{10}) 00000 n", pdf)]
    for number, place in enumerate(places, 1):
        assert pdf[place:].startswith(f"{number} 0 obj\n".encode())
    assert sample().pdf() == pdf, "the same picture is the same file"
    assert "one of each → here".encode("utf-16-be").hex().upper().encode() in pdf


def test_marks_and_words() -> None:
    shown = content(sample().pdf())
    assert "(caf\xe9 \\(a\\\\b\\) \x96 0.5) Tj" in shown
    assert "10 10 30 20 re f" in shown
    assert "[2 1] 0 d" in shown
    assert "/G0 gs" in shown
    assert "/G1 gs" in shown
    assert "2 Tr" in shown, "bold"


def test_widths_of_letters_with_accents_are_their_letters() -> None:
    assert _width("é") == WIDTHS["e"]
    assert _width("Å") == WIDTHS["A"]
    assert _width("猫") == _width("−") == 0, "not Helvetica's: painted"


def test_letters_beyond_the_encoding_are_painted() -> None:
    plain = pictures.lines(np.eye(2), tokens=["a", "b"]).pdf()
    signs = pictures.lines(np.eye(2), tokens=["−a", "√b"]).pdf()
    assert plain.count(b"/SMask") == 0
    assert signs.count(b"/SMask") == 8


@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="poppler-utils are not installed")
def test_a_reader_sees_what_was_drawn(tmp_path: Path) -> None:
    sample().save(tmp_path / "sample.pdf")
    subprocess.run(
        ["pdftoppm", "-r", "96", "-aa", "no", tmp_path / "sample.pdf", tmp_path / "page"],
        check=True,
    )
    data = next(tmp_path.glob("page*.ppm")).read_bytes()
    seen = np.frombuffer(data[-160 * 100 * 3 :], np.uint8).reshape(100, 160, 3)
    assert tuple(seen[20, 25]) == (0, 255, 0)
    assert tuple(seen[15, 55]) == (255, 0, 0)
    assert tuple(seen[45, 105]) == (0, 0, 255)
    assert (seen[55:66, 110:150] < 100).any(), "text that ends at 150"
    assert (seen[55:66, 152:] > 200).all()
    text = subprocess.run(
        ["pdftotext", tmp_path / "sample.pdf", "-"], check=True, capture_output=True
    )
    assert "café (a\\b) – 0.5" in text.stdout.decode()
