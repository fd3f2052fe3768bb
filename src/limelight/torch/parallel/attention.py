"""Attention over a sequence that is cut across ranks: context parallelism.

Every rank holds some of the queries and the same positions' keys and values. Keys and values go
around (or are gathered), each rank attends to the parts as they come, and the partial results
merge exactly: output, logsumexp, maximum and entropy (limelight.merge). In the backward pass they
go around again, followed by the sums of their gradients, which end up where the keys are at home.

No rank holds all keys or values, except with exchange="gather".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from limelight.attention import Inspection
from limelight.errors import ArgumentError
from limelight.health import Health, count_outcomes
from limelight.masks import as_mask
from limelight.masks.allowed import Allowed
from limelight.masks.tensors import count_keys
from limelight.torch.parallel import ring
from limelight.torch.parallel.agreement import EXCHANGES, Asked, agree
from limelight.torch.parallel.exchange import Ring
from limelight.torch.parallel.sharding import LAYOUTS, Layout, resolve

GATHER_BELOW = 1 << 25  # bytes of all keys and values: small enough to hold, and one message each


@torch.compiler.disable
def context_parallel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    group: Any = None,
    mesh: Any = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    dropout: float = 0.0,
    engine: str = "auto",
    layout: str = "zigzag",
    exchange: str = "auto",
) -> Tensor:
    """limelight.attention over one sequence whose positions lie on the ranks of a group.

    Shapes on each rank: query [B, Hq, nq, D], key [B, Hk, nk, D], value [B, Hk, nk, Dv], with nq
    and nk this rank's share of the lengths under `layout` (cut with `shard`). Returns the rank's
    rows of the output; gradients are those of the whole.

    group, mesh   a process group, or one dimension of a DeviceMesh; neither: all ranks
    mask          speaks of the whole sequence: mask objects, or booleans [.., queries, keys]
    bias          this rank's rows against all keys in order: [B|1, Hq|1, nq|1, keys|1]
    sinks         [Hq], the same on every rank; their gradient is this rank's share of the sum
    dropout       must be 0: which weights fall is a matter of their place in the whole
    layout        "zigzag" balances a causal mask; "contiguous" suits windows
    exchange      "ring" sends keys and values around while computing, "gather" collects them
                  first; "auto" gathers what is small
    """
    cp = ContextParallel(resolve(group, mesh), layout, exchange, engine)
    same = {"mask": mask, "bias": bias, "scale": scale, "softcap": softcap, "sinks": sinks}
    return cp.attention(query, key, value, **same, dropout=dropout)


@dataclass(frozen=True)
class ContextParallel:
    """A group of ranks that share sequences, and how they do it."""

    group: Any = None
    layout: str = "zigzag"
    exchange: str = "auto"
    engine: str = "auto"

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            Layout(1, self.layout)
        if self.exchange not in EXCHANGES:
            raise ArgumentError(f"exchange={self.exchange!r}: choose {', '.join(EXCHANGES)}")
        if self.engine == "reference":
            raise ArgumentError(
                "engine='reference' knows whole matrices only, not parts that are "
                "merged: choose auto, or numpy for float64"
            )

    def attention(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        """The output rows of this rank; options as in `context_parallel`."""
        work, tensors = self._plan(query, key, value, health=False, **options)
        output: Tensor = ring.Parallel.apply(work, *tensors)[0]
        return output

    def inspect(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Inspection:
        """Output and health of this rank's rows, as one device would have them, with gradients."""
        work, tensors = self._plan(query, key, value, health=True, **options)
        output, logsumexp, max_logit, entropy = ring.Parallel.apply(work, *tensors)
        counts = [
            count_keys(call.allowed, call.bias, query.device)
            for call in work.row_calls(tensors[0], tensors[3])
        ]
        keys = torch.cat([x.expand(*output.shape[:2], -1) for x in counts], 2)
        outcomes = None if tensors[4] is None else count_outcomes(keys, tensors[4])
        return Inspection(output, Health(max_logit, logsumexp, entropy, keys, outcomes))

    def _plan(
        self, query: Tensor, key: Tensor, value: Tensor, *, health: bool, mask: Any = None,
        bias: Any = None, scale: float | None = None, softcap: float | None = None,
        sinks: Any = None, dropout: float = 0.0, site: str = "",
    ) -> tuple[ring.Work, tuple[Any, ...]]:  # fmt: skip
        if dropout != 0.0:
            raise ArgumentError(
                f"dropout={dropout} over several ranks: which weights fall follows from their "
                f"place in the whole, and a rank sees parts. Give 0 here, and drop some of the "
                f"output instead: torch.nn.functional.dropout(output, {dropout})"
            )
        place = Ring.of(resolve(self.group, None))
        layout = Layout(place.ranks, self.layout)
        asked = Asked(query, key, value, mask, bias, scale, softcap, sinks, self.engine,
                      self.exchange)  # fmt: skip
        call, nq, nk = agree(place, layout, asked)
        allowed = Allowed(nq, nk)
        if mask is not None:
            allowed = as_mask(mask).allowed(nq, nk).flatten((call.batch,), call.query_heads)
            if allowed.dense is not None:
                dense = torch.as_tensor(allowed.dense, device=query.device)
                allowed = replace(allowed, dense=dense)
        if bias is not None:
            bias = bias.reshape((1,) * (4 - bias.ndim) + tuple(bias.shape))
        gathered = nk * call.key_heads * call.batch * (call.head_size + call.value_size)
        gathers = self.exchange == "gather" or (
            self.exchange == "auto" and gathered * query.element_size() <= GATHER_BELOW
        )
        work = ring.Work(place, layout, allowed, call.scale, call.softcap, self.engine, health,
                         gathers, site)  # fmt: skip
        return work, (call.query, call.key, call.value, bias, call.sinks)
