"""Context parallel on 2, 3 and 4 Gloo ranks: output, health and gradients of one device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import limelight as ll
from limelight.torch import shard, unshard
from limelight.torch.parallel import ContextParallel
from tests.torch.ranks import on

FIGURES = ("max_logit", "logsumexp", "entropy", "keys")


@dataclass(frozen=True)
class Case:
    name: str
    length: int = 37
    keys: int | None = None
    batch: int = 2
    heads: int = 4
    key_heads: int = 2
    mask: Any = None
    bias: tuple[int, ...] | None = None  # a bias of this shape, the rows those of all queries
    sinks: bool = False
    softcap: float | None = None

    def tensors(self, dtype: torch.dtype) -> tuple[list[torch.Tensor], dict[str, Any]]:
        rng = torch.Generator().manual_seed(self.length)
        keys = self.length if self.keys is None else self.keys
        shapes = [(self.batch, self.heads, self.length, 8), (self.batch, self.key_heads, keys, 8),
                  (self.batch, self.key_heads, keys, 5), (self.batch, self.heads, self.length, 5)]  # fmt: skip
        tensors = [torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for shape in shapes]
        extra: dict[str, Any] = {}
        if self.bias is not None:
            extra["bias"] = torch.randn(self.bias, generator=rng, dtype=torch.float64).to(dtype)
            extra["bias"][..., 3] = -torch.inf
        if self.sinks:
            extra["sinks"] = torch.randn(self.heads, generator=rng, dtype=torch.float64).to(dtype)
        return tensors, extra


CASES = [
    Case("plain"),
    Case("causal", mask=ll.Causal()),
    Case("causal even", length=48, mask=ll.Causal()),
    Case("causal, one position too many", length=49, mask=ll.Causal()),
    Case("fewer positions than chunks", length=5, mask=ll.Causal()),
    Case("one position", length=1),
    Case("window", mask=ll.Window(5, 2)),
    Case("causal window", length=61, mask=ll.Causal() & ll.Window(9, None)),
    Case("lengths", mask=ll.Lengths([37, 11]) & ll.Causal()),
    Case("lengths zero", mask=ll.Lengths([0, 29], queries=[37, 20])),
    Case("documents", mask=ll.Documents([0] * 9 + [1] * 20 + [2] * 8)),
    Case("documents causal", mask=ll.Documents([0] * 9 + [1] * 20 + [2] * 8) & ll.Causal()),
    Case("scattered documents", mask=ll.Documents(np.arange(37) * 7 % 5)),
    Case("prefix", mask=ll.Causal() | ll.Prefix(7)),
    Case("array", mask=np.random.default_rng(0).random((2, 1, 37, 37)) < 0.4),
    Case("thin array", mask=np.random.default_rng(1).random((37, 37)) < 0.02),
    Case("other lengths", length=13, keys=37, mask=ll.Causal()),
    Case("one key head", key_heads=1, mask=ll.Causal()),
    Case("bias", bias=(1, 4, 37, 37), mask=ll.Causal()),
    Case("bias of keys", bias=(2, 1, 1, 37)),
    Case("sinks", sinks=True, mask=ll.Causal()),
    Case("sinks where there are no keys", sinks=True, mask=ll.Lengths([0, 3])),
    Case("softcap", softcap=2.0, mask=ll.Causal()),
]


def one_device(case: Case, dtype: torch.dtype) -> dict[str, Any]:
    (query, key, value, direction), extra = case.tensors(dtype)
    given = {"query": query, "key": key, "value": value, **extra}
    for tensor in given.values():
        tensor.requires_grad_()
    seen = ll.inspect(query, key, value, mask=case.mask, softcap=case.softcap, **extra)
    seen.output.backward(direction)
    return {"output": seen.output.detach(), **{name: getattr(seen.health, name) for name in FIGURES},
            **{f"grad {name}": tensor.grad for name, tensor in given.items()}}  # fmt: skip


def many(rank: int, case: Case, dtype: torch.dtype, layout: str, exchange: str) -> dict[str, Any]:
    (query, key, value, direction), extra = case.tensors(dtype)
    own = {"query": shard(query, 2, layout=layout), "key": shard(key, 2, layout=layout),
           "value": shard(value, 2, layout=layout)}  # fmt: skip
    if "bias" in extra:
        bias = extra["bias"]
        own["bias"] = bias if bias.shape[2] == 1 else shard(bias, 2, layout=layout)
    if "sinks" in extra:
        own["sinks"] = extra["sinks"]
    own = {name: tensor.clone().requires_grad_() for name, tensor in own.items()}
    cp = ContextParallel(layout=layout, exchange=exchange)
    options = {name: own[name] for name in ("bias", "sinks") if name in own}
    seen = cp.inspect(own["query"], own["key"], own["value"], mask=case.mask, softcap=case.softcap, **options)
    seen.output.backward(shard(direction, 2, layout=layout))
    found = {"output": unshard(seen.output, 2, layout=layout)}
    found |= {name: unshard(getattr(seen.health, name), 2, layout=layout) for name in FIGURES}
    for name, tensor in own.items():
        assert tensor.grad is not None
        if name == "sinks" or (name == "bias" and tensor.shape[2] == 1):
            dist.all_reduce(tensor.grad)
            found[f"grad {name}"] = tensor.grad
        else:
            found[f"grad {name}"] = unshard(tensor.grad, 2, layout=layout)
    with torch.no_grad():  # attention alone takes the same way without the health
        alone = cp.attention(own["query"], own["key"], own["value"], mask=case.mask, softcap=case.softcap, **options)
    assert torch.equal(alone, seen.output)
    return found if rank == 0 else {}


@pytest.mark.parametrize(("layout", "exchange"), [("zigzag", "ring"), ("contiguous", "ring"), ("zigzag", "gather")])
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_as_one_device(case: Case, ranks: int, layout: str, exchange: str) -> None:
    want = one_device(case, torch.float64)
    found = on(ranks, many, case, torch.float64, layout, exchange)[0]
    assert found.keys() == want.keys()
    for name, right in want.items():
        assert torch.allclose(found[name], right, rtol=1e-12, atol=1e-12), name
