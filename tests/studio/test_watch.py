"""Watch in a real browser: the run's figures, its alarms, and its growth while one looks."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from limelight.journal.run import Run
from limelight.journal.shipped import TITLES, find
from tests.studio import samples
from tests.studio.conftest import Running, Watcher
from tests.studio.looking import focused

Open = Callable[..., Any]


def test_runs_are_listed(open_tab: Open) -> None:
    page = open_tab("#/watch")
    page.get_by_role("link", name=re.compile("^run")).click()
    page.get_by_role("heading", name="run").wait_for()


def test_runs_that_come_along_are_listed_apart_and_open(open_tab: Open) -> None:
    page = open_tab("#/watch")
    examples = page.get_by_role("region", name="Examples that come along")
    examples.wait_for()
    assert examples.get_by_role("listitem").count() == len(TITLES)
    assert examples.get_by_role("link", name=re.compile("^run")).count() == 0
    examples.get_by_role("link", name=re.compile("^gpt-qkclip")).click()
    thinned = "20 records, thinned to one every 30 steps, up to step 570"
    page.get_by_text(f"{TITLES['gpt-qkclip']} · Decoder · {thinned}").wait_for()
    marks = page.locator("figure", has_text="Loss").locator("text.across").all_text_contents()
    assert marks == ["0", "100", "200", "300", "400", "500"]
    page.get_by_text("ended: closed, without an error").wait_for()
    run = Run.open(find("gpt-qkclip"))
    page.get_by_text(f"{len(run.on)} on at the end").wait_for()
    told = page.get_by_role("region", name="Scaled back")
    told.get_by_text(f"pass 100: after {len(run.clips)} steps so far").wait_for()
    assert told.get_by_role("listitem").count() == 200
    told.get_by_text("The latest 200; the log has those before.").wait_for()


def test_the_alarmed_head_is_shown_and_its_alarms_listed(open_tab: Open) -> None:
    page = open_tab("#/watch/run")
    page.get_by_text("40 records, up to step 390").wait_for()
    page.get_by_text("Saturated rows, layer 1, head 2").wait_for()
    events = page.get_by_role("region", name="Alarms").get_by_role("listitem")
    assert events.count() == 2
    raised = next(line for line in samples.run_lines() if line.get("event") == "raised")
    assert f"saturated {raised['value']:.3g}, bound 0.9" in events.nth(1).inner_text()


def test_of_many_alarms_the_latest_are_listed_and_that_is_said(open_tab: Open) -> None:
    page = open_tab("#/watch/run")
    alarms = page.get_by_role("region", name="Alarms")
    alarms.get_by_role("listitem").nth(1).wait_for()
    assert alarms.get_by_text("The latest").count() == 0

    def more(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(
            response=answer, json={**answer.json(), "events": answer.json()["events"] * 101}
        )

    page.route("**/api/runs/run", more)
    page.reload()
    alarms.get_by_text("The latest 200; the log has those before.").wait_for()
    assert alarms.get_by_role("listitem").count() == 200


def test_what_was_scaled_back(
    browser: Any, start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    heads = [{"site": "blocks.1.attention", "head": head, "max_logit": 200.0 + head, "factor": 0.5}
             for head in (0, 1, 2, 4, 4)]  # fmt: skip
    clips = [{"kind": "clip", "step": step, "limit": 100.0, "heads": heads} for step in (100, 100)]
    samples.write_lines(folder / "clipped.jsonl", [*samples.run_lines(), *clips])
    running = start_studio(folder=folder)
    page = browser.new_page()
    page.goto(f"{running.origin}/?token={running.token}#/watch/clipped")
    told = page.get_by_role("region", name="Scaled back")
    told.get_by_text("pass 100: after 2 steps so far").wait_for()
    first = told.get_by_role("listitem").first.inner_text()
    assert "layer 1, head 4: 204 → 102" in first
    assert "and 2 more" in first
    for name in ("Alarms", "Scaled back"):  # a long list scrolls, by keyboard too
        page.get_by_role("list", name=name).focus()
        focused(page, "ol")
    page.close()


def test_heads_and_steps_are_walked_by_keyboard(open_tab: Open) -> None:
    page = open_tab("#/watch/run?figure=max_logit&head=6")
    area = page.get_by_role(
        "application", name=re.compile("Largest logit: 12 heads over 40 columns")
    )
    area.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    record = [line for line in samples.run_lines() if line["kind"] == "record"][1]
    value = record["sites"][1]["max_logit"][2]
    page.get_by_text(f"layer 1, head 2, step 10: {value:.3g}").wait_for(state="attached")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("head=7"))


def test_it_grows_while_one_looks(
    browser: Any, start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    lines = samples.run_lines()
    path = folder / "live.jsonl"
    samples.write_lines(path, lines[:11])
    running = start_studio(folder=folder)
    watcher = Watcher(running.origin)
    context = browser.new_context()
    watcher.attach(context)
    page = context.new_page()
    page.goto(f"{running.origin}/?token={running.token}#/watch/live")
    page.get_by_text("10 records, up to step 90").wait_for()
    page.get_by_text("live", exact=True).first.wait_for()
    page.get_by_text("None so far").wait_for()
    samples.write_lines(path, lines[11:30], "a")
    page.get_by_text("1 on now").wait_for()
    samples.write_lines(path, lines[30:], "a")
    page.get_by_text("40 records, up to step 390").wait_for()
    page.get_by_text("None on now").wait_for()
    samples.write_lines(path, [{"kind": "end", "step": 400, "reason": "closed"}], "a")
    page.get_by_text("ended: closed").wait_for()
    context.close()
    assert watcher.problems == []


def test_a_run_that_is_no_longer_written_is_not_live(
    browser: Any, start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    lines = samples.run_lines(3)
    for n, line in enumerate(lines[1:]):
        line["loss"] = 0.004 - 0.001 * n
    samples.write_lines(folder / "left.jsonl", lines)
    before = time.time() - 20.5 * 60
    os.utime(folder / "left.jsonl", (before, before))
    running = start_studio(folder=folder)
    page = browser.new_page()
    page.goto(f"{running.origin}/?token={running.token}#/watch/left")
    page.get_by_text("no record for 20 min").wait_for()
    loss = page.locator("figure", has_text="Loss")
    assert loss.locator(".range").inner_text().split() == ["highest", "0.004", "lowest", "0.002"]
    head = page.locator("figure", has_text="Saturated rows")
    assert "alarm 0.9" in head.locator(".range").inner_text()
    page.close()


def test_one_record_is_a_dot_and_no_attention_is_said(
    browser: Any, start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    lines = samples.run_lines(1)
    lines[1] |= {"loss": 0.5, "sites": []}
    samples.write_lines(folder / "first.jsonl", lines)
    running = start_studio(folder=folder)
    page = browser.new_page()
    page.goto(f"{running.origin}/?token={running.token}#/watch/first")
    page.get_by_text("1 record, up to step 0 · 0 heads").wait_for()
    page.get_by_text("No attention was seen. A monitor sees").wait_for()
    line = page.locator("figure", has_text="Loss").locator("path.mean")
    assert re.fullmatch(r"M(\S+ \S+)L\1", line.get_attribute("d"))
    assert line.evaluate("line => getComputedStyle(line).strokeLinecap") == "round"
    page.close()


def test_damaged_logs_are_named(
    browser: Any, start_studio: Callable[..., Running], tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "empty.jsonl").write_bytes(b"")
    running = start_studio(folder=folder)
    page = browser.new_page()
    page.goto(f"{running.origin}/?token={running.token}#/watch")
    named = page.get_by_role("listitem").filter(has_text="empty.jsonl")
    assert "Cannot be opened: the file is empty" in named.inner_text()
    page.get_by_text("limelight studio --folder runs").wait_for()
    page.close()


def test_a_run_that_is_not_there_is_said(browser: Any, studio: Running) -> None:
    page = browser.new_page()
    page.goto(f"{studio.origin}/?token={studio.token}#/watch/nope")
    said = page.get_by_role("alert")
    assert "There is no run “nope”" in said.inner_text()
    title = page.get_by_role("heading", name="nope").bounding_box()
    assert title["y"] < said.bounding_box()["y"]
    page.close()


@pytest.mark.parametrize("width", [1440, 360])
def test_without_a_run_it_says_how_to_get_one(
    browser: Any, start_studio: Callable[..., Running], width: int
) -> None:
    running = start_studio()
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(f"{running.origin}/?token={running.token}#/watch")
    page.get_by_text("limelight studio --folder runs").wait_for()
    assert "monitor.step(loss=loss.item())" in page.locator("pre").first.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
