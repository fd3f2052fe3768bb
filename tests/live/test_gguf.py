"""GGUF files: any Llama's, against Transformers; damaged ones, and those of other families."""

from __future__ import annotations

import contextlib
import random
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gguf")
from limelight import live
from limelight.errors import ArgumentError, FileError
from limelight.live.gguf import Gguf
from limelight.live.vocabulary import BytePairs, SentencePieces, joined, of
from tests.live import tiny

TEXT = "the cat and the an in the cat"
EPS = float(np.finfo(np.float32).eps)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def theirs(path: Path) -> Any:
    pytest.importorskip("transformers")
    from limelight import hf

    hf.quiet()
    return hf.load(path)


def test_logits_are_those_of_transformers(path: Path, theirs: Any) -> None:
    import torch

    run = live.load(path).run(TEXT, keep="all")
    given = theirs.inputs(TEXT)
    assert list(run.ids) == given["input_ids"][0].tolist()
    with torch.no_grad():
        plain = theirs.model(**given).logits[0].numpy()
        truth = theirs.model.double()(**given).logits[0].numpy()
        theirs.model.float()
    floor = 8 * EPS * np.abs(truth).max()
    assert np.abs(run.logits - truth).max() <= 2 * np.abs(plain - truth).max() + floor


@pytest.mark.parametrize("how", [{}, {"answer": " the", "against": "at"}, {"loss": True, "since": 4},
                                 {"mean_over": "an cat in a the"}], ids=str)  # fmt: skip
def test_effects_are_those_of_transformers(path: Path, theirs: Any, how: dict[str, Any]) -> None:
    from limelight import hf

    ours, other = live.load(path).effects(TEXT, **how), hf.effects(theirs, TEXT, **how)
    assert ours.before == pytest.approx(other.before, abs=1e-3)
    assert np.abs(ours.after - other.after).max() < 1e-3 * max(1.0, np.abs(ours.after).max())
    assert np.abs(ours.change).max() > 0.1
    assert (ours.tokens, ours.answer, ours.against, ours.measure, ours.names) == (
        other.tokens, other.answer, other.against, other.measure, other.names
    )  # fmt: skip


def test_tokens_of_the_sentencepiece_kind(tmp_path: Path) -> None:
    model = live.load(tiny.write(tmp_path / "spm.gguf", kind="llama"))
    assert isinstance(model.vocabulary, SentencePieces)
    run = model.run("the wor é.")
    assert run.tokens == ("<s>", " the", " wor", " ", "é[1/2]", "é[2/2]", ".")
    assert run.text == "<s> the wor é."
    assert model.vocabulary.encode("the</s>the")[-2] == 2


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_token_is_named_by_its_text_as_it_is_shown(tmp_path: Path, kind: str) -> None:
    """Though a text of the SentencePiece kind begins with a token of its own, and a blank."""
    run = live.load(tiny.write(tmp_path / "model.gguf", kind=kind)).run("the cat")
    shown = [guess.token for guess in run.next(400) if not guess.token.startswith("<")]
    assert {" the", "the", "."} <= set(shown)
    assert [run.model.vocabulary.piece(run.model.token(token)) for token in shown] == shown
    assert run.then(" the").tokens == (*run.tokens, " the")
    assert run.model.effects("the cat", answer=" the", against=".").answer == " the"
    with pytest.raises(ArgumentError, match="'thethe' is 2 tokens"):
        run.then("thethe")


def test_llama_3_begins_with_a_token_and_takes_words_that_are_tokens_whole(tmp_path: Path) -> None:
    """As llama.cpp does where the file says nothing of the first; no merge leads to `Ġwhole`."""
    tokens, kinds = tiny.pieces("gpt2")
    facts = {"tokenizer.ggml.tokens": [*tokens, "Ġwhole"], "tokenizer.ggml.token_type": [*kinds, 1],
             "tokenizer.ggml.merges": [], "tokenizer.ggml.pre": "llama-bpe"}  # fmt: skip
    begun = BytePairs({**facts, "tokenizer.ggml.bos_token_id": 1})
    assert [begun.piece(i) for i in begun.encode("a whole")] == ["<|im_start|>", "a", " whole"]
    assert BytePairs(facts).encode(" whole") == [len(tokens)]
    silent = {**facts, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.add_bos_token": False}
    assert BytePairs(silent).encode(" whole") == [len(tokens)]
    others = BytePairs({**facts, "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.bos_token_id": 1})
    assert len(others.encode(" whole")) == len(" whole")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_part_of_a_character_is_told_by_its_bytes(tmp_path: Path, kind: str) -> None:
    words = live.load(tiny.write(tmp_path / "model.gguf", kind=kind)).vocabulary
    parts = words.encode("é")[-2:]
    assert [words.piece(part) for part in parts] == ["<0xC3>", "<0xA9>"]
    assert words.tokens(parts) == ("é[1/2]", "é[2/2]")
    assert words.tokens(parts[:1]) == ("<0xC3>",)
    assert words.piece(words.encode(" the")[-1]) == " the"


def test_words_are_cut_where_the_file_says() -> None:
    tokens, kinds = tiny.pieces("gpt2")
    facts = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds,
             "tokenizer.ggml.merges": []}  # fmt: skip

    def cut(how: str, text: str) -> list[str]:
        return list(BytePairs({**facts, "tokenizer.ggml.pre": how})._words(text))

    assert cut("gpt-2", "He's 12345  x\n\n y!?\n") == [
        "He",
        "'s",
        " 12345",
        " ",
        " x",
        "\n\n",
        " y",
        "!?",
        "\n",
    ]
    assert cut("smollm", "a  123") == ["a", "  ", "1", "2", "3"]
    assert cut("gpt-2", "! \x1d!\x85") == ["!", " \x1d!", "\x85"]  # a separator is no white space
    assert cut("llama-bpe", "HE'S 12345  x\n\n y!?\n z") == [
        "HE", "'S", " ", "123", "45", " ", " x", "\n\n", " y", "!?\n", " z"
    ]  # fmt: skip
    with pytest.raises(FileError, match="the way of 'odd', which is not known here"):
        cut("odd", "")


