"""Whatever is in a file: an error of ours or a right answer, in bounded memory and time."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from limelight.capture import Capture
from limelight.capture.tensors import SAVED
from limelight.errors import FileError
from limelight.intake import ANEW
from limelight.survey import Survey
from tests.fuzz import corpus
from tests.fuzz.run import fuzz, table

WAYS_OUT = (ANEW, SAVED, "update limelight")
linux = pytest.mark.skipif(sys.platform != "linux", reason="bounds memory as Linux does")


@linux
def test_hundreds_of_hostile_files() -> None:
    found = fuzz(8)
    assert [
        (tally.reader, tally.wrong, tally.hangs) for tally in found if tally.wrong or tally.hangs
    ] == []
    assert sum(tally.inputs for tally in found) > 150


@linux
@pytest.mark.slow
def test_thousands_of_hostile_files() -> None:
    found = fuzz(600, seed=2)
    print(table(found))
    assert [
        (tally.reader, tally.wrong, tally.hangs) for tally in found if tally.wrong or tally.hangs
    ] == []
    assert sum(tally.inputs for tally in found) > 7_500


@pytest.mark.parametrize("name", corpus.CAPTURES)
def test_a_file_found_by_attack_is_refused_when_it_is_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(corpus.CAPTURES[name]())
    began = time.monotonic()
    with pytest.raises(FileError) as caught:
        Capture.open(tmp_path / "a")
    assert time.monotonic() - began < 20
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2_000
    assert str(caught.value).endswith(WAYS_OUT)


@pytest.mark.parametrize("name", corpus.SOUND_CAPTURES)
def test_what_is_sound_is_opened(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(corpus.SOUND_CAPTURES[name]())
    assert len(Capture.open(tmp_path / "a").sites) > 0


def test_what_a_file_says_acts_on_no_terminal_that_prints_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(corpus.SOUND_CAPTURES["markup and escapes in every text"]())
    assert r"from [/x][bold]\x1b[31m\u202eevil)" in repr(Capture.open(tmp_path / "a"))
    (tmp_path / "b").write_bytes(corpus.SURVEYS["markup"]())
    assert repr(Survey.open(tmp_path / "b")).startswith(r"Survey([/x][bold]\x1b[31m\u202eevil: ")
