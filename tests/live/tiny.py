"""A Llama of a few thousand numbers as a GGUF file, drawn wide, so that what is wrong shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from limelight.writing.pieces import SYMBOLS

WIDTH, HIDDEN, HEADS, KEY_HEADS, LAYERS = 96, 64, 6, 2, 3
WORDS = ["th", "the", "Ġthe", "Ġth", "at", "Ġc", "Ġcat", "an", "Ġa", "in"]
MERGES = ["t h", "th e", "Ġ th", "Ġ the", "a t", "Ġ c", "Ġc at", "a n", "Ġ a", "i n"]


def write(
    path: Path, *, kind: str = "gpt2", quantised: bool = True, slower: float | None = None,
    **facts: Any,
) -> Path:  # fmt: skip
    """The file; `facts` are added, or replace what would stand there.

    slower   by how much Llama 3.1's own table slows every frequency; None leaves it out
    """
    import gguf

    chance = np.random.default_rng(5)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    tokens, kinds = pieces(kind)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model(kind)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    if kind == "gpt2":
        writer.add_tokenizer_pre("smollm")
        writer.add_token_merges(MERGES)
        writer.add_add_bos_token(False)
    else:
        writer.add_token_scores([-float(i) for i in range(len(tokens))])
        writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, value in facts.items():
        {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)](
            name, value
        )
    size = WIDTH // HEADS
    shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (KEY_HEADS * size, WIDTH),
              "attn_v": (KEY_HEADS * size, WIDTH), "attn_output": (WIDTH, WIDTH),
              "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}  # fmt: skip

    def add(name: str, shape: tuple[int, ...], kind: Any = None) -> None:
        drawn = chance.normal(1.0 if len(shape) == 1 else 0.0, 0.3, shape).astype(np.float32)
        if kind is None or not quantised:
            writer.add_tensor(name, drawn)
        else:
            writer.add_tensor(name, gguf.quantize(drawn, kind), raw_dtype=kind)

    kind_of = gguf.GGMLQuantizationType
    add("token_embd.weight", (len(tokens), WIDTH), kind_of.F16)
    add("output_norm.weight", (WIDTH,))
    if slower is not None:
        writer.add_tensor("rope_freqs.weight", np.full(size // 2, slower, np.float32))
    add("output.weight", (len(tokens), WIDTH))
    for layer in range(LAYERS):
        for i, (name, shape) in enumerate(shapes.items()):
            add(
                f"blk.{layer}.{name}.weight",
                shape,
                (kind_of.Q8_0, kind_of.Q4_1, None)[(i + layer) % 3],
            )
        add(f"blk.{layer}.attn_norm.weight", (WIDTH,))
        add(f"blk.{layer}.ffn_norm.weight", (WIDTH,))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def pieces(kind: str) -> tuple[list[str], list[int]]:
    """A table of tokens, and what each is: 1 plain, 2 unknown, 3 control, 6 a byte."""
    if kind == "gpt2":
        tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *SYMBOLS, *WORDS]
        return tokens, [3] * 3 + [1] * (len(tokens) - 3)
    letters = [*"▁theacnsiorldw.", *(w.replace("Ġ", "▁") for w in WORDS), "▁w", "or", "▁wor", "▁"]
    plain = list(dict.fromkeys(sorted(letters, key=len, reverse=True)))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *plain]
    return tokens, [2, 3, 3] + [6] * 256 + [1] * len(plain)
