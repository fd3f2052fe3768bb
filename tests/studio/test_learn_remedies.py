"""Learn, part 5: the experiment of remedies, drawn from the results that come along."""

from __future__ import annotations

import re
from typing import Any

import pytest

from limelight.learn.experiments import REMEDIES, Remedies, remedies
from limelight.learn.experiments.rescue import held_out
from tests.studio.conftest import Running
from tests.studio.looking import close, figures

RESULTS: Remedies = remedies()


@pytest.fixture
def part(page: Any) -> Any:
    found = page.locator("#remedies")
    found.locator(".waiting").wait_for(state="detached")
    return found


def choose(part: Any, remedy: str, rate: float) -> None:
    part.get_by_role("button", name=REMEDIES[remedy], exact=True).click()
    part.get_by_role("button", name=f"{rate:g}", exact=True).click()


def test_the_route_gives_what_the_library_has(studio: Running) -> None:
    served = studio.get("/api/experiments/remedies")
    shown = RESULTS.shown()
    assert served["runs"] == shown["runs"]
    assert (served["remedies"], served["rates"]) == (REMEDIES, list(RESULTS.rates))


def test_the_table_holds_every_end_and_every_death(part: Any) -> None:
    rows = part.locator("tbody tr").all()
    assert len(rows) == len(REMEDIES)
    for row, remedy in zip(rows, REMEDIES, strict=True):
        runs = [RESULTS.at(remedy, rate) for rate in RESULTS.rates]
        close(figures(row), [held_out(each).mean() for each in runs])
        died = [sum(bool(run.died) for run in each) for each in runs]
        assert [int(n) for n in re.findall(r"(\d) died", row.inner_text())] == died


def test_what_is_said_and_drawn_follows_the_choice(part: Any, page: Any) -> None:
    def foot() -> float:
        return page.evaluate("document.getElementById('softmax').offsetTop")

    before = foot()
    for remedy, rate in (("norm", 0.1), ("floor", 0.1), ("z_loss", 0.001), ("clip", 0.03)):
        choose(part, remedy, rate)
        both = [RESULTS.at(each, rate) for each in (remedy, "none")]
        said = part.locator(".told p").first
        close(figures(said), [max(run.most for run in runs) for runs in both])
        died = [sum(bool(run.died) for run in runs) for runs in both]
        assert f"{died[0]} of 3 runs died" in said.inner_text()
        assert f"with nothing done {died[1]} died" in said.inner_text()
        label = part.locator("svg[role=img]").get_attribute("aria-label")
        assert f"learning rate of {rate:g}: " in label
        assert part.locator("path.mean").count() == 2
        assert foot() == before, (remedy, rate)


def test_it_leads_to_watch_and_back(part: Any, page: Any) -> None:
    part.get_by_role("link", name="Watch shows five of these runs").click()
    page.get_by_role("link", name="Learn tells what saved such runs").click()
    page.wait_for_url(re.compile("#/learn/remedies"))
    page.locator("#remedies").wait_for()
