"""The live SmolLM2, in NumPy, against Transformers on the same file."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from limelight import hf, live
from limelight.live import Off
from limelight.live.effects import outcomes
from limelight.live.measure import Measure
from limelight.live.run import log_softmax

SENTENCE = "The curious cat watched the bird on the old oak"
EPS = float(np.finfo(np.float32).eps)
TEN = [(0, 1), (2, 3), (5, 8), (9, 0), (11, 1), (13, 4), (17, 2), (19, 7), (24, 6), (29, 5)]


@pytest.fixture(scope="module")
def ours(smollm2: hf.Loaded) -> Iterator[live.Model]:
    with threadpool_limits(1, user_api="blas"):
        yield live.load("smollm2")


def logits(smollm2: hf.Loaded, ids: tuple[int, ...], dtype: Any = torch.float32) -> Any:
    model = smollm2.model
    model.set_attn_implementation("sdpa")
    try:
        with torch.no_grad():
            return model.to(dtype)(torch.tensor([ids])).logits[0].double().numpy()
    finally:
        model.float().set_attn_implementation("limelight")


@contextmanager
def without(model: Any, layer: int, head: int) -> Iterator[None]:
    """A head off, by a hook of torch's alone."""
    projection = model.model.layers[layer].self_attn.o_proj

    def cut(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        read = given[0].clone()
        read[..., 64 * head : 64 * head + 64] = 0
        return (read,)

    hook = projection.register_forward_pre_hook(cut)
    try:
        yield
    finally:
        hook.remove()


def test_logits(ours: live.Model, smollm2: hf.Loaded) -> None:
    run = ours.run(SENTENCE, keep="all")
    plain, truth = logits(smollm2, run.ids), logits(smollm2, run.ids, torch.float64)
    error = np.abs(run.logits - truth)
    floor = 8 * EPS * np.abs(truth).max()
    assert error.max() <= 2 * np.abs(plain - truth).max() + floor
    assert error.mean() <= 2 * np.abs(plain - truth).mean() + floor / 8


def test_sixty_four_words(ours: live.Model, smollm2: hf.Loaded) -> None:
    found = ours.write(SENTENCE, 64)
    given = torch.tensor([found.ids[: -found.written]])
    expected = smollm2.model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=64, do_sample=False
    )
    assert found.written == 64
    assert list(found.ids) == expected[0].tolist()


def test_the_capture_is_that_of_hf(ours: live.Model, smollm2: hf.Loaded) -> None:
    found, expected = ours.run(SENTENCE).capture, smollm2.capture(SENTENCE, values=True)
    smollm2.model.double()
    try:
        truth = smollm2.capture(SENTENCE, values=True)
    finally:
        smollm2.model.float()
    assert found.tokens == expected.tokens
    assert found.source["model"] == expected.source["model"]
    for mine, plain, exact in zip(found, expected, truth, strict=True):
        assert (mine.name, mine.layer, mine.kind) == (plain.name, plain.layer, plain.kind)
        assert mine.mask == plain.mask
        assert mine.scale == plain.scale
        for part in ("query", "key", "value"):
            a, b, c = (getattr(site, part) for site in (mine, plain, exact))
            assert a.shape == b.shape
            floor = 8 * EPS * np.abs(c).max()
            assert np.abs(a - c).max() <= 2 * np.abs(b - c).max() + floor
    assert found[11].cell(2, 1, head=1).weight == pytest.approx(
        expected[11].cell(2, 1, head=1).weight, abs=1e-4
    )


def test_effects_are_those_of_torch_hooks(ours: live.Model, smollm2: hf.Loaded) -> None:
    run = ours.run(SENTENCE)
    answer = run.next(1)[0].id
    offs = [Off(heads=[at]) for at in TEN]
    found = outcomes(run, offs, Measure(run.ids, answer))
    expected = []
    for layer, head in TEN:
        with without(smollm2.model, layer, head):
            expected.append(float(log_softmax(logits(smollm2, run.ids)[-1])[answer]))
    assert np.abs(found - expected).max() < 1e-4
    assert np.ptp(expected) > 0.5


@pytest.mark.slow
def test_the_table_of_all_heads(ours: live.Model) -> None:
    found = ours.effects(SENTENCE)
    for layer, head in TEN:
        single = ours.run(SENTENCE, [(layer, head)]).log_probability(str(found.answer))
        assert found.after[layer, head] == pytest.approx(single, abs=1e-4)


def test_tokens_are_those_of_the_model(ours: live.Model, smollm2: hf.Loaded) -> None:
    texts = [
        SENTENCE, "In 1905 he's gone; they'll see—we've…", "\n\n\tdef f(x):\n        return x\n\n\n",
        "ünïcödé 猫 🎉 naïve", "a  b   c    ", "don't DON'T 'quote' ''", "<|im_start|>user\nHi<|im_end|>",
        " leading", "x" * 50, "3.14159e-10", "\r\n\r\n mixed \t tabs",
    ]  # fmt: skip
    for text in texts:
        ids = ours.vocabulary.encode(text)
        assert ids == smollm2.tokenizer(text)["input_ids"], text
        assert ours.vocabulary.decode(ids) == text


@pytest.mark.slow
def test_heads_named_induction_are_those_that_repetition_hangs_on(
    ours: live.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a sink that nobody misses; what python bench/live.py --induction prints."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    found = importlib.import_module("live").induction(ours)
    looks = found["look hidden"]
    assert all(score >= 0.3 for _, _, _, score in looks["costliest"][:3])
    assert looks["mean_cost_of_induction"] > 5 * abs(looks["mean_cost_of_others"])
    assert looks["rank_correlation"] > 0.1
    sink = found["sink_nobody_misses"]
    assert sink["weight_on_the_first"] > 0.6
    assert abs(sink["change"]) < 0.01
