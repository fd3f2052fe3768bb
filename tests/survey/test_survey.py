"""Surveys without a model: sums that no order changes, files that hold, views that add up."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from limelight import heads, notebook
from limelight.capture import tensors
from limelight.cli import app
from limelight.errors import ArgumentError, FileError
from limelight.survey import Survey, bins, sums
from limelight.survey.examples import NONE
from tests.survey.samples import KINDS, made


def test_a_sum_is_exact_and_no_order_changes_it() -> None:
    draw = np.random.default_rng(3)
    values = np.concatenate([draw.random(500) * 10.0**n for n in range(-3, 12)])
    parts = [sums.split(np.array([value])) for value in values]
    whole, part = (sum(pair[n] for pair in parts) for n in range(2))
    total = sums.joined(*sums.carried(whole, part))[0]
    exact = sum(Fraction(round(Fraction(float(v)) * 2**48), 2**48) for v in values)
    assert total == float(exact)
    order = draw.permutation(len(parts))
    again = [sum(parts[n][side] for n in order) for side in range(2)]
    assert (again[0], again[1]) == (whole, part)


def test_bins_cover_every_distance_once() -> None:
    steps = np.arange(-3000, 3000)
    which = bins.of_distance(steps)
    behind = which < bins.BEHIND
    np.testing.assert_array_equal(behind, steps >= 0)
    low, high = bins.DISTANCE[which % bins.BEHIND], bins.DISTANCE[which % bins.BEHIND + 1]
    assert ((low <= np.abs(steps)) & (np.abs(steps) < high)).all()
    places = bins.of_place(np.arange(5000))
    assert places[:9].tolist() == [*range(8), 8]
    assert (np.diff(places) <= 1).all()


def written(found: Survey, path: Path) -> bytes:
    found.save(path)
    return path.read_bytes()


def test_merged_in_any_order_it_is_one_file(tmp_path: Path) -> None:
    parts = [made(range(start, start + 5)) for start in range(0, 15, 5)]
    whole = written(made(range(15)), tmp_path / "a")
    for order in itertools.permutations(parts):
        assert written(order[0].merge(*order[1:]), tmp_path / "a") == whole
    assert written(parts[2].merge(parts[0].merge(parts[1])), tmp_path / "a") == whole


def test_what_is_saved_is_what_is_opened(tmp_path: Path) -> None:
    found = made(range(9), together=4)
    first = written(found, tmp_path / "a")
    opened = Survey.open(tmp_path / "a")
    assert written(opened, tmp_path / "b") == first
    assert opened.table() == found.table()
    assert opened.received(0, 1) == found.received(0, 1)
    assert opened.source == {"model": "drawn"}


def test_the_views_add_up() -> None:
    found = made(range(9))
    rows = found.tables["place_rows"][1, 1].sum()
    given = sum(one["share"] for one in found.received(1, 1, most=99))
    assert given == pytest.approx(found.given.weights[:, 1, 1].sum() / 2**32 / rows)
    names, shares = found.places(1, 0)
    assert names[:3] == ["0", "1", "2"]
    assert shares.shape == (len(names), len(names))
    assert found.distances("layer.1", 0)[0]["to"] < 0 < found.distances(1, 0)[-1]["from"]
    assert found.histogram("spread", -1, 1).sum() > 0
    assert np.isnan(found.heads.scores["own"][1, 2])  # the second site has two heads
    score, passage = found.examples(0, 0, "own")[0]
    assert score == found.strongest.score[1, 0, 0, 0] > NONE
    assert passage.name.startswith("text ")
    assert len(found.table()) == 5
    frame = found.to_pandas()
    for record, row in zip(found.table(), frame.to_dict("records"), strict=True):
        assert {name: None if value != value else value for name, value in row.items()} == record
    assert heads.search(found, key="cat")[0].weight > 0
    json.dumps(found.to_dict(), allow_nan=False)
    assert repr(found) == "Survey(drawn: 5 heads in 2 layers, 9 texts of 59 tokens)"


def test_refusals() -> None:
    found = made(range(3))
    for ask, said in (
        (lambda: found.distances(7, 0), "7 names 0 sites"),
        (lambda: found.histogram("rows", 0, 0), "max_prob or spread"),
        (lambda: found.examples(0, 0, "induction"), "no kind 'induction'"),
        (lambda: found.merge(3), "merges with surveys"),
        (lambda: found.merge(replace(found, source={"model": "x"})), "their model differ"),
        (lambda: found.merge(replace(found, known=KINDS[::-1])), "their kinds differ"),
        (lambda: found.search(query="a"), "heads.between"),
        (lambda: found.search(key="cat", at_least="x"), "at_least='x': give the least share"),
        (lambda: found.search(key="cat", at_least=2), "from 0 to 1"),
        (lambda: found.received(0, 0, most=-1), "most=-1: give how many tokens"),
        (lambda: found.received(0, 0, most="a"), "most='a': give how many tokens"),
    ):
        with pytest.raises(ArgumentError, match=said):
            ask()  # type: ignore[no-untyped-call]
    full = {**found.tables, "rows": found.tables["rows"] + sums.MOST_ROWS // 2}
    with pytest.raises(ArgumentError, match="keep them apart"):
        found.merge(replace(found, tables=full), replace(found, tables=full))


def test_the_report_has_every_head_and_no_script(tmp_path: Path) -> None:
    path, page = tmp_path / "drawn.safetensors", tmp_path / "drawn.html"
    made(range(9)).save(path)
    run = CliRunner()
    said = run.invoke(app, ["report", str(path)])
    assert said.exit_code == 0, said.output
    assert "5 heads over 9 texts" in said.output
    html = page.read_text()
    assert "<script" not in html
    for name in ("L0H0", "L0H2", "L1H1"):
        assert f'<section class="head" id="{name}">' in html
        assert f'href="#{name}"' in html
    assert "‮" not in html
    chosen = {"--budget": "3", "--precision": "float32", "--batch": "0", "--heads": "0.1",
              "--layers": "0"}  # fmt: skip
    for option, value in chosen.items():
        refused = run.invoke(app, ["report", str(path), option, value, "-f"])
        assert f"has all of its heads, and no vectors: leave out {option}\n" in refused.output
    listed = run.invoke(app, ["heads", str(path), "--kind", "own"])
    assert "±" in listed.output
    pulled = run.invoke(app, ["heads", str(path), "--to", "cat", "--at-least", "0"])
    assert "of its attention" in pulled.output


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    shown = notebook.show(made(range(3)))
    assert shown._repr_html_().startswith("<iframe sandbox srcdoc=")
    assert "3 texts" in repr(shown)


def _changed(change: Any, path: Path) -> None:
    """A saved survey after change(meaning, tensors), with a checksum that holds."""
    made(range(4)).save(path)
    parts, texts = tensors.read(path)
    meaning = json.loads(texts["limelight"])
    change(meaning, parts)
    tensors.write(path, parts, {"limelight": json.dumps(meaning)})


HOSTILE: dict[str, Any] = {
    "a capture": lambda m, _: m.update(format="limelight-capture"),
    "of the future": lambda m, _: m.update(version=2),
    "more heads": lambda m, _: m.update(heads=[3, 4]),
    "heads without end": lambda m, _: m.update(heads=[1 << 30, 2]),
    "a kind twice": lambda m, _: m["kinds"].__setitem__(1, m["kinds"][0]),
    "fewer texts than none": lambda m, _: m.update(texts=-1),
    "a threshold that is a text": lambda m, _: m["kinds"][0].update(threshold="0"),
    "a table of floats": lambda _, p: p.update({"table.rows": p["table.rows"].astype(np.float64)}),
    "a count below 0": lambda _, p: p["table.rows"].__isub__(1000),
    "a fraction beyond 1": lambda _, p: p["table.figures.part"].__ior__(1 << 50),
    "tokens out of order": lambda _, p: p.update({"token.ids": p["token.ids"][::-1]}),
    "a token fewer": lambda _, p: p.update({"token.ids": p["token.ids"][1:]}),
    "texts that end elsewhere": lambda _, p: p["token.ends"].__iadd__(1),
    "texts that are no text": lambda _, p: p["token.bytes"].__ior__(128),
    "an example of nothing": lambda _, p: p["example.text"].__iadd__(1),
    "no tables": lambda _, p: p.pop("table.rows"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_cannot_be_is_refused(name: str, tmp_path: Path) -> None:
    _changed(HOSTILE[name], tmp_path / "a")
    with pytest.raises(FileError) as caught:
        Survey.open(tmp_path / "a")
    assert "\n" not in str(caught.value)
