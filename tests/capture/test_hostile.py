"""Files that change while they are open, and what a file may ask for."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from limelight.capture import Capture, Site, tensors
from limelight.errors import FileError
from limelight.intake import from_json, open_plain, read_bounded
from tests.fuzz import corpus


def capture(seed: int, count: int = 257) -> Capture:
    draw = np.random.default_rng(seed).standard_normal((2, 1, 2, count, 16)).astype(np.float32)
    return Capture((Site("a", 0, *draw),), source={"seed": seed})


def test_whoever_replaces_the_file_changes_nothing_for_a_reader(tmp_path: Path) -> None:
    """Two savers, and a reader: header and data are always of one file."""
    target, stop, made = tmp_path / "a", threading.Event(), [capture(1), capture(2, 263)]
    made[0].save(target)
    wrong: list[Exception] = []

    def saving(one: Capture) -> None:
        while not stop.is_set():
            one.save(target)

    threads = [threading.Thread(target=saving, args=(one,)) for one in made]
    for thread in threads:
        thread.start()
    try:
        for _ in range(60):
            found = Capture.open(target)
            expected = made[int(found.source["seed"]) - 1]
            np.testing.assert_array_equal(found.sites[0].query, expected.sites[0].query)
    except FileError as error:
        wrong.append(error)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_is_read_unless_mapping_is_asked_for(tmp_path: Path) -> None:
    capture(1).save(tmp_path / "a")
    found = Capture.open(tmp_path / "a").sites[0]
    before = found.health().entropy.copy()
    (tmp_path / "a").write_bytes(b"x" * 100)  # as `cp` does: the same file, emptied and filled
    np.testing.assert_array_equal(found.query, capture(1).sites[0].query)
    np.testing.assert_array_equal(found.health().entropy, before)


@pytest.mark.parametrize("look", [
    lambda site: site.health(), lambda site: site.cell(0, 0), lambda site: site.weights(),
    lambda site: site.heatmap((4, 4)), lambda site: site.one(1), lambda site: site.trace(),
])  # fmt: skip
def test_a_mapped_file_that_was_written_to_is_refused(look: Any, tmp_path: Path) -> None:
    target = tmp_path / "a"
    capture(1).save(target)
    site = Capture.open(target, mapped=True).sites[0]
    assert pickle.loads(pickle.dumps(site)).watch is None  # a copy maps nothing
    look(site)
    with target.open("r+b") as file:
        file.seek(-8, 2)
        file.write(b"changed!")
    os.utime(target, ns=(1, 1))
    for one in (site, site.__class__("b", 0, site.query, site.key, watch=site.watch)):
        with pytest.raises(FileError, match="was written to while it was mapped: open it again"):
            look(one)


def test_a_mapped_file_that_was_replaced_stays_what_it_was(tmp_path: Path) -> None:
    capture(1).save(tmp_path / "a")
    site = Capture.open(tmp_path / "a", mapped=True).sites[0]
    capture(2).save(tmp_path / "a")
    np.testing.assert_array_equal(site.query, capture(1).sites[0].query)
    site.health()


def test_a_file_that_is_written_to_while_it_is_read(tmp_path: Path, monkeypatch: Any) -> None:
    target = tmp_path / "a"
    capture(1).save(target)
    whole = target.read_bytes()
    true = np.fromfile

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        found = true(*arguments, **options)
        target.write_bytes(whole + b"more")
        return found

    monkeypatch.setattr(np, "fromfile", meanwhile)
    with pytest.raises(FileError, match="was written to while it was read: open it again"):
        Capture.open(target)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        for read in (Capture.open, open_plain, lambda path: read_bounded(path, 10)):
            with pytest.raises(FileError, match="cannot be read: it is there, and no file"):
                read(path)
    (tmp_path / "long").write_bytes(b"x" * 11)
    with pytest.raises(FileError, match="longer than the 10 bytes"):
        read_bounded(tmp_path / "long", 10)


def test_larger_than_the_memory_is_said_before_it_is_taken(tmp_path: Path) -> None:
    capture(1).save(tmp_path / "a")
    table, meaning, data = corpus.parts((tmp_path / "a").read_bytes())
    size = 1 << 42  # a hole: it takes no room
    table["hole"] = {
        "dtype": "F32",
        "shape": [(size - len(data)) // 4],
        "data_offsets": [len(data), size],
    }
    (tmp_path / "a").write_bytes(corpus.packed(table, meaning, data))
    os.truncate(tmp_path / "a", (tmp_path / "a").stat().st_size + size - len(data))
    with pytest.raises(FileError, match="of memory: mapped=True looks at a file where it is"):
        Capture.open(tmp_path / "a")


def test_without_numbers_only_shapes_and_masks_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(corpus.saved(corpus.sound_capture()))
    found, _ = tensors.read(tmp_path / "a", numbers=False)
    whole, _ = tensors.read(tmp_path / "a")
    for name, array in whole.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype)
        if array.dtype.kind == "f":
            assert found[name].strides == (0,) * array.ndim
        else:
            np.testing.assert_array_equal(found[name], array)


def test_one_tensor_is_decoded_once_however_often_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(corpus.mentioned(50))
    sites = Capture.open(tmp_path / "a").sites
    assert len({id(site.mask.array) for site in sites}) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "a": 2}', "the name 'a' occurs twice"), ("NaN", "NaN is not a number"),
        ("-Infinity", "not a number that JSON has"), ("1e999", "too large"), (str(2**63), "64 bits"),
        ("9" * 10_000, "64 bits"), ("[" * 100 + "]" * 100, "nested more than 64 deep"),
        ("[" * 100_000, "nested more than 64 deep"), ('"\\ud800"', "half of a character"),
        ('{"\\udc00": 1}', "half of a character"), (f'"{"x" * 2**20}y"', "1,048,577 characters"),
        ("[" + "1," * 2_000_000 + "1]", "more than 2,000,000 values"), ("{", "Expecting"),
    ],
)  # fmt: skip
def test_json_that_nobody_can_work_with(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        from_json(text)


def test_json_that_is_fine() -> None:
    for text, value in (("[1, -2.5, null]", [1, -2.5, None]), ('"👩‍🔬"', "👩‍🔬"),
                        (str(-(2**63)), -(2**63)), ("[" * 63 + "]" * 63, None)):  # fmt: skip
        found = from_json(text)
        assert value is None or found == value
