"""A Llama-family decoder from a GGUF file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import FileError
from limelight.intake import ANEW
from limelight.live import vocabulary
from limelight.live.decoder import Block, Decoder, beside
from limelight.live.gguf import Gguf
from limelight.live.parts import Norm
from limelight.live.vocabulary import Vocabulary
from limelight.writing.numbers import counted

Array = NDArray[Any]
WEIGHTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
PARTS = {f"{part}.weight" for part in (*WEIGHTS, "attn_norm", "ffn_norm")}
LAYER = re.compile(r"blk\.(\d+)\.(.*)")
TOP = ("token_embd.weight", "output_norm.weight", "output.weight", "rope_freqs.weight")
MOST, WIDEST, LONGEST = 4_096, 1 << 20, 1 << 31  # layers and heads; numbers; tokens
LARGEST = 1e30  # of a number with a point
SITE = "model.layers.{}.self_attn"


def read(path: Path, progress: Callable[[str], None] | None = None) -> tuple[Decoder, Vocabulary]:
    """The model in the file; what is not of this family is refused, and the way out named."""
    try:
        with Gguf(path) as file:
            _check(path, file.facts)
            return _read(path, file, progress)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path}: what it says of itself does not fit together. {ANEW}") from error


def _read(
    path: Path, file: Gguf, progress: Callable[[str], None] | None
) -> tuple[Decoder, Vocabulary]:
    facts = file.facts

    def fact(name: str, default: Any = None) -> Any:
        found = facts.get(f"llama.{name}", default)
        if found is None:
            raise FileError(f"{path}: does not say llama.{name}. {ANEW}")
        return found

    def strange(name: str) -> FileError:
        return FileError(f"{path}: llama.{name} is {fact(name)!r:.80}, and no model has it. {ANEW}")

    def count(name: str, most: int, default: Any = None) -> int:
        """A number of things; nothing is made of one that no model has."""
        found = fact(name, default)
        if type(found) is not int or not 1 <= found <= most:
            raise strange(name)
        return found

    def figure(name: str, default: Any = None) -> float:
        found = fact(name, default)
        if type(found) not in (int, float) or not 0 < found < LARGEST:
            raise strange(name)
        return float(found)

    heads, width = count("attention.head_count", MOST), count("embedding_length", WIDEST)
    key_heads = count("attention.head_count_kv", MOST, heads)
    size = count("attention.key_length", WIDEST, width // heads)
    depth = count("block_count", MOST)
    eps, base = figure("attention.layer_norm_rms_epsilon"), figure("rope.freq_base", 10000.0)
    linear = fact("rope.scaling.type", "none") == "linear"
    stretched = figure("rope.scaling.factor", 1.0) if linear else 1.0
    folder = "limelight.hf.load runs its folder of safetensors through Transformers"
    if fact("rope.dimension_count", size) != size:
        raise FileError(f"{path}: positions turn a part of each head's {size} numbers: {folder}")
    for name in file.tensors:  # a bias that is passed over would make another model of it
        found = LAYER.fullmatch(name)
        if name not in TOP if found is None else int(found[1]) < depth and found[2] not in PARTS:
            raise FileError(f"{path}: has {name!r:.80}, which is not known here: {folder}")

    def norm(name: str) -> Norm:
        return Norm(file.array(f"{name}.weight"), None, eps)

    def block(at: int) -> Block:
        part = {name: file.array(f"blk.{at}.{name}.weight") for name in WEIGHTS}
        query, key = _halves(part["attn_q"], heads), _halves(part["attn_k"], key_heads)
        if progress is not None:
            progress(f"layer {at + 1} of {depth}")
        return Block(
            before=norm(f"blk.{at}.attn_norm"),
            qkv=beside(query, key, part["attn_v"]),
            out=beside(part["attn_output"]),
            between=norm(f"blk.{at}.ffn_norm"),
            up=beside(part["ffn_gate"], part["ffn_up"]),
            down=beside(part["ffn_down"]),
        )

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # NumPy lets others run meanwhile
        table = pool.submit(lambda: beside(file.array("token_embd.weight")))
        blocks = tuple(pool.map(block, range(depth)))
        embedding = table.result()
    untied = "output.weight" in file
    decoder = Decoder(
        embedding=embedding,
        blocks=blocks,
        norm=norm("output_norm"),
        unembedding=beside(file.array("output.weight")) if untied else embedding,
        heads=heads,
        key_heads=key_heads,
        head_size=size,
        length=count("context_length", LONGEST),
        site=SITE,
        frequencies=_frequencies(file, base, size) / stretched,
    )
    _check_shapes(path, decoder)
    words = vocabulary.of(facts)
    tables = {decoder.embedding.shape, decoder.unembedding.shape}
    if tables != {(width, len(words.pieces))} or decoder.norm.weight.shape != (width,):
        raise FileError(f"{path}: has {len(words.pieces):,} tokens, and weights for others. {ANEW}")
    return decoder, words


def _check(path: Path, facts: dict[str, Any]) -> None:
    family = facts.get("general.architecture")
    others = "limelight.hf.load runs it through Transformers"
    if family != "llama":
        raise FileError(f"{path}: of the family {family!r:.80}, and llama is run here: {others}")
    if experts := facts.get("llama.expert_count"):
        raise FileError(f"{path}: a mixture of {experts!r:.80} experts: {others}")
    if (scaling := facts.get("llama.rope.scaling.type", "none")) not in ("none", "linear"):
        raise FileError(
            f"{path}: its positions are scaled by {scaling!r:.80}, which is not known here: "
            f"{others}"
        )
    if facts.get("llama.attention.sliding_window"):
        raise FileError(f"{path}: its heads look through a sliding window: {others}")


def _halves(weight: Array, heads: int) -> Array:
    """GGUF has the two numbers that a rotation turns side by side: here they stand D/2 apart."""
    out, width = weight.shape
    pairs = weight.reshape(heads, out // heads // 2, 2, width)
    return pairs.swapaxes(1, 2).reshape(out, width)


def _frequencies(file: Gguf, base: float, size: int) -> Array:
    found: Array = 1.0 / base ** (np.arange(0, size, 2) / size)
    if "rope_freqs.weight" in file:  # Llama 3.1 and later
        found = found / file.array("rope_freqs.weight")
    return found


def _check_shapes(path: Path, decoder: Decoder) -> None:
    """Weights that do not fit each other would fail in the middle of a text."""
    width, size = decoder.width, decoder.head_size
    mixed = (decoder.heads + 2 * decoder.key_heads) * size
    for at, block in enumerate(decoder.blocks):
        hidden = len(block.down)
        given = [block.qkv.shape, block.out.shape, block.up.shape, block.down.shape,
                 block.before.weight.shape, block.between.weight.shape]  # fmt: skip
        wanted = [(width, mixed), (decoder.heads * size, width), (width, 2 * hidden),
                  (hidden, width), (width,), (width,)]  # fmt: skip
        if given != wanted:
            raise FileError(
                f"{path}: the weights of layer {at} are {given}, and "
                f"{counted(decoder.heads, 'head')} of {size} in {width} take {wanted}. {ANEW}"
            )
