"""Every kind of picture: well-formed, escaped, readable back, and drawn where it says."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import pictures
from limelight.capture import Capture, Site
from limelight.errors import ArgumentError, DtypeError, FileError, LimelightError, ShapeError
from limelight.looking.heatmap import heatmap
from limelight.looking.weights import weights
from limelight.pictures import Picture, fonts, lettering
from limelight.pictures.frame import number, positions
from limelight.pictures.scene import Box, Label, Pixels, Stroke
from limelight.pictures.tokens import isolated, visible
from limelight.views.palette import THEME, THEMES, ink_on, ramp, rgb
from limelight.writing.png import encode

NASTY = ['"><img src=x onerror=alert(1)>', "</svg><script>alert(1)</script>", "a\x00b\x1b[31m", "שלום",
         "\u202egnp.exe", "مرحبا", "👩‍👩‍👧", "\ud800", "&amp;", "", " ", "\n", "\ufffe", "]]>"]  # fmt: skip
SVG = "{http://www.w3.org/2000/svg}"


def decoded(data: bytes) -> Any:
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(data)).convert("RGB"))


def some(n: int = 14, mask: Any = None) -> Any:
    rng = np.random.default_rng(0)
    query, key = 2 * rng.normal(size=(n, 8)), rng.normal(size=(n, 8))
    return heatmap(
        query, key, shape=(n, n), mask=ll.Causal() if mask is None else mask, engine="numpy"
    )


def capture() -> Capture:
    rng = np.random.default_rng(0)
    query = rng.normal(size=(1, 4, 20, 8)) * np.array([0.1, 1, 4, 60])[:, None, None]
    sites = [Site(f"layer {n}", n, query, rng.normal(size=(1, 2, 20, 8)), mask=ll.Causal())
             for n in range(3)]  # fmt: skip
    return Capture(tuple(sites))


def every(theme: str) -> dict[str, Picture]:
    image = np.random.default_rng(0).integers(0, 256, (32, 48, 3)).astype(np.uint8)
    light = np.random.default_rng(1).random(1 + 4 * 6)
    heads = np.stack([some().values] * 3)
    return {
        "heatmap": pictures.heatmap(some(), tokens=NASTY, title="<&>\x00", theme=theme),
        "log": pictures.heatmap(some(300), scale="log", theme=theme),
        "signed": pictures.heatmap(np.linspace(-1, 1, 12).reshape(3, 4), theme=theme),
        "panels": pictures.heatmap(heads, theme=theme),
        "lines": pictures.lines(some().values, tokens=NASTY, title="lines", theme=theme),
        "grid": pictures.head_grid(capture(), title="grid", theme=theme),
        "thumbnails": pictures.head_grid(capture(), figure="entropy", thumbnails=8, theme=theme),
        "patches": pictures.patches(image, light / light.sum(), grid=(4, 6), query=7, theme=theme),
    }


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("kind", every("light"))
def test_svg_is_well_formed_alone_and_inside_its_frame(kind: str, theme: str) -> None:
    drawn = every(theme)[kind]
    text = drawn.svg()
    root = ElementTree.fromstring(text)
    assert root.tag == SVG + "svg"
    assert "<script" not in text
    assert "<img" not in text
    assert set(re.findall(r"(?:href|src)=\"([^\"]{0,15})", text)) <= {"data:image/png;"}
    title = root.find(SVG + "title")
    assert title is not None
    assert title.text
    for mark in drawn.marks:
        if isinstance(mark, (Box, Pixels)):
            assert mark.x >= 0
            assert mark.x + mark.width <= drawn.width + 0.01
            assert mark.y + mark.height <= drawn.height + 0.01
        elif isinstance(mark, Label) and not mark.angle:
            wide = lettering.width(mark.text, mark.size)
            left = mark.x - {"start": 0, "middle": wide / 2, "end": wide}[mark.anchor]
            assert left >= -1, mark
            assert left + wide <= drawn.width + 2, mark


@pytest.mark.filterwarnings("ignore:.*drawn as boxes")
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("kind", every("light"))
def test_png_shows_the_theme(kind: str, theme: str) -> None:
    drawn = every(theme)[kind]
    shown = decoded(drawn.png(1.0))
    assert shown.shape == (int(np.ceil(drawn.height)), int(np.ceil(drawn.width)), 3)
    assert tuple(shown[1, 1]) == rgb(THEME[theme].surface)
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) > 20


def test_png_files_are_right() -> None:
    colours = np.random.default_rng(0).integers(0, 256, (13, 7, 3)).astype(np.uint8)
    np.testing.assert_array_equal(decoded(encode(colours)), colours)
    np.testing.assert_array_equal(decoded(encode(colours[:1, :1], 3780)), colours[:1, :1])


def test_one_svg_for_light_pages_and_dark(tmp_path: Path) -> None:
    seen = np.random.default_rng(0).random((3, 5))
    auto, day, night = (pictures.heatmap(seen, theme=name) for name in ("auto", *THEMES))
    groups = {group.get("class"): group for group in ElementTree.fromstring(auto.svg())
              if group.tag.endswith("}g")}  # fmt: skip
    assert groups["by-night"].get("display") == "none"  # where no style is let in
    for name, one in (("by-day", day), ("by-night", night)):
        drawn = ElementTree.fromstring(one.svg())
        assert [mark.attrib for mark in groups[name].iter() if mark.tag.endswith("}rect")] == [
            mark.attrib for mark in drawn.iter() if mark.tag.endswith("}rect")
        ]
    assert auto.png() == day.png()
    both = auto.beside(auto)
    assert both.dark is not None
    assert both.dark.svg() == night.beside(night).svg()
    assert day.beside(auto).dark is None
    shown = auto.svg()
    for dark in ("prefers-color-scheme:dark", "[data-jp-theme-light=false]", ".vscode-dark"):
        assert dark in shown


def test_each_cell_has_its_colour_in_its_place() -> None:
    values = np.array([[0.0, 1.0, np.nan], [0.5, 0.25, 0.75]])
    drawn = pictures.heatmap(np.ma.masked_invalid(values))
    boxes = [mark for mark in drawn.marks if isinstance(mark, Box) and "query" in mark.tip]
    assert len(boxes) == 6
    shown = decoded(drawn.png(2.0))
    table = ramp("light")
    for mark, value in zip(boxes, values.reshape(-1), strict=True):
        corner = shown[int(2 * mark.y) + 3, int(2 * mark.x) + 3]  # clear of the number within
        exact = rgb(THEME["light"].hidden) if np.isnan(value) else table[round(value * 255)]
        assert tuple(corner) == tuple(exact)
    assert boxes[2].tip == "query 0 → key 2: hidden"
    assert boxes[3].tip == "query 1 → key 0: weight 0.500000"


def test_numbers_in_cells_are_written_as_on_the_pages() -> None:
    drawn = pictures.heatmap([[0.07, 1.0], [-0.56, -0.001]], low=-1.0)
    written = [mark for mark in drawn.marks if isinstance(mark, Label) and mark.anchor == "middle"]
    assert [mark.text for mark in written[:4]] == ["0.07", "1.00", "−0.56", "0.00"]
    cell = next(mark for mark in drawn.marks if isinstance(mark, Box) and mark.tip)
    assert all(1.2 * lettering.width(mark.text, mark.size) < cell.width for mark in written)


def test_what_is_not_a_number_is_not_what_the_mask_hides() -> None:
    query, key = np.ones((2, 3, 4)), np.ones((2, 3, 4))
    query[1, 2] = np.nan
    seen = ll.heatmap(query, key, (3, 3), mask=ll.Causal())
    drawn = pictures.heatmap(seen.head(1))
    boxes = [mark for mark in drawn.marks if isinstance(mark, Box) and "query" in mark.tip]
    assert boxes[2].tip == "query 0 → key 2: hidden"
    assert boxes[8].tip == "query 2 → key 2: not a number"
    assert (boxes[2].fill, boxes[8].fill) == (THEME["light"].hidden, THEME["light"].alarm)
    for whole in (drawn, pictures.heatmap(seen)):
        assert {"hidden", "not a number"} <= {m.text for m in whole.marks if isinstance(m, Label)}
    clean = pictures.heatmap(seen.head(0)).svg()
    assert "hidden" in clean
    assert "not a number" not in clean


def test_large_maps_are_one_image_with_every_bin() -> None:
    seen = some(300)
    marks = pictures.heatmap(seen).marks
    image = next(m for m in marks if isinstance(m, Pixels) and m.colours.shape[:2] == (300, 300))
    hidden = (image.colours == rgb(THEME["light"].hidden)).all(axis=-1)
    np.testing.assert_array_equal(hidden, np.isnan(seen.values))
    text = pictures.heatmap(seen).svg()
    data = max(re.findall(r"base64,([^\"]+)", text), key=len)
    np.testing.assert_array_equal(decoded(base64.b64decode(data)), image.colours)


def test_names_stand_where_there_is_room_and_positions_where_not() -> None:
    names = [f"w{n}" for n in range(700)]

    def labels(seen: Any) -> set[str]:
        drawn = pictures.heatmap(seen, tokens=names)
        return {mark.text for mark in drawn.marks if isinstance(mark, Label)}

    assert {"w0", "w13"} <= labels(some(14))
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 700, 4))
    zoomed = labels(heatmap(query, key, shape=(10, 10), rows=(600, 610), columns=(20, 30)))
    assert {"w600", "w609", "w20", "w29"} <= zoomed
    assert "w0" not in zoomed
    pooled = labels(heatmap(query, key, shape=(100, 100)))
    assert {"0", "100", "600"} <= pooled
    assert not any(text.startswith("w") and text != "weight" for text in pooled)
    assert "largest weight" in pooled
    assert "weight" in zoomed


def test_lines_are_as_thick_as_their_weight() -> None:
    cells = np.array([[1.0, 0.0], [0.4, 0.6]])
    strokes = [m for m in pictures.lines(cells, tokens=["a", "b"]).marks
               if isinstance(m, Stroke) and m.bent]  # fmt: skip
    assert [stroke.tip for stroke in strokes] == ["b → a: 0.4000", "b → b: 0.6000", "a → a: 1.0000"]
    assert strokes[0].width < strokes[1].width < strokes[2].width
    one = pictures.lines(cells, tokens=["a", "b"], rows=[1])
    assert sum(isinstance(m, Stroke) and m.bent for m in one.marks) == 2


def test_patches_are_lit_where_the_weight_is() -> None:
    image = np.full((40, 60, 3), 200, np.uint8)
    light = np.zeros(1 + 2 * 3)
    light[0], light[1 + 4] = 0.25, 0.75  # CLS, and row 1, column 1
    drawn = pictures.patches(image, light, grid=(2, 3))
    dark, bright = (next(m for m in drawn.marks if isinstance(m, Pixels) and m.x > 100).colours[y, x]
                    for y, x in ((5, 5), (-5, 140)))  # fmt: skip
    assert bright.max() > 180 > 90 > dark.max()
    assert int(bright[0]) - int(bright[2]) > 60  # warm
    assert np.ptp(dark) == 0  # grey
    assert any(
        isinstance(m, Label) and m.text.startswith("25 % of the weight") for m in drawn.marks
    )
    ring = pictures.patches(image, light, grid=(2, 3), query=5)
    assert len(ring.marks) == len(drawn.marks) + 16
    same = pictures.patches(image, light[1:].reshape(2, 3), query=4)
    assert sum(isinstance(m, Stroke) for m in same.marks) >= 16


def test_a_patch_s_number_stands_on_one_colour() -> None:
    image = np.full((40, 60, 3), 255, np.uint8)
    image[:, ::2] = 0  # black and white under every number
    drawn = pictures.patches(image, np.full((2, 3), 1 / 6))
    plates = [mark for mark in drawn.marks if isinstance(mark, Box)]
    numbers = [mark for mark in drawn.marks if isinstance(mark, Label) and mark.text == "0.17"]
    assert len(plates) == len(numbers) == 6
    for plate, label in zip(plates, numbers, strict=True):
        assert plate.x < label.x < plate.x + plate.width
        assert label.fill == ink_on(rgb(plate.fill))


def test_heads_are_marked_by_their_verdict() -> None:
    drawn = pictures.head_grid(capture())
    texts = {mark.text for mark in drawn.marks if isinstance(mark, Label)}
    assert {"saturated", "0", "3", "layer", "head"} <= texts
    tips = [mark.tip for mark in drawn.marks if isinstance(mark, Box) and mark.tip]
    assert len(tips) == 12
    assert tips[3].startswith("layer 0, head 3: largest weight (mean) 0.9")
    assert tips[3].endswith(", saturated")


@pytest.mark.parametrize(("token", "shown"), [
    (" cat", "·cat"), ("\n", "↵"), ("\t", "⇥"), ("", "∅"), ("a\x00", "a␀"), ("\x1b", "␛"),
    ("\x7f", "␡"), ("\x85", "�"), ("\u202e", "�"), ("\u2066", "�"), ("\ud800", "�"), ("\ufffe", "�"),
    ("\u00ad", "�"), ("👩‍👧", "👩‍👧"), ("abcdefghijklmnop", "abcdefghijklm…"),
])  # fmt: skip
def test_tokens_are_visible(token: str, shown: str) -> None:
    assert visible(token) == shown


def test_directions_are_kept_apart() -> None:
    assert isolated("שלום") == "\u2068שלום\u2069"
    assert isolated("hello") == "hello"


def test_letters() -> None:
    for letter in map(chr, range(33, 127)):
        assert lettering.strokes(letter), letter
        assert lettering.width(letter, 10) > 0
    box = lettering.coverage("中", 20.0, 0.0)
    plain, accented = (lettering.coverage(x, 20.0, 0.0) for x in ("e", "e\u0301"))
    assert box is not None
    assert plain is not None
    assert accented is not None
    assert accented[0].sum() > plain[0].sum()
    assert accented[0].shape[0] > plain[0].shape[0]
    turned = lettering.coverage("l", 20.0, -90.0)
    assert turned is not None
    assert turned[0].shape[1] > 2 * turned[0].shape[0]
    assert lettering.coverage(" ", 20.0, 0.0) is None


def test_other_scripts_are_drawn_in_a_font_of_the_machine() -> None:
    pytest.importorskip("PIL")
    if fonts.font_of("Привет") is None or fonts.font_of("مرحبا") is None:
        pytest.skip("no font with Cyrillic and Arabic here")
    for text in ("Привет", "мир", "שלום", "مرحبا"):
        assert lettering.boxed(text) == ""
        parts, wide = lettering.placed(f"a {text} b", 20.0)
        assert [part for part, _ in parts] == ["a", " ", text, " ", "b"]
        assert 0.5 < wide / lettering.width(f"a {text} b", 20.0) < 1.5
        drawn, turned = (lettering.coverage(text, 20.0, angle) for angle in (0.0, -90.0))
        assert drawn is not None
        assert turned is not None
        assert drawn[0].shape[1] > drawn[0].shape[0]
        assert turned[0].shape[0] > turned[0].shape[1]
        assert turned[0].sum() == pytest.approx(drawn[0].sum(), rel=0.05)
    # Joined letters are not those of the alphabet one after the other.
    joined, apart = (lettering.coverage(x, 40.0, 0.0) for x in ("مرحبا", "م"))
    assert joined is not None
    assert apart is not None
    assert joined[0].shape[1] < 5 * apart[0].shape[1]
    assert lettering.placed("שלום עולם", 20.0)[0][0][0] == "שלום עולם"  # words keep their order


def test_what_no_font_has_is_a_box_and_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = pictures.heatmap(np.eye(2), tokens=["a\u0301", "\U000e0fff가"])
    monkeypatch.setattr(fonts, "font_of", lambda text: None)
    lettering._parts.cache_clear()
    lettering.coverage.cache_clear()
    with pytest.warns(UserWarning, match=r"가 are drawn as boxes: .*An .svg shows them"):
        drawn.png()
    monkeypatch.setattr(fonts, "missing", lambda: "Pillow is not installed")
    with pytest.warns(UserWarning, match="boxes: Pillow is not installed"):
        drawn.png()
    assert lettering.boxed("né 가나") == "가나"
    lettering._parts.cache_clear()
    lettering.coverage.cache_clear()


def test_numbers_and_positions() -> None:
    assert [number(x) for x in (0.0, 1.0, 0.0012, 1e-5, -2.5, 1e9, 4096)] == [
        "0", "1", "0.0012", "1e−5", "−2.5", "1e9", "4,096"]  # fmt: skip
    assert positions((0, 1), 500) == [0]
    assert positions((0, 5), 100) == [0, 2, 4]
    assert positions((30000, 30256), 560) == list(range(30000, 30256, 50))


def test_saved_by_the_name(tmp_path: Path) -> None:
    drawn = pictures.lines(np.eye(3))
    drawn.save(tmp_path / "a.svg")
    drawn.save(str(tmp_path / "a.PNG"))
    drawn.save(tmp_path / "a.pdf")
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.pdf").read_bytes() == drawn.pdf()
    assert drawn.beside(drawn).width == 2 * drawn.width + 16
    assert drawn._repr_svg_() == drawn.svg()
    assert "marks: attention of 3 queries to 3 keys as lines" in repr(drawn)
    with pytest.raises(
        ArgumentError, match=r"a.gif ends in .gif: give a name that ends in .svg, .png or .pdf"
    ):
        drawn.save(tmp_path / "a.gif")
    with pytest.raises(ArgumentError, match="a file is named by a text or a Path, and None is"):
        drawn.save(None)
    with pytest.raises(FileError, match=r"cannot be written: No such file or directory"):
        drawn.save(tmp_path / "none" / "a.svg")


def test_a_heatmap_shows_itself() -> None:
    seen = some()
    assert seen._repr_html_() == pictures.heatmap(seen, theme="auto").svg()  # as the page is
    assert seen._repr_png_().startswith(b"\x89PNG")


def test_tensors_are_drawn_as_arrays_are() -> None:
    torch = pytest.importorskip("torch")
    cells = torch.rand(4, 4).softmax(-1)
    for draw in (pictures.heatmap, pictures.lines):
        drawn = draw(cells.numpy()).svg()
        assert draw(cells.clone().requires_grad_()).svg() == drawn
        draw(cells.bfloat16())
    pictures.patches(IMAGE, cells.bfloat16())


IMAGE = np.zeros((8, 8, 3), np.uint8)
WRONG: list[tuple[Any, type[LimelightError], str]] = [
    (lambda: pictures.heatmap(np.zeros(3)), ShapeError, r"weights of shape \(3,\) are no heat-map"),
    (lambda: pictures.heatmap(np.zeros((0, 3))), ShapeError, "are no heat-map: give .rows, columns."),
    (lambda: pictures.heatmap([["a"]]), DtypeError, "weights are numbers, and these are <U1"),
    (lambda: pictures.lines([[1], [1, 2]]), ShapeError, "the table of weights is a ragged list"),
    (lambda: pictures.patches(IMAGE, None), DtypeError, "weights are numbers, and these are object"),
    (lambda: pictures.heatmap(some(), tokens=["a"]), ArgumentError, "tokens has 1 names, but the map shows positions up to 13"),
    (lambda: pictures.heatmap(some(), theme="x"), ArgumentError, "theme='x': choose light or dark"),
    (lambda: pictures.lines(np.zeros((2, 2, 2))), ShapeError, "lines need one head"),
    (lambda: pictures.lines(np.zeros((201, 2))), ArgumentError, "201 × 2 tokens are too many for lines: give at most 200"),
    (lambda: pictures.lines(np.eye(2), tokens=["a"]), ArgumentError, "1 names for 2 rows or columns"),
    (lambda: pictures.lines(np.eye(2), rows=[2]), ArgumentError, r"rows=\[2\] reach outside the 2 queries"),
    (lambda: pictures.lines(np.eye(2), least=1.0), ArgumentError, "least=1.0: give the smallest weight"),
    (lambda: pictures.patches(IMAGE[..., 0], np.ones((2, 2))), ShapeError, r"the image is uint8 \(8, 8\): give uint8"),
    (lambda: pictures.patches(IMAGE, np.ones(4)), ShapeError, "do not say where the patches are"),
    (lambda: pictures.patches(IMAGE, np.ones(4), grid=(3, 3)), ArgumentError, "3 × 3 patches from key -5 on do not fit in 4 keys"),
    (lambda: pictures.head_grid(capture(), figure="joy"), ArgumentError, "there is no figure 'joy': choose rows"),
    (lambda: pictures.head_grid(capture().health(), thumbnails=8), ArgumentError, "thumbnails need the capture itself"),
    (lambda: Picture(1e5, 1e5, ()).png(), ArgumentError, "200,000 × 200,000 dots is too large"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "text"), WRONG, ids=[row[2][:24] for row in WRONG])
def test_errors_say_what_to_do(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_one_map_with_leading_axes_is_drawn_whole() -> None:
    block = weights(np.zeros((1, 1, 3, 4)), np.zeros((1, 1, 3, 4)))
    drawn = pictures.heatmap(block, tokens=["a", "b", "c"])
    assert {"a", "c"} <= {mark.text for mark in drawn.marks if isinstance(mark, Label)}
    many = pictures.heatmap(np.zeros((20, 3, 3)))
    assert any("first 16 of 20 heads" in m.text for m in many.marks if isinstance(m, Label))
