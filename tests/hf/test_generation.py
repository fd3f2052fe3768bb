"""Generated tokens are those of eager, whatever the cache; and the steps make one square."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from limelight import hf
from tests.hf import systems

CACHES: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "static": {"cache_implementation": "static"},
    "none": {"use_cache": False},
}
DECODERS = [s.name for s in systems.SYSTEMS if s.kind == "decoder"]
STEPS = 11


def generate(model: Any, implementation: str, given: dict[str, Any], **cache: Any) -> torch.Tensor:
    model.set_attn_implementation(implementation)
    with systems.exact_softmax():
        return model.generate(**given, do_sample=False, max_new_tokens=STEPS, eos_token_id=None,
                              pad_token_id=0, **cache)  # fmt: skip


def prompt(name: str) -> dict[str, Any]:
    given = systems.inputs(name, "left")
    return given if systems.find(name).kind == "decoder" else systems.inputs(name)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", [*DECODERS, "t5"])
def test_the_same_tokens(name: str, cache: str) -> None:
    model, given = systems.build(name), prompt(name)
    given.pop("decoder_input_ids", None)
    expected = generate(model, "eager", given, **CACHES[cache])
    found = generate(model, "limelight", given, **CACHES[cache])
    assert found.shape[1] >= STEPS
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3", "gpt2"])
def test_steps_make_the_square_of_one_pass(name: str, cache: str) -> None:
    """Captured while generating, and captured in one pass over the finished text: the same."""
    model, given = systems.build(name), prompt(name)
    with hf.capture(model, values=True) as steps:
        text = generate(model, "limelight", given, **CACHES[cache])[:, :-1]
    real = torch.cat([given["attention_mask"], torch.ones((2, STEPS - 1), dtype=torch.int64)], 1)
    positions = (real.cumsum(1) - 1).clamp_min(0)
    with hf.capture(model, values=True) as whole:
        model(input_ids=text, attention_mask=real, position_ids=positions)
    assert len(steps) == len(whole) == 2
    for one, other in zip(steps, whole, strict=True):
        assert one.queries == one.keys == text.shape[1]
        assert one.mask == other.mask
        assert one.bias is other.bias is None
        assert one.tokens == other.tokens
        seen = real.bool().numpy()
        for part in ("query", "key", "value"):
            mine, theirs = (np.moveaxis(getattr(s, part), 1, 2)[seen] for s in (one, other))
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
        for figure in ("logsumexp", "max_logit", "entropy"):
            mine, theirs = (np.moveaxis(getattr(s.rows, figure), 1, 2)[seen] for s in (one, other))
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)


def test_cross_attention_adds_queries_to_the_same_keys() -> None:
    model, given = systems.build("t5"), systems.inputs("t5", "right")
    given.pop("decoder_input_ids")
    with hf.capture(model) as steps:
        text = generate(model, "limelight", given)[:, :-1]
    cross = [site for site in steps if site.kind == "cross"]
    assert len(steps) == 6
    assert [(s.queries, s.keys) for s in cross] == [(text.shape[1], systems.LENGTH)] * 2
    assert cross[0].mask.expression == "Lengths([9, 13])"
    assert steps.tokens == cross[0].tokens
    assert steps.query_tokens == tuple(tuple(str(i) for i in row.tolist()) for row in text)
    decoder = steps["decoder.block.0.layer.0.SelfAttention"]
    assert decoder.mask.expression == "Causal()"
    assert decoder.bias.shape == (1, 3, text.shape[1], text.shape[1])
    with hf.capture(model) as whole:
        model(**given, decoder_input_ids=text)
    for one, other in zip(steps, whole, strict=True):
        assert one.name == other.name
        np.testing.assert_allclose(one.rows.entropy, other.rows.entropy, rtol=0, atol=1e-5)


def test_a_cache_from_before_the_capture() -> None:
    model, given = systems.build("llama"), systems.inputs("llama")
    ids = given["input_ids"]
    cache = model(ids[:, :9]).past_key_values
    with hf.capture(model) as later:
        model(ids[:, 9:], past_key_values=cache)
    with hf.capture(model) as whole:
        model(ids)
    assert (later[1].queries, later[1].keys) == (4, 13)
    np.testing.assert_allclose(later[1].rows.entropy, whole[1].rows.entropy[:, :, 9:], atol=1e-6)
    np.testing.assert_allclose(later[1].weights(head=3), whole[1].weights(head=3)[9:], atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1, 9, 9), (2, 1, 1, 9), (1, 6, 9, 1)])
def test_steps_without_a_bias_add_nothing(shape: tuple[int, ...]) -> None:
    model, given = systems.build("llama"), systems.inputs("llama")
    ids = given["input_ids"]
    own = torch.randn(shape, generator=torch.Generator().manual_seed(5)).double()
    with hf.capture(model) as found:
        cache = model(ids[:, :9], attention_mask=own).past_key_values
        model(ids[:, 9:], past_key_values=cache)
    for site in found:
        assert site.bias.shape == (*shape[:2], 13, 13)
        expected = own.expand(*shape[:2], 9, 9).numpy()
        np.testing.assert_array_equal(site.bias[:, :, :9, :9], expected)
        assert not site.bias[:, :, 9:].any()
        np.testing.assert_allclose(site.weights(head=4, batch=1).sum(axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("flags", [13, 17])
def test_flags_for_the_text_or_for_the_whole_static_cache(flags: int) -> None:
    model, given = systems.build("llama"), systems.inputs("llama")
    found = []
    for implementation in ("eager", "limelight"):
        cache = tf.StaticCache(config=model.config, max_cache_len=17)
        real = torch.ones((2, flags), dtype=torch.int64)
        asked = {**given, "attention_mask": real, "past_key_values": cache}
        found.append(systems.run(model, implementation, asked))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-5)


def test_beam_search_is_an_error_that_says_why() -> None:
    model, given = systems.build("llama"), systems.inputs("llama")
    with (
        pytest.raises(ValueError, match="beam search"),
        hf.capture(model),
    ):
        model.generate(**given, num_beams=3, do_sample=False, max_new_tokens=9)
    assert model.config._attn_implementation != "limelight"


def test_two_runs_keep_the_last_and_say_so() -> None:
    model = systems.build("llama").eval()
    ids = systems.inputs("llama")["input_ids"]
    found = []

    def twice() -> None:
        with hf.capture(model) as captured:
            model(ids)
            model(ids[:, 3:])
        found.append(captured)

    with pytest.warns(UserWarning, match="only the last run"):
        twice()
    assert found[0][0].keys == 10
