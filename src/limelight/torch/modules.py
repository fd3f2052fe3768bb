"""SelfAttention: learned projections around attention, as a torch module with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from limelight.attention import Inspection
from limelight.dropout import check_dropout
from limelight.errors import ArgumentError, ShapeError
from limelight.masks import Causal, Window, as_mask
from limelight.torch import bridge
from limelight.torch.functional import attention, inspect
from limelight.worked.trace import Trace, trace


class Cache:
    """The keys and values of the tokens so far, for generation: [B, Hk, length, D].

    Room doubles as it fills, so that n tokens cost O(n) copies in all.

    >>> import torch
    >>> layer, cache = SelfAttention(8, heads=2), Cache()
    >>> with torch.no_grad():
    ...     whole = layer(x := torch.ones(1, 3, 8))
    ...     parts = [layer(x[:, i : i + 1], cache=cache) for i in range(3)]
    >>> torch.allclose(whole, torch.cat(parts, 1)), cache
    (True, Cache(3 tokens))
    """

    def __init__(self) -> None:
        self.length = 0
        self._key: Tensor | None = None
        self._value: Tensor | None = None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values; returns all of them."""
        length = self.length + key.shape[2]
        keys, values = self._room(self._key, key, length), self._room(self._value, value, length)
        self._key, self._value, self.length = keys, values, length  # nothing, if one was refused
        return keys[:, :, :length], values[:, :, :length]

    def crop(self, length: int) -> None:
        """Forget all tokens after the first `length`."""
        if not 0 <= length <= self.length:
            raise ArgumentError(f"crop({length}): keep from 0 to the {self.length} tokens it holds")
        self.length = length

    def _room(self, store: Tensor | None, new: Tensor, length: int) -> Tensor:
        if new.requires_grad:
            raise ArgumentError(
                "a cache is for generation: keys came with gradients. Wrap the call in "
                "torch.no_grad(), or leave cache= out in training"
            )
        if store is not None and (*store.shape[:2], store.shape[3]) != (
            *new.shape[:2],
            new.shape[3],
        ):
            raise ShapeError(
                f"the cache holds {tuple(store.shape[:2])} (batch, key heads) of size "
                f"{store.shape[3]}, and {tuple(new.shape)} came: use one cache for each sequence "
                f"and layer"
            )
        if store is None or store.shape[2] < length:
            size = max(length, 64 if store is None else 2 * store.shape[2])
            grown = new.new_empty((*new.shape[:2], size, new.shape[3]))
            if store is not None:
                grown[:, :, : self.length] = store[:, :, : self.length]
            store = grown
        store[:, :, self.length : length] = new
        return store

    def __repr__(self) -> str:
        return f"Cache({self.length} tokens)"


