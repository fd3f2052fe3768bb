"""Recorder: stands by while a model runs, and makes a site of every attention that passes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from limelight.arrays import as_numpy
from limelight.capture import Rows, Site
from limelight.capture.bound import Bound
from limelight.capture.brought import lengths
from limelight.capture.site import Labels
from limelight.errors import ArgumentError
from limelight.torch import bridge
from limelight.torch.monitor import patch
from limelight.torch.projections import out
from limelight.torch.rules import Rules

Array = NDArray[Any]
HEADS = ("heads", "num_heads", "n_heads", "n_head", "nhead", "num_attention_heads")
CROSS = re.compile(r"cross|encoder_attn|enc_?dec", re.IGNORECASE)


@dataclass(frozen=True)
class Names:
    """What the caller knows of the positions: texts, and which of them are no padding."""

    tokens: Labels = ()
    query_tokens: Labels = ()
    real: Array | None = None

    def of(self, site: Site) -> dict[str, Any]:
        """The names that fit a site's keys and queries."""
        decodes = "decoder" in site.name and bool(self.query_tokens)
        known = [self.tokens, self.query_tokens]
        keys = _fitting(known[::-1] if decodes and site.kind == "self" else known, site, site.keys)
        if site.kind == "self":
            queries = () if site.queries == site.keys else tuple(
                entry[site.keys - site.queries :] for entry in keys
            )  # fmt: skip
        else:
            queries = _fitting(known[::-1], site, site.queries)
        found: dict[str, Any] = {"tokens": keys, "query_tokens": queries}
        if self.real is not None:
            fits = {"real_keys": site.keys, "real_queries": site.queries}
            found |= {side: self.real for side, length in fits.items()
                      if self.real.shape == (site.batch, length)}  # fmt: skip
        return found


