"""capture(): what limelight's own modules attend to, as a Capture; no torch to look at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from limelight.arrays import as_numpy, index
from limelight.capture import Capture, Grid, Site
from limelight.capture.site import Labels
from limelight.errors import ArgumentError
from limelight.masks import as_mask
from limelight.torch.modules import SelfAttention


@contextmanager
def capture(
    model: nn.Module,
    *,
    tokens: Sequence[Sequence[str]] = (),
    image: Any = None,
    grid: Grid | None = None,
    source: dict[str, Any] | None = None,
    layers: int | Sequence[int] | None = None,
    values: bool = True,
) -> Iterator[Capture]:
    """Keep the queries and keys of every SelfAttention in `model` that runs inside the context.

    tokens       a text for each position, one sequence for each batch entry
    image, grid  uint8 [B, height, width, 3] and where its patches stand among the positions
    source       facts to keep with the capture, such as the text and the licence
    layers       numbers of the SelfAttention modules in the model's order (negative ones from the
                 end); None for all
    values       keep the values too

    The capture is filled when the context ends; a module that runs twice is kept as it ran last.

    >>> import torch
    >>> model = nn.Sequential(SelfAttention(8, heads=2), SelfAttention(8, heads=2))
    >>> with capture(model, tokens=["abc"]) as cap:
    ...     _ = model(torch.ones(1, 3, 8))
    >>> cap
    Capture(2 sites; batch 1, 2 heads, 3 × 3)
    """
    labels = tuple(tuple(entry) for entry in tokens)
    modules = [(name, m) for name, m in model.named_modules() if isinstance(m, SelfAttention)]
    chosen = _choose(layers, len(modules))
    sites: dict[int, Site] = {}
    hooks = [
        module.register_forward_hook(
            _Keeper(sites, name or "attention", layer, labels, values), with_kwargs=True
        )
        for layer, (name, module) in enumerate(modules)
        if layer in chosen
    ]
    result = Capture((), labels, (), image, grid, source or {})
    try:
        yield result
    finally:
        for hook in hooks:
            hook.remove()
    if not sites:
        raise ArgumentError(
            "nothing was captured: run the model inside the context; its attention must be "
            "limelight.torch.SelfAttention"
        )
    object.__setattr__(result, "sites", tuple(sites[layer] for layer in sorted(sites)))


def _choose(layers: int | Sequence[int] | None, count: int) -> set[int]:
    if layers is None:
        return set(range(count))
    asked = list(layers) if isinstance(layers, Iterable) else [layers]
    where = " among the model's limelight.torch.SelfAttention modules"
    return {index(layer, count, "layer", where) for layer in asked}


class _Keeper:
    """Stands behind one module and turns each of its passes into a site."""

    def __init__(
        self, sites: dict[int, Site], name: str, layer: int, labels: Labels, values: bool
    ) -> None:
        self.sites, self.name, self.layer = sites, name, layer
        self.labels, self.values = labels, values

    @torch.no_grad()
    def __call__(
        self, module: SelfAttention, args: tuple[Any, ...], kwargs: dict[str, Any], _: Tensor
    ) -> None:
        if kwargs.get("cache") is not None:
            raise ArgumentError(f"{self.name} ran with a cache, whose older keys a capture does "
                                f"not see: run the whole text in one pass")  # fmt: skip
        x: Tensor = args[0] if args else kwargs["x"]
        query, key, value = module.project(x if x.ndim == 3 else x[None])
        rule = module._options(kwargs.get("mask"))
        sinks = rule["sinks"]
        self.sites[self.layer] = Site(
            self.name, self.layer, as_numpy(query), as_numpy(key),
            as_numpy(value) if self.values else None, scale=rule["scale"], softcap=rule["softcap"],
            sinks=None if sinks is None else np.array(as_numpy(sinks)),
            mask=None if rule["mask"] is None else as_mask(rule["mask"]).numpy(),
            tokens=self.labels,
        )  # fmt: skip
