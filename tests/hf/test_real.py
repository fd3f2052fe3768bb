"""Models that people use: the same logits and words as on sdpa, and the head of the seeds."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from limelight import hf
from limelight.capture import Capture
from limelight.heads import KINDS, NAMES, Kind, find
from limelight.hf import Loaded
from tests.marks import later

SENTENCE = "The curious cat watched the bird"
TEXTS = [
    SENTENCE,
    "def add(a, b):\n    return a + b\n\nprint(add(2, 3))",
    "In 1905 he published four papers. The first explained why light frees electrons from metal.",
]
EPS = float(torch.finfo(torch.float32).eps)


def batch(loaded: Loaded, side: str) -> Any:
    loaded.tokenizer.padding_side = side
    return loaded.tokenizer(TEXTS, return_tensors="pt", padding=True)


def outputs(loaded: Loaded, implementation: str, given: Any) -> torch.Tensor:
    """What the model says at every real position."""
    model = loaded.model
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        found = model(**given)
    model.set_attn_implementation("limelight")
    output = found.logits if "logits" in found else found.last_hidden_state
    return output[given["attention_mask"].bool()].double()


@pytest.mark.parametrize(
    ("name", "side"),
    [("smollm2", "left"), ("minilm", "right"), later("smollm2", "right"), later("minilm", "left")],
)
def test_padded_batches_give_the_logits_of_sdpa(
    name: str, side: str, request: pytest.FixtureRequest
) -> None:
    loaded = request.getfixturevalue(name)
    given = batch(loaded, side)
    try:
        loaded.model.double()
        truth = outputs(loaded, "sdpa", given)
    finally:
        loaded.model.float()
    errors = {}
    for implementation in ("sdpa", "limelight"):
        error = (outputs(loaded, implementation, given) - truth).abs()
        errors[implementation] = float(error.max()), float(error.mean())
    floor = 8 * EPS * float(truth.abs().max())
    assert errors["limelight"][0] <= 2 * errors["sdpa"][0] + floor
    assert errors["limelight"][1] <= 2 * errors["sdpa"][1] + floor / 8


LONG = (
    "The cat sat on the mat. The dog sat on the mat (it was warm). The cat and the dog slept, "
    "and the bird (a small one) sang."
)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["smollm2", "minilm"])
def test_a_padded_text_is_judged_as_it_is_alone(
    name: str, side: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Kinds, scores, health and what keys receive, in memory and from the file."""
    loaded: Loaded = request.getfixturevalue(name)
    loaded.tokenizer.padding_side = side
    texts = [SENTENCE, LONG]
    given = loaded.tokenizer(texts, return_tensors="pt", padding=True)
    if name == "minilm":  # counts its positions from the start of the row, padding or not
        given["position_ids"] = (given["attention_mask"].cumsum(1) - 1).clamp_min(0)
    with torch.no_grad(), hf.capture(loaded, layers=[0, 3, -1]) as made:
        loaded.model(**given)
    made.save(tmp_path / "padded.safetensors")
    exact = [loaded.capture(text, layers=[0, 3, -1]) for text in texts]
    real = given["attention_mask"].bool().numpy()
    assert not real.all()
    for captured in (made, Capture.open(tmp_path / "padded.safetensors")):
        for entry, alone in enumerate(exact):
            found, truth = find(captured, batch=entry), find(alone)
            for kind in NAMES:
                np.testing.assert_array_equal(found.rows[kind], truth.rows[kind])
                np.testing.assert_allclose(found.scores[kind], truth.scores[kind], atol=5e-4)
                np.testing.assert_allclose(found.chance[kind], truth.chance[kind], rtol=1e-12)
                near = np.abs(truth.scores[kind] - find_kind(kind).threshold) < 5e-4
                same = found.is_kind(kind) == truth.is_kind(kind)
                assert (same | near).all()
            assert any(truth.is_kind(kind).any() for kind in NAMES)
            for site, own in zip(captured, alone, strict=True):
                assert site.real_keys is not None
                np.testing.assert_array_equal(site.real_keys, real)
                seen, judged = site.entry(entry).health().summary(), own.health().summary()
                np.testing.assert_array_equal(seen.rows, judged.rows)
                np.testing.assert_array_equal(seen.judged, judged.judged)
                for figure in ("entropy", "max_prob", "spread", "effective_keys"):
                    got, want = getattr(seen, figure), getattr(judged, figure)
                    np.testing.assert_allclose(got, want, rtol=2e-3)
                received = site.received(head=1, batch=entry)
                np.testing.assert_allclose(received[real[entry]], own.received(head=1), atol=5e-3)
                assert not received[~real[entry]].any()
        tables = captured.health()
        for row in range(len(captured)):  # the batch: all its real rows together
            parts = [alone.sites[row].health().summary() for alone in exact]
            total = sum(part.judged for part in parts)
            mean = sum(part.entropy * part.judged for part in parts) / total
            np.testing.assert_allclose(tables["entropy"][row], mean, rtol=2e-3)
            np.testing.assert_array_equal(tables["rows"][row], real.sum())