class Recorder:
    """Keeps the calls of a model's modules, numbered in the order in which they first ran."""

    def __init__(
        self, model: nn.Module, layers: Sequence[int] | None, *, values: bool, bound: Bound
    ) -> None:
        self.names = {m: patch.plain(n) or type(m).__name__ for n, m in model.named_modules()}
        self.values, self._bound = values, bound
        # A layer counted from the end is known at the end.
        self._wanted = None if layers is None or min(layers, default=0) < 0 else set(layers)
        self.sites: list[Site] = []
        self.order: dict[nn.Module, int] = {}
        self._calls: Counter[nn.Module] = Counter()
        self._rules = Rules()
        self._told: tuple[bool, Array | None] | None = None

    @property
    def listens(self) -> bool:
        """Whether the model is running, and not for a second time in a backward pass."""
        return bridge.watched() and self._module() is not None

    @contextmanager
    def told(self, self_attention: bool, padding: Tensor | None) -> Iterator[None]:
        """What nn.MultiheadAttention says of the call that it makes inside."""
        real = None
        if padding is not None:
            given = as_numpy(padding if padding.ndim == 2 else padding[None])
            real = np.array(~given if given.dtype == np.bool_ else given > -np.inf)
        self._told = (self_attention, real)
        try:
            yield
        finally:
            self._told = None

    def observe(self, site: str, passes: Sequence[bridge.Pass]) -> None:
        """What the operator reports of one attention."""
        module = self._module()
        if module is None or not self._takes(module):
            return
        if len(passes) > 1:
            raise ArgumentError(
                f"{self.names[module]} attends over several ranks, and a capture sees one: make a "
                f"Site of each rank's queries and keys, and join them with "
                f"limelight.torch.gather_capture"
            )
        ((call, state),) = passes
        mask, bias, real = self._rules.read(call.allowed, call.bias)
        rows = Rows(*(np.array(as_numpy(x)) for x in
                      (state.logsumexp, state.max_logit, state.entropy)))  # fmt: skip
        made = Site(
            "", 0, _copy(call.query), _copy(call.key), _copy(call.value) if self.values else None,
            scale=call.scale, softcap=call.softcap,
            sinks=None if call.sinks is None else _copy(call.sinks), mask=mask, bias=bias,
            rows=rows,
        )  # fmt: skip
        self._keep(module, self._writing(module, made), real)

    def _writing(self, module: nn.Module, site: Site) -> Site:
        """With the lengths of what the module's W_O makes of the values, where it has one."""
        found = None
        if site.value is not None:
            found = out(module, site.heads, site.value.shape[3])
        if site.value is None or found is None:
            return site
        return replace(site, written=lengths(site.value, site.heads, as_numpy(found)))

    def wants(self) -> bool:
        """Whether the module that is running is one of the chosen layers."""
        module = self._module()
        return module is not None and self._takes(module)

    def room(self, numbers: int) -> None:
        """Room for so many numbers of n×n tables, or an error that says what there is."""
        module = self._module()
        assert module is not None  # asked while the model runs
        self._bound.take(4 * numbers, self.names[module])

    def softmax(self, found: Tensor) -> None:
        """Weights [B, H, Nq, Nk] that a module computed by itself.

        Three axes are batch and heads in one where the module says how many heads it has.
        """
        if found.ndim == 3:
            said = (getattr(self._module(), name, None) for name in HEADS)
            heads = next((n for n in said if isinstance(n, int) and n > 0), 0)
            if not heads or len(found) % heads:
                return
            found = found.unflatten(0, (-1, heads))
        if self.wants():
            self.room(found.numel())
            self.weights(found)

    @torch.no_grad()
    def weights(self, found: Tensor, value: Tensor | None = None) -> None:
        """Weights [B, H, Nq, Nk] for which there is room."""
        module = self._module()
        assert module is not None
        table = _copy(found)
        kept = None if value is None or not self.values else _copy(value)
        real = None
        if len(table) > 1:
            seen = np.asarray((table > 0).any(axis=(1, 2)))
            real = None if (seen == seen[:1]).all() else seen
        self._keep(module, Site.from_weights("", 0, table, value=kept), real)

    def _module(self) -> nn.Module | None:
        return next((m for m in reversed(bridge.running) if m in self.names), None)

    def _takes(self, module: nn.Module) -> bool:
        layer = self.order.setdefault(module, len(self.order))
        return self._wanted is None or layer in self._wanted

    def _keep(self, module: nn.Module, site: Site, real: Array | None) -> None:
        name, turn = self.names[module], self._calls[module]
        self._calls[module] += 1
        same, padding = self._told or (None, None)
        if same is None:
            first = None if site.mask is None else site.mask.allowed(site.queries, site.keys).tile(
                np.arange(min(1, site.queries)), np.arange(site.keys)
            )  # fmt: skip
            sees_all = first is None or bool(first.all())
            same = kind_of(module, name, site.queries, site.keys, sees_all) == "self"
        real = real if padding is None or padding.shape[1] != site.keys else padding
        if real is not None:
            real = np.broadcast_to(real, (site.batch, site.keys)).copy()
        self.sites.append(replace(
            site, name=f"{name}#{turn}" if turn else name, layer=self.order[module],
            kind="self" if same else "cross", real_keys=real,
        ))  # fmt: skip


def kind_of(module: nn.Module, name: str, nq: int, nk: int, first_sees_all: bool) -> str:
    """Whether queries and keys come from one sequence: by name, and where that is silent by size.

    Fewer queries than keys is also a cache from before the capture began; then the mask is causal,
    and the first row does not see all keys.
    """
    if getattr(module, "is_cross_attention", False) or CROSS.search(name.rpartition(".")[2]):
        return "cross"
    return "cross" if nk < nq or (1 < nq < nk and first_sees_all) else "self"


def _copy(tensor: Tensor) -> Array:
    """Numbers of its own: the model will write to its memory again."""
    return np.array(as_numpy(tensor), order="C")


def _fitting(known: Sequence[Labels], site: Site, length: int) -> Labels:
    for labels in known:
        if [len(entry) for entry in labels] == [length] * site.batch:
            return labels
    return ()
