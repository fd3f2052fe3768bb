"""capture: what limelight's own modules attend to, as a Capture that needs no torch to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from limelight.arrays import as_numpy
from limelight.capture import Capture, Grid, Site
from limelight.errors import ArgumentError
from limelight.torch.modules import SelfAttention


class Recording:
    """Filled while the context is open; `.capture` is what was seen."""

    def __init__(self) -> None:
        self.sites: dict[str, Site] = {}
        self.facts: dict[str, Any] = {}

    @property
    def capture(self) -> Capture:
        if not self.sites:
            raise ArgumentError(
                "nothing was captured: run the model inside the `with` block, and see that its "
                "attention is limelight.torch.SelfAttention"
            )
        return Capture(tuple(self.sites.values()), **self.facts)


@contextmanager
def capture(
    model: nn.Module,
    *,
    tokens: Sequence[Sequence[str]] = (),
    image: Any = None,
    grid: Grid | None = None,
    source: dict[str, Any] | None = None,
    layers: Sequence[int] | None = None,
    values: bool = True,
) -> Iterator[Recording]:
    """Record the queries and keys of every SelfAttention in `model` that runs inside the block.

    A module that runs twice is kept as it ran last.

    >>> import torch
    >>> model = nn.Sequential(SelfAttention(8, heads=2), SelfAttention(8, heads=2))
    >>> with capture(model, tokens=[["a", "b", "c"]]) as seen:
    ...     _ = model(torch.ones(1, 3, 8))
    >>> seen.capture
    Capture(2 sites; batch 1, 2 heads, 3 × 3)
    """
    recording = Recording()
    labels = tuple(tuple(entry) for entry in tokens)
    recording.facts = {"tokens": labels, "image": image, "grid": grid, "source": source or {}}
    modules = [(n, m) for n, m in model.named_modules() if isinstance(m, SelfAttention)]
    for layer in layers or ():
        if not 0 <= layer < len(modules):
            raise ArgumentError(f"there is no layer {layer}: the model has {len(modules)}")
    hooks = [
        module.register_forward_hook(
            _keeper(recording, name, layer, labels, values), with_kwargs=True
        )
        for layer, (name, module) in enumerate(modules)
        if layers is None or layer in layers
    ]
    try:
        yield recording
    finally:
        for hook in hooks:
            hook.remove()


def _keeper(recording: Recording, name: str, layer: int, tokens: Any, values: bool) -> Any:
    @torch.no_grad()
    def keep(module: SelfAttention, args: Any, kwargs: dict[str, Any], output: Tensor) -> None:
        x = args[0] if args else kwargs["x"]
        query, key, value = module.project(x if x.ndim == 3 else x[None])
        rule = module._options(kwargs.get("mask"))
        recording.sites[name] = Site(
            name or "attention", layer, as_numpy(query), as_numpy(key),
            as_numpy(value) if values else None, scale=rule["scale"], softcap=rule["softcap"],
            sinks=as_numpy(rule["sinks"]), mask=rule["mask"], tokens=tokens,
        )  # fmt: skip

    return keep
