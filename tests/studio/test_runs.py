"""A training run's log, read while it grows."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limelight.errors import ArgumentError, FileError
from limelight.journal import FIGURES
from limelight.journal.reading import Tail, is_journal
from limelight.journal.run import Run
from limelight.journal.shipped import TITLES
from limelight.studio.api.runs import damaged_runs
from limelight.studio.endpoint import Nothing
from limelight.studio.folders import Folders
from limelight.studio.limits import Limits
from limelight.studio.studio import Studio
from limelight.studio.work import Cancel
from tests.studio import samples
from tests.studio.conftest import Running, run_alone


def written(path: Path, steps: int = 40) -> Run:
    samples.write_lines(path, samples.run_lines(steps))
    run = Run(Tail(path))
    run.read_on()
    return run


def test_every_record_is_read(tmp_path: Path) -> None:
    run = written(tmp_path / "run.jsonl")
    assert (run.records, run.heads, run.model) == (40, 12, "GPT")
    assert [event.event for event in run.events] == ["raised", "cleared"]
    seen = run.view("saturated", 1000)
    lines = [line for line in samples.run_lines() if line["kind"] == "record"]
    expected = np.array(
        [[x for site in line["sites"] for x in site["saturated"]] for line in lines]
    ).T
    np.testing.assert_allclose(seen.values, expected, rtol=1e-6)
    assert seen.steps == [line["step"] for line in lines]


@pytest.mark.parametrize("bins", [1, 7, 39, 40])
def test_pooling_keeps_the_worse(tmp_path: Path, bins: int) -> None:
    run = written(tmp_path / "run.jsonl")
    for figure, worse in (("saturated", np.max), ("entropy", np.min)):
        whole, pooled = run.view(figure, 1000), run.view(figure, bins)
        edges = [*(whole.steps.index(step) for step in pooled.steps), len(whole.steps)]
        for column, (low, high) in enumerate(itertools.pairwise(edges)):
            np.testing.assert_array_equal(
                pooled.values[:, column], worse(whole.values[:, low:high], axis=1)
            )
        assert pooled.last_steps[-1] == whole.steps[-1]


def test_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = samples.run_lines(20)
    samples.write_lines(path, lines[:9])
    run = Run(Tail(path))
    run.read_on()
    assert run.records == 8
    text = json.dumps(lines[9])
    with path.open("a") as file:
        file.write(text[:50])  # half a line is not a line yet
    run.read_on()
    assert run.records == 8
    with path.open("a") as file:
        file.write(text[50:] + "\n")
    run.read_on()
    assert run.records == 9
    samples.write_lines(path, lines[10:], "a")
    run.read_on()
    assert run.records == 20
    samples.write_lines(path, lines[:4])  # begun anew
    run.read_on()
    assert run.records == 3


def test_strange_lines_cost_themselves_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    samples.write_lines(path, samples.run_lines(3))
    with path.open("ab") as file:
        file.write(b'\n{"kind": "record"\nnull\n[]\n\xff\xfe\n{"kind": "record", "step": NaN}\n{"kind": "mystery", "x": 1}\n'
                   b'{"kind": "alarm", "event": "raised", "step": 3, "site": "blocks.0.attention", "head": 0}\n'
                   b'{"kind": "record", "step": 98, "time": 0, "sites": [{"name": "short", "layer": 0, "heads": 9}]}\n')  # fmt: skip
    figures = {figure: [0.5, None] for figure in FIGURES}
    new = {"name": "new", "layer": 0, "heads": 2, **figures}
    samples.write_lines(path, [{"kind": "record", "step": 99, "time": 0.0, "sites": [new]},
                               {"kind": "end", "step": 100, "reason": "closed"}], "a")  # fmt: skip
    run = Run(Tail(path))
    run.read_on()
    assert (run.records, run.heads, run.events, run.ended) == (4, 14, [], "closed")
    last = run.view("saturated", 100).values[:, -1]
    assert np.isnan(last[:12]).all()
    assert last[12] == 0.5
    assert np.isnan(last[13])


def test_limits(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    samples.write_lines(path, samples.run_lines(3))
    with pytest.raises(FileError, match="longer than"):
        Run(Tail(path, 100)).read_on()
    with pytest.raises(ArgumentError, match="mood"):
        written(path).view("mood", 10)
    assert not is_journal(tmp_path / "nothing.jsonl")


def test_an_empty_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    samples.write_lines(path, samples.run_lines(0))
    run = Run(Tail(path))
    run.read_on()
    assert run.view("saturated", 10).steps == []


def test_the_server_tells_of_it(studio: Running) -> None:
    listed = studio.get("/api/runs")
    assert [run["id"] for run in listed if run["title"] is None] == ["run"]
    assert [(run["id"], run["title"]) for run in listed[1:]] == list(TITLES.items())
    assert studio.get("/api/runs/gpt-qkclip")["clipped"] > 500
    info = studio.get("/api/runs/run")
    assert (info["records"], info["last_step"], info["bounds"][0]["raise_at"]) == (40, 390, 0.9)
    view = studio.get("/api/runs/run/view?figure=spread&bins=11")
    assert len(view["steps"]) == 11
    assert len(view["values"]) == 12


def test_damaged_logs_are_named_and_foreign_ones_left_out(
    start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    lines = samples.run_lines(6)
    samples.write_lines(tmp_path / "good.jsonl", lines)
    samples.write_lines(tmp_path / "headless.jsonl", lines[1:])
    samples.write_lines(tmp_path / "odd.jsonl", [{**lines[0], "version": "one"}])
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "cut.jsonl").write_text(json.dumps(lines[0])[:50])
    (tmp_path / "chat.jsonl").write_text('{"role": "user"}\n')
    running = start_studio(folder=tmp_path)
    assert [run["id"] for run in running.get("/api/runs") if run["title"] is None] == ["good"]
    why = {one["id"]: one["why"] for one in running.get("/api/damaged/runs")}
    assert set(why) == {"headless.jsonl", "odd.jsonl", "empty.jsonl", "cut.jsonl"}
    assert why["empty.jsonl"].startswith("the file is empty")
    assert why["cut.jsonl"] == "the file is damaged: its first line is no JSON"
    assert why["odd.jsonl"].endswith("lacks what a monitor writes there")
    assert why["headless.jsonl"].endswith("the line on the run, its first, is missing")
    small = Studio(Folders.of((tmp_path,)), Limits(run_bytes=999))
    large = {one.id: one.why for one in damaged_runs(small, Nothing(), Cancel())}
    assert "and the studio opens up to 999" in large["good.jsonl"]


def test_a_run_of_one_s_own_hides_one_that_comes_along(
    start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    samples.write_lines(tmp_path / "gpt-qkclip.jsonl", samples.run_lines(6))
    running = start_studio(folder=tmp_path)
    listed = {run["id"]: run["title"] for run in running.get("/api/runs")}
    assert listed == {"gpt-qkclip": None, **{k: v for k, v in TITLES.items() if k != "gpt-qkclip"}}
    assert running.get("/api/runs/gpt-qkclip")["records"] == 6


def test_a_page_is_told_when_a_run_grows(
    start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    import websockets

    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "run.jsonl"
    lines = samples.run_lines(6)
    samples.write_lines(path, lines[:4])
    running = start_studio(folder=folder)

    async def follow() -> list[Any]:
        heard = []
        async with websockets.connect(
            f"ws://{running.netloc}/api/runs/run/live", origin=running.origin,
            additional_headers={"Authorization": f"Bearer {running.token}"},
        ) as socket:  # fmt: skip
            heard.append(json.loads(await asyncio.wait_for(socket.recv(), 10)))
            await socket.send("x" * 100)  # let pass
            samples.write_lines(path, lines[4:], "a")
            heard.append(json.loads(await asyncio.wait_for(socket.recv(), 10)))
            samples.write_lines(path, [{"kind": "end", "step": 60, "reason": "closed"}], "a")
            heard.append(json.loads(await asyncio.wait_for(socket.recv(), 10)))
        return heard

    before, after, ended = run_alone(follow())
    assert before == {"records": 3, "ended": None}
    assert after == {"records": 6, "ended": None}
    assert ended == {"records": 6, "ended": "closed"}


def test_too_long_a_message_ends_the_connection(studio: Running) -> None:
    import websockets

    async def shout() -> None:
        async with websockets.connect(
            f"ws://{studio.netloc}/api/runs/run/live", origin=studio.origin,
            additional_headers={"Authorization": f"Bearer {studio.token}"},
        ) as socket:  # fmt: skip
            await socket.recv()
            await socket.send("x" * 100_000)
            with pytest.raises(websockets.ConnectionClosed):
                await asyncio.wait_for(socket.recv(), 10)

    run_alone(shout())
    assert studio.ask("/healthz").status == 200
