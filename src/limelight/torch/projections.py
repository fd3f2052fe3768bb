"""The weights that make a module's queries and keys, and how to scale them by heads.

Where they stand is known by their names: one projection each (limelight's own, Llama's kind, BERT's
kind, T5's), or one for all three (GPT-2's, torch's nn.MultiheadAttention). What is not known, or
would not do what was asked, is refused with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from limelight.errors import ArgumentError

APART = (("W_Q", "W_K"), ("q_proj", "k_proj"), ("query", "key"), ("q", "k"), ("q_lin", "k_lin"),
         ("to_q", "to_k"), ("query_proj", "key_proj"), ("linear_q", "linear_k"))  # fmt: skip
NORMS = ("q_norm", "k_norm", "query_norm", "key_norm", "q_layernorm", "k_layernorm", "norm_q",
         "query_layernorm")  # fmt: skip

OUT = ("W_O", "out_proj", "o_proj")
OTHERWISE = "limelight.torch.losses.z_loss holds logits down in any layer"


def by_heads(weight: Tensor, heads: int, size: int) -> Tensor | None:
    """W_O, [width, heads · size], as [heads, size, width]; None where it is of another shape."""
    if weight.ndim != 2 or weight.shape[1] != heads * size or not weight.is_floating_point():
        return None
    return weight.detach().T.reshape(heads, size, -1)


def out(module: nn.Module, heads: int, size: int) -> Tensor | None:
    """The W_O of a module that calls attention, by heads: [heads, size, width]; None for none."""
    known = (getattr(module, name, None) for name in OUT)
    found = next((one for one in known if isinstance(one, nn.Linear)), None)
    return None if found is None else by_heads(found.weight, heads, size)


@dataclass(frozen=True, eq=False)
class Part:
    """Some of a weight's outputs: those of the queries, or of the keys.

    The weight is looked up when it is scaled: under FSDP2 a pass sees another than a step.
    """

    owner: nn.Module
    name: str
    axis: int  # that of the outputs
    start: int
    size: int
    heads: int

    def scale(self, factors: Sequence[float]) -> None:
        """Multiply each head's outputs with its factor, in place; a sharded weight too."""
        weight: Tensor = getattr(self.owner, self.name)
        whole = torch.ones(weight.shape[self.axis], dtype=torch.float32)
        each = torch.tensor(factors).repeat_interleave(self.size // self.heads)
        whole[self.start : self.start + self.size] = each
        shape = [1] * weight.ndim
        shape[self.axis] = -1
        factor = whole.reshape(shape).to(weight.device, weight.dtype)
        if hasattr(weight, "device_mesh"):  # FSDP2: all ranks know all factors
            from torch.distributed.tensor import distribute_tensor

            where = weight.device_mesh, getattr(weight, "placements", None)
            full = factor.expand(weight.shape).contiguous()
            factor = distribute_tensor(full, *where, src_data_rank=None)
        weight.mul_(factor)


@dataclass(frozen=True, eq=False)
class Projections:
    """What makes the queries and keys of one attention."""

    queries: tuple[Part, ...]
    keys: tuple[Part, ...]

    def scale(self, factors: Sequence[float]) -> None:
        """Multiply the logits of each query head with its factor, the root of it on either side.

        A key head takes the smallest factor of those that share it.
        """
        for part in self.queries:
            part.scale([math.sqrt(factor) for factor in factors])
        for part in self.keys:
            group = len(factors) // part.heads
            least = [min(factors[g * group : (g + 1) * group]) for g in range(part.heads)]
            part.scale([math.sqrt(factor) for factor in least])


def find(name: str, module: nn.Module, heads: int, key_heads: int) -> Projections:
    """The projections of a module that calls attention with so many heads."""
    normalised = [norm for norm in NORMS if isinstance(getattr(module, norm, None), nn.Module)]
    if normalised:
        raise ArgumentError(
            f"{name} normalises its queries and keys after their projections "
            f"({', '.join(normalised)}): to scale the projections would change nothing, and its "
            f"logits are bounded by the norms' own weights. {OTHERWISE}"
        )
    for query, key in APART:
        pair = getattr(module, query, None), getattr(module, key, None)
        if all(isinstance(getattr(linear, "weight", None), Tensor) for linear in pair):
            return Projections(_linear(name, pair[0], heads), _linear(name, pair[1], key_heads))
    fused = _fused(name, module, heads, key_heads)
    if fused is not None:
        return fused
    there = [child for child, _ in module.named_children()] or ["none"]
    raise ArgumentError(
        f"{name} ({type(module).__name__}) has no projections of queries and keys that QKClip "
        f"knows: it looks for {', '.join(f'{q} and {k}' for q, k in APART)}, c_attn and "
        f"in_proj_weight, and found {', '.join(there)}. Name them so; or else {OTHERWISE}"
    )


def _linear(name: str, linear: Any, heads: int) -> tuple[Part, ...]:
    # Transformers' Conv1D keeps its outputs last.
    axis = 1 if type(linear).__name__ == "Conv1D" else 0
    return _parts(name, linear, ("weight", "bias"), axis, 0, linear.weight.shape[axis], heads)


def _fused(name: str, module: nn.Module, heads: int, key_heads: int) -> Projections | None:
    """Queries, keys and values one after the other in one weight."""
    owner: Any = module
    if isinstance(module, nn.MultiheadAttention):
        names, axis, size = ("in_proj_weight", "in_proj_bias"), 0, module.embed_dim
        if module.in_proj_weight is None:
            return Projections(
                _parts(name, owner, ("q_proj_weight", ""), 0, 0, size, heads),
                _parts(name, owner, ("k_proj_weight", ""), 0, 0, size, heads),
            )
    elif type(getattr(module, "c_attn", None)).__name__ == "Conv1D" and heads == key_heads:
        owner, names, axis = module.c_attn, ("weight", "bias"), 1
        size = owner.weight.shape[1] // 3
        if owner.weight.shape[1] % 3:
            return None
    else:
        return None
    return Projections(*(
        _parts(name, owner, names, axis, start, size, heads) for start in (0, size)
    ))  # fmt: skip


def _parts(
    name: str, owner: Any, names: tuple[str, str], axis: int, start: int, size: int, heads: int
) -> tuple[Part, ...]:
    """Some outputs of a weight, and of its bias if it has one."""
    weight, bias = getattr(owner, names[0]), getattr(owner, names[1], None)
    if not weight.is_floating_point() or size % heads:
        raise ArgumentError(
            f"{name} projects with a weight of {weight.dtype} and {weight.shape[axis]} outputs, "
            f"which QKClip cannot scale for {heads} heads. {OTHERWISE}"
        )
    parts = (Part(owner, names[0], axis, start, size, heads),)
    return parts if bias is None else (*parts, Part(owner, names[1], 0, start, size, heads))
