"""Small models for the tests of training."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from limelight.torch import SelfAttention


class Block(nn.Module):
    """A pre-norm transformer block whose attention is limelight's, or torch's function."""

    def __init__(self, size: int, heads: int, *, torch_attention: bool = False) -> None:
        super().__init__()
        self.norm, self.mlp_norm = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attention = SelfAttention(size, heads)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))
        self.torch_attention = torch_attention

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + (self._torch if self.torch_attention else self.attention)(self.norm(x))
        return x + self.mlp(self.mlp_norm(x))

    def _torch(self, x: torch.Tensor) -> Any:
        query, key, value = self.attention.project(x)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.attention.W_O(mixed.transpose(-3, -2).flatten(-2))


class Language(nn.Module):
    """Tokens in, logits of the next token out."""

    def __init__(
        self, words: int = 31, size: int = 32, heads: int = 4, layers: int = 2, **options: Any
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, size)
        self.blocks = nn.ModuleList(Block(size, heads, **options) for _ in range(layers))
        self.head = nn.Linear(size, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self(tokens[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def batch(step: int, words: int = 31, size: int = 4, length: int = 23) -> torch.Tensor:
    """Sequences that count up by a step of their own, modulo the number of words: learnable."""
    rng = torch.Generator().manual_seed(step)
    start = torch.randint(words, (size, 1), generator=rng)
    stride = torch.randint(1, 5, (size, 1), generator=rng)
    return (start + stride * torch.arange(length)) % words
