"""Sites and captures: what they show, what they save, and what they refuse to open."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import limelight as ll
from limelight.capture import Capture, Grid, Site, file, tensors
from limelight.errors import ArgumentError, DtypeError, FileError, ShapeError
from limelight.masks import Explicit, Mask
from limelight.masks.measured import Entry, Intervals, compress, measure

B, HQ, HK, NQ, NK, D, DV = 2, 6, 3, 7, 11, 5, 3
DRAW = np.random.default_rng(5)
TOKENS = tuple(tuple(f"t{b}.{i}" for i in range(NK)) for b in range(B))
CELLS = DRAW.random((B, 1, NQ, NK)) < 0.5
HEADS = DRAW.random((B, HQ, NQ, NK)) < 0.5
SPANS = np.array([[[[[0, 2], [4, 9]]] * NQ]], np.int32)
MASKS: dict[str, Mask] = {
    "causal": ll.Causal(),
    "top-left": ll.Causal(align="top-left"),
    "window": ll.Window(3, None),
    "lengths": ll.Lengths([4, 11], queries=[7, 5]),
    "documents": ll.Documents([[0] * 4 + [1] * 7, [2] * 11]),
    "prefix": ll.Prefix(3),
    "left padding": ll.Causal() & ~ll.Prefix([4, 0]),
    "prefix language model": ll.Causal() | ll.Prefix([2, 3]),
    "cells": Explicit(CELLS),
    "intervals": Intervals(SPANS, NK),
    "entry": Entry(Explicit(CELLS), 1, 0),
    "entry of all heads": Entry(Explicit(HEADS), 1),
}


def site(mask: Any = None, **other: Any) -> Site:
    draw = np.random.default_rng(3)
    arrays = {
        "query": draw.normal(size=(B, HQ, NQ, D)), "key": draw.normal(size=(B, HK, NK, D)),
        "value": draw.normal(size=(B, HK, NK, DV)),
    }  # fmt: skip
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    return Site("layers.3.attention", 3, mask=mask, tokens=TOKENS, kind="cross",
                **{**arrays, **other})  # fmt: skip


def capture(*sites: Site) -> Capture:
    image = np.arange(2 * 4 * 6 * 3, dtype=np.uint8).reshape(2, 4, 6, 3)
    return Capture(sites or (site(MASKS["left padding"]),), tokens=TOKENS, image=image,
                   grid=Grid(2, 3, 1), source={"model": "drawn", "seed": 3})  # fmt: skip


FULL = {
    "scale": 0.3, "softcap": 2.5, "sinks": DRAW.normal(size=HQ).astype(np.float32),
    "bias": DRAW.normal(size=(1, HQ, NQ, NK)).astype(np.float32),
}  # fmt: skip


@pytest.mark.parametrize("name", [None, *MASKS])
def test_a_site_shows_what_the_definition_says(name: str | None) -> None:
    mask = None if name is None else MASKS[name]
    one = site(mask, **FULL)
    rule = {"mask": mask, **FULL}
    whole = ll.trace(one.query, one.key, one.value, **rule)
    health = ll.inspect(one.query, one.key, one.value, **rule).health
    np.testing.assert_allclose(one.health().entropy, health.entropy, atol=1e-6)
    for batch, head in ((0, 1), (1, 5)):
        truth = whole.weights[batch, head]
        at = {"head": head, "batch": batch}
        np.testing.assert_allclose(one.weights(**at), truth, atol=1e-6)
        np.testing.assert_allclose(one.weights([2, 5], (3, 9), **at), truth[[2, 5], 3:9], atol=1e-6)
        np.testing.assert_allclose(one.trace(**at).weights, truth, atol=1e-6)
        np.testing.assert_allclose(one.received(**at), truth.sum(0), atol=1e-5)
        np.testing.assert_allclose(
            np.nan_to_num(one.heatmap((NQ, NK), **at).values), truth, atol=1e-6
        )
        best = one.top([4], 2, **at)
        np.testing.assert_allclose(best.weights[0], np.sort(truth[4])[::-1][:2], atol=1e-6)
        for fresh in (one, site(mask, **FULL)):  # with the row's statistics, and without
            cell = fresh.cell(-3, 2, **at)
            assert cell.weight == pytest.approx(truth[-3, 2], abs=1e-6)
            assert (cell.query_token, cell.key_token) == ("4", TOKENS[batch][2])


def test_a_boolean_array_is_a_mask(tmp_path: Path) -> None:
    for cells in (CELLS, CELLS[0, 0], CELLS[0, 0].tolist(), CELLS[0, 0, 0]):
        own, same = site(cells), site(Explicit(np.atleast_2d(cells)))
        assert own.mask == same.mask
        np.testing.assert_array_equal(own.weights(batch=1), same.weights(batch=1))
        assert "mask" in repr(own)
        Capture((own,)).save(tmp_path / "a.safetensors")
        assert Capture.open(tmp_path / "a.safetensors").sites[0].mask is not None
    with pytest.raises(DtypeError, match="a mask is boolean"):
        site(np.ones((NQ, NK)))


@pytest.mark.parametrize("name", [None, *MASKS])
@pytest.mark.parametrize("shape", [(1, HQ, NQ, NK), (B, 1, 1, NK), (NQ, NK)])
def test_one_entry_of_a_batch(name: str | None, shape: tuple[int, ...]) -> None:
    mask = None if name is None else MASKS[name]
    bias = np.random.default_rng(9).normal(size=shape).astype(np.float32)
    whole = site(mask, **{**FULL, "bias": bias})
    truth = ll.trace(whole.query, whole.key, whole.value, mask=mask, **{**FULL, "bias": bias})
    for batch in (1, -2):
        entry = whole.entry(batch)
        assert (entry.batch, entry.heads, entry.tokens) == (1, HQ, (TOKENS[batch],))
        assert entry.rows is None
        for head in range(HQ):
            np.testing.assert_allclose(
                entry.weights(head=head), truth.weights[batch, head], atol=1e-6
            )
            np.testing.assert_array_equal(
                entry.weights(head=head), whole.weights(head=head, batch=batch)
            )
        if entry.mask is not None:
            assert mask is not None
            cells = np.broadcast_to(mask.dense(NQ, NK), (B, HQ, NQ, NK))[batch]
            np.testing.assert_array_equal(
                np.broadcast_to(entry.mask.dense(NQ, NK), cells.shape), cells
            )
        entropy = whole.health().entropy[batch]
        assert whole.measured
        np.testing.assert_array_equal(whole.entry(batch).health().entropy[0], entropy)
        vars(whole).pop("statistics")
    with pytest.raises(ValueError, match="there is no batch entry 2 at"):
        whole.entry(2)


def test_an_entry_of_a_long_batch_holds_no_matrix() -> None:
    n = 6_000
    arrays = np.zeros((2, 2, 2, n, 3), np.float32)
    long = Site("long", 0, *arrays, mask=ll.Causal() & ll.Lengths([n, n - 5]))
    tracemalloc.start()
    try:
        allowed = long.entry(1).call.allowed
        assert tracemalloc.get_traced_memory()[1] < 1_000 * n
    finally:
        tracemalloc.stop()
    assert allowed.dense is None
    assert allowed.spans is not None
    assert allowed.spans.nbytes <= 64 * n


def test_indices_that_do_not_exist() -> None:
    one = site()
    with pytest.raises(
        ValueError, match=r"there is no head 6 at layers\.3\.attention: there are 6"
    ):
        one.weights(head=6)
    with pytest.raises(ValueError, match="there is no batch entry 2 at"):
        one.cell(0, 0, batch=2)
    with pytest.raises(ValueError, match="there is no row 7 at"):
        one.cell(7, 0)
    with pytest.raises(ValueError, match="there is no column 11 at"):
        one.cell(0, 11)
    with pytest.raises(ValueError, match=r"head .a. is not a whole number"):
        one.cell(0, 0, head="a")  # type: ignore[arg-type]


def test_sites_that_do_not_fit_together() -> None:
    with pytest.raises(ValueError, match=r"takes \[batch, heads, length, size\]"):
        Site("x", 0, np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="not self or cross"):
        replace(site(), kind="other")
    with pytest.raises(ValueError, match="tokens names"):
        replace(site(), tokens=(("a",), ("b",)))


def test_a_capture_finds_its_sites() -> None:
    other = replace(site(), name="layers.4.attention", layer=4)
    both = capture(site(), other)
    assert both[4] is other
    assert both[-1] is other
    assert both["layers.3.attention"].layer == 3
    assert [s.layer for s in both] == [3, 4]
    with pytest.raises(ValueError, match=r"no site 9; it has: layers\.3\.attention, layers\.4"):
        both[9]
    with pytest.raises(ValueError, match="layer 3 has 2 sites"):
        capture(site(), replace(other, layer=3))[3]


def test_health_tables() -> None:
    narrow = site(query=site().query[:, :3])
    tables = capture(site(MASKS["causal"]), replace(narrow, layer=4)).health()
    assert tables["entropy"].shape == (2, HQ)
    assert np.isnan(tables["entropy"][1, 3:]).all()
    assert tables.verdict[1, 3] == ""
    text = repr(tables)
    assert "Health of 2 sites × 6 heads" in text
    assert "largest weight (mean)" in text
    assert "<table>" in tables._repr_html_()
    plain = json.loads(json.dumps(tables.to_dict()))
    assert len(plain["sites"][1]["heads"]) == 3
    assert plain["sites"][0]["heads"][2]["entropy"] == pytest.approx(tables["entropy"][0, 2])
    with pytest.raises(ValueError, match="there is no figure 'colour'"):
        tables["colour"]


@pytest.mark.parametrize("name", [None, *MASKS])
def test_a_file_keeps_everything(name: str | None, tmp_path: Path) -> None:
    given = capture(site(None if name is None else MASKS[name], **FULL), site())
    given.save(tmp_path / "a.safetensors")
    found = Capture.open(tmp_path / "a.safetensors")
    assert (found.tokens, found.grid, found.source) == (given.tokens, given.grid, given.source)
    np.testing.assert_array_equal(found.image, given.image)
    for one, other in zip(given, found, strict=True):
        assert (one.name, one.layer, one.kind, one.scale, one.softcap, one.tokens) == (
            other.name, other.layer, other.kind, other.scale, other.softcap, other.tokens
        )  # fmt: skip
        assert one.mask == other.mask
        for part in ("query", "key", "value", "sinks", "bias"):
            np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
        np.testing.assert_array_equal(one.weights(head=4), other.weights(head=4))


def test_smaller_numbers_on_request(tmp_path: Path) -> None:
    capture().save(tmp_path / "a", dtype="float16")
    assert Capture.open(tmp_path / "a").sites[0].key.dtype == np.float16
    with pytest.raises(ValueError, match="saved as float16, float32 or float64"):
        capture().save(tmp_path / "b", dtype="int8")
    assert not (tmp_path / "b").exists()


def test_rounded_numbers_come_with_their_own_statistics(tmp_path: Path) -> None:
    """Those of the numbers before would make rows that do not sum to 1."""
    sharp = site(query=8 * site().query)
    recorded = replace(sharp, rows=sharp.statistics)
    capture(recorded).save(tmp_path / "a", dtype="float16")
    found = Capture.open(tmp_path / "a").sites[0]
    exact = replace(found, rows=None).statistics
    for name, array in vars(exact).items():
        np.testing.assert_allclose(getattr(found.rows, name), array, rtol=1e-5, err_msg=name)
        assert not np.allclose(getattr(recorded.rows, name), array, rtol=1e-5), name
    np.testing.assert_allclose(found.weights(head=1, batch=1).sum(axis=1), 1.0, atol=1e-5)
    capture(sharp).save(tmp_path / "b", dtype="float16")  # nothing recorded: nothing kept
    assert Capture.open(tmp_path / "b").sites[0].rows is None


def test_equal_masks_are_written_once(tmp_path: Path) -> None:
    same = [site(mask=ll.Lengths([NK, 3])) for _ in range(2)]
    capture(*same, site(mask=ll.Causal())).save(tmp_path / "a")
    meaning = json.loads(tensors.read(tmp_path / "a")[1]["limelight"])
    assert len(meaning["masks"]) == 2
    assert [entry["mask"] for entry in meaning["sites"]] == [0, 0, 1]


def test_as_many_sites_as_a_file_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture(site(), site()).save(tmp_path / "a")
    monkeypatch.setattr(file, "MOST_SITES", 2)
    assert len(Capture.open(tmp_path / "a")) == 2
    monkeypatch.setattr(file, "MOST_SITES", 1)
    with pytest.raises(ll.LimelightError):
        Capture.open(tmp_path / "a")


def test_a_trace_mixes_the_values_if_they_are_there() -> None:
    found = site()
    exact = ll.attention(found.query, found.key, found.value, engine="reference")
    np.testing.assert_allclose(found.trace(head=1, batch=1).output, exact[1, 1], atol=1e-6)
    assert site(value=None).trace(head=1, batch=1).output.shape == (NQ, 0)


def padded() -> Site:
    real = np.ones((B, NK), np.bool_)
    real[0, -3:] = False
    queries = np.ones((B, NQ), np.bool_)
    queries[1, :2] = False
    return site(real_keys=real, real_queries=queries)


def test_padding_is_kept(tmp_path: Path) -> None:
    capture(padded(), padded()).save(tmp_path / "a")
    for found in Capture.open(tmp_path / "a"):
        np.testing.assert_array_equal(found.real_keys, padded().real_keys)
        np.testing.assert_array_equal(found.real_queries, padded().real_queries)
    capture(site()).save(tmp_path / "old")  # as files were before
    assert Capture.open(tmp_path / "old").sites[0].real_keys is None


def test_a_query_that_is_padding_is_no_row() -> None:
    plain, found = site(), padded()
    recorded = replace(found, rows=plain.statistics)  # of a pass that knew of no padding
    for one in (found, recorded):
        assert (one.health().keys[1, :, :2] == 0).all()
        assert (one.health().keys[0] == NK).all()
        assert one.health().summary().rows.tolist() == [B * NQ - 2] * HQ
        assert not one.weights(head=1, batch=1)[:2].any()
        np.testing.assert_array_equal(
            one.weights(head=1, batch=1)[2:], plain.weights(head=1, batch=1)[2:]
        )
        exact = plain.weights(head=1, batch=1)[2:].sum(axis=0)
        np.testing.assert_allclose(one.received(head=1, batch=1), exact, rtol=1e-5)
        assert one.cell(0, 3, head=1, batch=1).weight == 0.0
        assert not one.trace(head=1, batch=1).weights[:2].any()
        assert one.entry(0).health().summary().rows.tolist() == [NQ] * HQ
        assert "2 queries of padding" in repr(one)


@pytest.mark.parametrize("flags", [np.ones((B, NK)), np.ones((B, NK - 1), np.bool_)])
def test_flags_that_do_not_fit(flags: Any) -> None:
    with pytest.raises(ll.errors.ShapeError, match=r"real_keys is .*flags are boolean, "):
        site(real_keys=flags)


def test_numbers_that_the_smaller_type_lacks_are_not_lost(tmp_path: Path) -> None:
    large, hidden = site().key.copy(), np.zeros((NQ, NK), np.float32)
    large[1, 2, 3, 4], hidden[0, 0] = -70_000, -np.inf
    with pytest.raises(ll.LimelightError, match=r"float16 holds numbers up to 65504, and the key "
                       r"of layers\.3\.attention has 70000: float32 keeps it"):  # fmt: skip
        capture(site(key=large)).save(tmp_path / "a", dtype="float16")
    wide = {"query": np.float64(site().query), "key": np.float64(large) / 7e4 * 1e39}
    with pytest.raises(ll.LimelightError, match=r"float32 holds .* has 1e\+39: float64 keeps it"):
        capture(site(**wide)).save(tmp_path / "a", dtype="float32")
    assert not (tmp_path / "a").exists()
    capture(site(bias=hidden)).save(tmp_path / "a", dtype="float16")
    assert Capture.open(tmp_path / "a").sites[0].bias[0, 0, 0, 0] == -np.inf


def test_the_safetensors_library_reads_it(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    capture().save(tmp_path / "a.safetensors")
    found = library.load_file(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(found["site.0.query"], site().query)


def test_reading_needs_numpy_alone(tmp_path: Path) -> None:
    capture().save(tmp_path / "a.safetensors")
    program = (
        "import sys; from limelight.capture import Capture; cap = Capture.open(sys.argv[1]);"
        "cap.sites[0].weights(head=1); cap.sites[0].cell(3, 2); cap.health();"
        "heavy = {'torch', 'transformers', 'safetensors', 'PIL'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.safetensors")], check=True,
                   env={**os.environ, "PYTHONPATH": path})  # fmt: skip


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.safetensors"
    capture().save(target)
    before = target.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensors.os, "fsync", full)
    with pytest.raises(FileError, match="cannot be written: No space left on device"):
        capture(site()).save(target)
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written"):
        capture().save(tmp_path / "no" / "such" / "folder.safetensors")


def test_a_source_that_is_no_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        replace(capture(), source={"model": object()}).save(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_whatever_is_saved_can_be_opened(tmp_path: Path) -> None:
    one = replace(
        site(ll.Window(np.int64(2), np.int64(1))), layer=np.int64(4), scale=np.float32(0.5),
        bias=np.ones((NQ, NK), np.int64), sinks=[0] * HQ,
    )  # fmt: skip
    whole = {part: DRAW.integers(-3, 3, getattr(one, part).shape) for part in ("query", "key")}
    ids = np.arange(B * NK).reshape(B, NK)
    for made in (one, replace(one, **whole, value=None, tokens=ids)):
        replace(capture(made), tokens=ids.tolist()).save(tmp_path / "a")
        found = Capture.open(tmp_path / "a")
        again = found.sites[0]
        assert (again.layer, again.scale, again.mask) == (4, 0.5, ll.Window(2, 1))
        assert again.tokens == made.tokens
        assert found.tokens[1][:2] == ("11", "12")
        np.testing.assert_array_equal(again.weights(), made.weights())


def test_what_could_not_be_opened_is_not_saved(tmp_path: Path) -> None:
    for layer in (-1, True, "x", 1.5):
        with pytest.raises(ll.LimelightError, match="is not a whole number ≥ 0"):
            replace(site(), layer=layer)
    mask: Mask = ll.Causal()
    for i in range(40):
        mask = mask | ll.Prefix(i % 4)
    with pytest.raises(ll.LimelightError, match="nested more than 32 deep"):
        capture(site(mask)).save(tmp_path / "a")
    with pytest.raises(ll.LimelightError, match="is half of a character"):
        replace(capture(), source={"text": "\ud800"}).save(tmp_path / "a")
    for part, odd, message in (
        ("image", np.zeros((2, 4, 6, 3)), "cannot be saved: its image is not one"),
        ("grid", Grid(2.5, 3), "cannot be saved: a number or text about it"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ll.LimelightError, match=message):
            replace(capture(), **{part: odd}).save(tmp_path / "a")
    with pytest.raises(
        ll.LimelightError, match="site s: a site is of queries and keys; of weights"
    ):
        Site("s", 0, None, None)  # type: ignore[arg-type]
    with pytest.raises(ll.LimelightError, match="a site's name is a text, and 3 is none"):
        replace(site(), name=3)
    with pytest.raises(ll.LimelightError, match="tokens are not lists of texts"):
        replace(site(), tokens=(1, 2))
    assert not (tmp_path / "a").exists()


def test_files_that_are_no_captures(tmp_path: Path) -> None:
    target = tmp_path / "a"
    for act in (Capture.open, capture().save):
        for odd in (3, None, b"a"):
            with pytest.raises(
                ArgumentError, match=r"named by a text or a Path, and .* is neither"
            ):
                act(odd)
    with pytest.raises(FileError, match="cannot be read: No such file"):
        Capture.open(target)
    for act in (Capture.open, capture().save):
        with pytest.raises(FileError, match="names no file: it holds a NUL character"):
            act(tmp_path / "a\0b")
    for content in (b"", b"hello", b"\x89PNG" * 9, b"\x08\0\0\0\0\0\0\0[1,2,3]  "):
        target.write_bytes(content)
        with pytest.raises(FileError, match="not a safetensors file"):
            Capture.open(target)
    tensors.write(target, {"x": np.zeros(3)}, {"format": "pt"})
    with pytest.raises(FileError, match="but not a limelight capture"):
        Capture.open(target)
    target.write_bytes(header({"x": {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}}))
    with pytest.raises(FileError, match="but not a limelight capture"):
        Capture.open(target)


def saved(folder: Path) -> bytes:
    capture(site(MASKS["left padding"]), site(MASKS["intervals"], **FULL)).save(folder / "good")
    return (folder / "good").read_bytes()


def test_every_way_of_cutting_it_short(tmp_path: Path) -> None:
    whole, target = saved(tmp_path), tmp_path / "cut"
    for length in [*range(24), *range(24, len(whole), 37), len(whole) - 1]:
        target.write_bytes(whole[:length])
        with pytest.raises(FileError):
            Capture.open(target)
    target.write_bytes(whole + b"more")
    with pytest.raises(FileError, match="bytes that belong to nothing"):
        Capture.open(target)


def test_every_byte_changed(tmp_path: Path) -> None:
    """The checksum sees what the format cannot; without it the reader still never breaks."""
    whole, target = bytearray(saved(tmp_path)), tmp_path / "changed"
    for at in range(0, len(whole), 53):
        changed = whole.copy()
        changed[at] ^= 0x15
        target.write_bytes(changed)
        with pytest.raises(FileError):
            Capture.open(target)
        with contextlib.suppress(FileError):
            Capture.open(target, verify=False)


def rewritten(folder: Path, change: Any) -> Path:
    """A capture with a description that somebody edited, and a checksum to go with it."""
    saved(folder)
    parts, texts = tensors.read(folder / "good")
    meaning = json.loads(texts["limelight"])
    change(meaning, parts)
    tensors.write(folder / "edited", parts, {"limelight": json.dumps(meaning)})
    return folder / "edited"


def _set(*path: Any) -> Any:
    """A change that puts path[-1] at the place that the rest of the path names."""
    *way, last, value = path

    def change(meaning: Any, _: Any) -> None:
        for step in way:
            meaning = meaning[step]
        meaning[last] = value

    return change


def _array(name: str, array: Any) -> Any:
    return lambda _, parts: parts.update({name: array})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("version", 99), "version 99, and this limelight reads up to 1"),
        (_set("format", "other"), "not a limelight capture"),
        (_set("sites", {}), "malformed"),
        (_set("sites", 0, "tensors", "query", "nothing"), "malformed"),
        (_set("sites", 0, "tensors", {}), "malformed"),
        (_set("sites", 0, "mask", 7), "malformed"),
        (_set("sites", 0, "mask", -1), "malformed"),
        (_set("sites", 0, "kind", "sideways"), "not self or cross"),
        (_set("sites", 0, "scale", "large"), "malformed"),
        (_set("sites", 0, "scale", 1e999), "malformed|not finite"),
        (_set("sites", 0, "scale", 10**400), "malformed"),
        (_set("sites", 0, "softcap", -1.0), "softcap"),
        (_set("sites", 0, "layer", -3), "malformed"),
        (_set("sites", 0, "name", 3), "malformed"),
        (_set("labels", 0, 0, 3, 4), "malformed"),
        (_set("labels", 0, 0, ["a"]), "names"),
        (_set("grid", {"rows": -1, "columns": 2, "start": 0}), "malformed"),
        (_set("source", [1]), "malformed"),
        (_set("masks", 0, {"is": "spell"}), "unknown kind 'spell'"),
        (_set("masks", 0, {"is": "prefix", "n": "nothing"}), "mask in it is malformed"),
        (_set("masks", 0, {"is": "window", "left": -4, "right": 0, "align": "bottom-right"}),
         "mask in it is malformed"),
        (_set("masks", 0, {"is": "causal", "align": "sideways"}), "mask in it is malformed"),
        (_set("masks", 0, {"is": "documents", "ids": "mask.0.b.a.n", "queries": None}),
         "does not fit together"),
        (_set("masks", 0, {"is": "cells", "bits": "image", "shape": [7, 11]}), "malformed"),
        (_set("masks", 0, {"is": "cells", "bits": "image", "shape": [1 << 40, 1 << 40]}),
         "malformed"),
        (_array("mask.1.spans", SPANS + 10), "out of order"),
        (_array("mask.1.spans", SPANS[..., ::-1]), "out of order"),
        (_array("mask.1.spans", SPANS[:, :, :3]), "does not fit together"),
        (_array("mask.1.spans", SPANS.astype(np.int64)), "malformed"),
        (_array("site.0.query", np.zeros((B, HQ, NQ), np.float32)), r"takes \[batch"),
        (_array("site.0.query", np.zeros((B, 5, NQ, D), np.float32)), "does not fit together"),
        (_array("site.0.key", np.zeros((B, HK, NK + 1, D), np.float32)), "fit"),
        (_array("site.0.key", np.zeros((B, HK, NK, D), np.int32)), "not numbers"),
        (_array("site.0.value", np.zeros((B, HK, 2, D), np.float32)), "does not fit together"),
        (_array("site.1.sinks", np.zeros(4, np.float32)), "sinks"),
        (_array("image", np.zeros((2, 2), np.uint8)), "image is not one"),
    ],
)  # fmt: skip
def test_an_edited_description(change: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=message) as caught:
        Capture.open(rewritten(tmp_path, change))
    assert "\n" not in str(caught.value)


def test_masks_inside_masks_without_end(tmp_path: Path) -> None:
    tree: dict[str, Any] = {"is": "causal", "align": "bottom-right"}
    for _ in range(400):
        tree = {"is": "not", "mask": tree}
    with pytest.raises(FileError, match="malformed"):
        Capture.open(rewritten(tmp_path, _set("masks", 0, tree)))


def header(table: dict[str, Any], data: bytes = b"\0" * 16) -> bytes:
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"x": 3}, "entry 'x' is malformed"),
        ({"x": {"dtype": "F32", "shape": [4]}}, "malformed"),
        ({"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 99]}}, "does not fit its shape"),
        ({"x": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}}, "does not fit its shape"),
        ({"x": {"dtype": "F32", "shape": [2.0, 2], "data_offsets": [0, 16]}}, "does not fit"),
        ({"x": {"dtype": "F32", "shape": [1 << 62, 0, 4], "data_offsets": [0, 16]}}, "does not fit"),
        ({"x": {"dtype": "O", "shape": [2], "data_offsets": [0, 16]}}, "captures do not use"),
        ({"x": {"dtype": [], "shape": [4], "data_offsets": [0, 16]}}, "entry 'x' is malformed"),
        ({"x": {"dtype": "F64", "shape": {}, "data_offsets": [0, 8]},
          "y": {"dtype": "F64", "shape": [1] * 65, "data_offsets": [8, 16]}}, "'x' is malformed"),
        ({"x": {"dtype": "F64", "shape": [1] * 65, "data_offsets": [0, 8]},
          "y": {"dtype": "F64", "shape": [1], "data_offsets": [8, 16]}}, "'x' is malformed"),
        ({"x": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}, "leave gaps"),
        ({"x": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}, "cut short"),
        ({"__metadata__": {"a": 1}}, "texts are not texts"),
        ({"__metadata__": []}, "texts are not texts"),
    ],
)  # fmt: skip
def test_headers_that_lie(table: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(header(table))
    with pytest.raises(FileError, match=message):
        tensors.read(tmp_path / "a")


def test_a_name_twice_and_a_header_without_end(tmp_path: Path) -> None:
    text = b'{"x": {}, "x": {}}'
    (tmp_path / "a").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(FileError, match="its header is not JSON"):
        tensors.read(tmp_path / "a")
    deep = b"[" * 100_000
    (tmp_path / "a").write_bytes(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(FileError, match="its header is not JSON"):
        tensors.read(tmp_path / "a")


@given(
    st.integers(1, 9), st.integers(1, 9), st.integers(1, 3), st.integers(0, 2**32 - 1),
    st.floats(0, 1),
)  # fmt: skip
def test_any_cells_become_an_equal_mask(
    nq: int, nk: int, batch: int, seed: int, share: float
) -> None:
    cells = np.random.default_rng(seed).random((batch, 1, nq, nk)) < share
    mask = compress(cells)
    found = np.ones((nq, nk), bool) if mask is None else np.asarray(mask.dense(nq, nk))
    np.testing.assert_array_equal(np.broadcast_to(found, cells.shape), cells)


@pytest.mark.parametrize("name", MASKS)
def test_measured_and_simplified_masks_are_equal(name: str) -> None:
    mask = MASKS[name]
    cells = np.asarray(mask.dense(NQ, NK))
    cells = cells.reshape((1,) * (4 - cells.ndim) + cells.shape)
    again = compress(cells)
    np.testing.assert_array_equal(np.broadcast_to(again.dense(NQ, NK), cells.shape), cells)
    spans = measure(mask.allowed(NQ, NK))
    np.testing.assert_array_equal(
        np.broadcast_to(Intervals(spans, NK).dense(NQ, NK), cells.shape), cells
    )
    if name in ("causal", "left padding"):
        assert again == mask


def test_all_heads_some_or_one() -> None:
    made = site()
    whole = made.weights(batch=1)
    assert whole.shape == (made.heads, made.queries, made.keys)
    some = made.weights(head=[2, 0], batch=1)
    for look, names in (("weights", None), ("received", None), ("top", ("columns", "weights")),
                        ("heatmap", ("values", "empty"))):  # fmt: skip
        every, two, one = (getattr(made, look)(head=head, batch=1) for head in (None, [2, 0], 2))
        for name in names or ("",):
            parts = [getattr(part, name) if name else part for part in (every, two, one)]
            np.testing.assert_allclose(parts[1], parts[0][[2, 0]], atol=1e-6)
            np.testing.assert_array_equal(parts[1][0], parts[2])
    np.testing.assert_array_equal(some[0], made.weights(head=2, batch=1))
    with pytest.raises(ArgumentError, match=r"no head of .* is named"):
        made.weights(head=[])


def test_weights_that_are_already_there(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    logits = np.where(np.tri(5, dtype=bool), rng.normal(size=(2, 3, 5, 5)), -np.inf)
    known = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    made = Site.from_weights("given", 4, known, tokens=[list("abcde")] * 2)
    np.testing.assert_allclose(made.weights(batch=1), known[1], atol=1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(known > 0, known * np.log(known), 0).sum(-1)
    np.testing.assert_allclose(made.health().entropy, entropy, atol=1e-12)
    np.testing.assert_array_equal(made.health().keys[0, 0], [1, 2, 3, 4, 5])
    assert made.cell(4, 2, head=1).weight == pytest.approx(known[0, 1, 4, 2])
    Capture((made,)).save(tmp_path / "given.safetensors")
    again = Capture.open(tmp_path / "given.safetensors").sites[0]
    np.testing.assert_allclose(again.weights(batch=1), known[1], atol=1e-6)
    half = Site.from_weights("half", 0, known.astype(np.float16), tokens=None, query_tokens=None)
    assert half.tokens == half.query_tokens == Capture((half,), tokens=None).tokens == ()  # type: ignore[arg-type]
    np.testing.assert_allclose(half.weights(), known[0], atol=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_given_weights_that_vanished_are_those_of_keys_that_are_seen(
    dtype: str, tmp_path: Path
) -> None:
    known = np.zeros((1, 3, 5, 5), dtype)
    known[0, 0] = np.eye(5)  # so saturated that the others vanished
    known[0, 1] = np.tri(5) / np.arange(1, 6)[:, None]
    Capture((Site.from_weights("a", 0, known),)).save(tmp_path / "a.safetensors", dtype="float16")
    again = Capture.open(tmp_path / "a.safetensors")[0]
    for made in (Site.from_weights("a", 0, known), again):
        health = made.health()
        assert (made.weights(head=0) == np.eye(5)).all()
        assert health.keys[0].tolist() == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [0] * 5]
        assert health.verdict[0, 0].tolist() == ["", *["saturated"] * 4]
        assert (health.entropy[0, 0] == 0).all()
        assert not made.weights(head=2).any()  # rows that see nothing
        assert np.isnan(made.heatmap((5, 5), head=0).values[0, 1:]).all()
        assert (made.heatmap((5, 5), head=0).values[4, :4] == 0).all()


@pytest.mark.parametrize(
    ("weights", "error", "said"),
    [
        ([[0.5, 0.5]], ShapeError, "takes .batch, heads, queries, keys"),
        ([[[[0.5, 0.2]]]], ArgumentError, "sums to 0.7: .* what a sink takes is a key of its own"),
        ([[[[1.5, -0.5]]]], ArgumentError, "below 0"),
        ([[[[0.5, 0.5], [1.0]]]], ShapeError, "weights is a ragged list"),
    ],
)
def test_weights_that_are_none(weights: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Site.from_weights("given", 0, weights)


EVEN = np.full((2, 6, 5, 7), 1 / 7)


@pytest.mark.parametrize(
    "shape", [(2, 6, 4, 2), (2, 4, 7, 2), (3, 6, 7, 2), (1, 6, 7, 2), (2, 0, 7, 2)]
)
def test_values_are_those_of_the_keys(shape: tuple[int, ...]) -> None:
    value = np.ones(shape)
    said = r"site a: value has shape .*each key goes with one value: it takes \[2, 6, 7, size\]"
    with pytest.raises(ShapeError, match=said):
        Site.from_weights("a", 0, EVEN, value=value)
    with pytest.raises(ShapeError, match=said):
        Site("a", 0, np.ones((2, 6, 5, 3)), np.ones((2, 6, 7, 3)), value)
    with pytest.raises(ShapeError, match="value is a ragged list"):
        Site.from_weights("a", 0, EVEN, value=[[[[1.0, 2.0]], [[1.0]]]])


def test_heads_of_given_weights_may_share_values(tmp_path: Path) -> None:
    value = np.random.default_rng(2).normal(size=(2, 3, 7, 4))
    shared = Site.from_weights("a", 0, EVEN, value=value)
    own = Site.from_weights("a", 0, EVEN, value=np.repeat(value, 2, axis=1))
    for head in (0, 5):
        np.testing.assert_array_equal(shared.by_value(head, 1).weights(head=0),
                                      own.by_value(head, 1).weights(head=0))  # fmt: skip
    np.testing.assert_array_equal(shared.trace(head=3).output, own.trace(head=3).output)
    Capture((shared,)).save(tmp_path / "shared")
    np.testing.assert_array_equal(Capture.open(tmp_path / "shared")[0].weights(), own.weights())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"key": np.ones((B, 4, NK, D))}, "site layers.3.attention: 6 query heads cannot share 4"),
        ({"key": np.ones((B, HK, NK, 2))}, "query of size 5 .* key of size 2"),
        ({"key": np.ones((5, HK, NK, D))}, "batch axes do not fit"),
        ({"sinks": np.ones(5)}, r"sinks has shape \(5,\)"),
        ({"bias": np.ones((5, NQ, NK))}, "bias is made for .* 5 heads"),
        ({"softcap": -1.0}, "softcap=-1.0: .* positive"),
        ({"scale": "2"}, "scale='2' is not a number"),
    ],
)
def test_what_does_not_fit_together_is_no_site(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ll.LimelightError, match=said):
        site(**({"value": None} | wrong))


def test_each_query_has_its_own_batch_entry() -> None:
    with pytest.raises(ShapeError, match="keys for a batch of 2 and queries for one of 1"):
        Site("a", 0, np.ones((1, HQ, NQ, D)), np.ones((B, HK, NK, D)))


@pytest.mark.parametrize("dtype", [">f4", ">f8"])
def test_numbers_of_another_byte_order(dtype: str, tmp_path: Path) -> None:
    drawn = np.random.default_rng(1).normal(size=(3, 1, 2, 5, 4))
    turned, plain = drawn.astype(dtype), drawn.astype(dtype[1:])
    found, same = (Site("a", 0, *given) for given in (turned, plain))
    np.testing.assert_array_equal(found.weights(), same.weights())
    Capture((found,)).save(tmp_path / "turned")
    np.testing.assert_array_equal(Capture.open(tmp_path / "turned")[0].key, plain[1])
    given = Site.from_weights("a", 0, EVEN.astype(dtype), value=np.ones((2, 6, 7, 2), dtype))
    np.testing.assert_allclose(given.by_value().weights(head=0), EVEN[0, 0], rtol=1e-6)
