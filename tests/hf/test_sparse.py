"""Models that pick keys for each query, or leave queries out: what they see on eager, and no more.

Sparse attention picks keys by a small network of its own and says which beside the mask, except on
eager and sdpa, where the mask says it; DeepSeek V4 adds keys that stand for blocks, and what each
query sees of them to its mask, where there is one. Gemma 4 leaves out, in layers that share their
keys, the queries that nobody asks for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

from limelight import hf
from limelight.hf.loading import lean

SIZES: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64, "initializer_range": 0.3,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
ROWS = ["sliding_attention", "full_attention"] * 2
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "keys": ("DeepseekV32Config", "DeepseekV32ForCausalLM", {
        **EXPERTS, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16,
        "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 4,
        "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "index_topk": 4,
        "index_n_heads": 2, "index_head_dim": 16}),
    "blocks of keys": ("MiniMaxM3VLTextConfig", "MiniMaxM3VLTextModel", {
        "num_key_value_heads": 2, "head_dim": 8, "index_n_heads": 2, "index_head_dim": 8,
        "index_block_size": 3, "index_topk_blocks": 2, "dense_intermediate_size": 40,
        "layer_types": ["minimax_m3_sparse"] * 2, "mlp_layer_types": ["dense"] * 2}),
    "keys of blocks": ("DeepseekV4Config", "DeepseekV4ForCausalLM", {
        **EXPERTS, "num_key_value_heads": 1, "head_dim": 16, "q_lora_rank": 16,
        "n_routed_experts": 4, "n_shared_experts": 1, "o_groups": 2, "o_lora_rank": 16, "hc_mult": 2,
        "sliding_window": 8, "layer_types": ["heavily_compressed_attention",
                                             "compressed_sparse_attention"],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        "mlp_layer_types": ["moe"] * 2, "index_topk": 2, "index_n_heads": 2,
        "index_head_dim": 16}),
    "shared keys": ("Gemma4TextConfig", "Gemma4ForCausalLM", {
        "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 8,
        "vocab_size_per_layer_input": 61, "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 2, "sliding_window": 5, "layer_types": ROWS}),
}  # fmt: skip
IDS = torch.randint(3, 61, (2, 11), generator=torch.Generator().manual_seed(5))


def build(name: str) -> Any:
    config, kind, sizes = MODELS[name]
    if not hasattr(tf, kind):
        pytest.skip(f"this Transformers has no {kind}")
    torch.manual_seed(0)
    return getattr(tf, kind)(getattr(tf, config)(**{**SIZES, **sizes})).eval()


def output(model: Any, implementation: str, **given: Any) -> torch.Tensor:
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        found = model(IDS, **given)
    return found.logits if "logits" in found else found.last_hidden_state


@pytest.mark.parametrize("real", [None, 0, 3], ids=["no mask", "no padding", "padding"])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_as_on_eager(name: str, real: int | None) -> None:
    hf.register()
    model, given = build(name), {}
    rows = torch.ones_like(IDS, dtype=torch.bool)
    if real is not None:
        rows[0, len(IDS[0]) - real :] = False
        given = {"attention_mask": rows.long()}
    expected, found = (output(model, on, **given)[rows] for on in ("eager", "limelight"))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", MODELS)
def test_a_capture_has_the_weights_of_eager(name: str) -> None:
    model = build(name)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(IDS, output_attentions=True).attentions
    with torch.no_grad(), hf.capture(model) as captured:
        model(IDS, **lean(model))
    for site, table in zip(captured, expected, strict=True):
        found = np.stack([site.weights(batch=entry) for entry in range(2)])
        np.testing.assert_allclose(found, table.numpy(), rtol=0, atol=1e-5)


def test_picked_keys_are_few() -> None:
    """Four of eleven, and in no layer all that came before."""
    model = build("keys")
    with torch.no_grad(), hf.capture(model) as captured:
        model(IDS)
    for site in captured:
        assert site.health().keys.max() == 4
    found = hf.survey(model, IDS.tolist())
    pairs = found.tables["pairs"].sum(axis=-1)
    assert pairs.tolist() == [[2 * (1 + 2 + 3 + 8 * 4)] * 4] * 2


@pytest.mark.parametrize(
    ("name", "cache"),
    [("keys", None), ("keys", "static"), ("keys of blocks", None),
     ("shared keys", None), ("shared keys", "static")],
)  # fmt: skip
def test_generation_writes_what_eager_does(name: str, cache: str | None) -> None:
    hf.register()
    model, written = build(name), []
    for implementation in ("eager", "limelight"):
        model.set_attn_implementation(implementation)
        made = model.generate(
            IDS, max_new_tokens=9, do_sample=False, eos_token_id=None, disable_compile=True,
            cache_implementation=cache, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        written.append(torch.stack(made.logits))
    torch.testing.assert_close(written[1], written[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("last", [1, 3])
def test_queries_that_are_left_out(last: int) -> None:
    hf.register()
    model = build("shared keys")
    expected, found = (
        output(model, on, logits_to_keep=last, use_cache=False) for on in ("eager", "limelight")
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_a_survey_has_every_query() -> None:
    found = hf.survey(build("shared keys"), IDS.tolist())
    assert (found.tables["rows"] == IDS.numel()).all()
