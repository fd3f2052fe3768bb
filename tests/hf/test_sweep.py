"""Every architecture that Transformers has and that fits a few thousand numbers, on limelight.

The systems of test_systems are chosen by hand; here the rest is tried: each text model that can be
built from the sizes below runs a left-padded batch, and must give eager's logits wherever it goes
through the attention interface. Minutes long, so it waits for `-m slow`.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from transformers.models.auto import modeling_auto

from limelight import hf

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
}  # fmt: skip
KINDS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
}
MODELS = [(kind, name) for kind, names in KINDS.items() for name in names]
LARGEST = 10_000_000


def model_of(kind: str, name: str) -> Any:
    mapping = {"causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
               "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING}[kind]  # fmt: skip
    config_class = next((c for c in mapping if c.model_type == name), None)
    if config_class is None:
        pytest.skip("another row is the same model")
    known = {*inspect.signature(config_class.__init__).parameters,
             *getattr(config_class, "__dataclass_fields__", {})}  # fmt: skip
    torch.manual_seed(0)
    try:
        config = config_class(**{key: size for key, size in SIZES.items() if key in known})
        with torch.device("meta"):
            size = sum(p.numel() for p in mapping[config_class](config).parameters())
        if size > LARGEST:
            pytest.skip("its sizes have other names")
        return mapping[config_class](config).eval().float()
    except Exception as error:
        pytest.skip(f"cannot be built small: {type(error).__name__}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "name"), MODELS)
def test_architectures(kind: str, name: str) -> None:
    model = model_of(kind, name)
    if not model._can_set_attn_implementation():
        pytest.skip("computes its attention by itself")
    drawn = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 61, (2, 11), generator=drawn)
    real = torch.ones_like(ids)
    real[0, :3] = 0
    given = {"input_ids": ids, "attention_mask": real}
    if kind == "causal":
        given["use_cache"] = False
    try:
        model.set_attn_implementation("eager")
        with torch.no_grad():
            expected = model(**given).logits[real.bool()]
    except Exception as error:
        pytest.skip(f"takes other inputs: {type(error).__name__}")
    model.set_attn_implementation("limelight")
    with torch.no_grad():
        found = model(**given).logits[real.bool()]
    assert float((found - expected).abs().max()) < 1e-4 * float(expected.abs().max())
    try:
        with torch.no_grad(), hf.capture(model) as captured:
            model(**given)
    except ValueError as error:
        assert "nothing was captured" in str(error)  # noqa: PT017 (a model without attention)
    else:
        assert len(captured) >= 1
