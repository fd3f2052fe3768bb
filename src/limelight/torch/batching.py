"""torch.func.vmap over the operators: the mapped axis joins the heads.

Heads are independent, so mapping over V calls with H heads is one call with V·H heads; the query
heads that share a key head stay together. A mask or bias that is the same for all heads and all V
stays as it is. With dropout the calls run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from limelight.torch import operators

Dim = int | None
CALL = 13  # arguments that a forward and a backward pass share
SEED = 11  # among them


def map_attention(
    size: int, dims: tuple[Dim, ...], arguments: tuple[Any, ...], run: Callable[..., Any]
) -> tuple[Any, Any]:
    """The forward pass over a mapped axis, by one call of `run`."""
    if arguments[SEED] is not None:
        return _one_by_one(size, dims, arguments, run)
    call = _fold_call(arguments[:CALL], dims[:CALL], size, own_bias=False)
    health, site = arguments[CALL:]
    outputs = run(*call, health, site)
    mapped = [_unfold(output, size) for output in outputs[:2]]
    if health:
        return (*mapped, *(_unfold(output, size) for output in outputs[2:])), (1, 1, 1, 1)
    return (*mapped, *outputs[2:]), (1, 1, None, None)


@torch.library.register_vmap("limelight::attention")
def _attention(info: Any, dims: tuple[Dim, ...], *arguments: Any) -> tuple[Any, Any]:
    return map_attention(info.batch_size, dims, arguments, operators.attention)


def map_backward(
    size: int, dims: tuple[Dim, ...], arguments: tuple[Any, ...], run: Callable[..., Any]
) -> tuple[Any, Any]:
    """The backward pass over a mapped axis; every mapped call gets gradients of its own."""
    if arguments[SEED] is not None:
        return _one_by_one(size, dims, arguments, run)
    call = _fold_call(arguments[:CALL], dims[:CALL], size, own_bias=True)
    *saved, needs = arguments[CALL:]
    rows = [
        None if x is None else _fold(x, dim, size)
        for x, dim in zip(saved, dims[CALL:-1], strict=True)
    ]
    grads = run(*call, *rows, needs)
    mapped: list[tuple[Tensor, Dim]] = [
        (_unfold(g, size, 0 if i == 4 else 1), 0 if i == 4 else 1) if need else (g, None)
        for i, (g, need) in enumerate(zip(grads, needs, strict=True))
    ]
    if needs[3] and _heads(arguments[6], dims[6]) == 1:
        bias, axis = mapped[3]
        mapped[3] = bias.sum(2, keepdim=True), axis  # [B, V, Hq, ..] to the bias's one head
    return tuple(g for g, _ in mapped), tuple(axis for _, axis in mapped)


@torch.library.register_vmap("limelight::attention_backward")
def _backward(info: Any, dims: tuple[Dim, ...], *arguments: Any) -> tuple[Any, Any]:
    return map_backward(info.batch_size, dims, arguments, operators.attention_backward)


@torch.library.register_vmap("limelight::count_keys")
def _count_keys(info: Any, dims: tuple[Dim, ...], *arguments: Any) -> tuple[Any, Any]:
    query, keys, band, spans, dense, bias = arguments
    heads, size = _heads(query, dims[0]), info.batch_size
    parts = [
        _fold_shared(x, dim, size, heads, keep=True)
        for x, dim in zip((spans, dense, bias), dims[3:], strict=True)
    ]
    counts = operators.count_keys(_fold(query, dims[0], size), keys, band, *parts)
    return _unfold(counts, size), 1


def _one_by_one(
    size: int, dims: tuple[Dim, ...], arguments: tuple[Any, ...], run: Callable[..., Any]
) -> tuple[Any, Any]:
    """Which cells are dropped follows from the head's number: such calls keep their own."""
    found = [
        run(
            *(
                x.select(dim, i) if isinstance(dim, int) else x
                for x, dim in zip(arguments, dims, strict=True)
            )
        )
        for i in range(size)
    ]
    return tuple(torch.stack(parts) for parts in zip(*found, strict=True)), (0,) * len(found[0])


def _fold_call(
    call: tuple[Any, ...], dims: tuple[Dim, ...], size: int, *, own_bias: bool
) -> tuple[Any, ...]:
    query, key, value, band, spans, dense, bias, sinks, *numbers = call
    heads = _heads(query, dims[0])
    return (
        _fold(query, dims[0], size), _fold(key, dims[1], size), _fold(value, dims[2], size), band,
        _fold_shared(spans, dims[4], size, heads, keep=True),
        _fold_shared(dense, dims[5], size, heads, keep=True),
        _fold_shared(bias, dims[6], size, heads, keep=not own_bias),
        None if sinks is None else _fold(sinks, dims[7], size, axis=0),
        *numbers,
    )  # fmt: skip


def _heads(tensor: Tensor, dim: Dim) -> int:
    """The heads of one of the mapped calls; the tensor still has the mapped axis."""
    shape = list(tensor.shape)
    if dim is not None:
        del shape[dim]
    return shape[1]


def _fold(tensor: Tensor, dim: Dim, size: int, axis: int = 1) -> Tensor:
    """[B, H, ...] with the mapped axis at `dim` to [B, V·H, ...]."""
    return _front(tensor, dim, size, axis).flatten(axis, axis + 1)


def _fold_shared(
    tensor: Tensor | None, dim: Dim, size: int, heads: int, *, keep: bool
) -> Tensor | None:
    """The same for [B|1, H|1, ...]: one head becomes all heads, unless nothing tells them apart."""
    if tensor is None or (keep and dim is None and tensor.shape[1] == 1):
        return tensor
    tensor = _front(tensor, dim, size, 1)
    return tensor.expand(-1, -1, heads, *tensor.shape[3:]).flatten(1, 2)


def _front(tensor: Tensor, dim: Dim, size: int, axis: int) -> Tensor:
    """The mapped axis brought (or made) in front of the heads."""
    if dim is not None:
        return tensor.movedim(dim, axis)
    return tensor.unsqueeze(axis).expand(*tensor.shape[:axis], size, *tensor.shape[axis:])


def _unfold(tensor: Tensor, size: int, axis: int = 1) -> Tensor:
    return tensor.unflatten(axis, (size, tensor.shape[axis] // size))
