"""Two captures beside one another: what is aligned, what counts as a change, what is refused."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import limelight as ll
from limelight.capture import Capture, Site
from limelight.capture import comparison as module
from limelight.capture.alignment import align
from limelight.cli import app
from limelight.errors import ArgumentError
from limelight.report import comparison_page
from limelight.views.palette import THEME

HEADS, SIZE = 3, 5


def site(tokens: Any, seed: int = 0, layer: int = 0, **other: Any) -> Site:
    """Queries and keys that follow from the token and its place's parity alone."""
    entries = [tokens] if isinstance(tokens, str) else tokens
    n = len(entries[0].split())

    def vectors(part: str, heads: int) -> Any:
        def one(token: str, head: int) -> Any:
            draw = np.random.default_rng([seed, head, *f"{part}{token}".encode()])
            return draw.normal(size=SIZE)

        return np.array([[[one(token, head) for token in entry.split()] for head in range(heads)]
                         for entry in entries])  # fmt: skip

    query, key = vectors("q", HEADS), vectors("k", 1)
    labels = tuple(tuple(entry.split()) for entry in entries)
    assert query.shape[2] == n
    mask = other.pop("mask", ll.Causal())
    return Site(f"layer.{layer}", layer, query, key, mask=mask, tokens=labels, **other)


def capture(*sites: Site) -> Capture:
    return Capture(sites, sites[0].tokens)


TEXTS = ["".join(letters) for n in range(6) for letters in itertools.product("abc", repeat=n)]


@pytest.mark.parametrize("first", TEXTS[::7])
def test_an_alignment_pairs_places_in_order(first: str) -> None:
    for second in TEXTS[::11]:
        found = align(list(first), list(second))
        assert (np.diff(found.first) > 0).all()
        assert (np.diff(found.second) > 0).all()
        same = [first[i] == second[j] for i, j in zip(found.first, found.second, strict=True)]
        assert same == found.same.tolist()
    assert align(list(first), list(first)).first.tolist() == list(range(len(first)))


def test_what_was_put_in_is_left_out() -> None:
    found = align(["a", "b", "c", "d"], ["a", "x", "y", "b", "c", "e"])
    assert found.first.tolist() == [0, 1, 2, 3]
    assert found.second.tolist() == [0, 3, 4, 5]
    assert found.same.tolist() == [True, True, True, False]