def find_kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def test_a_padded_batch_that_was_generated(smollm2: Loaded) -> None:
    """With a growing cache the mask grows; with a static one only its four axes are known."""
    smollm2.tokenizer.padding_side = "left"
    given = smollm2.tokenizer([SENTENCE, LONG], return_tensors="pt", padding=True)
    real = given["attention_mask"].bool().numpy()
    for cache in (None, "static"):
        with torch.no_grad(), hf.capture(smollm2, layers=[3]) as found:
            smollm2.model.generate(**given, max_new_tokens=3, min_new_tokens=3, do_sample=False,
                                   cache_implementation=cache)  # fmt: skip
        flags = found[3].real_keys
        assert flags is not None
        np.testing.assert_array_equal(flags[:, : real.shape[1]], real)
        assert flags[:, real.shape[1] :].all()
        assert find(found, batch=0).rows["sink"][0, 0] == real[0].sum() + 1  # two new keys as rows


def words(loaded: Loaded, implementation: str, given: Any, steps: int) -> torch.Tensor:
    model = loaded.model
    model.set_attn_implementation(implementation)
    found = model.generate(**given, max_new_tokens=steps, min_new_tokens=steps, do_sample=False)
    model.set_attn_implementation("limelight")
    return found


@pytest.mark.slow
def test_sixty_four_words_are_those_of_sdpa(smollm2: Loaded) -> None:
    given = smollm2.inputs(SENTENCE)
    expected = words(smollm2, "sdpa", given, 64)
    torch.testing.assert_close(words(smollm2, "limelight", given, 64), expected)


@pytest.mark.slow
@pytest.mark.parametrize("cache", [None, "static"])
def test_a_padded_batch_generates_the_words_of_sdpa(smollm2: Loaded, cache: str | None) -> None:
    given = {**batch(smollm2, "left"), "cache_implementation": cache}
    expected = words(smollm2, "sdpa", given, 64)
    torch.testing.assert_close(words(smollm2, "limelight", given, 64), expected)


def test_the_head_of_the_seeds(smollm2: Loaded) -> None:
    found = smollm2.capture(SENTENCE)
    assert found.tokens == (("The", " curious", " cat", " watched", " the", " bird"),)
    assert round(found[11].cell(2, 1, head=1).weight, 2) == 0.93  # cat looks at curious
    assert round(found[11].cell(3, 2, head=1).weight, 2) == 0.86  # watched looks at cat
    assert found.source["licence"] == "Apache-2.0"
    model = smollm2.model
    model.set_attn_implementation("eager")
    with torch.no_grad():
        truth = model(**smollm2.inputs(SENTENCE), output_attentions=True).attentions
    model.set_attn_implementation("limelight")
    for site in found:
        for head in range(site.heads):
            table = truth[site.layer][0, head].numpy()
            np.testing.assert_allclose(site.weights(head=head), table, rtol=0, atol=2e-4)


def test_a_text_encoder(minilm: Loaded) -> None:
    found = minilm.capture(SENTENCE, layers=[0, -1])
    assert found.tokens[0][0] == "[CLS]"
    assert [site.layer for site in found] == [0, 5]
    assert found[0].mask is None
    assert np.allclose(found[0].weights(head=2).sum(axis=1), 1.0, atol=1e-5)


def test_what_was_generated_is_in_the_capture(smollm2: Loaded) -> None:
    found = smollm2.capture(SENTENCE, layers=[3], generate=5)
    assert len(found.tokens[0]) == 10
    assert found[3].queries == found[3].keys == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give a text or an image"),
        ({"text": "a", "image": "b"}, "and not both"),
        ({"text": ""}, "the text is empty"),
        ({"image": "x.png"}, "takes no images"),
        (
            {"text": "word " * 9000},
            r"the text has 9,\d\d\d tokens, and SmolLM2.* reads up to 8,192",
        ),
    ],
)
def test_inputs_that_do_not_fit(smollm2: Loaded, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        smollm2.capture(**arguments)


def test_a_text_cut_to_size(smollm2: Loaded) -> None:
    assert smollm2.inputs("word " * 9000, tokens=17)["input_ids"].shape == (1, 17)


def test_an_encoder_writes_nothing(minilm: Loaded) -> None:
    with pytest.raises(ValueError, match="does not generate text"):
        minilm.capture("a", generate=3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_eight_thousand_tokens_in_bounded_memory() -> None:
    """Capture and per-head health of all 270 heads at 8,192 tokens: under 4 GB, process and all."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "bench/capture.py", "smollm2", "--tokens", "8192", "--json"],
        check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    seen = json.loads(done.stdout)
    assert seen["tokens"] == 8192
    assert seen["heads"] == 270
    assert seen["peak_memory_bytes"] < 4e9
    assert seen["eager_attentions_bytes"] > 60e9
    assert seen["capture_seconds"] < time.perf_counter() - started


def test_loading_is_on_limelight(smollm2: Loaded) -> None:
    assert smollm2.model.config._attn_implementation == "limelight"
    assert not smollm2.model.training
    assert "134.5M parameters" in repr(smollm2)
    with hf.capture(smollm2, layers=[0]) as found, torch.no_grad():
        smollm2.model(**smollm2.inputs("hello"))
    assert found.tokens == (("hello",),)
