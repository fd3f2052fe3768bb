"""Cases for context parallel, on one device and over the ranks of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import limelight as ll
from limelight.torch import ContextParallel, shard, unshard

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
    size: int = 8
    value_size: int = 5
    shift: float = 0.0  # added to every query and key: logits far from 0

    def tensors(
        self, dtype: torch.dtype, to: Any = None
    ) -> tuple[list[torch.Tensor], dict[str, Any]]:
        """Query, key, value and a direction for gradients, rounded to the dtype; bias and sinks."""
        rng = torch.Generator().manual_seed(self.length)
        keys = self.length if self.keys is None else self.keys
        shapes = [(self.batch, self.heads, self.length, self.size), (self.batch, self.key_heads, keys, self.size),
                  (self.batch, self.key_heads, keys, self.value_size), (self.batch, self.heads, self.length, self.value_size)]  # fmt: skip
        tensors = [
            torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for shape in shapes
        ]
        tensors[0][..., 0] += self.shift
        tensors[1][..., 0] += self.shift
        extra: dict[str, Any] = {}
        if self.bias is not None:
            extra["bias"] = torch.randn(self.bias, generator=rng, dtype=torch.float64).to(dtype)
            extra["bias"][..., 3:4] = -torch.inf
        if self.sinks:
            extra["sinks"] = torch.randn(self.heads, generator=rng, dtype=torch.float64).to(dtype)
        return [x.to(to) for x in tensors], {name: x.to(to) for name, x in extra.items()}


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
    Case("bias of rows", bias=(2, 4, 37, 1), sinks=True, mask=ll.Causal()),
    Case("sinks", sinks=True, mask=ll.Causal()),
    Case("sinks where there are no keys", sinks=True, mask=ll.Lengths([0, 3])),
    Case("softcap", softcap=2.0, mask=ll.Causal()),
]


def loss(seen: ll.Inspection, direction: torch.Tensor) -> torch.Tensor:
    """Of the output, and of the two figures of a row that carry gradients."""
    rows = torch.isfinite(seen.health.logsumexp)
    logsumexp = torch.where(rows, seen.health.logsumexp, 0.0)
    by_output = (direction * seen.output).sum()
    figures = direction[..., 0] * logsumexp + direction[..., 1] * seen.health.entropy
    return by_output + figures.sum()


def one_device(case: Case, dtype: torch.dtype, to: Any = None) -> dict[str, torch.Tensor]:
    """Output, health and gradients by every input; `to` a wider dtype or a device."""
    (query, key, value, direction), extra = case.tensors(dtype, to)
    given = {"query": query, "key": key, "value": value, **extra}
    for tensor in given.values():
        tensor.requires_grad_()
    seen = ll.inspect(query, key, value, mask=case.mask, softcap=case.softcap, **extra)
    loss(seen, direction).backward()
    figures = {name: getattr(seen.health, name).detach() for name in FIGURES}
    return {"output": seen.output.detach(), **figures,
            **{f"grad {name}": tensor.grad for name, tensor in given.items()}}  # fmt: skip


def many(
    group: Any, case: Case, dtype: torch.dtype, layout: str, exchange: str, to: Any = None
) -> dict[str, torch.Tensor]:
    """The same over the ranks of a group, put together; on the first rank."""
    (query, key, value, direction), extra = case.tensors(dtype, to)
    own = {"query": shard(query, 2, group=group, layout=layout), "key": shard(key, 2, group=group, layout=layout),
           "value": shard(value, 2, group=group, layout=layout)}  # fmt: skip
    if "bias" in extra:
        bias = extra["bias"]
        own["bias"] = bias if bias.shape[2] == 1 else shard(bias, 2, group=group, layout=layout)
    if "sinks" in extra:
        own["sinks"] = extra["sinks"]
    own = {name: tensor.clone().requires_grad_() for name, tensor in own.items()}
    cp = ContextParallel(group, layout, exchange)
    options = {name: own[name] for name in ("bias", "sinks") if name in own}
    seen = cp.inspect(
        own["query"], own["key"], own["value"], mask=case.mask, softcap=case.softcap, **options
    )
    loss(seen, shard(direction, 2, group=group, layout=layout)).backward()
    found = {"output": unshard(seen.output, 2, group=group, layout=layout)}
    found |= {
        name: unshard(getattr(seen.health, name).detach(), 2, group=group, layout=layout)
        for name in FIGURES
    }
    for name, tensor in own.items():
        assert tensor.grad is not None
        if name == "sinks" or (name == "bias" and tensor.shape[2] == 1):
            dist.all_reduce(tensor.grad, group=group)
            found[f"grad {name}"] = tensor.grad
        else:
            found[f"grad {name}"] = unshard(tensor.grad, 2, group=group, layout=layout)
    with torch.no_grad():  # attention alone takes the same way without the health
        alone = cp.attention(
            own["query"], own["key"], own["value"], mask=case.mask, softcap=case.softcap, **options
        )
    slack = (
        0.0 if alone.device.type == "cpu" else 4 * torch.finfo(dtype).eps
    )  # a GPU's are two kernels
    assert torch.allclose(alone, seen.output, rtol=0, atol=float(slack * value.abs().max()))
    return {name: x.cpu() for name, x in found.items()} if dist.get_rank() == 0 else {}
