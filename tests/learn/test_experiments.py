"""The scaling experiment's results: read, tabled and drawn with NumPy alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from limelight.cli import app
from limelight.errors import ArgumentError, FileError
from limelight.learn.experiments import FIGURES, SCALES, SETTINGS, Scaling, figures, scaling
from limelight.pictures.chart import Line, Panel, chart


@pytest.fixture(scope="module")
def results() -> Scaling:
    return scaling()


def test_every_combination_is_there_with_every_figure(results: Scaling) -> None:
    assert results.settings == tuple(SETTINGS)
    assert results.scales == SCALES
    assert results.sizes == (16, 32, 64, 128, 256)
    assert len(results.runs) == 3 * 3 * 5
    seeds = results.facts["seeds"]
    assert seeds >= 3
    for run in results.runs:
        assert run.held_out.shape == (seeds,)
        for name in FIGURES:
            values = getattr(run, name)
            assert values.shape == (seeds, len(run.steps))
            assert np.isfinite(values).all()
        assert (run.spread >= 0).all()
        assert (run.spread <= 1).all()
        assert (run.saturated >= 0).all()
        assert (run.saturated <= 1).all()


def test_all_start_from_the_same_loss(results: Scaling) -> None:
    """An even guess over 65 characters, whatever the scale: the comparison is fair at its start."""
    for run in results.runs:
        np.testing.assert_allclose(run.loss[:, 0], np.log(65), atol=0.1)


def test_one_combination_or_a_message(results: Scaling) -> None:
    assert results.at("unit", "none", 64).d_k == 64
    with pytest.raises(
        ArgumentError, match=r"no runs of unit, none, d_k=63: settings are unit, small"
    ):
        results.at("unit", "none", 63)


def test_the_table_for_people(results: Scaling) -> None:
    lines = repr(results).splitlines()
    shown = next(line for line in lines if line.startswith("  256")).split()
    held = results.at("unit", "1/√d_k", 256).held_out
    assert float(shown[1]) == pytest.approx(held.mean(), abs=6e-4)
    assert float(shown[3]) == pytest.approx(np.ptp(held) / 2, abs=6e-4)


def test_foreign_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        scaling(tmp_path / "none.json")
    for text in ("{", "[]", json.dumps({"facts": {}, "runs": [{"setting": "unit"}]})):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(FileError, match=r"not the results of examples/scaling.py"):
            scaling(tmp_path / "bad.json")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["held_out", "start", "curves"])
def test_pictures(results: Scaling, name: str, theme: str) -> None:
    draw = getattr(figures, name)
    picture = draw(results, 64, theme=theme) if name == "curves" else draw(results, theme=theme)
    ElementTree.fromstring(picture.svg())
    for x, y in coordinates(picture.svg()):
        assert 0 <= x <= picture.width
        assert 0 <= y <= picture.height


def test_a_point_stands_where_its_number_says() -> None:
    line = Line("a", np.array([0.0, 5.0, 10.0]), np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]))
    picture = chart([[Panel("p", (line,), low=0.0, high=10.0)]], title="t")
    seeds, means = points(picture.svg())[1:3], points(picture.svg())[3]
    assert [p[0] for p in means] == [p[0] for p in seeds[0]]
    for mean, low, high in zip(means, *seeds, strict=True):
        assert mean[1] == pytest.approx((low[1] + high[1]) / 2, abs=0.01)
    rise = means[0][1] - means[1][1]
    assert rise == pytest.approx(150 / 10, abs=0.02)  # a tenth of a panel 150 high, for 2 → 3


def test_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], results: Scaling
) -> None:
    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            app(["experiment", *arguments])
        assert ended.value.code in (0, None)
        return capsys.readouterr().out

    assert "1.989 ± 0.016" in run()
    assert json.loads(run("scaling", "--json")) == results.to_dict()
    for picture in ("held-out", "start", "curves"):
        size = ["--d-k", "64"] if picture == "curves" else []
        text = run(
            "-o", str(tmp_path / f"{picture}.svg"), "--picture", picture, *size, "--theme", "dark"
        )
        assert text.endswith(f"drew {picture} to {tmp_path / picture}.svg\n")
        ElementTree.fromstring((tmp_path / f"{picture}.svg").read_text())


def test_a_picture_replaces_nothing_unasked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.svg"
    out.write_text("mine")
    for force, code in (([], 2), (["--force"], 0)):
        with pytest.raises(SystemExit) as ended:
            app(["experiment", "-o", str(out), *force])
        assert ended.value.code == code
        assert ("give --force to replace it" in capsys.readouterr().err) == (code == 2)
        assert (out.read_text() == "mine") == (code == 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["unknown"], "there is no experiment 'unknown': choose scaling, remedies"),
     (["-o", "x.svg", "--picture", "pie"], "--picture pie: of scaling, choose held-out, start, curves"),
     (["remedies", "-o", "x.svg", "--picture", "start"], "start: of remedies, choose held-out, largest"),
     (["-o", "x.svg", "--picture", "curves", "--d-k", "7"], "there are no runs of unit, 1/√d_k, --d-k 7"),
     (["--picture", "start", "--d-k", "64"], "--picture, --d-k: only for a picture; say where to with -o"),
     (["-o", "x.svg", "--d-k", "64"], "--d-k goes with --picture curves"),
     (["--results", "none.json"], "none.json: cannot be read")],
)  # fmt: skip
def test_mistakes_on_the_command_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        app(["experiment", *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def points(svg: str) -> list[list[tuple[float, float]]]:
    lines = re.findall(r'<polyline points="([^"]+)"', svg)
    return [[tuple(map(float, point.split(","))) for point in line.split()] for line in lines]


def coordinates(svg: str) -> list[tuple[float, float]]:
    return [point for line in points(svg) for point in line]
