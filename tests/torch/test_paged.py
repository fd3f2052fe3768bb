"""Attention over keys in pages: what it gives, against the same with each sequence by itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import limelight as ll
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.torch import paged_attention, paged_inspect

LENGTHS, QUERIES = [13, 4, 7, 1, 1500], [3, 1, 7, 1, 2]


def memory(
    page: int, dtype: torch.dtype, size: int = 16, lengths: list[int] = LENGTHS
) -> tuple[Any, ...]:
    """Tokens, keys and values in pages, and each sequence's own keys and values."""
    torch.manual_seed(0)
    each = -(-max(lengths) // page)
    used = [-(-n // page) for n in lengths]
    free = torch.randperm(sum(used) + 3)
    key, value = (torch.randn(len(free), page, 2, size, dtype=dtype) for _ in range(2))
    table = torch.zeros(len(lengths), each, dtype=torch.int64)
    own, at = [], 0
    for row, (n, pages) in enumerate(zip(lengths, used, strict=True)):
        table[row, :pages] = free[at : at + pages]
        at += pages
        parts = (x[table[row, :pages]].flatten(0, 1)[:n].transpose(0, 1) for x in (key, value))
        own.append(tuple(parts))
    query = torch.randn(sum(QUERIES), 6, size, dtype=dtype)
    return query, key, value, table, own


@pytest.mark.parametrize("page", [1, 16, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("window", [None, 5])
def test_each_sequence_as_if_alone(page: int, dtype: torch.dtype, window: int | None) -> None:
    query, key, value, table, own = memory(page, dtype)
    sinks = torch.randn(6, dtype=dtype)
    same: dict[str, Any] = {"scale": 0.4, "softcap": 9.0, "sinks": sinks}
    seen = paged_inspect(query, key, value, table, LENGTHS, queries=QUERIES, window=window, **same)
    plain = paged_attention(
        query, key, value, table, LENGTHS, queries=QUERIES, window=window, **same
    )
    assert torch.equal(plain, seen.output)
    near = {"atol": 2e-2 if dtype == torch.bfloat16 else 1e-5, "rtol": 0.0}
    at = 0
    for (keys, values), count in zip(own, QUERIES, strict=True):
        rows = slice(at, at + count)
        mask = ll.Window(window, 0)
        alone = ll.inspect(
            query[rows].transpose(0, 1)[None], keys[None], values[None], mask=mask, **same
        )
        assert torch.allclose(seen.output[rows].transpose(0, 1), alone.output[0], **near)
        assert torch.equal(seen.health.keys[:, rows], alone.health.keys[0])
        for figure in ("max_logit", "logsumexp", "entropy", "spread"):
            got, right = getattr(seen.health, figure)[:, rows], getattr(alone.health, figure)[0]
            assert torch.allclose(got, right, **near), figure
        at += count


def test_sinks_that_are_not_finite() -> None:
    """One of −∞ is no outcome, one of +∞ is."""
    query, key, value, table, own = memory(16, torch.float32)
    sinks = torch.tensor([0.0, -math.inf, math.inf, 1.0, -math.inf, 2.0])
    seen = paged_inspect(query, key, value, table, LENGTHS, queries=QUERIES, sinks=sinks)
    rows = slice(0, QUERIES[0])
    alone = ll.inspect(
        query[rows].transpose(0, 1)[None], *(x[None] for x in own[0]), mask=ll.Causal(), sinks=sinks
    )
    assert torch.equal(seen.health.outcomes[:, rows], alone.health.outcomes[0])


def test_what_lies_beyond_a_sequence_does_not_matter() -> None:
    query, key, value, table, _ = memory(16, torch.float32)
    before = paged_attention(query, key, value, table, LENGTHS, queries=QUERIES)
    last = table[0, 0]
    key[last, 13:], value[last, 13:] = torch.nan, torch.nan  # the end of the first one's page
    again = paged_attention(query, key, value, table, LENGTHS, queries=QUERIES)
    assert torch.equal(before[:3], again[:3])


def test_without_kernels_that_read_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as where the native engine is missing: each sequence's keys are brought together."""
    query, key, value, table, _ = memory(16, torch.float32)
    before = paged_inspect(query, key, value, table, LENGTHS, queries=QUERIES)
    monkeypatch.setattr("limelight.torch.paged.paged_path", lambda *_: None)
    again = paged_inspect(query, key, value, table, LENGTHS, queries=QUERIES)
    assert torch.allclose(before.output, again.output, atol=1e-6)
    assert torch.allclose(before.health.entropy, again.health.entropy, atol=1e-5)


def test_what_it_refuses() -> None:
    query, key, value, table, _ = memory(16, torch.float32)

    def ask(*given: Any, **more: Any) -> Any:
        return paged_attention(*given, **{"queries": QUERIES, **more})

    with pytest.raises(ShapeError, match=r"query must be a tensor \[tokens, heads, size\]"):
        ask(query[0], key, value, table, LENGTHS)
    with pytest.raises(DtypeError, match="bring them to one"):
        ask(query, key.half(), value, table, LENGTHS)
    with pytest.raises(ShapeError, match="do not fit together"):
        ask(query[..., :8], key, value, table, LENGTHS)
    with pytest.raises(ShapeError, match="each sequence has one of each"):
        ask(query, key, value, table, LENGTHS[:4])
    with pytest.raises(ShapeError, match="there are 14 tokens, and the sequences have 5"):
        ask(query, key, value, table, LENGTHS, queries=None)
    with pytest.raises(ShapeError, match="at most the keys of its 94 pages"):
        ask(query, key, value, table, [13, 4, 7, 1, 1505])
    with pytest.raises(ValueError, match="a page that is not there"):
        ask(query, key, value, table + 200, LENGTHS)
    with pytest.raises(ArgumentError, match="needs gradients"):
        ask(query.requires_grad_(), key, value, table, LENGTHS)
