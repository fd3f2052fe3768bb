"""The experiment of remedies: its results, what is said of them, and the runs that come along."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from limelight.cli import app
from limelight.errors import ArgumentError, FileError
from limelight.journal import shipped
from limelight.journal.run import Run
from limelight.learn.experiments import REMEDIES, Remedies, figures, remedies
from limelight.learn.experiments.rescue import CURVES, held_out

HIGH = (0.01, 0.03, 0.1)


@pytest.fixture(scope="module")
def results() -> Remedies:
    return remedies()


def test_every_run_is_there_with_its_curves(results: Remedies) -> None:
    assert results.remedies == tuple(REMEDIES)
    assert results.rates == (0.001, *HIGH)
    assert len(results.runs) == 4 * 5 * results.facts["seeds"]
    for run in results.runs:
        for name in CURVES:
            assert getattr(run, name).shape == run.steps.shape
        assert run.most == pytest.approx(run.largest.max(), rel=1e-3)
        assert run.least == pytest.approx(run.entropy.min(), rel=1e-3)
        assert bool(run.clipped) == (run.remedy == "clip" and run.rate > 0.001)


def test_the_reasons_of_a_death_are_in_its_numbers(results: Remedies) -> None:
    for run in results.runs:
        assert ("logit" in run.died) == (run.most > 1000)
        assert ("entropy" in run.died) == (run.least < 0.01)
        assert bool(run.dead) == (run.since is not None) == bool({"logit", "entropy"} & {*run.died})
        assert 0 <= run.below <= run.dead <= results.facts["records"]


def test_what_the_page_says_holds(results: Remedies) -> None:
    def died(remedy: str, rate: float) -> int:
        return sum(bool(run.died) for run in results.at(remedy, rate))

    assert not any(died(remedy, 0.001) for remedy in REMEDIES)
    for rate in HIGH:
        assert died("none", rate) == died("floor", rate) == 3  # the floor saved nothing
        assert died("norm", rate) == 0
        norm = held_out(results.at("norm", rate))
        others = [held_out(results.at(r, rate)).min() for r in REMEDIES if r != "norm"]
        assert norm.max() < min(others)
    assert died("clip", 0.1) == died("z_loss", 0.1) == 3
    assert [run.remedy for run in results.runs if "loss" in run.died] == ["floor"]
    ended = {r: held_out(results.at(r, 0.1)).mean() for r in REMEDIES}
    assert max(ended["clip"], ended["z_loss"]) < ended["none"]
    again = np.abs(held_out(results.at("none", 0.001)) - held_out(results.at("clip", 0.001))).max()
    for rate in (0.01, 0.03):
        gap = (
            held_out(results.at("clip", rate)).mean() - held_out(results.at("z_loss", rate)).mean()
        )
        assert abs(gap) < again
    for remedy in REMEDIES:  # a smaller rate was the best remedy, and none cost anything there
        assert (
            held_out(results.at(remedy, 0.001)).mean() < held_out(results.at("norm", 0.01)).mean()
        )
        gap = (
            held_out(results.at(remedy, 0.001)).mean() - held_out(results.at("none", 0.001)).mean()
        )
        assert gap < again
    for run in (*results.at("clip", 0.1), *results.at("z_loss", 0.1)):  # they came back
        assert run.largest[-1] < 1000
        assert run.entropy[-1] > 0.01


def test_one_kind_or_a_message(results: Remedies) -> None:
    assert [run.seed for run in results.at("clip", 0.03)] == [0, 1, 2]
    with pytest.raises(ArgumentError, match=r"no runs of clip at 0.02: remedies are none, clip"):
        results.at("clip", 0.02)


def test_foreign_files_are_told(tmp_path: Path, results: Remedies) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        remedies(tmp_path / "none.json")
    short = {"facts": {}, "steps": [0, 6], "runs": [results.to_dict()["runs"][0]]}
    for text in ("{", "[]", json.dumps(short)):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(FileError, match=r"not the results of examples/make_runs.py"):
            remedies(tmp_path / "bad.json")


@pytest.mark.parametrize("figure", ["held-out", *figures.OVER_STEPS])
def test_pictures(results: Remedies, figure: str) -> None:
    if figure == "held-out":
        drawn = figures.rescued(results)
    else:
        drawn = figures.over_steps(results, figure, theme="dark")
    text = "".join(ElementTree.fromstring(drawn.svg()).itertext())
    assert all(words in text for words in REMEDIES.values())


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        app(list(arguments))
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


def test_the_command_line(
    results: Remedies, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = said(capsys, "experiment", "remedies")
    mean = held_out(results.at("none", 0.1)).mean()
    assert f"{mean:.2f} (3 died)" in shown
    assert json.loads(said(capsys, "experiment", "remedies", "--json")) == results.to_dict()
    out = tmp_path / "loss.svg"
    assert "drew loss" in said(
        capsys, "experiment", "remedies", "-o", str(out), "--picture", "loss"
    )
    assert "Loss, nats a character" in out.read_text(encoding="utf-8")


def test_the_runs_that_come_along(results: Remedies) -> None:
    names = dict(zip(REMEDIES, shipped.runs(), strict=True))
    for remedy, row in names.items():
        run = Run.open(row.path)
        (known,) = [one for one in results.at(remedy, 0.01) if one.seed == 1]
        assert (run.heads, run.ended, run.records) == (16, "closed", 20)
        steps = run.view("max_logit", 1000).steps
        assert steps[:2] == [0, 30]
        largest = np.nanmax(run.view("max_logit", 1000).values)
        assert largest <= known.most * 1.001
        assert sum(len(clip.heads) for clip in run.clips) == known.clipped
    assert sum(row.path.stat().st_size for row in names.values()) < 600_000


def test_watch_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path,
                       monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    assert "QKClip at 100: " in said(capsys, "watch", "gpt-qkclip")
    assert json.loads(said(capsys, "watch", "gpt-nothing-done", "--json"))["ended"] == "closed"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        app(["watch", "gpt-nothing"])
    assert "no such run comes along: those are gpt-nothing-done" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        app(["watch", "./gpt-qkclip"])
    assert "QKClip at 100" not in capsys.readouterr().out
