"""A small transformer around SelfAttention: a decoder for text, an encoder for images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from limelight.torch import Cache, SelfAttention


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(
        self, width: int, heads: int, *, causal: bool, dropout: float, **attention: object
    ) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal=causal, **attention)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        x = x + self.dropout(self.attention(self.before(x), cache=cache))
        return x + self.dropout(self.mlp(self.between(x)))


class Transformer(nn.Module):
    """Embeddings [B, N, width] in, normalised states [B, N, width] out."""

    def __init__(
        self,
        width: int,
        heads: int,
        layers: int,
        length: int,
        *,
        causal: bool,
        dropout: float = 0.0,
        **attention: object,
    ) -> None:
        super().__init__()
        self.length = length
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(
            Block(width, heads, causal=causal, dropout=dropout, **attention) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        for name, weight in self.named_parameters():
            if weight.ndim == 2 and name != "position":
                deep = name.endswith(("W_O.weight", "mlp.2.weight"))  # what adds to the residual
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if deep else 0.02)

    def forward(self, x: Tensor, caches: list[Cache] | None = None) -> Tensor:
        start = caches[0].length if caches else 0
        x = x + self.position[start : start + x.shape[1]]
        for i, block in enumerate(self.blocks):
            x = block(x, caches[i] if caches else None)
        return self.norm(x)


class Decoder(nn.Module):
    """Characters in, logits of the next character out."""

    def __init__(
        self, alphabet: int, width: int, heads: int, layers: int, length: int, **options: object
    ) -> None:
        super().__init__()
        self.symbol = nn.Embedding(alphabet, width)
        nn.init.normal_(self.symbol.weight, std=0.02)
        self.transformer = Transformer(width, heads, layers, length, causal=True, **options)

    def forward(self, symbols: Tensor, caches: list[Cache] | None = None) -> Tensor:
        states = self.transformer(self.symbol(symbols), caches)
        return states @ self.symbol.weight.T  # the same table both ways

    @torch.no_grad()
    def continue_text(self, symbols: Tensor, more: int, *, temperature: float = 0.8) -> Tensor:
        """Sample `more` symbols after `symbols` [N]; temperature 0 takes the likeliest."""
        self.eval()
        caches = [Cache() for _ in self.transformer.blocks]
        text, fresh = symbols.tolist(), symbols[None]
        for _ in range(min(more, self.transformer.length - len(text))):
            logits = self(fresh, caches)[0, -1].float()
            if temperature:
                choice = torch.multinomial(torch.softmax(logits / temperature, -1), 1)
            else:
                choice = logits.argmax(keepdim=True)
            text.append(int(choice))
            fresh = choice[None]
        return torch.tensor(text)


class ImageClassifier(nn.Module):
    """An image cut into patches, one token that gathers, and a class out: a vision transformer.

    With a `rim`, the token of a patch also sees that many pixels around it.
    """

    def __init__(
        self, side: int, patch: int, rim: int, classes: int, width: int, heads: int, layers: int,
        **options: object,
    ) -> None:  # fmt: skip
        super().__init__()
        self.patch, self.rim, self.grid = patch, rim, side // patch
        self.embed = nn.Linear((patch + 2 * rim) ** 2, width)
        self.gather = nn.Parameter(0.02 * torch.randn(width))
        self.transformer = Transformer(
            width, heads, layers, 1 + self.grid**2, causal=False, **options
        )
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        window = self.patch + 2 * self.rim
        rows = nn.functional.pad(images, (self.rim,) * 4).unfold(1, window, self.patch)
        patches = self.embed(rows.unfold(2, window, self.patch).flatten(1, 2).flatten(2))
        gather = self.gather.expand(len(images), 1, -1)
        return self.head(self.transformer(torch.cat([gather, patches], dim=1))[:, 0])