class SelfAttention(nn.Module):
    """x → W_O · attention(W_Q·x, W_K·x, W_V·x), with heads side by side.

        Q = x·W_Q  [.., N, Hq·D]    K = x·W_K  [.., N, Hk·D]    V = x·W_V  [.., N, Hk·D]

    model_size   numbers a token
    heads        query heads
    key_heads    key and value heads, shared by heads/key_heads query heads each; None: as heads
    head_size    numbers a head; None: model_size / heads
    causal       each token sees itself and what came before
    bias         whether the projections have a bias; `output_bias` for W_O, None: as `bias`
    scale, softcap, sinks   as in limelight.attention; sinks=True learns one a head
    window       with causal: only the last `window` tokens besides itself
    dropout      the share of the weights that are set to 0 in training mode

    >>> import torch
    >>> layer = SelfAttention(16, heads=4, key_heads=2)
    >>> layer(torch.ones(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        model_size: int,
        heads: int,
        *,
        key_heads: int | None = None,
        head_size: int | None = None,
        causal: bool = True,
        window: int | None = None,
        bias: bool = False,
        output_bias: bool | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        sinks: bool = False,
        dropout: float = 0.0,
        engine: str = "auto",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.key_heads = heads if key_heads is None else key_heads
        if heads < 1 or self.key_heads < 1 or heads % self.key_heads:
            raise ShapeError(
                f"{heads} heads cannot share {self.key_heads} key heads: heads must be "
                f"a positive multiple of key_heads"
            )
        if head_size is None and model_size % heads:
            raise ShapeError(
                f"a model size of {model_size} does not divide into {heads} heads: "
                f"choose another number of heads, or give head_size"
            )
        if window is not None and not causal:
            raise ArgumentError(
                f"window={window} looks back from the token itself and needs "
                f"causal=True; pass mask=Window(left, right) to the call instead"
            )
        self.model_size, self.heads, self.causal, self.window = model_size, heads, causal, window
        self.head_size = model_size // heads if head_size is None else head_size
        self.scale, self.softcap, self.engine = scale, softcap, engine
        self.dropout = check_dropout(dropout)
        made = {"device": device, "dtype": dtype}
        wide, narrow = heads * self.head_size, self.key_heads * self.head_size
        self.W_Q = nn.Linear(model_size, wide, bias=bias, **made)
        self.W_K = nn.Linear(model_size, narrow, bias=bias, **made)
        self.W_V = nn.Linear(model_size, narrow, bias=bias, **made)
        output_bias = bias if output_bias is None else output_bias
        self.W_O = nn.Linear(wide, model_size, bias=output_bias, **made)
        self.sinks = nn.Parameter(torch.zeros(heads, **made)) if sinks else None

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention, *, causal: bool = False) -> SelfAttention:
        """The same layer with the weights of torch's nn.MultiheadAttention, copied.

        >>> import torch
        >>> theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> ours, x = SelfAttention.from_torch(theirs), torch.ones(1, 3, 8)
        >>> torch.allclose(ours(x), theirs(x, x, x)[0], atol=1e-6)
        True
        """
        if not isinstance(module, nn.MultiheadAttention):
            raise ArgumentError(
                f"from_torch takes over an nn.MultiheadAttention, and got {type(module).__name__}"
            )
        size = module.embed_dim
        refused = {
            "kdim or vdim other than embed_dim": not module._qkv_same_embed_dim,
            "add_bias_kv": module.bias_k is not None,
            "add_zero_attn": module.add_zero_attn,
        }
        for what, present in refused.items():
            if present:
                raise ArgumentError(
                    f"this MultiheadAttention has {what}, which SelfAttention lacks: leave it as "
                    f"it is; limelight.torch.capture(model) sees it too"
                )
        given = module.in_proj_weight
        layer = cls(size, module.num_heads, causal=causal, bias=module.in_proj_bias is not None,
                    dropout=module.dropout, device=given.device, dtype=given.dtype)  # fmt: skip
        with torch.no_grad():
            for i, linear in enumerate((layer.W_Q, layer.W_K, layer.W_V)):
                linear.weight.copy_(given[i * size : (i + 1) * size])
                if module.in_proj_bias is not None:
                    linear.bias.copy_(module.in_proj_bias[i * size : (i + 1) * size])
            layer.W_O.weight.copy_(module.out_proj.weight)
            if module.out_proj.bias is not None:
                layer.W_O.bias.copy_(module.out_proj.bias)
        return layer.train(module.training)

    def forward(self, x: Tensor, *, mask: Any = None, cache: Cache | None = None) -> Tensor:
        """x [B, N, model_size] or [N, model_size] to its like; `mask` joins the causal rule."""
        query, key, value = self.project(x, cache)
        return self._join(attention(query, key, value, **self._options(mask), **self._pass()))

    def inspect(self, x: Tensor, *, mask: Any = None, cache: Cache | None = None) -> Inspection:
        """The output, and the health of every row of every head, from one pass."""
        query, key, value = self.project(x, cache)
        seen = inspect(query, key, value, **self._options(mask), **self._pass())
        return Inspection(self._join(seen.output), seen.health)

    @torch.no_grad()
    def trace(self, x: Tensor, *, tokens: Sequence[str] | None = None, mask: Any = None) -> Trace:
        """Every step of the attention between the projections and W_O, in float64."""
        return trace(*self.project(x), tokens=tokens, **self._options(mask))

    def project(self, x: Tensor, cache: Cache | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """x to query [B, Hq, N, D], key and value [B, Hk, N, D]; what a cache holds comes first."""
        if x.ndim not in (2, 3) or x.shape[-1] != self.model_size:
            raise ShapeError(
                f"x has shape {tuple(x.shape)}: this layer takes [batch, tokens, "
                f"{self.model_size}] or [tokens, {self.model_size}]"
            )
        query = self.W_Q(x).unflatten(-1, (self.heads, self.head_size)).transpose(-3, -2)
        key = self.W_K(x).unflatten(-1, (self.key_heads, self.head_size)).transpose(-3, -2)
        value = self.W_V(x).unflatten(-1, (self.key_heads, self.head_size)).transpose(-3, -2)
        if cache is None:
            return query, key, value
        if x.ndim == 2:
            key, value = cache.extend(key[None], value[None])
            return query, key[0], value[0]
        return query, *cache.extend(key, value)

    def _options(self, mask: Any) -> dict[str, Any]:
        rule: Any = mask
        if self.causal:
            near = Causal() if self.window is None else Window(self.window, 0)
            rule = near if mask is None else near & as_mask(mask)
        return {"mask": rule, "scale": self.scale, "softcap": self.softcap, "sinks": self.sinks,
                "engine": self.engine}  # fmt: skip

    def _pass(self) -> dict[str, Any]:
        """What a pass of the module has besides: whose it is, and dropout in training mode."""
        return {"site": bridge.key_of(self), "dropout": self.dropout if self.training else 0.0}

    def _join(self, mixed: Tensor) -> Tensor:
        joined: Tensor = self.W_O(mixed.transpose(-3, -2).flatten(-2))
        return joined

    def extra_repr(self) -> str:
        shared = "" if self.key_heads == self.heads else f" on {self.key_heads} key heads"
        rule = "causal" if self.causal else "all tokens"
        rule += "" if self.window is None else f", window {self.window}"
        rule += f", dropout {self.dropout}" if self.dropout else ""
        return (
            f"model size {self.model_size}, {self.heads} heads of {self.head_size}{shared}, {rule}"
        )