def test_llama_3_s_cutting_is_its_expression() -> None:
    """Against the expression itself, where the regex package has Unicode classes."""
    regex = pytest.importorskip("regex")
    theirs = regex.compile(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokens, kinds = tiny.pieces("gpt2")
    ours = BytePairs({"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds,
                      "tokenizer.ggml.merges": [], "tokenizer.ggml.pre": "llama-bpe"})  # fmt: skip
    chance = np.random.default_rng(0)
    symbols = list("aZé猫' 19½\n\r\t_!(—\u0301 \x1c\x1f\x85")
    for _ in range(500):
        text = "".join(chance.choice(symbols, 12))
        assert list(ours._words(text)) == theirs.findall(text), repr(text)


def test_every_cut_is_an_error_that_says_so(path: Path, tmp_path: Path) -> None:
    whole, cut = path.read_bytes(), tmp_path / "cut.gguf"
    for length in (4, 20, 90, 700, 3000, 9000, len(whole) - 100):
        cut.write_bytes(whole[:length])
        with pytest.raises(FileError, match=r"damaged|cannot be read|not a GGUF"):
            live.load(cut)
    cut.write_bytes(b"GGUF" + bytes(16) + whole[20:])
    with pytest.raises(FileError, match="not a GGUF file of version 2 or 3"):
        live.load(cut)
    chance = np.random.default_rng(1)
    for _ in range(
        200
    ):  # damage anywhere in the header: an error of ours, or a file that still runs
        broken = bytearray(whole)
        for at in chance.integers(4, 6000, 3):
            broken[at] = chance.integers(256)
        cut.write_bytes(broken)
        with contextlib.suppress(FileError):
            live.load(cut)


@pytest.mark.parametrize(("facts", "said"), [
    ({"general.architecture": "mamba"}, "of the family 'mamba', and llama is run here"),
    ({"llama.expert_count": 8}, "a mixture of 8 experts"),
    ({"llama.rope.scaling.type": "yarn"}, "scaled by 'yarn'"),
    ({"llama.attention.sliding_window": 9}, "sliding window"),
])  # fmt: skip
def test_other_models_are_refused_with_the_way_out(path: Path, facts: dict[str, Any], said: str,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    from limelight.live import gguf

    read = gguf.Gguf._read

    def changed(self: Any) -> None:
        read(self)
        self.facts.update(facts)

    monkeypatch.setattr(gguf.Gguf, "_read", changed)
    with pytest.raises(FileError, match=f"{said}.*limelight.hf.load"):
        live.load(path)


@pytest.mark.parametrize(("facts", "said"), [
    ({"llama.block_count": 2**31}, r"block_count is 2147483648, and no model has it"),
    ({"llama.block_count": -1}, "block_count is -1"), ({"llama.block_count": 3.5}, "block_count is 3.5"),
    ({"llama.block_count": 2}, None), ({"llama.block_count": 4}, "damaged|fit together|has no tensor"),
    ({"llama.embedding_length": 2**31 - 1}, "embedding_length is 2147483647"),
    ({"llama.embedding_length": 0}, "embedding_length is 0"),
    ({"llama.attention.head_count": 2**40}, "head_count is 1099511627776"),
    ({"llama.attention.head_count": 0}, "head_count is 0"),
    ({"llama.attention.key_length": 2**40}, "key_length is"),
    ({"llama.context_length": "many"}, "context_length is 'many'"),
    ({"tokenizer.ggml.bos_token_id": 65_536, "tokenizer.ggml.add_bos_token": True}, "not in its table"),
    ({"tokenizer.ggml.eos_token_id": -1}, "not in its table"),
    ({"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": [1, 1]}, "not in its table|for others"),
    ({"tokenizer.ggml.tokens": [1, 2, 3]}, "does not fit together"),
    ({"tokenizer.ggml.merges": [1]}, "does not fit together"),
    *(({f"llama.{name}": value}, f"{name} is {shown}, and no model has it")
      for name in ("attention.layer_norm_rms_epsilon", "rope.freq_base")
      for value, shown in ((-1.0, "-1.0"), (0, "0"), (float("nan"), "nan"), (float("inf"), "inf"), ("a", "'a'"))),
    ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}, "factor is 0.0, and no model"),
    ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 0.0}, None),
    ({"llama.rope.dimension_count": 8}, "positions turn a part of each head's 16 numbers: limelight.hf"),
    ({"llama.block_count": [1] * 10**6}, r"block_count is \[1, 1, .{60,80}, and no model has it"),
    ({"general.architecture": "x" * 10**6}, "of the family .{60,80}, and llama is run here"),
])  # fmt: skip
def test_sizes_that_no_model_has_are_refused_before_anything_is_made(
    path: Path, facts: dict[str, Any], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from limelight.live import gguf

    read = gguf.Gguf._read

    def changed(self: Any) -> None:
        read(self)
        self.facts.update(facts)

    monkeypatch.setattr(gguf.Gguf, "_read", changed)
    began = time.monotonic()
    if said is None:  # fewer layers than there are weights is a shorter model, and a sound one
        live.load(path).run("the cat")
    else:
        with pytest.raises(FileError, match=said):
            live.load(path)
    assert time.monotonic() - began < 5


def test_llama_3_1_has_a_table_of_its_frequencies(tmp_path: Path) -> None:
    """All halved by it, they are those of positions that stand twice as close."""
    close = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    ways: list[dict[str, Any]] = [{}, {"slower": 1.0}, {"slower": 2.0}, close]
    plain, alike, halved, closer = (
        live.load(tiny.write(tmp_path / f"{at}.gguf", **how)).run(TEXT).logits
        for at, how in enumerate(ways)
    )
    np.testing.assert_array_equal(alike, plain)
    np.testing.assert_array_equal(halved, closer)
    assert np.abs(halved - plain).max() > 0.1


def test_a_bias_is_not_passed_over(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp adds it where the file has one: without it this were another model."""
    from limelight.live import gguf

    read = gguf.Gguf._read

    def changed(self: Any) -> None:
        read(self)
        self.tensors["blk.1.attn_q.bias"] = self.tensors["output_norm.weight"]

    monkeypatch.setattr(gguf.Gguf, "_read", changed)
    with pytest.raises(FileError, match=r"has 'blk.1.attn_q.bias', which is not known here: limel"):
        live.load(path)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_scores_that_are_no_numbers_are_refused(tmp_path: Path, kind: str) -> None:
    facts = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.model": kind}
    facts |= {"tokenizer.ggml.scores": ["x", "y"], "tokenizer.ggml.add_bos_token": False}
    if kind == "llama":
        with pytest.raises(FileError, match="table of tokens is incomplete"):
            of(facts)
    else:  # which has merges, and no use for scores
        assert of({**facts, "tokenizer.ggml.merges": []}).encode("a") == [0]


def test_damaged_weights_write_nothing(path: Path) -> None:
    model = live.load(path)
    for wrong in (np.nan, np.inf):
        model.decoder.unembedding[:, -1] = wrong
        with np.errstate(invalid="ignore"):
            run = model.run("the cat")
        for heat in (0.0, 1.0):
            with pytest.raises(ArgumentError, match=r"says what is no number.*weights are damaged"):
                run.write(1, temperature=heat)


def test_a_word_without_end_is_cut_in_good_time() -> None:
    """The same pieces as by looking for the lowest rank anew each time, and not by its square."""
    chance = random.Random(0)
    for _ in range(300):
        known, ranks = ["a", "b", "c"], {}
        for rank in range(chance.randrange(1, 14)):
            pair = chance.choice(known), chance.choice(known)
            if ranks.setdefault(pair, rank) == rank:
                known.append("".join(pair))
        word = "".join(chance.choices("abc", k=chance.randrange(24)))
        parts = list(word)
        while found := [(ranks[p], i) for i, p in enumerate(pairwise(parts)) if p in ranks]:
            at = min(found)[1]
            parts[at : at + 2] = ["".join(parts[at : at + 2])]
        assert joined(word, lambda left, right, ranks=ranks: ranks.get((left, right))) == parts
    began = time.monotonic()
    assert (
        len(joined("ab" * 50_000, lambda left, right: 0 if left + right == "ab" else None))
        == 50_000
    )
    assert time.monotonic() - began < 5


def test_a_file_that_is_shortened_while_open_is_an_error(tmp_path: Path) -> None:
    """Where it were mapped, the program would end by a signal."""
    path = tiny.write(tmp_path / "short.gguf")
    with Gguf(path) as file:
        last = max(file.tensors, key=lambda name: file.tensors[name].place)
        with open(path, "r+b") as other:
            other.truncate(64)
        with pytest.raises(FileError, match="cut short"):
            file.array(last)


def test_tensors_are_read_side_by_side(path: Path) -> None:
    with Gguf(path) as file:
        alone = {name: file.array(name) for name in file.tensors}
        with ThreadPoolExecutor(4) as pool:
            for _ in range(20):
                together = list(pool.map(file.array, file.tensors))
                assert all(map(np.array_equal, together, alone.values()))
