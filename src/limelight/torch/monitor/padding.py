"""Padding: which rows of a pass are text, as the model was told by its attention_mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from limelight.torch.arguments import by_name
from limelight.torch.monitor.patch import bare

OWN, DECODER = "attention_mask", "decoder_attention_mask"


class Padding:
    """Listens to what the model is called with; undone by remove().

    A pass inside a compiled model is not heard, unless the monitor was given the compiled one: all
    of its rows then count.
    """

    def __init__(self, model: nn.Module) -> None:
        inner = bare(model)
        self._inner, config = inner, getattr(inner, "config", None)
        self._two_sides = bool(getattr(config, "is_encoder_decoder", False))
        self._told: dict[str, Any] = {}
        self._hooks = [
            module.register_forward_pre_hook(self._hear, with_kwargs=True)
            for module in dict.fromkeys((model, inner))
        ]

    def rows(self, site: str, batch: int, queries: int) -> Tensor | None:
        """Bool [batch, queries], False for padding; None where nothing was told of these rows."""
        decoder = self._two_sides and "decoder" in site.split(".")
        told = self._told.get(DECODER if decoder else OWN)
        if not isinstance(told, Tensor) or told.shape != (batch, queries):
            return None
        return told != 0

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._told = [], {}

    def _hear(self, _: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        if not torch.compiler.is_compiling():
            asked = by_name(self._inner, given, named)
            self._told = {name: asked.get(name) for name in (OWN, DECODER)}
