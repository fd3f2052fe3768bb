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
from limelight.errors import FileError
from limelight.live.gguf import Gguf
from limelight.live.vocabulary import BytePairs, SentencePieces, joined
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
    symbols = list("aZé猫' 19½\n\r\t_!(—\u0301 ")
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
