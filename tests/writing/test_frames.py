"""Tables in the forms that other programs read."""

from __future__ import annotations

import csv
import io
import sys
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight.capture import Capture, HealthTables, Site
from limelight.errors import ArgumentError, FileError
from limelight.heads import find
from limelight.live.effects import Effects


@pytest.fixture(scope="module")
def capture() -> Capture:
    rng = np.random.default_rng(0)
    sites = [
        Site(name, layer, *rng.normal(size=(2, 1, heads, 11, 4)), mask=ll.Causal())
        for layer, (name, heads) in enumerate([("first", 3), ("second", 2)])
    ]
    return Capture(tuple(sites))


def test_health_by_site_and_head(capture: Capture, tmp_path: Any) -> None:
    tables = capture.health()
    frame = tables.to_pandas()
    assert list(frame.columns[:3]) == ["site", "layer", "head"]
    assert len(frame) == 5, "the second site has two heads"
    for record in frame.to_dict("records"):
        for figure in tables.figures:
            assert record[figure] == tables[figure][record["layer"], record["head"]]
    assert set(frame["verdict"]) <= {"healthy", "peaked", "saturated"}
    data = tables.to_xarray()
    assert data["entropy"].dims == ("site", "head")
    assert float(data["entropy"].sel(site="second", head=1)) == tables["entropy"][1, 1]
    assert np.isnan(data["entropy"].sel(site="second", head=2))
    assert data["layer"].values.tolist() == [0, 1]
    tables.to_csv(tmp_path / "health.csv")
    text = (tmp_path / "health.csv").read_text(encoding="utf-8")
    assert text == tables.to_csv()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [float(row["entropy"]) for row in rows] == frame["entropy"].tolist()


def test_a_summary_and_kinds(capture: Capture) -> None:
    summary = capture[0].health().summary()
    assert summary.to_pandas()["entropy"].tolist() == summary.entropy.tolist()
    assert summary.to_xarray()["entropy"].dims == ("head",)
    found = find(capture)
    frame = found.to_pandas()
    assert len(frame) == 5
    assert frame["previous"].tolist() == pytest.approx(
        [*found.scores["previous"][0], *found.scores["previous"][1][:2]]
    )
    assert {"previous chance", "previous rows"} <= set(frame.columns)
    rows = list(csv.DictReader(io.StringIO(found.to_csv() or "")))
    assert rows[0]["induction"] == "", "not judged without tokens: no number"


def test_a_comparison(capture: Capture) -> None:
    found = ll.compare(capture, capture)
    frame = found.to_pandas()
    assert frame["change"].tolist() == pytest.approx([0.0] * 5)
    assert frame["site"].tolist() == ["first"] * 3 + ["second"] * 2


def test_effects_by_layer_and_head() -> None:
    after = np.array([[-1.0, -2.0], [-1.5, np.nan]])
    found = Effects(-1.0, after, "log-probability", ("a",), "b", names=("0", "1"))
    assert found.to_pandas()["change"].tolist() == [0.0, -1.0, -0.5]
    assert float(found.to_xarray()["cost"].sel(layer=0, head="1")) == 1.0


def test_a_table_of_nothing_has_its_heading() -> None:
    empty = HealthTables((), (), ())
    assert (empty.to_csv() or "").startswith("site,layer,head,rows,")
    assert list(empty.to_pandas().columns[:3]) == ["site", "layer", "head"]


@pytest.mark.parametrize("name", ["pandas", "xarray"])
def test_a_missing_package_is_named(
    capture: Capture, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ArgumentError, match=rf"to_{name}\(\) needs {name}: pip install {name}"):
        getattr(capture.health(), f"to_{name}")()


def test_a_csv_that_cannot_be_written(capture: Capture, tmp_path: Any) -> None:
    with pytest.raises(FileError, match="cannot be written"):
        capture.health().to_csv(tmp_path / "missing" / "health.csv")
