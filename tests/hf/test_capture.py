"""Captures of a forward pass: the weights are eager's, and the model is left as it was."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from limelight import hf
from limelight.capture import Capture
from limelight.errors import ArgumentError, ShapeError
from limelight.hf.inputs import texts
from limelight.hf.projections import projections
from tests.hf import folders, systems


def eager_weights(model: Any, given: dict[str, Any]) -> list[torch.Tensor]:
    """Every attention matrix, encoder first, in the order of the sites."""
    model.set_attn_implementation("eager")
    with torch.no_grad(), systems.exact_softmax():
        found = model(**given, output_attentions=True)
    if "attentions" in found:
        return list(found.attentions)
    decoder = zip(found.decoder_attentions, found.cross_attentions, strict=True)
    return [*found.encoder_attentions, *(table for pair in decoder for table in pair)]


@pytest.mark.parametrize("name", systems.NAMES)
def test_weights_are_those_of_eager(name: str) -> None:
    side = "left" if systems.find(name).kind in ("decoder", "encoder", "seq2seq") else "none"
    model, given = systems.build(name), systems.inputs(name, side)
    expected = eager_weights(model, given)
    with torch.no_grad(), hf.capture(model, values=True) as found:
        model(**given)
    assert len(found) == len(expected) == systems.find(name).sites
    for site, table in zip(found, expected, strict=True):
        heads, rows = site.heads, site.statistics
        for head in (0, heads - 1):
            weights = np.stack([site.weights(head=head, batch=b) for b in range(systems.BATCH)])
            truth = table[:, head].numpy()
            judged = np.isfinite(rows.max_logit[:, head])  # rows of padding see nothing
            np.testing.assert_allclose(weights[judged], truth[judged], rtol=0, atol=1e-5)
            cell = site.cell(3, 2, head=head, batch=1)
            assert cell.weight == pytest.approx(truth[1, 3, 2], abs=1e-6)
            assert cell.contribution is not None


def test_health_is_that_of_the_weights() -> None:
    model, given = systems.build("gpt-oss"), systems.inputs("gpt-oss", "left")
    with hf.capture(model) as found:
        model(**given)
    for site in found:
        health = site.health()
        weights = np.stack([[site.trace(head=h, batch=b).weights for h in range(site.heads)]
                            for b in range(site.batch)])  # fmt: skip
        sink = 1.0 - weights.sum(-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(weights > 0, -weights * np.log(weights), 0.0).sum(-1)
            terms += np.where(sink > 1e-12, -sink * np.log(np.maximum(sink, 1e-300)), 0.0)
        judged = health.judged
        np.testing.assert_allclose(health.max_prob[judged], weights.max(-1)[judged], atol=1e-6)
        np.testing.assert_allclose(health.entropy[judged], terms[judged], atol=1e-5)
        assert (health.keys[1] == (weights[1] > 0).sum(-1)).all()
    tables = found.health()
    assert tables["max_prob"].shape == (2, 6)
    assert tables["max_prob"][0, 0] == pytest.approx(
        found[0].health().max_prob[:, 0][found[0].health().judged[:, 0]].mean()
    )


@pytest.mark.parametrize(
    ("name", "expression"),
    [("bert", "~Prefix([4, 0])"), ("llama", "Causal() & ~Prefix([4, 0])"),
     ("gemma2", "Window(left=4, right=0) & ~Prefix([4, 0])")],
)  # fmt: skip
def test_masks_are_kept_as_rules(name: str, expression: str) -> None:
    model = systems.build(name)
    with hf.capture(model) as found:
        model(**systems.inputs(name, "left"))
    assert found[0].mask.expression == expression


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_scattered_flags_are_kept_as_they_came(name: str, tmp_path: Any) -> None:
    """One flag a key for all rows: too many holes for intervals, and no n×n cells either."""
    model, length = systems.build(name), 61
    flags = torch.arange(length).remainder(3).ne(1).long().repeat(2, 1)
    flags[1] = 1 - flags[1]
    ids = torch.randint(3, 61, (2, length), generator=torch.Generator().manual_seed(7))
    given = {"input_ids": ids, "attention_mask": flags}
    expected = eager_weights(model, given)
    with torch.no_grad(), hf.capture(model) as found:
        model(**given)
    found.save(tmp_path / "scattered.safetensors")
    for capture in (found, Capture.open(tmp_path / "scattered.safetensors")):
        for site, table in zip(capture, expected, strict=True):
            assert site.mask.allowed(length, length).dense.shape == (2, 1, 1, length)
            real = flags.bool().numpy()
            weights = np.stack([site.weights(head=1, batch=b) for b in range(2)])
            np.testing.assert_allclose(weights[real], table[:, 1].numpy()[real], atol=1e-5)
            assert not weights[~real].any()  # a query that is padding is no row


def test_layers_and_values() -> None:
    model, given = systems.build("llama"), systems.inputs("llama")
    with hf.capture(model, layers=[-1]) as found:
        model(**given)
    assert [site.layer for site in found] == [1]
    assert found[1].value is None
    with hf.capture(model, layers=0, values=True, dtype="float16") as found:
        model(**given)
    assert found[0].value.dtype == found[0].query.dtype == np.float16
    np.testing.assert_allclose(found[0].weights(head=1).sum(axis=1), 1.0, atol=1e-6)


def test_the_model_is_left_as_it_was() -> None:
    model = systems.build("llama")
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    for implementation in ("sdpa", "eager", "limelight"):
        model.set_attn_implementation(implementation)
        with hf.capture(model):
            assert model.config._attn_implementation == "limelight"
            model(**systems.inputs("llama"))
        assert model.config._attn_implementation == implementation
    assert before == {name: set(vars(module)) for name, module in model.named_modules()}
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_an_error_inside_leaves_it_too() -> None:
    model = systems.build("llama")

    def fail() -> None:
        with hf.capture(model):
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        fail()
    assert model.config._attn_implementation == "sdpa"
    assert not model._forward_hooks


def test_a_part_of_the_model_may_run_alone() -> None:
    model, given = systems.build("llama"), systems.inputs("llama")
    with hf.capture(model) as found:
        model.model(**given)
    assert len(found) == 2
    assert found.tokens[1] == tuple(str(i) for i in given["input_ids"][1].tolist())


def test_layers_that_share_a_module() -> None:
    config = tf.AlbertConfig(
        vocab_size=61, hidden_size=33, embedding_size=8, num_attention_heads=3, num_hidden_layers=4,
        intermediate_size=37, initializer_range=0.3,
    )  # fmt: skip
    torch.manual_seed(7)
    model = tf.AlbertModel(config).eval()
    ids = systems.inputs("llama")["input_ids"]
    with hf.capture(model) as found:
        model(ids)
    assert [site.layer for site in found] == [0, 1, 2, 3]
    with hf.capture(model, layers=[2]) as one:
        model(ids)
    np.testing.assert_array_equal(one[2].query, found[2].query)


def test_training_with_checkpointing_is_seen_once() -> None:
    model, given = systems.build("llama").train(), systems.inputs("llama")
    later = getattr(model, "activation_checkpointing_enable", None)  # its name from 5.23 on
    for reentrant in (False, True):
        (later or model.gradient_checkpointing_enable)({"use_reentrant": reentrant})
        model.enable_input_require_grads()
        with hf.capture(model) as found:
            model(**given, use_cache=False).logits.sum().backward()
        assert len(found) == 2


def test_vision_has_image_and_grid() -> None:
    model, given = systems.build("vit"), systems.inputs("vit")
    with hf.capture(model) as found:
        model(**given)
    assert (found.grid.rows, found.grid.columns, found.grid.start) == (5, 5, 1)
    assert found.image.shape == (2, 20, 20, 3)
    assert found.image.dtype == np.uint8
    assert found[0].tokens[0][:3] == ("[CLS]", "0,0", "0,1")
    pixels = given["pixel_values"].numpy()
    bright = np.unravel_index(pixels[0].argmax(), pixels[0].shape)
    assert found.image[0][bright[1], bright[2], bright[0]] == found.image[0].max()


def test_two_towers_run_each_for_itself() -> None:
    text = tf.CLIPTextConfig(vocab_size=61, hidden_size=24, intermediate_size=37, eos_token_id=2,
                             num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=32, bos_token_id=1)  # fmt: skip
    vision = tf.CLIPVisionConfig(hidden_size=24, intermediate_size=37, num_hidden_layers=2,
                                 num_attention_heads=3, image_size=20, patch_size=4)  # fmt: skip
    model = tf.CLIPModel(
        tf.CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8)
    ).eval()
    model.set_attn_implementation("eager")
    ids = systems.inputs("llama")["input_ids"]
    with hf.capture(model) as found:
        model(
            input_ids=ids, pixel_values=systems.inputs("vit", dtype=torch.float32)["pixel_values"]
        )
    kinds = {site.name.split(".")[0]: site for site in found}
    assert set(kinds) == {"text_model", "vision_model"}
    assert kinds["text_model"].mask.expression == "Causal()"
    assert kinds["vision_model"].mask is None
    assert kinds["vision_model"].tokens[0][0] == "[CLS]"
    assert kinds["text_model"].tokens[0][0] == str(int(ids[0, 0]))
    assert model.vision_model.config._attn_implementation == "eager"
    with pytest.raises(ValueError, match="layer 0 has 2 sites"):
        found[0]


def test_an_additive_mask_of_ones_own() -> None:
    """Four axes and numbers: the least float hides, and other numbers are a bias."""
    model, given = systems.build("llama", torch.float32), systems.inputs("llama")
    least = torch.finfo(torch.float32).min
    own = torch.zeros((2, 1, 13, 13))
    own[..., ~torch.from_numpy(np.tri(13, dtype=bool))] = least
    own[:, :, :, 3] += 0.5
    expected = systems.run(model, "eager", {**given, "attention_mask": own})
    found = systems.run(model, "limelight", {**given, "attention_mask": own})
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    with hf.capture(model) as captured:
        model(**given, attention_mask=own)
    assert captured[0].mask.expression == "Causal()"
    assert captured[0].bias[0, 0, 5, 3] == 0.5


def test_an_additive_mask_that_is_learned_gets_its_gradient() -> None:
    model, given = systems.build("llama", torch.float32), systems.inputs("llama")
    own = torch.zeros((2, 1, 13, 13))
    own[..., ~torch.from_numpy(np.tri(13, dtype=bool))] = torch.finfo(torch.float32).min

    def gradient() -> torch.Tensor:
        learned = own.clone().requires_grad_()
        model(**given, attention_mask=learned).logits.square().sum().backward()
        return learned.grad

    model.set_attn_implementation("limelight")
    expected = gradient()
    with hf.capture(model) as captured:
        found = gradient()
    assert expected.any()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert captured[0].mask.expression == "Causal()"
    assert captured[0].bias is None


def test_under_autocast_the_numbers_are_those_it_computed_with() -> None:
    model, given = systems.build("llama", torch.float32), systems.inputs("llama")
    with (
        torch.no_grad(),
        torch.autocast("cpu", torch.bfloat16),
        hf.capture(model, values=True) as c,
    ):
        model(**given)
    for site in c:
        for part in (site.query, site.key, site.value):
            tensor = torch.from_numpy(part)
            torch.testing.assert_close(tensor, tensor.bfloat16().float(), rtol=0, atol=0)
        for head in range(site.heads):
            np.testing.assert_allclose(site.weights(head=head).sum(axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("length", [1, 7, 17])
@pytest.mark.parametrize(("name", "flags"), [("bert", 0), ("llama", 0), ("llama", 1)])
def test_a_padding_mask_of_another_length(name: str, flags: int, length: int) -> None:
    model, given = systems.build(name), systems.inputs(name)
    given["attention_mask"] = torch.ones((2, length), dtype=torch.int64)
    given["attention_mask"][0, 0] = flags
    if name == "llama":
        given["use_cache"] = False
    with pytest.raises(ShapeError, match=f"which of {length} keys are real, and there are 13"):
        systems.run(model, "limelight", given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": [7]}, "layer 7 does not exist: LlamaForCausalLM has 2 layers, numbered from 0"),
        ({"layers": []}, "no layer was asked for"),
        ({"layers": "first"}, "layers='first': give layer numbers"),
        ({"layers": True}, "layers=True: give layer numbers"),
        ({"layers": 1.5}, r"layers=1\.5: give layer numbers"),
        ({"dtype": "int8"}, "a capture keeps float16"),
    ],
)
def test_what_cannot_be_asked(arguments: dict[str, Any], message: str) -> None:
    model = systems.build("llama")
    with pytest.raises(ValueError, match=message), hf.capture(model, **arguments):
        pass
    assert model.config._attn_implementation == "sdpa"


def test_what_is_no_transformers_model() -> None:
    with (
        pytest.raises(ValueError, match=r"got Linear: any other module goes to limelight\.torch\."),
        hf.capture(torch.nn.Linear(2, 2)),
    ):
        pass


def test_one_capture_of_a_model_at_a_time() -> None:
    model, given = systems.build("llama"), systems.inputs("llama")
    with hf.capture(model) as cap:
        with (
            pytest.raises(ValueError, match="this LlamaForCausalLM is being captured already"),
            hf.capture(model),
        ):
            pass
        model(**given)
    assert len(cap) == 2  # the first goes on


def test_a_copy_of_a_captured_model_is_not_captured() -> None:
    model, given = systems.build("llama"), systems.inputs("llama")
    with hf.capture(model) as found:
        expected = model(**given).logits
        twin = copy.deepcopy(model)
        twin(input_ids=given["input_ids"][:, :5])
        with hf.capture(twin) as other:
            torch.testing.assert_close(twin(**given).logits, expected)
    assert [site.queries for site in found] == [site.queries for site in other] == [13, 13]
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_asking_for_weights_says_where_they_are(name: str) -> None:
    model = systems.build(name)
    model.set_attn_implementation("limelight")
    with pytest.warns(UserWarning, match="output_attentions=True gives nothing here: .*hf.capture"):
        model(**systems.inputs(name), output_attentions=True)
    model(**systems.inputs(name), output_hidden_states=True)


def test_what_names_no_tokens_is_refused_before_the_model_runs() -> None:
    model = systems.build("llama")
    for how, said in (
        ({"tokenizer": 5}, "tokenizer=5 is no tokenizer"),
        ({"source": 5}, "source=5: give facts by their names"),
    ):
        with pytest.raises(ArgumentError, match=said), hf.capture(model, **how):
            raise AssertionError
    assert model.config._attn_implementation == "sdpa"


def test_tokens_beyond_the_tokenizer_go_by_their_ids() -> None:
    """A vocabulary is often padded to a round size: what no token has a text for has a number."""
    known = folders.tokenizer()
    assert len(known) == 12
    assert texts(np.array([[4, 6, 12, 60]]), known) == (("the", "cat", "12", "60"),)


def test_nothing_run_is_an_error() -> None:
    with (
        pytest.raises(ValueError, match="nothing was captured"),
        hf.capture(systems.build("llama")),
    ):
        pass


@pytest.mark.parametrize("name", systems.NAMES)
def test_captures_of_every_system_survive_a_file(name: str, tmp_path: Any) -> None:
    model = systems.build(name, torch.float32)
    given = systems.inputs(name, "left", torch.float32)
    with torch.no_grad(), hf.capture(model, values=True) as found:
        model(**given)
    found.save(tmp_path / "cap.safetensors")
    again = Capture.open(tmp_path / "cap.safetensors")
    assert repr(again) == repr(found)
    assert again.source == found.source
    for one, other in zip(found, again, strict=True):
        assert repr(one) == repr(other)
        assert one.mask == other.mask
        for part in ("query", "key", "value", "bias", "sinks"):
            mine, theirs = getattr(one, part), getattr(other, part)
            assert (mine is None) == (theirs is None)
            if mine is not None:
                np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_array_equal(one.health().entropy, other.health().entropy)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
def test_what_w_o_writes_of_the_values_is_kept_with_them(name: str) -> None:
    model, given = systems.build(name), systems.inputs(name)
    with hf.capture(model, values=True) as found, torch.no_grad():
        model(**given)
    for site, (_, projection) in zip(found, sorted(projections(model).items()), strict=True):
        linear = projection.module
        size = site.value.shape[3]
        for head in range(site.heads):  # the head alone, through the model's own module
            read = torch.zeros(*site.value.shape[::2], site.heads * size, dtype=model.dtype)
            own = torch.from_numpy(site.value[:, head * site.key_heads // site.heads])
            read[..., head * size : (head + 1) * size] = own
            with torch.no_grad():
                written = (linear(read) - linear(torch.zeros_like(read))).double().norm(dim=-1)
            np.testing.assert_allclose(site.brought[:, head], written, rtol=1e-5)
    with hf.capture(model) as bare, torch.no_grad():
        model(**given)
    assert not bare[0].writes


def test_attention_that_a_module_computes_by_itself_is_said() -> None:
    """BigBird-Pegasus: its decoder goes through the interface, its encoder does not."""
    config = tf.BigBirdPegasusConfig(
        vocab_size=61, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8,
        max_position_embeddings=64, attention_type="original_full",
    )  # fmt: skip
    model, ids = tf.BigBirdPegasusModel(config).eval(), torch.arange(3, 14)[None]
    by_itself = (
        r"the attention of BigBirdPegasusSelfAttention was not seen, in 2 of the model's modules "
        r"\(encoder\.layers\.0\.self_attn\.self, …\)"
    )
    warned = pytest.warns(UserWarning, match=by_itself)
    with warned as said, torch.no_grad(), hf.capture(model) as captured:
        model(ids, decoder_input_ids=ids[:, :5])
    assert [site.layer for site in captured] == [0, 0, 1, 1]
    assert said[0].filename == __file__
    with pytest.warns(UserWarning, match="in 1 of"), torch.no_grad(), hf.capture(model, layers=1):
        model(ids, decoder_input_ids=ids[:, :5])
    decoder = model.decoder
    with torch.no_grad(), hf.capture(decoder):  # no warning, or this fails
        decoder(ids)


def test_a_model_with_two_configs_of_texts() -> None:
    """Musicgen: a text encoder, and a decoder that is one of texts by its config."""
    parts = {
        "text_encoder": tf.T5Config(
            vocab_size=31, d_model=16, d_kv=8, d_ff=8, num_layers=2, num_heads=2
        ),
        "audio_encoder": tf.EncodecConfig(
            hidden_size=16, num_filters=4, codebook_size=16, codebook_dim=16, num_lstm_layers=1,
            upsampling_ratios=[8, 4],
        ),
        "decoder": tf.MusicgenDecoderConfig(
            vocab_size=31, num_hidden_layers=2, ffn_dim=8, num_attention_heads=2, hidden_size=16,
            num_codebooks=2, pad_token_id=30, bos_token_id=30,
        ),
    }  # fmt: skip
    config = tf.MusicgenConfig(**{name: part.to_dict() for name, part in parts.items()})
    model, ids = tf.MusicgenForConditionalGeneration(config).eval(), torch.arange(3, 14)[None]
    with torch.no_grad(), hf.capture(model, values=True) as captured:
        model(ids, decoder_input_ids=ids[:, :5].expand(2, -1))
    with pytest.raises(ArgumentError, match="give the part that is meant"), hf.off(model, [(0, 0)]):
        pass
    assert [site.kind for site in captured].count("cross") == 2


def test_a_survey_says_it_too() -> None:
    model = systems.build("llama")
    model.model.layers[0].register_module("linear_attention", HandAttention())
    model.model.layers[0].register_module("beside", HandAttentionResidual())
    model.model.layers[0].register_forward_pre_hook(
        lambda layer, given: (layer.beside(layer.linear_attention(given[0])), *given[1:])
    )
    with pytest.warns(UserWarning, match=r"HandAttention .*in 1 of .*linear_attention\)") as said:
        hf.survey(model, [list(range(3, 12))])
    assert said[0].filename == __file__


class HandAttention(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x + (x @ x.mT).softmax(-1) @ x


class HandAttentionResidual(torch.nn.Identity):
    """Named for an attention, and none."""
