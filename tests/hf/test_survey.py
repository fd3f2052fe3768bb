"""Surveys: the figures of each text alone, added up; in any order, any share, after any stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from limelight import heads, hf
from limelight.capture import Capture
from limelight.errors import ArgumentError, FileError
from limelight.heads import KINDS, NAMES, Kind
from limelight.hf import summing, surveying
from limelight.survey import Survey, passages
from limelight.survey.bins import of_distance, of_place
from tests.hf import folders, systems

MEANS = ("max_prob", "gradient", "entropy", "spread", "effective_keys")


def drawn(count: int = 11, longest: int = 19, seed: int = 2) -> list[list[int]]:
    """Lists of token ids of many lengths, with repeats in them."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, longest + 1, count)
    return [draw.integers(3, 17, n).tolist() for n in [longest, *lengths[1:]]]


def captured(model: Any, ids: list[int]) -> Capture:
    given = torch.tensor([ids])
    with torch.no_grad(), hf.capture(model) as found:
        model(input_ids=given, attention_mask=torch.ones_like(given))
    return found


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt-oss", "bert", "gpt2"])
@pytest.mark.parametrize("cells", [1 << 24, 800], ids=["whole", "in blocks"])
def test_a_survey_is_what_each_text_says_alone(
    name: str, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Health, kinds, patterns and what tokens are given, against captures of each text."""
    monkeypatch.setattr(summing, "CELLS", cells)
    model = systems.build(name, torch.float32)
    texts = drawn()
    found = hf.survey(model, texts, batch=4)
    alone = [captured(model, ids) for ids in texts]
    assert found.texts == len(texts)
    assert found.tokens == sum(map(len, texts))
    assert found.sites == tuple(site.name for site in alone[0])
    tables, kinds = found.health(), found.heads
    each = [heads.find(one) for one in alone]
    for s in range(len(found.sites)):
        parts = [one.sites[s].health().summary() for one in alone]
        judged = sum(part.judged for part in parts)
        np.testing.assert_array_equal(tables["judged"][s], judged)
        np.testing.assert_array_equal(tables["rows"][s], sum(part.rows for part in parts))
        largest = np.max([part.max_logit for part in parts], axis=0)
        np.testing.assert_allclose(tables["max_logit"][s], largest, rtol=1e-5)
        for figure in MEANS:
            total = sum(np.nan_to_num(getattr(part, figure)) * part.judged for part in parts)
            np.testing.assert_allclose(tables[figure][s], total / judged, rtol=2e-5, atol=1e-6)
        for kind in NAMES:
            rows = np.array([one.rows[kind][s] for one in each])
            scores = np.nan_to_num(np.array([one.scores[kind][s] for one in each]))
            chance = np.nan_to_num(np.array([one.chance[kind][s] for one in each]))
            np.testing.assert_array_equal(kinds.rows[kind][s], rows.sum(axis=0))
            total = np.maximum(rows.sum(axis=0), 1)
            mean = (scores * rows).sum(axis=0) / total
            np.testing.assert_allclose(np.nan_to_num(kinds.scores[kind][s]), mean, atol=2e-6)
            even = (chance * rows).sum(axis=0) / total
            np.testing.assert_allclose(np.nan_to_num(kinds.chance[kind][s]), even, atol=1e-9)
        for head in range(found.counts[s]):
            _patterns(found, [one.sites[s].weights(head=head) for one in alone], s, head)
            _given(found, texts, [one.sites[s].received(head=head) for one in alone], s, head)


def _patterns(found: Survey, weights: list[Any], site: int, head: int) -> None:
    """Sums by distance and by place, straight from the dense weights of each text."""
    distances = np.zeros(found.tables["distances"].shape[-1])
    places = np.zeros(found.tables["places"].shape[-2:])
    for table in weights:
        row, column = np.indices(table.shape)
        np.add.at(distances, of_distance(row - column), table)
        np.add.at(places, (of_place(row), of_place(column)), table)
    got = found.tables["distances"][site, head] / 2**32
    np.testing.assert_allclose(got, distances, atol=2e-5)
    np.testing.assert_allclose(found.tables["places"][site, head] / 2**32, places, atol=2e-5)
    name = found.sites[site]
    shares = [one["share"] for one in found.distances(name, head)]
    rows = sum(len(table) for table in weights)
    assert sum(shares) == pytest.approx(
        sum(float(table.sum()) for table in weights) / rows, abs=1e-5
    )
    names, shown = found.places(name, head)
    assert len(names) == len(shown) == of_place(np.array([18]))[0] + 1


def _given(found: Survey, texts: Any, received: list[Any], site: int, head: int) -> None:
    total: dict[int, float] = {}
    for ids, parts in zip(texts, received, strict=True):
        for token, part in zip(ids, parts, strict=True):
            total[token] = total.get(token, 0.0) + float(part)
    assert found.given.ids.tolist() == sorted(total)
    expected = [total[token] for token in sorted(total)]
    np.testing.assert_allclose(found.given.weights[:, site, head] / 2**32, expected, atol=2e-5)


def test_an_error_is_that_of_texts_and_not_of_rows() -> None:
    """The jackknife over texts says the same, near enough."""
    model, texts = systems.build("llama", torch.float32), drawn(40)
    found = hf.survey(model, texts, kinds=["previous"])
    parts = [hf.survey(model, texts[:at] + texts[at + 1 :], kinds=["previous"], batch=40)
             for at in range(0, 40, 1)]  # fmt: skip
    left = np.array([part.heads.scores["previous"] for part in parts])
    jackknife = np.sqrt(39 / 40 * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    np.testing.assert_allclose(found.heads.errors["previous"], jackknife, rtol=0.15)
    assert "±" in repr(found.heads)


def same(one: Survey, other: Survey, folder: Path) -> bool:
    """Whether two surveys are the same file, byte for byte."""
    for at, found in enumerate((one, other)):
        found.save(folder / f"{at}.safetensors")
    return (folder / "0.safetensors").read_bytes() == (folder / "1.safetensors").read_bytes()


def test_parts_merge_to_the_whole_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveying, "CHUNK", 8)
    model, texts = systems.build("llama", torch.float32), drawn(32)
    whole = hf.survey(model, texts)
    parts = [hf.survey(model, texts[start : start + 8]) for start in range(0, 32, 8)]
    named = [part.strongest.passages for part in parts]
    assert all(named)
    a, b, c, d = parts
    assert same(a.merge(b, c, d), d.merge(c).merge(a.merge(b)), tmp_path)
    merged = b.merge(d, a, c)
    np.testing.assert_array_equal(merged.strongest.score, whole.strongest.score)
    for name, table in whole.tables.items():
        np.testing.assert_array_equal(merged.tables[name], table, err_msg=name)
    np.testing.assert_array_equal(merged.given.weights, whole.given.weights)
    assert (merged.texts, merged.tokens, merged.longest) == (32, whole.tokens, whole.longest)


def test_what_is_saved_is_what_is_opened(tmp_path: Path) -> None:
    found = hf.survey(systems.build("llama", torch.float32), drawn(), source={"text": "drawn"})
    found.save(tmp_path / "a.safetensors")
    opened = Survey.open(tmp_path / "a.safetensors")
    assert same(found, opened, tmp_path)
    assert opened.merge(found).texts == 2 * found.texts
    assert opened.table() == found.table()
    assert opened.examples(0, 1, "previous") == found.examples(0, 1, "previous")
    with pytest.raises(FileError, match="not a limelight capture"):
        Capture.open(tmp_path / "a.safetensors")


def test_a_kind_of_ones_own_and_looks_from_token_to_token() -> None:
    model, texts = systems.build("llama", torch.float32), drawn()
    back = Kind("two back", "looks two back", 0.4,
                targets=lambda t: (range(2, len(t)), range(len(t) - 2)))  # fmt: skip
    between = heads.between("5", "7")
    found = hf.survey(model, texts, kinds=["sink", back, between])
    each = [heads.find(captured(model, ids), kinds=["sink", back, between]) for ids in texts]
    for kind in (back, between):
        rows = np.array([one.rows[kind.name] for one in each])
        scores = np.nan_to_num(np.array([one.scores[kind.name] for one in each]))
        mean = (scores * rows).sum(axis=0) / rows.sum(axis=0)
        np.testing.assert_allclose(found.heads.scores[kind.name], mean, atol=2e-6)
    pulled = heads.search(found, key="5", at_least=0.01)
    assert pulled[0].weight == max(one.weight for one in pulled)
    with pytest.raises(ArgumentError, match=r"heads\.between"):
        heads.search(found, query="5", key="7")
    with pytest.raises(ArgumentError, match="no text of the survey has the token 'zebra'"):
        heads.search(found, key="zebra")


def test_examples_are_the_texts_in_which_a_head_is_strongest() -> None:
    model, texts = systems.build("llama", torch.float32), drawn(30)
    found = hf.survey(model, texts)
    each = [heads.find(captured(model, ids)) for ids in texts]
    scores = [(float(one.scores["previous"][1, 3]), ids) for one, ids in zip(each, texts, strict=True)
              if one.rows["previous"][1, 3] >= heads.LEAST_ROWS]  # fmt: skip
    best = sorted(scores, reverse=True)[:3]
    shown = found.examples(1, 3, "previous")
    assert [score for score, _ in shown] == pytest.approx([score for score, _ in best], abs=1e-5)
    assert [passage.text for _, passage in shown] == ["".join(map(str, ids)) for _, ids in best]


def test_numbers_that_are_none_are_counted_and_left_out() -> None:
    model, texts = systems.build("llama", torch.float32), drawn()
    plain = hf.survey(model, texts[1:])
    with torch.no_grad():
        model.model.embed_tokens.weight[60] = torch.nan
    found = hf.survey(model, [[5, 60, 7, 5, 7], *texts[1:]])
    assert found.health()["not_a_number"].min() == 4  # the first row sees what came before alone
    for kind in NAMES:
        np.testing.assert_array_equal(found.heads.rows[kind], plain.heads.rows[kind])
        np.testing.assert_allclose(found.heads.scores[kind], plain.heads.scores[kind], atol=1e-6)
    assert not np.isnan(found.health()["entropy"]).any()


def test_an_iterator_is_read_as_it_comes_and_long_texts_are_cut() -> None:
    model = systems.build("llama", torch.float32)
    heard: list[int] = []
    found = hf.survey(model, iter(drawn(9)), tokens=8, progress=heard.append)
    assert found.longest == 8
    assert found.cut == sum(len(ids) > 8 for ids in drawn(9))
    assert heard[-1] == found.texts == 9


def test_files_folders_and_records_are_texts(tmp_path: Path) -> None:
    loaded = hf.load(folders.text_model(tmp_path / "model"))
    texts = tmp_path / "texts"
    (texts / "deep").mkdir(parents=True)
    (texts / "a.txt").write_text("the cat\nwatched\n\nthe bird\n\n\nthe curious cat .\n")
    (texts / "deep" / "b.jsonl").write_text('{"text": "the bird"}\n\n"the cat ( . )"\n')
    (texts / "c.bin").write_bytes(b"\xff\xfe\x00")
    (texts / ".hidden").write_text("the the the")
    found = hf.survey(loaded, texts, characters=0)
    assert found.texts == 5
    assert hf.survey(loaded, texts / "a.txt").texts == 1
    names = [passage.name for passage in passages(texts, 0)]
    assert names[2:4] == ["a.txt, line 7", f"deep{os.sep}b.jsonl, line 1"]
    one = hf.survey(loaded, ["the cat\nwatched", "the bird", "the curious cat ."])
    np.testing.assert_array_equal(
        hf.survey(loaded, texts / "a.txt", characters=0).tables["distances"],
        one.tables["distances"],
    )


def test_ids_come_as_lists_arrays_and_tensors(tmp_path: Path) -> None:
    model, texts = systems.build("llama", torch.float32), drawn(3)
    whole = hf.survey(model, texts)
    for given in (
        [np.array(ids, np.int32) for ids in texts],
        [torch.tensor(ids) for ids in texts],
        [torch.tensor([ids]) for ids in texts],  # as a tokenizer gives one text
    ):
        assert same(whole, hf.survey(model, given, batch=np.int64(8)), tmp_path)


def test_refusals_name_the_way_out(tmp_path: Path) -> None:
    model = systems.build("llama", torch.float32)
    for texts, said in (
        ([], "no text to survey"),
        ("nowhere.txt", r"goes into a list: \[text\]"),
        (3, "give a list, an iterator"),
        (["a text"], "a text needs a tokenizer"),
        ([[1, 99]], "knows those from 0 to 60"),
        ([[object()]], "lists of token ids"),
        ([[1.5, 2.5]], "text 0 is a list: .*, which are whole numbers"),
        ([["5", "6"]], "which are whole numbers"),
        ([[True, False]], "which are whole numbers"),
        ([[[1, 2], [3, 4]]], "lists of token ids"),
        ([5, 6, 7], "text 0 is an int"),
    ):
        with pytest.raises((ArgumentError, FileError), match=said):
            hf.survey(model, texts)
    with pytest.raises(ArgumentError, match="ViTModel reads no tokens: a survey is of texts"):
        hf.survey(systems.build("vit", torch.float32), [[1]])
    with pytest.raises(ArgumentError, match=r"model\.get_encoder"):
        hf.survey(systems.build("t5", torch.float32), [[1]])
    with pytest.raises(ArgumentError, match="reads from 1 to 2,048 tokens"):
        hf.survey(model, [[1]], tokens=0)
    for how, said in (
        ({"tokens": 1.5}, "tokens=1.5: a survey of .* reads from 1"),
        ({"batch": "a"}, "batch='a': give a whole number ≥ 1"),
        ({"batch": 0}, "batch=0: give a whole number ≥ 1"),
        ({"source": 5}, "source=5: give facts by their names"),
        ({"tokenizer": 5}, "tokenizer=5 is no tokenizer"),
        ({"checkpoint": 5}, "a file is named by a text or a Path"),
    ):
        with pytest.raises(ArgumentError, match=said):
            hf.survey(model, [[1]], **how)
    for how, said in (
        ({"texts": "a"}, "texts='a': give a whole number ≥ 1"),
        ({"length": 2.5}, "length=2.5: give a whole number"),
        ({"length": 1}, "from 2 to"),
        ({"seed": -1}, "seed=-1: give a whole number ≥ 0"),
    ):
        with pytest.raises(ArgumentError, match=said):
            hf.induction(model, **how)
    with pytest.raises(ArgumentError, match="takes a Transformers model"):
        hf.survey(torch.nn.Linear(1, 1), [[1]])
    one = hf.survey(model, [[5, 6, 7]])
    with pytest.raises(ArgumentError, match="not of one model and the same kinds: their kinds"):
        one.merge(hf.survey(model, [[5, 6, 7]], kinds=["sink"]))
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileError, match="no text in this folder"):
        hf.survey(model, empty)


def test_a_stopped_survey_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveying, "CHUNK", 8)
    model, texts = systems.build("llama", torch.float32), drawn(40)
    whole, kept = hf.survey(model, texts), tmp_path / "half"

    def stop(done: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hf.survey(model, texts, checkpoint=kept, saved=0.0, progress=stop)
    assert Survey.open(kept).source["unfinished"]["texts"] == 16
    with pytest.raises(ArgumentError, match="begun on other texts"):
        hf.survey(model, texts[::-1], checkpoint=kept, saved=0.0)
    with pytest.raises(ArgumentError, match="with other settings"):
        hf.survey(model, texts, checkpoint=kept, saved=0.0, tokens=9)
    begun = Survey.open(kept)
    for read in (None, "16", 16.0, True, -1):
        facts = {**begun.source["unfinished"], "texts": read}
        replace(begun, source={**begun.source, "unfinished": facts}).save(tmp_path / "odd")
        with pytest.raises(ArgumentError, match="does not say how many texts it has read"):
            hf.survey(model, texts, checkpoint=tmp_path / "odd", saved=0.0)
    heard: list[int] = []
    again = hf.survey(model, texts, checkpoint=kept, saved=0.0, progress=heard.append)
    assert heard[0] == 24
    assert not kept.exists()
    assert same(whole, again, tmp_path)


RANK = """
import json, sys
import torch
import torch.distributed as dist
from limelight import hf
from limelight.hf import surveying
from tests.hf import systems
surveying.CHUNK = 8
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model = systems.build("llama", torch.float32)
found = hf.survey(model, json.loads(open(sys.argv[1]).read()))
if dist.get_rank() == int(sys.argv[3]):
    found.save(sys.argv[2])
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_ranks_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "CHUNK", 8)
    texts, script = drawn(29), tmp_path / "rank.py"
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    script.write_text(RANK)
    found = []
    for ranks in (1, 2):
        target = tmp_path / f"of {ranks}.safetensors"
        subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}",
             "--master-port", str(20_000 + os.getpid() % 20_000), str(script),
             str(tmp_path / "texts.json"), str(target), str(ranks - 1)],
            check=True, timeout=300, env={**os.environ, "PYTHONPATH": ".", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        found.append(target.read_bytes())
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_killed_command_goes_on(tmp_path: Path) -> None:
    """limelight survey, killed and begun again, writes the file of one that ran through."""
    model = folders.text_model(tmp_path / "model")
    draw = np.random.default_rng(1)
    words = np.array(folders.WORDS[4:])
    lines = (" ".join(draw.choice(words, draw.integers(5, 30))) for _ in range(320))
    (tmp_path / "texts.txt").write_text("\n\n".join(lines))
    command = [sys.executable, "-m", "limelight", "survey", str(model), str(tmp_path / "texts.txt"),
               "--characters", "0", "--saved", "0", "-o"]  # fmt: skip
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    straight, broken = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    subprocess.run([*command, str(straight)], check=True, timeout=300, env=env)
    running = subprocess.Popen([*command, str(broken)], env=env)
    half = tmp_path / "b.safetensors.unfinished"
    deadline = time.monotonic() + 200
    while not half.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert half.exists()
    assert not broken.exists()
    subprocess.run([*command, str(broken)], check=True, timeout=300, env=env)
    assert broken.read_bytes() == straight.read_bytes()
    assert not half.exists()


def test_every_kind_that_comes_along_is_judged() -> None:
    found = hf.survey(systems.build("bert", torch.float32), drawn())
    assert tuple(kind.name for kind in found.known) == tuple(kind.name for kind in KINDS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_duplicate_token_heads_of_smollm2(smollm2: hf.Loaded) -> None:
    """On random tokens that come twice: heads that look at their token's earlier place."""
    found = hf.induction(smollm2).heads
    named = found.is_kind("duplicate")
    layers = np.array(found.layers)
    assert {(8, 0), (14, 3), (15, 6)} <= {(int(layers[s]), int(h)) for s, h in np.argwhere(named)}
    assert named.sum() <= 6  # of 270: the others are none
    best = [(found.layers[site], head) for site, head, _ in found.best("duplicate", 3)]
    assert set(best) == {(8, 0), (14, 3), (15, 6)}


@pytest.mark.parametrize("sinks", [None, torch.tensor([1e8, -torch.inf])])
def test_rows_of_large_logits_are_normalised_by_their_own_sums(sinks: torch.Tensor | None) -> None:
    logits = torch.full((1, 2, 3, 4), 1e8)
    logits[..., 2:] = -torch.inf
    logits[:, :, 2] = -torch.inf  # a row that sees nothing
    want = logits.double()
    if sinks is not None:
        want = torch.cat([want, sinks[:, None, None].double().expand(1, 2, 3, 1)], -1)
    summing._take_off(logits, sinks)
    found, want = logits.exp(), want.softmax(-1)[..., :4].nan_to_num(0.0)
    torch.testing.assert_close(found, want.float())
