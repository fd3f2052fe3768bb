"""A head with NaN, hidden cells and zeros: two codes, one colour and one word each, in every view."""

from __future__ import annotations

import base64
import io
import json
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from limelight import Causal, notebook, pictures
from limelight.capture import Capture, Site
from limelight.looking.pyramid import SIDE, Pyramid
from limelight.report import bundle
from limelight.views import tiles
from limelight.views.looks import strip
from limelight.views.palette import THEME, ramp, rgb
from limelight.views.tiles import HIDDEN, HIDDEN_16, LIT_16, NAN_16, coded, of_pyramid, tile, to_16

TOKENS = tuple("abcdefg")
STRANGE, ZERO = 5, (6, 0)  # the row that is not a number; a cell whose weight is 0


def sick(length: int = 7, strange: int = STRANGE) -> Capture:
    """Row 5 is not a number, later keys are hidden, and the weight of cell (6, 0) is 0."""
    rng = np.random.default_rng(3)
    query, key = rng.standard_normal((2, 1, 1, length, 4))
    query[0, 0, strange] = np.nan
    key[0, 0, 0] = -1e4 * np.sign(query[0, 0, length - 1])
    names = TOKENS if length == len(TOKENS) else tuple(str(n) for n in range(length))
    site = Site("a", 0, query, key, mask=Causal(), tokens=(names,))
    return Capture((site,), (names,))


def expected(length: int = 7, strange: int = STRANGE) -> Any:
    """What each cell is: −1 hidden, NaN, or a weight."""
    with np.errstate(invalid="ignore"):
        weights = np.asarray(sick(length, strange).sites[0].weights(head=0))
    return np.where(np.tri(length, dtype=bool), weights, HIDDEN)


def test_the_code_points_are_held() -> None:
    assert (HIDDEN, HIDDEN_16, NAN_16, LIT_16) == (-1.0, 65_535, 65_534, 65_533)
    assert (tiles.HIDDEN_WORD, tiles.NAN_WORD) == ("hidden", "not a number")
    some = np.array([HIDDEN, np.nan, 0.0, 1.0, 0.25], np.float32)
    assert to_16(some).tolist() == [HIDDEN_16, NAN_16, 0, LIT_16, round(LIT_16 / 2)]


def test_a_tile_a_strip_and_the_notebook_tell_them_apart() -> None:
    capture, right = sick(), expected()
    one = capture.sites[0]
    assert right[ZERO] == 0.0
    assert np.isnan(right[STRANGE, : STRANGE + 1]).all()
    np.testing.assert_allclose(tile(one, (0, 7), (0, 7), (7, 7)).values, right, rtol=1e-6)
    asked = {"ask": "tile", "site": 0, "head": 0, "rows": [0, 7], "columns": [0, 7],
             "height": 7, "width": 7}  # fmt: skip
    _, buffers = notebook.answer(capture, 0, asked)
    np.testing.assert_allclose(np.frombuffer(buffers[0], "<f4").reshape(7, 7), right, rtol=1e-6)
    for row in range(7):
        values = [np.nan if x is None else x for x in strip(one, "row", row).values]
        np.testing.assert_allclose(values, right[row], rtol=1e-6)


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_every_level_of_the_pyramid_tells_them_apart(pool: str) -> None:
    length, strange = 2 * SIDE + 88, 400
    right = expected(length, strange)
    pyramid = Pyramid(sick(length, strange).sites[0], 0, pool=pool)
    for level in range(pyramid.levels):
        whole = np.full(pyramid.shape(level), np.inf, np.float32)
        for row, column in np.ndindex(*pyramid.grid(level)):
            made = of_pyramid(pyramid, (level, row, column))
            at = [slice(part[0] >> level, part[1] >> level) for part in (made.rows, made.columns)]
            whole[at[0], at[1]] = made.values
        bins = 1 << level
        padded = np.full([bins * side for side in whole.shape], HIDDEN)
        padded[:length, :length] = right
        cells = padded.reshape(whole.shape[0], bins, whole.shape[1], bins).transpose(0, 2, 1, 3)
        hidden = (cells == HIDDEN).all(axis=(2, 3))
        nan = np.isnan(cells).any(axis=(2, 3))
        np.testing.assert_array_equal(whole == HIDDEN, hidden)
        np.testing.assert_array_equal(np.isnan(whole), nan)


def test_a_bundles_maps_tell_them_apart_at_every_size() -> None:
    length = 300
    capture = sick(length, 131)
    right = coded(capture.sites[0].heatmap((128, 128), head=0))
    packed = bundle(capture, budget=10**7).data["maps"][0]
    found = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), "<u2")
    found = found.reshape(packed["shape"])[0]
    np.testing.assert_array_equal(found == HIDDEN_16, right == HIDDEN)
    np.testing.assert_array_equal(found == NAN_16, np.isnan(right))
    assert (found == NAN_16).any()
    small = bundle(capture, budget=12_000).data["maps"][0]
    tiny = np.frombuffer(zlib.decompress(base64.b64decode(small["data"])), "<u2")
    assert small["shape"][1] < 128
    assert {HIDDEN_16, NAN_16} <= set(tiny.tolist())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_and_thumbnails_have_the_two_colours(theme: str) -> None:
    capture, look = sick(), THEME[theme]
    seen = capture.sites[0].heatmap((7, 7), head=0)
    drawn = pictures.heatmap(seen, tokens=TOKENS, theme=theme)
    svg = drawn.svg()
    for words in ("query 0 a → key 6 g: hidden", "query 5 f → key 0 a: not a number",
                  "query 6 g → key 0 a: weight 0.000000", ">hidden<", ">not a number<"):  # fmt: skip
        assert words in svg
    colours = {
        tuple(rgb(look.hidden)),
        tuple(rgb(look.alarm)),
        tuple(int(c) for c in ramp(theme)[0]),
    }
    for picture in (drawn, pictures.head_grid(capture, thumbnails=7, theme=theme)):
        shown = np.asarray(Image.open(io.BytesIO(picture.png())).convert("RGB")).reshape(-1, 3)
        assert colours <= {tuple(int(c) for c in colour) for colour in np.unique(shown, axis=0)}


def test_no_sum_is_made_of_what_is_not_a_number() -> None:
    one = sick().sites[0]
    assert strip(one, "column", 0).total is None
    found = one.cell(STRANGE, 0)
    assert np.isnan([found.weight, found.row_sum]).all()
    assert "NaN / NaN = NaN" in repr(found)


def test_what_is_sent_is_json() -> None:
    json.dumps(bundle(sick(), budget=10**6).data, allow_nan=False)
