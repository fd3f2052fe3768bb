"""Seeing: while it is open, what a model asks torch for as attention runs on limelight.

torch.overrides.TorchFunctionMode meets every call of torch's functions, however they were imported.
While one is open nn.MultiheadAttention and nn.TransformerEncoder leave their fused paths by
themselves; what they then call inside torch.nn.functional, monitor/patch.py makes visible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from limelight.torch import flex, sdpa
from limelight.torch.monitor import patch
from limelight.torch.recording import Recorder

SOFTMAX = {F.softmax, torch.softmax, torch.special.softmax, Tensor.softmax}


class Seeing(TorchFunctionMode):
    """Routes scaled_dot_product_attention and flex_attention to limelight, tells of the rest."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is patch.torch_attention and self._recorder.listens:
            return sdpa.scaled_dot_product_attention(*args, **kwargs)
        if func in (patch.multi_head, patch.torch_multi_head):
            return self._multi_head(args, kwargs)
        if func in SOFTMAX and self._recorder.listens:
            return self._softmax(func, args, kwargs)
        if flex.is_flex(func) and self._recorder.listens and self._recorder.wants():
            return flex.attention(func, args, self._recorder.weights, self._recorder.room)
        return func(*args, **kwargs)

    def _multi_head(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """torch's own function: what stands in its place while it is patched has called it."""
        asked = patch.arguments_of(*args, **kwargs).arguments
        with self._recorder.told(patch.attends_to_itself(asked), asked["key_padding_mask"]):
            return patch.torch_multi_head(*args, **kwargs)

    def _softmax(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        found: Tensor = func(*args, **kwargs)
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        if found.ndim in (3, 4) and axis in (-1, found.ndim - 1):
            logits = args[0] if args else kwargs["input"]
            nothing = (logits == -torch.inf).all(-1, keepdim=True)  # a row without keys
            self._recorder.softmax(found.masked_fill(nothing, 0.0))
        return found
