"""The systems that use attention, small: one row each, as the table in docs/transformers.md.

Weights are drawn wide (initializer_range 0.3), so that weights far from uniform come out and a
wrong scale, mask or head shows. Sizes are odd or prime where the architecture allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import transformers as tf

WIDE = {"initializer_range": 0.3}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
TEXT = {**WIDE, **IDS, "vocab_size": 61}
LLAMA = {**TEXT, "hidden_size": 36, "intermediate_size": 37, "num_hidden_layers": 2,
         "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10}  # fmt: skip
BATCH, LENGTH = 2, 13


@dataclass(frozen=True)
class System:
    name: str
    what: str  # what it brings to attention
    build: Callable[[], Any]
    kind: str = "decoder"  # decoder, encoder, seq2seq, vision, speech
    sites: int = 2
    rounding: float = 1e-11  # float64 through two layers of wide weights


def _gpt2() -> Any:
    return tf.GPT2LMHeadModel(tf.GPT2Config(
        **TEXT, n_embd=33, n_layer=2, n_head=3, n_positions=64, attn_pdrop=0.0, resid_pdrop=0.0,
        embd_pdrop=0.0, scale_attn_by_inverse_layer_idx=True,
    ))  # fmt: skip


def _bert() -> Any:
    return tf.BertForMaskedLM(tf.BertConfig(
        **TEXT, hidden_size=33, num_hidden_layers=2, num_attention_heads=3, intermediate_size=37,
        attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0, max_position_embeddings=64,
    ))  # fmt: skip


def _gpt_oss() -> Any:
    return tf.GptOssForCausalLM(tf.GptOssConfig(
        **LLAMA, num_local_experts=3, num_experts_per_tok=2, sliding_window=5,
        max_position_embeddings=64, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        layer_types=["sliding_attention", "full_attention"],
    ))  # fmt: skip


def _gemma2() -> Any:
    return tf.Gemma2ForCausalLM(tf.Gemma2Config(
        **LLAMA, sliding_window=5, attn_logit_softcapping=3.0, final_logit_softcapping=None,
        query_pre_attn_scalar=7,
    ))  # fmt: skip


def _gemma3() -> Any:
    return tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(
        **LLAMA, sliding_window=5, layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=7,
    ))  # fmt: skip


def _vit() -> Any:
    return tf.ViTModel(tf.ViTConfig(
        **WIDE, hidden_size=33, num_hidden_layers=2, num_attention_heads=3, intermediate_size=37,
        image_size=20, patch_size=4, attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0,
    ))  # fmt: skip


def _t5() -> Any:
    return tf.T5ForConditionalGeneration(tf.T5Config(
        vocab_size=61, d_model=33, d_kv=7, d_ff=37, num_layers=2, num_heads=3, dropout_rate=0.0,
        initializer_factor=3.0, relative_attention_num_buckets=8, pad_token_id=0, eos_token_id=2,
        decoder_start_token_id=0,
    ))  # fmt: skip


def _whisper() -> Any:
    return tf.WhisperForConditionalGeneration(tf.WhisperConfig(
        vocab_size=61, d_model=42, encoder_layers=2, decoder_layers=2, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=37, decoder_ffn_dim=37, num_mel_bins=5,
        max_source_positions=11, max_target_positions=32, init_std=0.3, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, begin_suppress_tokens=None,
        suppress_tokens=None,
    ))  # fmt: skip


NORM = 3e-6  # these normalise in float32, whatever the model's dtype

SYSTEMS = (
    System("gpt2", "learned positions, scale by layer", _gpt2),
    System("bert", "both directions, padding", _bert, "encoder"),
    System("starcoder2", "code; sliding window, grouped heads", lambda: tf.Starcoder2ForCausalLM(
        tf.Starcoder2Config(**{k: v for k, v in LLAMA.items() if k != "head_dim"},
                            sliding_window=5, residual_dropout=0.0, embedding_dropout=0.0))),
    System("qwen2", "code; biases on the projections", lambda: tf.Qwen2ForCausalLM(
        tf.Qwen2Config(**LLAMA)), rounding=NORM),
    System("llama", "rotary positions, grouped heads", lambda: tf.LlamaForCausalLM(
        tf.LlamaConfig(**LLAMA)), rounding=NORM),
    System("vit", "images as patches", _vit, "vision"),
    System("gemma2", "softcap, window on every other layer, own scale", _gemma2, rounding=NORM),
    System("gemma3", "normalised queries and keys, window on some layers", _gemma3,
           rounding=NORM),
    System("gpt-oss", "sinks, window on every other layer", _gpt_oss, rounding=NORM),
    System("t5", "cross attention, position bias, no scale", _t5, "seq2seq", sites=6,
           rounding=NORM),
    System("whisper", "speech; cross attention", _whisper, "speech", sites=6),
)  # fmt: skip
NAMES = tuple(system.name for system in SYSTEMS)


def find(name: str) -> System:
    return next(system for system in SYSTEMS if system.name == name)


def build(name: str, dtype: torch.dtype = torch.float64) -> Any:
    """The system's model, the same weights every time."""
    torch.manual_seed(7)
    model = find(name).build()
    if name == "gpt-oss":  # its sinks start empty, and its grouped products know no float64
        model.set_experts_implementation("eager")
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("sinks"):
                torch.nn.init.normal_(parameter)
    return model.to(dtype).eval()


def padding(side: str) -> torch.Tensor:
    """Which positions of the batch are real: the first entry has four of padding."""
    real = torch.ones((BATCH, LENGTH), dtype=torch.int64)
    if side == "left":
        real[0, :4] = 0
    elif side == "right":
        real[0, -4:] = 0
    return real


def inputs(name: str, side: str = "none", dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """Arguments for one pass, padded on a side where the system takes padding."""
    drawn = torch.Generator().manual_seed(11)
    kind = find(name).kind

    def ids(length: int) -> torch.Tensor:
        return torch.randint(3, 61, (BATCH, length), generator=drawn)

    if kind == "vision":
        return {"pixel_values": torch.randn((BATCH, 3, 20, 20), generator=drawn).to(dtype)}
    if kind == "speech":
        return {"input_features": torch.randn((BATCH, 5, 22), generator=drawn).to(dtype),
                "decoder_input_ids": ids(7)}  # fmt: skip
    found = {"input_ids": ids(LENGTH)}
    if side != "none":
        found["attention_mask"] = padding(side)
        found["input_ids"] = found["input_ids"] * padding(side)
    if kind == "seq2seq":
        found["decoder_input_ids"] = ids(7)
    return found


def real_positions(name: str, side: str, output: torch.Tensor) -> torch.Tensor:
    """The output without the rows of padding, of which nobody asks anything."""
    if side == "none" or find(name).kind not in ("decoder", "encoder"):
        return output
    return output[padding(side).bool()]


def run(model: Any, implementation: str, given: dict[str, Any]) -> torch.Tensor:
    model.set_attn_implementation(implementation)
    with exact_softmax():
        found = model(**given)
    return found.logits if "logits" in found else found.last_hidden_state


@contextmanager
def exact_softmax() -> Iterator[None]:
    """Eager attention casts its logits to float32 even in a float64 model: a judge must not."""
    theirs = torch.nn.functional.softmax

    def softmax(x: torch.Tensor, *args: Any, dtype: Any = None, **kwargs: Any) -> torch.Tensor:
        return theirs(x, *args, dtype=None if x.dtype == torch.float64 else dtype, **kwargs)

    torch.nn.functional.softmax = softmax
    try:
        yield
    finally:
        torch.nn.functional.softmax = theirs