def test_a_change_is_the_share_of_a_row_that_moved() -> None:
    one, other = site("a b c d e"), site("a b x c d f", seed=0)
    found = ll.compare(capture(one), capture(other))
    pair = found.pairs[0]
    left, right = one.weights(), other.weights()
    moved = np.zeros((HEADS, len(pair.queries)))
    for head in range(HEADS):
        for at, (i, j) in enumerate(zip(pair.queries.first, pair.queries.second, strict=True)):
            mine = dict.fromkeys(range(len(pair.keys)), 0.0)
            rest = 1.0 - left[head, i][pair.keys.first].sum()
            rest += 1.0 - right[head, j][pair.keys.second].sum()
            for at_key in mine:
                a = left[head, i, pair.keys.first[at_key]]
                b = right[head, j, pair.keys.second[at_key]]
                rest += abs(a - b)
            moved[head, at] = rest / 2
    judged = pair.queries.first >= 1  # the first row of either has one key alone
    np.testing.assert_allclose(found.change[0], moved[:, judged].mean(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found.largest[0], moved[:, judged].max(axis=1), rtol=1e-9)
    assert found.compared.tolist() == [judged.sum()]
    best = found.strongest(1)[0]
    assert best.change == found.change.max()
    assert best.rows[0] == pair.queries.first[moved[best.head].argmax()]


def test_beside_itself_nothing_has_changed() -> None:
    same = ll.captures()["gpt"]
    found = ll.compare(same, same)
    assert (found.change == 0).all()
    assert "no head changed" in repr(found)


def test_a_causal_model_reads_a_shared_beginning_alike() -> None:
    found = ll.compare(capture(site("a b c")), capture(site("a b c d e")))
    assert found.change.max() < 1e-12
    assert not np.isnan(found.change).any()


def test_rows_are_sampled_evenly_beyond_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join("abcdefghijk"[n % 11] for n in range(40))
    one, other = capture(site(text)), capture(site(text, seed=1))
    whole = ll.compare(one, other)
    monkeypatch.setattr(module, "MOST_ROWS", 13)
    some = ll.compare(one, other)
    assert some.compared[0] == 9 < whole.compared[0]  # every fourth, the first has no choice
    assert np.abs(some.change - whole.change).max() < 0.1


def test_a_difference_is_second_less_first_and_pooled_by_what_is_furthest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = site("a b c d e f g"), site("a b x d e f g")
    found = ll.compare(capture(one), capture(other))
    whole = found.difference(0, 1)
    expected = other.weights(head=1) - one.weights(head=1)
    np.testing.assert_allclose(whole.values[~whole.empty], expected[~whole.empty], atol=1e-7)
    np.testing.assert_array_equal(whole.empty, np.triu(np.ones((7, 7), bool), 1))
    assert whole.tokens[2] == "c → x"
    assert whole.query_tokens[3] == "d"
    assert whole.svg().startswith("<svg")
    assert "c→x" in whole.svg()  # where there is little room
    monkeypatch.setattr(module, "CELLS", 8)
    pooled = found.difference(0, 1, shape=(3, 2))
    edges = [0, 2, 4, 7], [0, 3, 7]
    for r in range(3):
        for c in range(2):
            block = whole.values[edges[0][r] : edges[0][r + 1], edges[1][c] : edges[1][c + 1]]
            if np.isnan(block).all():
                assert pooled.empty[r, c]
                assert np.isnan(pooled.values[r, c])
            else:
                furthest = block.flat[np.nanargmax(np.abs(block))]
                assert pooled.values[r, c] == np.float32(furthest)
    part = found.difference(0, 1, rows=(2, 5), columns=(1, 4))
    np.testing.assert_array_equal(part.values, whole.values[2:5, 1:4])


def test_a_tall_bin_is_pooled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same difference, however many cells are held at once."""
    rng = np.random.default_rng(3)
    first, second = (
        Capture((Site("a", 0, *rng.standard_normal((2, 1, 1, 31, 4)), mask=ll.Causal()),))
        for _ in range(2)
    )
    found, told = ll.compare(first, second), []
    at_once = [found.difference(0, 0, shape=shape) for shape in ((1, 1), (4, 3), (31, 31))]
    monkeypatch.setattr(module, "CELLS", 100)
    for whole in at_once:
        parts = found.difference(
            0, 0, shape=whole.values.shape, progress=lambda done, all: told.append((done, all))
        )
        np.testing.assert_array_equal(parts.values, whole.values)
        np.testing.assert_array_equal(parts.empty, whole.empty)
    assert told[-1] == (31, 31)
    assert len(told) == 3 * 11


def test_padding_is_no_token() -> None:
    tokens = "a b c pad pad"
    real = np.array([[True] * 3 + [False] * 2])
    padded = site(tokens, real_keys=real, mask=ll.Causal() & ll.Lengths([3]))
    found = ll.compare(capture(site("a b c")), capture(padded))
    assert len(found.pairs[0].queries) == len(found.pairs[0].keys) == 3
    assert found.change.max() < 1e-12


def test_two_entries_of_one_batch() -> None:
    both = capture(site(["a b c", "a b d"]))
    found = ll.compare(both, both, batch=(0, 1))
    alone = ll.compare(capture(site("a b c")), capture(site("a b d")))
    np.testing.assert_allclose(found.change, alone.change)
    assert found.strongest(1)[0].tokens == ("c", "d")


def test_what_a_sink_takes_counts() -> None:
    plain = site("a b c")
    rest = replace(plain, sinks=np.full(HEADS, 3.0))
    found = ll.compare(capture(plain), capture(rest))
    total = rest.weights().sum(axis=-1)
    np.testing.assert_allclose(found.change[0], (1 - total)[:, 1:].mean(axis=1), rtol=1e-9)


def test_sites_are_matched_by_name_else_in_order() -> None:
    first = capture(site("a b", layer=0), site("a b", layer=1))
    named = capture(site("a b", layer=1))
    assert ll.compare(first, named).layers == (1,)
    foreign = Capture(tuple(replace(one, name=f"h.{one.layer}") for one in first), first.tokens)
    assert ll.compare(first, foreign).layers == (0, 1)
    assert ll.compare(first, foreign).site(1) == 1


def test_refusals_say_what_can_be_compared() -> None:
    one = capture(site("a b c"))
    with pytest.raises(ArgumentError, match="no token in common"):
        ll.compare(one, capture(site("x y")))
    fewer = replace(site("a b c"), query=site("a b c").query[:, :1])
    with pytest.raises(ArgumentError, match=r"3 heads of self-attention.*must have the same shape"):
        ll.compare(one, capture(fewer))
    other = (replace(site("a b", layer=n), name=f"h.{n}") for n in range(2))
    with pytest.raises(ArgumentError, match="no site in common: 1 and 2"):
        ll.compare(one, capture(*other))
    with pytest.raises(ArgumentError, match="two captures, and got a Site"):
        ll.compare(site("a b c"), one)  # type: ignore[arg-type]
    found = ll.compare(one, one)
    with pytest.raises(ArgumentError, match=r"rows=\(2, 9\): the pairs go from 0 to 3"):
        found.difference(0, 0, rows=(2, 9))
    with pytest.raises(ArgumentError, match="no site 7"):
        found.site(7)


def test_the_command_and_its_report(tmp_path: Path) -> None:
    files = []
    for name, text in (("one", "a b c d"), ("other", "a b <i>x</i> d")):
        files.append(str(tmp_path / f"{name}.safetensors"))
        replace(capture(site(text)), source={"text": text}).save(files[-1])
    run, page = CliRunner(), tmp_path / "both.html"
    said = run.invoke(app, ["compare", *files, "-o", str(page)])
    assert said.exit_code == 0
    assert "3 heads in 1 layer, 4 tokens in common" in said.output
    assert "c / <i>x</i> (2)" in said.output
    html = page.read_text()
    assert "other less one" in html
    assert "<i>x" not in html
    assert "&lt;i&gt;x" in html
    assert "<script" not in html
    assert html.count("<figure>") == 9
    assert html.count("@media screen and (prefers-color-scheme:dark)") == 10  # paper is light
    for theme in THEME.values():  # the page and each of its maps, by the reader's system
        assert f"--surface:{theme.surface}" in html
        assert html.count(f'fill="{theme.surface}"') == 9
    found = json.loads(run.invoke(app, ["compare", *files, "--json"]).output)
    assert [head["head"] for head in found["heads"]]
    assert found["sites"][0]["keys"] == 4
    assert "is there already" in run.invoke(app, ["compare", *files, "-o", str(page)]).output
    same = run.invoke(app, ["compare", files[0], files[0]])
    assert "no head changed" in same.output
    assert "No head changed." in comparison_page(ll.compare(*[Capture.open(files[0])] * 2))
