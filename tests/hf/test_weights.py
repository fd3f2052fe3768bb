"""Models that compute attention by themselves: their own weights, and nothing else about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from limelight import hf
from limelight.capture import Capture
from limelight.errors import ArgumentError

BATCH, LENGTH, LAYERS, HEADS = 2, 13, 2, 3
SMALL = {"vocab_size": 61}
WIDE = {**SMALL, "hidden_size": 24, "num_attention_heads": HEADS}
ENCODER = {**WIDE, "num_hidden_layers": LAYERS, "intermediate_size": 37}
DISENTANGLED = {**ENCODER, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
CONFIGS: dict[str, Any] = {
    "gpt-j": lambda: tf.GPTJConfig(
        **SMALL, n_embd=24, n_layer=LAYERS, n_head=HEADS, rotary_dim=4, n_positions=32,
        bos_token_id=1, eos_token_id=2,
    ),
    "gpt-neo": lambda: tf.GPTNeoConfig(
        **SMALL, hidden_size=24, num_layers=LAYERS, num_heads=HEADS, window_size=4,
        attention_types=[[["global", "local"], 1]], max_position_embeddings=32, bos_token_id=1,
        eos_token_id=2,
    ),
    "bloom": lambda: tf.BloomConfig(**SMALL, hidden_size=24, n_layer=LAYERS, n_head=HEADS),
    "falcon": lambda: tf.FalconConfig(**WIDE, num_hidden_layers=LAYERS, bos_token_id=1, eos_token_id=2),
    "mpt": lambda: tf.MptConfig(**SMALL, d_model=24, n_layers=LAYERS, n_heads=HEADS, max_seq_len=32),
    "deberta": lambda: tf.DebertaConfig(**DISENTANGLED),
    "xlnet": lambda: tf.XLNetConfig(**SMALL, d_model=24, n_layer=LAYERS, n_head=HEADS, d_inner=37),
    "longformer": lambda: tf.LongformerConfig(
        **ENCODER, attention_window=[4, 4], max_position_embeddings=40
    ),
}  # fmt: skip
INNERMOST = {
    "gpt-j": "h.1.attn",
    "gpt-neo": "h.1.attn.attention",
    "bloom": "h.1.self_attention",
    "falcon": "h.1.self_attention",
    "mpt": "blocks.1.attn",
    "deberta": "encoder.layer.1.attention.self",
    "xlnet": "layer.1.rel_attn",
    "longformer": "encoder.layer.1.attention.self",
}


def build(name: str, **how: Any) -> Any:
    torch.manual_seed(3)
    model = tf.AutoModel.from_config(CONFIGS[name](), **how).eval()
    with torch.no_grad():
        for part in model.parameters():
            if part.ndim > 1:
                part.normal_(0.0, 0.3)  # wide, so that a wrong mask or order shows
    return model


def inputs(padded: bool) -> dict[str, Any]:
    ids = torch.randint(3, 61, (BATCH, LENGTH), generator=torch.Generator().manual_seed(7))
    real = torch.ones_like(ids)
    if padded:
        real[1, 9:] = 0
    return {"input_ids": ids, "attention_mask": real}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "longformer"])
def test_weights_are_the_model_s_own(name: str, padded: bool) -> None:
    model, given = build(name), inputs(padded)
    with torch.no_grad():
        eager = build(name, attn_implementation="eager")
        own = eager(**given, output_attentions=True).attentions
        plain = model(**given)
        with hf.capture(model) as cap:
            found = model(**given)
    assert cap[1].name == INNERMOST[name]
    assert [site.layer for site in cap] == [0, 1]
    assert list(found) == list(plain), "the model gives what it was asked for, and no more"
    torch.testing.assert_close(found[0], plain[0], atol=1e-5, rtol=0)
    real = given["attention_mask"].bool().numpy()
    for site, table in zip(cap, own, strict=True):
        assert site.only_weights
        assert (site.real_keys is None) == (not padded)
        weights = np.stack([site.weights(batch=b) for b in range(BATCH)])
        want = np.where(real[:, None, :, None], table.numpy(), 0.0)
        np.testing.assert_allclose(weights, want, rtol=0, atol=2e-6)
        if padded:
            assert not weights[1, :, :9, 9:].any(), "no text looks at padding"
    assert cap.tokens[1][:2] == tuple(str(i) for i in given["input_ids"][1, :2].tolist())
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert model.config._attn_implementation == ("sdpa" if name == "falcon" else "eager")


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
@pytest.mark.parametrize("everywhere", [True, False], ids=["global", "local"])
def test_a_longformer_is_unrolled_to_whole_rows(padded: bool, everywhere: bool) -> None:
    """Its layout is by distance; whole rows sum to one, and see the window and what all see."""
    model, given = build("longformer"), inputs(padded)
    flags = torch.zeros_like(given["input_ids"])
    if everywhere:
        flags[0, 0] = flags[1, 0] = flags[1, 5] = 1
    values: list[torch.Tensor] = []
    attention = model.encoder.layer[1].attention.self
    attention.value.register_forward_hook(lambda *a: values.append(a[2]))
    attention.register_forward_hook(lambda *a: values.append(a[2][0]))
    with torch.no_grad(), hf.capture(model) as cap:
        model(**given, global_attention_mask=flags)
    site = cap[1]
    assert site.name == INNERMOST["longformer"]
    value = values[0].transpose(0, 1) if values[0].shape[0] != BATCH else values[0]
    value = value[:, :LENGTH].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    out = values[1][:, :LENGTH].unflatten(-1, (HEADS, -1)).transpose(1, 2)
    real = given["attention_mask"].bool()
    for entry in range(BATCH):
        weights = site.weights(batch=entry)
        text = int(real[entry].sum())
        np.testing.assert_allclose(weights[:, :text].sum(-1), 1.0, atol=1e-5)
        seen = flags[entry].bool().numpy()
        far = np.abs(np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))) > 2
        assert not weights[:, far & ~seen[:, None] & ~seen[None]].any()
        assert (weights[:, :text, seen] > 0).all(), "some are seen by all"
        assert (weights[:, seen, :text] > 0).all(), "and see all"
        local = ~seen[:text]  # tokens that see everything read values of their own
        mixed = torch.from_numpy(weights[:, :text]).float() @ value[entry]
        torch.testing.assert_close(
            mixed[:, local], out[entry][:, :text][:, local], atol=2e-5, rtol=0
        )


def test_an_encoder_with_windows_and_a_decoder() -> None:
    torch.manual_seed(3)
    config = tf.LEDConfig(
        **SMALL, d_model=24, encoder_layers=2, decoder_layers=2, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=37, decoder_ffn_dim=37, attention_window=4,
        max_encoder_position_embeddings=64, max_decoder_position_embeddings=64,
    )  # fmt: skip
    model, given = tf.LEDModel(config).eval(), inputs(True)
    ids = given["input_ids"]
    with torch.no_grad(), hf.capture(model) as cap:
        model(**given, decoder_input_ids=ids[:, :5])
    assert [site.kind for site in cap] == ["self"] * 4 + ["cross"] * 2
    assert cap.sites[0].name == "encoder.layers.0.self_attn.longformer_self_attn"
    assert cap.sites[5].name == "decoder.layers.1.encoder_attn"
    assert (cap.sites[0].keys, cap.sites[2].keys, cap.sites[4].keys) == (LENGTH, 5, LENGTH)
    sums = cap.sites[0].weights(batch=1).sum(-1)
    np.testing.assert_allclose(sums, np.broadcast_to(np.arange(LENGTH) < 9, sums.shape), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_generation_gives_one_square() -> None:
    torch.manual_seed(3)
    model = tf.AutoModelForCausalLM.from_config(CONFIGS["gpt-j"]()).eval()
    ids = inputs(False)["input_ids"][:1]
    with torch.no_grad():
        with hf.capture(model) as steps:
            text = model.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)
        with hf.capture(model) as whole:
            model(text[:, :-1])
    assert steps[1].queries == steps[1].keys == whole[1].keys
    assert steps[1].name == "transformer.h.1.attn"
    np.testing.assert_allclose(steps[1].weights(), whole[1].weights(), rtol=0, atol=2e-6)
    assert len(steps.tokens[0]) == whole[1].keys


def test_the_bound_is_said_before_the_model_runs(tmp_path: Any) -> None:
    model, given = build("bloom"), inputs(False)
    need = 4 * LAYERS * HEADS * BATCH * LENGTH**2
    ran: list[Any] = []
    model.h[0].register_forward_hook(lambda *a: ran.append(a))
    with (
        pytest.raises(
            ArgumentError,
            match=r"weights of all 2 layers of BloomModel take 8\.11 kB, all n×n of them: more than "
            r"the 8\.11 kB that a capture keeps .* most_weights",
        ),
        hf.capture(model, most_weights=need - 1),
    ):
        model(**given)
    assert not ran
    with torch.no_grad(), hf.capture(model, layers=[-1], most_weights=need) as cap:
        model(**given)
    assert [site.layer for site in cap] == [1]
    cap.save(tmp_path / "bloom.safetensors")
    again = Capture.open(tmp_path / "bloom.safetensors")[1]
    assert again.only_weights
    np.testing.assert_array_equal(again.weights(), cap[1].weights())


def test_refusals_name_the_way_out() -> None:
    model = build("mpt")
    with (
        pytest.raises(
            ArgumentError, match=r"hands out its weights alone\. Capture it without values"
        ),
        hf.capture(model, values=True),
    ):
        pass
    with (
        pytest.raises(ArgumentError, match="layer 5 does not exist: MptModel has 2 layers"),
        hf.capture(model, layers=[5]),
    ):
        pass
    training = build("bloom", attn_implementation="eager")
    training.config.attention_dropout = 0.5
    for block in training.train().h:
        block.self_attention.attention_dropout.p = 0.5
    dropped = r"self_attention: what the model hands out are no weights .* model\.eval\(\)"
    with pytest.raises(ArgumentError, match=dropped), hf.capture(training):
        training(**inputs(False))
    mamba = tf.MambaModel(tf.MambaConfig(**SMALL, hidden_size=8, num_hidden_layers=1, state_size=4))
    with (
        pytest.raises(ArgumentError, match=r"limelight\.torch\.capture\(model\)"),
        hf.capture(mamba),
    ):
        mamba(torch.ones(1, 3, dtype=torch.int64))


def test_a_model_that_sees_and_writes_names_the_part_that_attends() -> None:
    """Its language's weights bear no name of a layer of its eyes."""
    torch.manual_seed(3)
    eyes = tf.GotOcr2VisionConfig(
        num_hidden_layers=2, hidden_size=24, num_attention_heads=3, image_size=32, patch_size=8,
        window_size=0, global_attn_indexes=[0], output_channels=8, mlp_dim=16,
    )  # fmt: skip
    language = tf.Qwen2Config(
        **WIDE, num_hidden_layers=LAYERS, num_key_value_heads=HEADS, intermediate_size=37
    )
    model = tf.GotOcr2Model(tf.GotOcr2Config(vision_config=eyes, text_config=language)).eval()
    with torch.no_grad(), hf.capture(model) as cap:
        model(**inputs(False))
    assert [site.name for site in cap] == [f"language_model.layers.{n}.self_attn" for n in (0, 1)]
    assert cap[1].only_weights


