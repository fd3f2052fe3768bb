"""Every architecture that Transformers has and that fits a few thousand numbers, on limelight.

The systems of test_systems are chosen by hand; here the rest is tried: each text, translation and
vision model that can be built from the sizes below runs a padded batch, and must give eager's
logits wherever it goes through the attention interface; where it computes attention by itself, its
capture must hold the weights that it hands out. Minutes long, so most wait for `-m slow`;
those that once were wrong run every time.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.auto import modeling_auto

from limelight import hf
from limelight.hf.weighing import TABLES

SIZES = {
    "vocab_size": 61, "hidden_size": 32, "n_embd": 32, "d_model": 32, "num_hidden_layers": 2,
    "n_layer": 2, "num_layers": 2, "num_attention_heads": 4, "n_head": 4, "num_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 37, "ffn_dim": 37,
    "initializer_range": 0.3, "init_std": 0.3, "max_position_embeddings": 64, "n_positions": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "sliding_window": 5,
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "attention_dropout": 0.0, "q_lora_rank": 16, "kv_lora_rank": 16,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12, "decoder_layers": 2,
    "encoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 37, "decoder_ffn_dim": 37, "embedding_size": 32, "word_embed_proj_dim": 32,
    "image_size": 32, "patch_size": 8, "num_labels": 5, "num_channels": 3, "d_kv": 8, "d_ff": 37,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "decoder_start_token_id": 0,
    "index_topk": 4, "index_n_heads": 2, "index_head_dim": 16,
}  # fmt: skip
EVEN = {"intermediate_size": 40, "num_key_value_heads": 4}  # where kernels or latents ask for it
KINDS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING,
    "translation": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    "vision": modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
}
NAMES = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "translation": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "vision": modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
}
ALWAYS = {
    ("causal", "qwen2_moe"),  # makes a mask with a window of no keys, and uses it nowhere
    ("translation", "nllb-moe"),  # its cross attention says it is causal
    ("translation", "bigbird_pegasus"),  # adds the mask to its logits itself
    ("causal", "deepseek_v32"),  # keys that it picked come beside the mask
    ("causal", "inkling2_text"),  # has a sink for each query
}
MODELS = [
    pytest.param(kind, name, marks=() if (kind, name) in ALWAYS else pytest.mark.slow)
    for kind, names in NAMES.items()
    for name in names
]
LARGEST = 10_000_000


def model_of(kind: str, name: str, **sizes: int) -> Any:
    mapping = KINDS[kind]
    config_class = next((c for c in mapping if c.model_type == name), None)
    if config_class is None:
        pytest.skip("another row is the same model")
    known = {*inspect.signature(config_class.__init__).parameters,
             *getattr(config_class, "__dataclass_fields__", {})}  # fmt: skip
    found = mapping[config_class]
    model_class = found[0] if isinstance(found, tuple) else found
    torch.manual_seed(0)
    try:
        sizes = {**SIZES, **sizes}
        config = config_class(**{key: size for key, size in sizes.items() if key in known})
        with torch.device("meta"):
            size = sum(p.numel() for p in model_class(config).parameters())
        if size > LARGEST:
            pytest.skip("its sizes have other names")
        return model_class(config).eval().float()
    except Exception as error:
        pytest.skip(f"cannot be built small: {type(error).__name__}")


def arguments(kind: str) -> dict[str, Any]:
    """A batch of two, the first entry padded."""
    drawn = torch.Generator().manual_seed(3)
    if kind == "vision":
        return {"pixel_values": torch.randn((2, 3, 32, 32), generator=drawn)}
    ids = torch.randint(3, 61, (2, 11), generator=drawn)
    real = torch.ones_like(ids)
    if kind == "translation":
        real[0, -3:] = 0
        return {"input_ids": ids, "attention_mask": real, "decoder_input_ids": ids[:, :7]}
    real[0, :3] = 0
    more = {"use_cache": False} if kind == "causal" else {}
    return {"input_ids": ids, "attention_mask": real, **more}


def logits(model: Any, implementation: str, given: dict[str, Any]) -> torch.Tensor:
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        found = model(**given).logits
    decoding = "attention_mask" in given and "decoder_input_ids" not in given
    return found[given["attention_mask"].bool()] if decoding else found


def weighed(model: Any, given: dict[str, Any]) -> None:
    """A model that computes its attention by itself: its sites are the weights it hands out."""
    model.config._attn_implementation_internal = "eager"
    try:
        with torch.no_grad():
            own = model(**given, output_attentions=True)
    except Exception as error:
        pytest.skip(f"takes other inputs: {type(error).__name__}")
    try:
        with torch.no_grad(), hf.capture(model) as captured:
            model(**given)
    except ValueError as error:
        pytest.skip(f"hands out no weights: {error}")
    tables = [table for name in TABLES for table in own.get(name) or ()]
    for site, table in zip(captured, tables, strict=True):
        real = np.ones((site.batch, site.queries), np.bool_)
        real = real if site.real_queries is None else site.real_queries
        found = np.stack([site.weights(batch=b) for b in range(site.batch)])
        if found.shape != table.shape:  # Longformer's layout, by distance
            np.testing.assert_allclose(found.sum(-1).mean(1)[real], 1.0, atol=1e-5)
        else:
            rows = np.broadcast_to(real[:, None], found.shape[:3])
            np.testing.assert_allclose(found[rows], table.numpy()[rows], rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "name"), MODELS)
def test_architectures(kind: str, name: str) -> None:
    model, given = model_of(kind, name), arguments(kind)
    if not model._can_set_attn_implementation():
        weighed(model, given)
        return
    try:
        expected = logits(model, "eager", given)
    except Exception:
        try:
            model = model_of(kind, name, **EVEN)
            expected = logits(model, "eager", given)
        except Exception as error:
            pytest.skip(f"takes other inputs: {type(error).__name__}")
    found = logits(model, "limelight", given)
    assert float((found - expected).abs().max()) < 1e-4 * float(expected.abs().max())
    try:
        with torch.no_grad(), hf.capture(model) as captured:
            model(**given)
    except ValueError as error:
        assert "nothing was captured" in str(error)  # noqa: PT017 (a model without attention)
    else:
        assert len(captured) >= 1
