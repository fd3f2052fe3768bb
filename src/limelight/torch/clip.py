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

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from limelight.errors import ArgumentError
from limelight.torch import bridge
from limelight.torch.arguments import positive
from limelight.torch.clipping.figures import figures
from limelight.torch.clipping.followed import Followed
from limelight.torch.clipping.ranks import Heads, Ranks
from limelight.torch.clipping.weights import Projections, scale
from limelight.torch.monitor import patch
from limelight.torch.monitor.padding import Padding
from limelight.torch.monitor.silence import why
from limelight.torch.projections import find


@dataclass(frozen=True)
class Clip:
    """What was done to one head: its largest logit, `max_logit`, became `factor` times that."""

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
    along, since it turns queries and keys and leaves their sizes. A bias on the logits (T5's
    positions, an ALiBi slope) and a softcap are reckoned with, and left as they are. Frozen weights
    stay: the other side then takes the whole. Layers whose logits would not follow are refused:
    those that normalise or clamp queries after their projection, computed weights, LoRA.

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
        self.limit = positive("limit", limit, LIMIT)
        self.model, self.monitor, self.count = model, monitor, 0
        self._largest: dict[str, Tensor] = {}  # figures of the passes since the last step
        self._heads: dict[str, Heads] = {}
        self._projections: dict[str, Projections | None] = {}
        self._followed: dict[str, Followed] = {}
        self._ranks = Ranks(model, group)
        self._patch, self._padding = patch.Patch(model, sdpa=sdpa), Padding(model)
        self._silent = True  # nothing seen yet, and not said either
        bridge.observers.append(self)

    @torch.no_grad()
    def observe(self, site: str, passes: Sequence[bridge.Pass]) -> None:
        """What the operator reports of one attention: the largest logit of each head is kept."""
        name = self._patch.named(site)
        if not name:
            return
        self._silent = False
        if not self.model.training:
            return
        for call, state in passes:
            if call.empty:
                continue
            heads = Heads(call.query_heads, call.key_heads, call.head_size)
            if self._heads.setdefault(name, heads).queries != heads.queries:
                raise ArgumentError(
                    f"{name} attended with {self._heads[name].queries} heads before and with "
                    f"{heads.queries} now, and QKClip keeps one figure a head: make another "
                    f"QKClip when a model has changed, and attend once in each module"
                )
            if name not in self._projections:
                self._projections[name] = self._find(name, heads)
            text = self._padding.rows(name, call.batch, call.queries)
            found = figures(call, state.max_logit, text, self.limit)
            known = self._largest.get(name)
            self._largest[name] = found if known is None else torch.maximum(known, found)

    @torch.no_grad()
    def step(self) -> list[Clip]:
        """Scale back the heads whose largest logit since the last step passed the limit.

        Call it after optimizer.step(), on every rank.
        """
        found = self._ranks.largest(self._largest, self._heads)
        self._largest.clear()
        self.count += 1
        if self._patch.ran() and self._silent and self.model.training and not found:
            self._silent = False
            reason = why(self.model, ran=True, evaluated=0, sdpa=self._patch.sdpa)
            warnings.warn(
                f"QKClip has seen no attention, and clips nothing: {reason}", stacklevel=3
            )
        asked, done = [], []
        for name, rows in found.items():
            projections = self._known(name)
            if projections is None:
                continue
            largest = rows[0]
            if name not in self._followed:
                self._followed[name] = Followed(projections)
            factors = self._followed[name].factors(self.limit, rows)
            asked.append((projections, factors))
            done += [Clip(name, head, largest[head], self.limit / largest[head])
                     for head, factor in enumerate(factors) if factor < 1]  # fmt: skip
        scale(asked)
        for projections, _ in asked:
            self._followed[projections.site].scaled()
        if done and self.monitor is not None:
            self.monitor.note_clips(self.limit, done)
        return done

    def state_dict(self) -> dict[str, Any]:
        return {"limit": self.limit, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the limit and the count of another QKClip."""
        given = state if isinstance(state, Mapping) else {}
        count = given.get("count")
        if "limit" not in given or type(count) is not int or count < 0:
            raise ArgumentError(
                f"state={state!r} is no state of a QKClip: give what state_dict() returned, a "
                f"limit and a count of steps"
            )
        self.limit, self.count = positive("limit", given["limit"], LIMIT), count

    def close(self) -> None:
        """Leave the model as it was; its weights stay as they are."""
        if self in bridge.observers:
            bridge.observers.remove(self)
            self._patch.remove()
            self._padding.remove()

    def __enter__(self) -> QKClip:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def _find(self, name: str, heads: Heads) -> Projections:
        module = self._patch.modules.get(name)
        if module is None:
            raise ArgumentError(
                f"attention ran under the name {name!r}, which is no module of this model: QKClip "
                f"scales the projections of the module that calls attention. Give it the whole "
                f"model that is trained, and close() it before modules are replaced"
            )
        return find(name, module, heads)

    def _known(self, name: str) -> Projections | None:
        """Those of a site, which may have run on other ranks alone; None where it is theirs."""
        if name not in self._projections:
            here = name in self._patch.modules
            self._projections[name] = self._find(name, self._ranks.sites[name]) if here else None
        return self._projections[name]


LIMIT = "give the largest logit to leave alone, a number above 0"
