"""Jagged tensors and DTensors: what they hold, attended to as it would be alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import limelight as ll
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.torch import attention, scaled_dot_product_attention
from tests.torch.ranks import on

LENGTHS = (5, 1, 7)


def jagged(*lengths: int, heads: int = 4) -> Any:
    parts = [torch.randn(n, heads, 8) for n in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True).transpose(
        1, 2
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("causal", [False, True])
def test_jagged_in_and_out(causal: bool) -> None:
    torch.manual_seed(0)
    query, key, value = jagged(*LENGTHS), jagged(*LENGTHS, heads=2), jagged(*LENGTHS, heads=2)
    offsets = query.offsets()
    key, value = (
        torch.nested.nested_tensor_from_jagged(x.values().transpose(0, 1), offsets).transpose(1, 2)
        for x in (key, value)
    )
    mask = ll.Causal() if causal else None
    ways = [
        attention(query, key, value, mask=mask),
        scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True),
    ]
    for output in ways:
        assert output.shape[:2] == query.shape[:2]
        for got, *own in zip(
            output.unbind(), *(x.unbind() for x in (query, key, value)), strict=True
        ):
            assert torch.allclose(got, attention(*own, mask=mask), atol=1e-6)
    grads = torch.autograd.grad(ways[0].values().square().sum(), query)
    assert grads[0].values().isfinite().all()


def test_what_is_refused_of_jagged_tensors() -> None:
    query, other = jagged(*LENGTHS), jagged(3, 2, 9)
    with pytest.raises(ShapeError, match=r"x\.transpose\(1, 2\)"):
        attention(query.transpose(1, 2), query.transpose(1, 2), query.transpose(1, 2))
    with pytest.raises(ArgumentError, match="as many keys as queries"):
        attention(query, other, other, mask=ll.Causal())
    with pytest.raises(ArgumentError, match="mask or bias of cells"):
        attention(query, query, query, mask=torch.ones(13, 13).bool())
    with pytest.raises(DtypeError, match=r"query is a NestedTensor: .*query\.unbind\(\)'s parts"):
        ll.inspect(query, query, query)
    with pytest.raises(DtypeError, match="of different kinds"):
        attention(query, torch.randn(3, 4, 5, 8), torch.randn(3, 4, 5, 8))


def spread(group: Any, axis: int) -> None:
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    bias, sinks = torch.randn(5, 7), torch.randn(4)
    right = attention(query, key, value, bias=bias, sinks=sinks, mask=ll.Causal())
    parts = [distribute_tensor(x, mesh, [Shard(axis)]) for x in (query, key, value)]
    parts[0].requires_grad_()
    own = distribute_tensor(sinks, mesh, [Shard(0) if axis == 1 else Replicate()])
    output = attention(*parts, bias=bias, sinks=own, mask=ll.Causal())
    assert isinstance(output, DTensor)
    assert output.placements == (Shard(axis),)
    assert torch.allclose(output.full_tensor(), right, atol=1e-6)
    output.to_local().sum().backward()
    assert parts[0].grad.placements == (Shard(axis),)
    with pytest.raises(ArgumentError, match="context_parallel"):
        attention(*(x.redistribute(mesh, [Shard(2)]) for x in parts))
    with pytest.raises(ArgumentError, match="sinks is a plain tensor"):
        attention(*parts, sinks=sinks)


@pytest.mark.parametrize("axis", [0, 1])
def test_heads_over_two_ranks(axis: int) -> None:
    on(2, spread, axis)
