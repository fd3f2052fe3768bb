"""QKClip: after each optimizer step, heads whose logits grew too large are scaled back.

A head's logits are products of its queries and keys, so to multiply both projections with √γ
multiplies its logits with γ. After a step in which a head's largest logit m passed the limit,
γ = limit/m (Kimi Team 2025, "MuonClip"). The maximum comes from the training pass itself, whose
operator reports it beside the output.

    clip = QKClip(model, limit=100.0)
    for batch in data:
        loss(model, batch).backward()
        optimizer.step()
        clip.step()
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from limelight.errors import ArgumentError
from limelight.torch import bridge
from limelight.torch.monitor import patch
from limelight.torch.projections import Projections, find

SLACK = 1.00001  # a head that was brought to the limit may lie above it by rounding


@dataclass(frozen=True)
class Clip:
    """What was done to one head: its logits, the largest `max_logit`, became `factor` times."""

    site: str
    head: int
    max_logit: float
    factor: float


class QKClip:
    """Keeps the logits of every head of `model` at `limit` or below.

    model     limelight.torch modules, Transformers models with attn_implementation="limelight",
              and with `sdpa=True` what calls torch's scaled_dot_product_attention
    limit     the largest logit that is left alone
    monitor   a Monitor, into whose file goes what was done
    group     the ranks whose maxima count together; None: all, where torch.distributed runs

    Key heads that query heads share follow the largest of their group. Position by rotation goes
    along, since it turns queries and keys and leaves their sizes; a layer that normalises queries
    after their projection is refused, because scaling would do nothing there. A bias on the logits
    (T5's positions, an ALiBi slope) is left as it is.

    >>> import torch
    >>> from limelight.torch import SelfAttention
    >>> layer, x = SelfAttention(4, heads=2), torch.eye(4)
    >>> _ = torch.nn.init.constant_(layer.W_Q.weight, 20.0)
    >>> _ = torch.nn.init.constant_(layer.W_K.weight, 20.0)
    >>> with QKClip(layer, limit=100.0) as clip:
    ...     _ = layer(x)
    ...     [round(done.max_logit) for done in clip.step()]
    [566, 566]
    >>> layer.inspect(x).health.max_logit.max().round()
    tensor(100.)
    """

    def __init__(
        self,
        model: nn.Module,
        limit: float = 100.0,
        *,
        monitor: Any = None,
        group: Any = None,
        sdpa: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ArgumentError(f"QKClip takes a torch module, and got {type(model).__name__}: "
                                f"give the model itself")  # fmt: skip
        if not (math.isfinite(limit) and limit > 0):
            raise ArgumentError(f"limit={limit}: give the largest logit to leave alone, above 0")
        self.model, self.limit, self.monitor, self.group = model, float(limit), monitor, group
        self.count = 0
        self._largest: dict[str, Tensor] = {}
        self._projections: dict[str, Projections] = {}
        self._patch = patch.Patch(model, sdpa=sdpa)
        bridge.observers.append(self)

    def observe(self, site: str, passes: Sequence[bridge.Pass]) -> None:
        """What the operator reports of one attention: the largest logit of each head is kept."""
        name = site or self._patch.current()
        if not (self.model.training and name):
            return
        for call, state in passes:
            found = state.max_logit.reshape(call.batch, call.query_heads, call.queries)
            if not found.numel():
                continue
            if name not in self._projections:
                self._projections[name] = self._find(name, call.query_heads, call.key_heads)
            largest = found.detach().nan_to_num(nan=-math.inf, posinf=math.inf).amax((0, 2)).float()
            known = self._largest.get(name)
            self._largest[name] = largest if known is None else torch.maximum(known, largest)

    @torch.no_grad()
    def step(self) -> list[Clip]:
        """Scale back the heads whose largest logit since the last step passed the limit.

        Call it after optimizer.step(), on every rank.
        """
        done = []
        for name, largest in self._maxima().items():
            over = [h for h, m in enumerate(largest) if SLACK * self.limit < m < math.inf]
            if not over:
                continue
            factors = [self.limit / m if h in over else 1.0 for h, m in enumerate(largest)]
            self._projections[name].scale(factors)
            done += [Clip(name, head, largest[head], factors[head]) for head in over]
        self._largest.clear()
        self.count += 1
        if done and self.monitor is not None:
            self.monitor.note_clips(self.limit, done)
        return done

    def state_dict(self) -> dict[str, Any]:
        return {"limit": self.limit, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.limit, self.count = float(state["limit"]), int(state["count"])

    def close(self) -> None:
        """Leave the model as it was; its weights stay as they are."""
        if self in bridge.observers:
            bridge.observers.remove(self)
            self._patch.remove()

    def __enter__(self) -> QKClip:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def _modules(self) -> dict[str, nn.Module]:
        return {patch.site_of(module): module for module in patch.bare(self.model).modules()}

    def _find(self, name: str, heads: int, key_heads: int) -> Projections:
        module = self._modules().get(name)
        if module is None:
            raise ArgumentError(
                f"attention ran under the name {name!r}, which is no module of this model: QKClip "
                f"scales the projections of the module that calls attention. Give it the whole "
                f"model that is trained, and close() it before modules are replaced"
            )
        return find(name, module, heads, key_heads)

    def _maxima(self) -> dict[str, list[float]]:
        """Every site's largest logits on the host, over all ranks: one wait a step."""
        if not self._largest:
            return {}
        names = sorted(self._largest)
        flat = torch.cat([self._largest[name] for name in names])
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(flat, distributed.ReduceOp.MAX, group=self.group)
        sizes = [len(self._largest[name]) for name in names]
        parts = flat.cpu().split(sizes)
        return {name: part.tolist() for name, part in zip(names, parts, strict=True)}
