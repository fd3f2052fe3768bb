"""What a monitor does to a model while it is open: names on its modules, and torch's function."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from limelight.torch import functional
from limelight.torch.bridge import SITE

_stack: list[str] = []  # names of the modules whose forward is under way, innermost last
_patches: list[Patch] = []


class Patch:
    """Writes its path in the model on every module; undone by remove().

    With `sdpa`, torch.nn.functional.scaled_dot_product_attention becomes limelight's, and hooks
    keep track of which module is calling it. A call with dropout stays with torch, unseen.
    """

    def __init__(self, model: nn.Module, *, sdpa: bool) -> None:
        self._before: list[tuple[nn.Module, Any]] = []
        self._hooks: list[Any] = []
        for path, module in bare(model).named_modules():
            name = path.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")
            self._before.append((module, module.__dict__.get(SITE)))
            module.__dict__[SITE] = name or type(module).__name__
            if sdpa and not _is_leaf(module):
                self._hooks.append(module.register_forward_pre_hook(_enter))
                self._hooks.append(module.register_forward_hook(_leave, always_call=True))
        self._sdpa = sdpa
        if sdpa:
            _patches.append(self)
            nn.functional.scaled_dot_product_attention = _attention

    def current(self) -> str:
        """The module whose forward is under way."""
        return _stack[-1] if _stack else ""

    def remove(self) -> None:
        for module, name in self._before:
            if name is None:
                module.__dict__.pop(SITE, None)
            else:
                module.__dict__[SITE] = name
        for hook in self._hooks:
            hook.remove()
        if self in _patches:
            _patches.remove(self)
            if not _patches:
                nn.functional.scaled_dot_product_attention = _torch_attention
                _stack.clear()
        self._before, self._hooks = [], []


def bare(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's and DDP's wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


_torch_attention = nn.functional.scaled_dot_product_attention


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    given = (query, key, value, attn_mask, dropout_p, is_causal)
    if dropout_p > 0.0:
        return _torch_attention(*given, scale=scale, enable_gqa=enable_gqa)
    site = _stack[-1] if _stack else ""
    return functional.scaled_dot_product_attention(*given, scale, enable_gqa, site=site)


def _enter(module: nn.Module, _: Any) -> None:
    _stack.append(str(getattr(module, SITE, "")))


def _leave(module: nn.Module, *_: Any) -> None:
    if _stack:
        _stack.pop()


def _is_leaf(module: nn.Module) -> bool:
    """Torch's own layers without children call no attention."""
    return type(module).__module__.startswith("torch.nn") and not any(
        True for _ in module.children()
    )
