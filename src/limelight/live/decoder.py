"""Decoder: a language model's layers in NumPy; its attention is limelight's.

    x ← embedding [+ position]
    each layer    x ← x + W_O · attention(norm(x)),  then  x ← x + feed_forward(norm(x))
    logits        unembedding · norm(x)

Two families: Llama's (RMS norms, rotated positions, a gated feed-forward, shared key heads) and
GPT's (norms with a bias, learned positions, GELU). Several variants of one text run side by side as
a batch, each with something else switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limelight.attention import attention
from limelight.live.off import Off, apply, shown
from limelight.live.parts import Norm, Rotation, gelu, silu
from limelight.masks import Causal

Array = NDArray[Any]
CAUSAL = Causal()


@dataclass(frozen=True, eq=False)
class Block:
    """One layer's weights, [in, out] each; those that read the same input stand in one array.

    With the outputs side by side in memory a product of ten tokens takes OpenBLAS two thirds of
    the time that it takes with the inputs so.
    """

    before: Norm
    qkv: Array  # [width, (Hq + 2·Hk)·D]
    out: Array  # [Hq·D, width]
    between: Norm
    up: Array  # [width, 2·hidden], the gate first; [width, hidden] without a gate
    down: Array  # [hidden, width]
    up_bias: Array | None = None
    down_bias: Array | None = None


class Step(NamedTuple):
    """What one layer made of its tokens."""

    x: Array  # [B, N, width]
    query: Array  # [B, Hq, N, D]
    heads: Array  # [B, Hq, N, D], what each head read, before W_O
    fed: Array  # [B, N, width], what the feed-forward added


@dataclass(frozen=True, eq=False)
class Decoder:
    """The weights and sizes of a model."""

    embedding: Array  # [width, vocabulary]
    blocks: tuple[Block, ...]
    norm: Norm
    unembedding: Array  # [width, vocabulary], often the embedding itself
    heads: int
    key_heads: int
    head_size: int
    length: int  # the most tokens it reads
    site: str  # the name of a layer's attention, as "model.layers.{}.self_attn"
    frequencies: Array | None = None  # [D/2] of the rotation
    positions: Array | None = None  # [length, width]

    @property
    def depth(self) -> int:
        return len(self.blocks)

    @property
    def width(self) -> int:
        return int(self.embedding.shape[0])

    @property
    def vocabulary(self) -> int:
        return int(self.embedding.shape[1])

    @property
    def arrays(self) -> list[Array]:
        """Every weight, once."""
        held = [self.embedding, self.unembedding, self.positions]
        norms = [self.norm, *(n for block in self.blocks for n in (block.before, block.between))]
        held += [array for norm in norms for array in (norm.weight, norm.bias)]
        for b in self.blocks:
            held += [b.qkv, b.out, b.up, b.down, b.up_bias, b.down_bias]
        return list({id(array): array for array in held if array is not None}.values())

    @property
    def gated(self) -> bool:
        return bool(self.blocks[0].up.shape[1] == 2 * len(self.blocks[0].down))

    def embed(self, ids: Sequence[int], start: int = 0) -> Array:
        """The tokens as they enter the first layer, [N, width]."""
        x = np.ascontiguousarray(self.embedding[:, np.asarray(ids, np.int64)].T)
        return x if self.positions is None else x + self.positions[start : start + len(ids)]

    def out(self, layer: int) -> Array:
        """W_O by heads, [heads, D, width]."""
        return self.blocks[layer].out.reshape(self.heads, self.head_size, self.width)

    def rotation(self, start: int, length: int) -> Rotation | None:
        return None if self.frequencies is None else Rotation.at(self.frequencies, start, length)

    def step(
        self, layer: int, x: Array, rotation: Rotation | None, *,
        offs: list[Off] | None = None,
        extend: Callable[[int, Array, Array], tuple[Array, Array]] | None = None,
    ) -> Step:  # fmt: skip
        """One layer on x [B, N, width].

        offs    for each entry of the batch what is off
        extend  a memory's: given the layer and its new keys and values, [B, Hk, N, D], it returns
                them with those before
        """
        block, (batch, length, width) = self.blocks[layer], x.shape
        rows = x.reshape(batch * length, width)
        query, key, value = self._project(block, rows, (batch, length), rotation)
        keys, values = (key, value) if extend is None else extend(layer, key, value)
        heads = self.attend(layer, query, keys, values, offs)
        gathered = heads.transpose(0, 2, 1, 3).reshape(batch * length, -1)
        rows = rows + gathered @ block.out
        fed = self.feed(layer, rows).reshape(x.shape)
        for row, off in zip(fed, offs or (), strict=offs is not None):
            if layer in off.feed_forward:
                row[:] = 0 if off.means is None else off.means.feed_forward[layer]
        return Step(rows.reshape(x.shape) + fed, query, heads, fed)

    def attend(
        self, layer: int, query: Array, keys: Array, values: Array, offs: list[Off] | None
    ) -> Array:
        """What each head reads, [B, Hq, N, D], with what is off put in its place.

        The last query stands on the last key.
        """
        length = query.shape[2]
        mask: Any = CAUSAL if length > 1 else None
        if offs is not None:
            seen = shown(offs, layer, self.heads, keys.shape[2] - length, length)
            if seen is not None:
                mask = seen if mask is None else mask & seen
        output: Array = attention(query, keys, values, mask=mask)
        if offs is not None:
            apply(output, offs, layer)
        return output

    def logits(self, x: Array) -> Array:
        """What comes next, for each row of [.., width]: [.., vocabulary]."""
        rows = self.norm(x.reshape(-1, self.width))
        return (rows @ self.unembedding).reshape(*x.shape[:-1], self.vocabulary)

    def _project(
        self, block: Block, rows: Array, shape: tuple[int, int], rotation: Rotation | None
    ) -> tuple[Array, Array, Array]:
        """Queries, keys and values, [B, heads, N, D], turned to their positions."""
        both = self.heads + self.key_heads
        mixed = (block.before(rows) @ block.qkv).reshape(*shape, -1, self.head_size)
        turned, value = mixed[:, :, :both], mixed[:, :, both:]
        turned = turned if rotation is None else rotation(turned)
        query, key = turned[:, :, : self.heads], turned[:, :, self.heads :]
        return query.transpose(0, 2, 1, 3), key.transpose(0, 2, 1, 3), value.transpose(0, 2, 1, 3)

    def feed(self, layer: int, rows: Array) -> Array:
        """What a layer's feed-forward adds to each row of [N, width]."""
        block = self.blocks[layer]
        inner = block.between(rows) @ block.up
        if block.up_bias is not None:
            inner += block.up_bias
        if self.gated:
            hidden = inner.shape[1] // 2
            inner = silu(inner[:, :hidden]) * inner[:, hidden:]
        else:
            inner = gelu(inner)
        fed = inner @ block.down
        return fed if block.down_bias is None else fed + block.down_bias


def beside(*weights: Array) -> Array:
    """Weights as files have them, [out, in], as one array [in, out]."""
    return np.ascontiguousarray(np.concatenate(weights).T, np.float32)
