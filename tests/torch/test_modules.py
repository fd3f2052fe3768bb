"""SelfAttention and its cache."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import limelight as ll
from limelight.errors import ArgumentError, ShapeError
from limelight.torch import Cache, SelfAttention


def reference_of(layer: SelfAttention, x: torch.Tensor, mask: object) -> np.ndarray:
    """The layer by the float64 definition."""

    def project(linear: torch.nn.Linear, heads: int) -> np.ndarray:
        rows = torch.nn.functional.linear(
            x.double(),
            linear.weight.double(),
            None if linear.bias is None else linear.bias.double(),
        )
        return rows.detach().unflatten(-1, (heads, -1)).transpose(-3, -2).numpy()

    q, k, v = (
        project(layer.W_Q, layer.heads),
        project(layer.W_K, layer.key_heads),
        project(layer.W_V, layer.key_heads),
    )
    sinks = None if layer.sinks is None else layer.sinks.detach().double().numpy()
    mixed = ll.attention(
        q,
        k,
        v,
        mask=mask,
        softcap=layer.softcap,
        scale=layer.scale,
        sinks=sinks,
        engine="reference",
    )
    joined = torch.from_numpy(mixed).transpose(-3, -2).flatten(-2)
    bias = None if layer.W_O.bias is None else layer.W_O.bias.double()
    return torch.nn.functional.linear(joined, layer.W_O.weight.double(), bias).detach().numpy()


@pytest.mark.parametrize(("options", "mask"), [
    ({}, ll.Causal()),
    ({"causal": False}, None),
    ({"key_heads": 2, "bias": True}, ll.Causal()),
    ({"window": 3}, ll.Causal() & ll.Window(3, None)),
    ({"head_size": 5, "softcap": 2.0, "scale": 0.3, "sinks": True}, ll.Causal()),
    ({"bias": True, "output_bias": False}, ll.Causal()),
], ids=str)  # fmt: skip
def test_is_what_it_says(options: dict[str, object], mask: object) -> None:
    torch.manual_seed(0)
    layer = SelfAttention(12, 4, dtype=torch.float64, **options)  # type: ignore[arg-type]
    if layer.sinks is not None:
        torch.nn.init.normal_(layer.sinks)
    for x in (torch.randn(2, 7, 12).double(), torch.randn(7, 12).double()):
        assert np.allclose(layer(x).detach().numpy(), reference_of(layer, x, mask), atol=1e-12)
        assert torch.equal(layer.inspect(x).output, layer(x))
    layer(torch.randn(2, 7, 12).double()).sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_a_mask_joins_the_causal_rule() -> None:
    layer = SelfAttention(8, 2, dtype=torch.float64)
    x = torch.randn(2, 5, 8).double()
    want = reference_of(layer, x, ll.Causal() & ll.Lengths([5, 3]))
    assert np.allclose(layer(x, mask=ll.Lengths([5, 3])).detach(), want, atol=1e-12)
    padding = torch.arange(5) < torch.tensor([5, 3])[:, None, None, None]
    assert np.allclose(layer(x, mask=padding).detach(), want, atol=1e-12)


@pytest.mark.parametrize("chunks", [[1] * 11, [5, 1, 1, 4], [11]], ids=str)
@pytest.mark.parametrize("window", [None, 3])
def test_generation_with_a_cache_is_the_whole_at_once(
    chunks: list[int], window: int | None
) -> None:
    torch.manual_seed(1)
    layer, cache = SelfAttention(12, 4, key_heads=2, window=window), Cache()
    x = torch.randn(2, 11, 12)
    with torch.no_grad():
        parts = [layer(part, cache=cache) for part in x.split(chunks, 1)]
        assert torch.allclose(torch.cat(parts, 1), layer(x), atol=1e-6)
        assert cache.length == 11
        cache.crop(10)
        assert torch.allclose(layer(x[:, 10:], cache=cache), layer(x)[:, 10:], atol=1e-6)


def test_a_cache_grows_and_keeps() -> None:
    cache = Cache()
    whole = torch.randn(1, 2, 300, 3)
    for i in range(0, 300, 7):
        key, value = cache.extend(whole[:, :, i : i + 7], -whole[:, :, i : i + 7])
    assert torch.equal(key, whole)
    assert torch.equal(value, -whole)


def test_cache_errors() -> None:
    cache, layer = Cache(), SelfAttention(8, 2)
    with pytest.raises(ArgumentError, match="no_grad"):
        layer(torch.randn(1, 2, 8), cache=cache)
    with torch.no_grad():
        layer(torch.randn(1, 2, 8), cache=(cache := Cache()))
        with pytest.raises(ShapeError, match="one cache for each"):
            layer(torch.randn(3, 2, 8), cache=cache)
        assert cache.length == 2  # as before the call that was refused
    with pytest.raises(ArgumentError, match="holds"):
        Cache().crop(3)


@pytest.mark.parametrize("bias", [False, True])
def test_from_torch(bias: bool) -> None:
    torch.manual_seed(2)
    theirs = torch.nn.MultiheadAttention(12, 3, bias=bias, batch_first=True).double()
    if bias:
        torch.nn.init.normal_(theirs.in_proj_bias)
        torch.nn.init.normal_(theirs.out_proj.bias)
    x = torch.randn(2, 7, 12).double()
    assert torch.allclose(SelfAttention.from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-12)
    hide = torch.ones(7, 7).triu(1).bool()
    causal = SelfAttention.from_torch(theirs, causal=True)
    assert torch.allclose(causal(x), theirs(x, x, x, attn_mask=hide)[0], atol=1e-12)


@pytest.mark.parametrize(("options", "message"), [
    ({"kdim": 5}, "kdim"), ({"add_bias_kv": True}, "add_bias_kv"),
    ({"add_zero_attn": True}, "add_zero_attn"),
])  # fmt: skip
def test_from_torch_refuses(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        SelfAttention.from_torch(torch.nn.MultiheadAttention(12, 3, **options))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"an nn\.MultiheadAttention, and got Linear"):
        SelfAttention.from_torch(torch.nn.Linear(12, 3))  # type: ignore[arg-type]


def test_trace() -> None:
    layer, x = SelfAttention(8, 2), torch.randn(4, 8)
    trace = layer.trace(x, tokens=["the", "curious", "cat", "watched"])
    weights = trace.weights
    assert weights.shape == (2, 4, 4)
    assert np.allclose(weights.sum(-1), 1)
    assert np.triu(weights, 1).max() == 0
    assert trace.cell(2, 1, head=1).key_token == "curious"
    joined = torch.from_numpy(trace.output).float().transpose(0, 1).flatten(-2)
    assert torch.allclose(layer.W_O(joined), layer(x), atol=1e-6)


def test_bad_sizes() -> None:
    for build, message in [
        (lambda: SelfAttention(8, 3), "does not divide"),
        (lambda: SelfAttention(8, 4, key_heads=3), "multiple"),
        (lambda: SelfAttention(8, 2)(torch.randn(2, 3, 7)), "takes"),
    ]:
        with pytest.raises(ShapeError, match=message):
            build()
    with pytest.raises(ArgumentError, match="causal=True"):
        SelfAttention(8, 2, causal=False, window=3)