def test_of_other_weights_and_outputs_nothing_is_captured_in_words() -> None:
    """LXMERT counts the layers of each part, and hands out each one's weights apart."""
    torch.manual_seed(3)
    config = tf.LxmertConfig(
        **WIDE, l_layers=1, x_layers=1, r_layers=1, intermediate_size=37, visual_feat_dim=8
    )
    model, see = tf.LxmertModel(config).eval(), torch.zeros(BATCH, 3, 8)
    with (
        pytest.raises(ArgumentError, match="nothing was captured: no attention of LxmertModel"),
        hf.capture(model),
    ):
        model(inputs(False)["input_ids"], visual_feats=see, visual_pos=see[..., :4])


def test_a_vocoder_gives_a_tensor_and_no_weights() -> None:
    config = tf.SpeechT5HifiGanConfig(
        model_in_dim=4, upsample_initial_channel=8, upsample_rates=[2], upsample_kernel_sizes=[4],
        resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1]],
    )  # fmt: skip
    model = tf.SpeechT5HifiGan(config).eval()
    with (
        pytest.raises(ArgumentError, match="nothing was captured: no attention of SpeechT5HifiGan"),
        torch.no_grad(),
        hf.capture(model),
    ):
        assert model(torch.zeros(1, 5, 4)).shape == (1, 10)


@pytest.mark.filterwarnings("ignore:the model ran more than once")
def test_what_was_asked_of_the_model_is_what_comes() -> None:
    model, given = build("bloom"), inputs(False)
    with torch.no_grad(), hf.capture(model):
        asked = model(**given, output_attentions=True)
        plain = model(given["input_ids"], return_dict=False, use_cache=False)
    assert len(asked.attentions) == LAYERS
    assert isinstance(plain, tuple)
    assert len(plain) == 1
