"""No way back: what a lower layer was handed to call does not lead up again, as a walk runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight.heads import find
from limelight.learn import exercises
from limelight.report import report, write_report
from tests.house.test_arrows import SOURCE, rank
from tests.studio import samples

ROOT = f"{SOURCE}/"


def hops(walk: Callable[[], Any]) -> set[tuple[str, str]]:
    """Which module of limelight called which other, whatever ran between the two."""
    found = set()

    def own(frame: FrameType | None) -> str | None:
        if frame is None or not frame.f_code.co_filename.startswith(ROOT):
            return None
        at = Path(frame.f_code.co_filename.removeprefix(ROOT)).with_suffix("")
        return ".".join(at.parts).removesuffix(".__init__")

    def see(frame: FrameType, event: str, _: Any) -> None:
        here = own(frame) if event == "call" and frame.f_code.co_name != "<module>" else None
        if here is None:
            return
        back = frame.f_back
        while back is not None and own(back) is None:
            back = back.f_back
        before = own(back)
        if before is not None and back is not None and back.f_code.co_name != "<module>":
            found.add((before, here))

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        walk()
    finally:
        sys.setprofile(before)
    return {(one, other) for one, other in found if one != other}


def call(_: Path) -> None:
    x = np.ones((1, 2, 5, 4), np.float32)
    ll.inspect(x, x, x, mask=ll.Causal()).health.summary()


def capture(folder: Path) -> None:
    samples.text_capture().save(folder / "a.safetensors")
    held = ll.Capture.open(folder / "a.safetensors")
    held[1].weights(head=0)
    held[1].heatmap((4, 4), head=0)
    held[1].cell(2, 1, head=0)
    find(held)
    write_report(held, folder / "a.html")


def exercise(_: Path) -> None:
    progress = exercises.Progress(exercises.generate(2, seed=7))
    progress.answer("1, 2, 3").answer(list(progress.exercise.raw)).hint().show()
    exercises.check(progress.exercise, "weights", "0.2, 0.3, 0.5")


@pytest.mark.parametrize("walk", [call, capture, exercise])
def test_a_walk_leads_down(walk: Callable[[Path], None], tmp_path: Path) -> None:
    found = hops(lambda: walk(tmp_path))
    assert len(found) > 10
    assert sorted(pair for pair in found if rank(pair[0]) < rank(pair[1])) == []


def test_what_a_caller_hands_over_is_looked_through() -> None:
    """A report tells how far it is to whoever asked, and that may lead anywhere."""
    told: list[int] = []

    def walk() -> None:
        report(samples.text_capture(), progress=lambda done, _: told.append(ll.Causal().draw(2, 2)))

    assert ("views.bundle", "masks.algebra") in hops(walk)
    assert told
