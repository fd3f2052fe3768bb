"""Keys and values in pages on the GPU: by their table, against each sequence by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import limelight as ll
from limelight.engines import triton
from limelight.torch import paged_attention, paged_inspect
from tests.torch.test_paged import LENGTHS, QUERIES, memory

NEAR = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 2e-5}


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize(("page", "window", "size"), [(16, None, 128), (1, None, 64), (12, 5, 64),
                                                      (16, 300, 256), (16, None, 40)])  # fmt: skip
def test_each_sequence_as_if_alone(
    dtype: torch.dtype, page: int, window: int | None, size: int
) -> None:
    query, key, value, table, own = memory(page, dtype, size)
    sinks = torch.randn(6, dtype=dtype)
    same: dict[str, Any] = {"scale": 0.1, "softcap": 9.0, "window": window, "queries": QUERIES}
    there = (x.cuda() for x in (query, key, value, table))
    seen = paged_inspect(*there, LENGTHS, sinks=sinks.cuda(), **same)
    near, at = NEAR[dtype], 0
    for (keys, values), count in zip(own, QUERIES, strict=True):
        rows = slice(at, at + count)
        wide = (x.double()[None] for x in (query[rows].transpose(0, 1), keys, values))
        alone = ll.inspect(*wide, mask=ll.Window(window, 0), scale=0.1, softcap=9.0,
                           sinks=sinks.double(), engine="reference")  # fmt: skip
        output = seen.output[rows].transpose(0, 1).cpu().double()
        assert (output - alone.output[0]).abs().max() < near
        for figure in ("max_logit", "logsumexp", "entropy"):
            mine = getattr(seen.health, figure)[:, rows].cpu().double()
            assert (mine - getattr(alone.health, figure)[0]).abs().max() < 4 * near, figure
        at += count


def test_it_reads_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is brought together, what lies past an end does not matter, and a graph replays it."""
    import limelight.torch.paged as paged

    monkeypatch.setattr(paged, "_together", None)
    query, key, value, table, _ = memory(16, torch.bfloat16, 128)
    query, key, value, table = (x.cuda() for x in (query, key, value, table))
    plan = paged.Plan.of(table, LENGTHS, QUERIES, 16, len(query), None)
    same: dict[str, Any] = {"scale": None, "softcap": None, "sinks": None, "health": False}
    before = plan.run(query, key.flatten(0, 1), value.flatten(0, 1), **same).output
    value[table[0, 0], 13:] = torch.nan  # the end of the first one's page
    assert torch.equal(before, paged_attention(query, key, value, table, LENGTHS, queries=QUERIES))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = plan.run(query, key.flatten(0, 1), value.flatten(0, 1), **same).output
    again.zero_()
    graph.replay()
    assert torch.equal(before, again)


def test_sizes_that_do_not_fit_are_said() -> None:
    x = torch.zeros(1, 2, 1, 40, device="cuda")
    table = torch.zeros(1, 1, dtype=torch.int32, device="cuda")
    spans = torch.ones(1, 1, 1, 1, 2, dtype=torch.int32, device="cuda")
    assert triton.forward_paged(x, x[0], x[0], table, 1, spans, None, 1.0, None, False) is None
