"""Tensors on meta: the shapes and dtypes of what the same call gives on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import limelight as ll
from limelight import torch as lt
from limelight.errors import ArgumentError, EngineError
from limelight.torch.monitor.monitor import MonitorWarning


def booleans(like: Tensor) -> Tensor:
    return torch.ones(5, 9, dtype=torch.bool, device=like.device)


def pages(query: Tensor, run: Any) -> Any:
    kept = query.new_zeros(7, 4, 2, 8)
    table = torch.zeros(2, 3, dtype=torch.int64, device=query.device)
    return run(query[:, :, 0], kept, kept, table, [11, 5], sinks=query.new_zeros(6))


def learned(query: Tensor, way: str) -> Any:
    layer = lt.SelfAttention(48, heads=6, key_heads=2, window=3, sinks=True, device=query.device)
    return getattr(layer, way)(query.transpose(1, 2).flatten(2))


def cached(query: Tensor) -> Tensor:
    layer, cache = lt.SelfAttention(48, heads=6, device=query.device), lt.Cache()
    x = query.transpose(1, 2).flatten(2)
    with torch.no_grad():
        layer(x[:, :3], cache=cache)
        return layer(x[:, 3:], cache=cache)


CALLS: list[tuple[str, Callable[[Tensor, Tensor], Any]]] = [
    ("plain", lambda q, k: lt.attention(q, k, k)),
    ("one head", lambda q, k: lt.attention(q[0, 0], k[0, 0], k[0, 0, :, :3])),
    ("causal", lambda q, k: ll.attention(q, k, k, mask=ll.Causal())),
    ("lengths", lambda q, k: lt.attention(q, k, k, mask=ll.Lengths([4, 9]))),
    ("booleans", lambda q, k: lt.attention(q, k, k, mask=booleans(q))),
    ("bias", lambda q, k: lt.attention(q, k, k, bias=q.new_zeros(5, 9), softcap=3.0)),
    ("dropout", lambda q, k: lt.attention(q, k, k, dropout=0.3, sinks=q.new_zeros(6))),
    ("named", lambda q, k: lt.attention(q, k, k, engine="reference")),
    ("inspect", lambda q, k: ll.inspect(q, k, k, mask=ll.Causal())),
    ("inspect cells", lambda q, k: lt.inspect(q, k, k, mask=booleans(q), sinks=q.new_zeros(6))),
    ("sdpa", lambda q, k: lt.scaled_dot_product_attention(q, k, k, None, 0.0, True, None, True)),
    ("sdpa cells", lambda q, k: lt.scaled_dot_product_attention(q, q, q, q.new_zeros(5, 5), 0.1)),
    ("pages", lambda q, k: pages(q, lt.paged_attention)),
    ("inspected pages", lambda q, k: pages(q, lt.paged_inspect)),
    ("module", lambda q, k: learned(q, "forward")),
    ("inspected module", lambda q, k: learned(q, "inspect")),
    ("cache", lambda q, k: cached(q)),
    ("z_loss", lambda q, k: lt.losses.z_loss(ll.inspect(q, k, k).health)),
    ("floor", lambda q, k: lt.losses.entropy_floor(ll.inspect(q, k, k).health, 1.0)),
    ("mapped", lambda q, k: torch.func.vmap(lambda x, y: lt.attention(x, y, y))(q, k)),
]


def tensors(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    health = found.health
    figures = ("max_logit", "logsumexp", "entropy", "keys", "max_prob", "spread", "judged")
    return [found.output, *(getattr(health, name) for name in figures)]


@pytest.mark.parametrize("call", [call for _, call in CALLS], ids=[name for name, _ in CALLS])
def test_meta_gives_the_shapes_of_numbers(call: Callable[[Tensor, Tensor], Any]) -> None:
    query, key = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 9, 8)
    right, found = tensors(call(query, key)), tensors(call(query.to("meta"), key.to("meta")))
    for mine, theirs in zip(found, right, strict=True):
        assert mine.is_meta
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_gradients_have_the_shapes_of_what_they_are_of(dtype: torch.dtype) -> None:
    made: dict[str, Any] = {"device": "meta", "dtype": dtype, "requires_grad": True}
    query, key = torch.empty(2, 6, 5, 8, **made), torch.empty(2, 2, 9, 8, **made)
    bias, sinks = torch.empty(5, 9, **made), torch.empty(6, **made)
    seen = lt.inspect(query, key, key, bias=bias, sinks=sinks)
    (seen.output.sum() + seen.health.entropy.sum()).backward()
    for given in (query, key, bias, sinks):
        assert given.grad is not None
        assert given.grad.is_meta
        assert (given.grad.shape, given.grad.dtype) == (given.shape, dtype)


def test_what_needs_numbers_says_that_there_are_none(tmp_path: Path) -> None:
    x = torch.empty(1, 2, 5, 8, device="meta")
    seen = ll.inspect(x, x, x)
    assert repr(seen.health) == "Health of rows (1, 2, 5) on meta: shapes, and no numbers"
    for ask in (
        lambda: seen.health.summary(), lambda: ll.trace(x, x, x),
        lambda: lt.SelfAttention(16, 2, device="meta").trace(x[0, 0].repeat(1, 2)),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match="on meta, where there are shapes and no numbers"):
            ask()
    for look in (ll.weights, ll.heatmap, ll.received):
        with pytest.raises(EngineError, match="on meta, where there are shapes and no numbers"):
            look(x, x)
    layer, given = lt.SelfAttention(16, 2, device="meta"), torch.empty(1, 5, 16, device="meta")
    with pytest.raises(ArgumentError, match="on meta there are no numbers"), lt.capture(layer):
        layer(given)
    with lt.Monitor(layer, tmp_path / "run.jsonl", every=1) as monitor:
        layer(given)
        with pytest.warns(MonitorWarning, match="SelfAttention is on meta, .* load its weights"):
            monitor.step()
