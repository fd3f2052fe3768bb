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
from contextlib import ExitStack
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
from limelight.torch.clipping.projections import find
from limelight.torch.clipping.ranks import Ranks
from limelight.torch.clipping.sharded import refuse_flattened, to_shards
from limelight.torch.clipping.weights import Heads, Projections, scale
from limelight.torch.monitor import patch
from limelight.torch.monitor.monitor import Monitor
from limelight.torch.monitor.padding import Padding
from limelight.torch.monitor.silence import why
from limelight.torch.ranks import let_go


@dataclass(frozen=True)
class Clip:
    """What was done to one head: its largest logit, `max_logit`, became `factor` times that.

    Or less than that, where another asked for more: a layer that shares the weights, or a head that
    shares the key head. Heads that had not passed the limit come down with their key head, untold.
    """

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
        monitor: Monitor | None = None,
        group: Any = None,
        sdpa: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ArgumentError(f"QKClip takes a torch module, and got {type(model).__name__}: "
                                f"give the model itself")  # fmt: skip
        if not isinstance(monitor, Monitor | None):
            raise ArgumentError(
                f"monitor={monitor!r}: QKClip writes what it does into the file of a Monitor: give "
                f"one, as monitor=Monitor(model, 'run.jsonl')"
            )
        refuse_flattened(model)
        self._inner = patch.bare(model)
        if any(isinstance(one, QKClip) and one._inner is self._inner for one in bridge.observers):
            raise ArgumentError(
                f"a QKClip of this {type(self._inner).__name__} is open, and two would scale its "
                f"heads twice: close() that one, or leave its with block, before another is made"
            )
        self._largest: dict[str, Tensor] = {}  # figures of the passes since the last step
        self.limit = limit
        self.model, self.monitor, self.count = model, monitor, 0
        self._heads: dict[str, Heads] = {}
        self._projections: dict[str, Projections | None] = {}
        self._followed: dict[str, Followed] = {}
        self._ranks = Ranks(model, group)
        with ExitStack() as undo:
            self._patch = patch.Patch(model, sdpa=sdpa)
            undo.callback(self._patch.remove)
            self._padding = Padding(model)
            undo.pop_all()
        self._silent = True  # no pass has counted yet, and that was not said either
        self._evaluated = 0  # passes in evaluation mode since the last step
        self._frozen_said = False
        bridge.observers.append(self)

    @property
    def limit(self) -> float:
        """The largest logit that is left alone; what passes said under another is forgotten."""
        return self._limit

    @limit.setter
    def limit(self, limit: float) -> None:
        wanted = "give the largest logit to leave alone, a number above 0"
        self._limit = positive("limit", limit, wanted)
        self._largest.clear()

    @torch.no_grad()
    def observe(self, site: str, passes: Sequence[bridge.Pass]) -> None:
        """What the operator reports of one attention: the largest logit of each head is kept."""
        name = self._patch.path(site)
        if not name:
            return
        if not self._inner.training:
            self._evaluated += 1
            return
        self._silent = False
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
            text = self._padding.rows(name, call)
            found = figures(call, state.max_logit, text, self.limit)
            known = self._largest.get(name)
            self._largest[name] = found if known is None else torch.maximum(known, found)

    @torch.no_grad()
    def step(self) -> list[Clip]:
        """Scale back the heads whose largest logit since the last step passed the limit.

        Call it after optimizer.step(), on every rank.
        """
        self._patch.between()
        self._padding.between()
        found = self._ranks.largest(self._largest, self._heads)
        self._largest.clear()
        self.count += 1
        if not found:
            self._say_why()
        self._evaluated = 0
        to_shards(self.model)
        asked, done = [], []
        for name, rows, projections in self._trained(found):
            largest = rows[0]
            if name not in self._followed:
                self._followed[name] = Followed(projections)
            factors = self._followed[name].factors(self.limit, rows)
            asked.append((projections, factors))
            done += [
                Clip(name, head, largest[head], self.limit / largest[head] * factor / -asking)
                for head, (factor, asking) in enumerate(zip(factors, rows[2], strict=True))
                if factor < 1
            ]
        scale(asked)
        for projections, _ in asked:
            self._followed[projections.site].scaled()
        if done and self.monitor is not None:
            self.monitor.note_clips(self.limit, done)
        return done

    def state_dict(self) -> dict[str, Any]:
        """The limit, and how many steps were made."""
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
        self.limit, self.count = given["limit"], count

    def close(self) -> None:
        """Leave the model as it was; its weights stay as they are."""
        if self in bridge.observers:
            bridge.observers.remove(self)
            self._patch.remove()
            self._padding.remove()
            let_go()

    def __enter__(self) -> QKClip:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def _say_why(self) -> None:
        """Once, where the model ran and no pass has counted."""
        ran = self._patch.ran()
        if self._silent and (self._evaluated or (ran and self._inner.training)):
            self._silent = False
            reason = why(self.model, ran=True, evaluated=self._evaluated, sdpa=self._patch.sdpa)
            warnings.warn(
                f"QKClip has seen no attention, and clips nothing: {reason}", stacklevel=4
            )

    def _trained(
        self, found: Mapping[str, list[list[float]]]
    ) -> list[tuple[str, list[list[float]], Projections]]:
        """Sites of this rank with their figures and projections, but for those that are frozen."""
        here = {name: known for name in found if (known := self._known(name)) is not None}
        frozen = [name for name, projections in here.items() if not projections.sides()]
        if frozen and len(frozen) == len(here):
            raise ArgumentError(
                f"the projections of {frozen[0]}'s queries and keys are frozen "
                f"(requires_grad=False), and so are all others that ran: QKClip may scale none. "
                f"Thaw some of them, queries or keys"
            )
        if frozen and not self._frozen_said:
            self._frozen_said = True
            warnings.warn(
                f"the projections of {frozen[0]}'s queries and keys are frozen "
                f"(requires_grad=False), and QKClip leaves them as they are"
                + (f", with those of {len(frozen) - 1} more" if len(frozen) > 1 else ""),
                stacklevel=4,
            )
        return [(name, found[name], here[name]) for name in here if name not in frozen]

    def _find(self, name: str, heads: Heads) -> Projections:
        module = self._patch.modules[name]
        late = [
            path
            for path, child in module.named_modules()
            if not bridge.key_of(child) and not isinstance(child, torch.jit.ScriptModule)
        ]
        if late:
            raise ArgumentError(
                f"{name} has modules that were not there when QKClip was made ({late[0]}): it does "
                f"not know which of them attends. close() it, and make another on the model as "
                f"it is now"
            )
        try:
            return find(name, module, heads)
        except ArgumentError as error:
            if module is self._inner:
                raise
            raise ArgumentError(
                f"{error}; or give QKClip the part of the model that it can scale, without {name}"
            ) from None

    def _known(self, name: str) -> Projections | None:
        """Those of a site, which may have run on other ranks alone; None where it is theirs."""
        if name not in self._projections:
            here = name in self._patch.modules
            self._projections[name] = self._find(name, self._ranks.sites[name]) if here else None
        return self._projections[name]
