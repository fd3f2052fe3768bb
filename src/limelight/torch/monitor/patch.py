"""What a monitor or a capture does to a model: names on its modules, and torch's function."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn

from limelight.torch import bridge, sdpa
from limelight.torch.bridge import SITE

_stack = bridge.running
_ran: WeakSet[nn.Module] = WeakSet()  # modules whose forward began, until someone asks
_patches: list[Patch] = []
_before: WeakKeyDictionary[nn.Module, list[Any]] = WeakKeyDictionary()  # names, one for each patch


class Patch:
    """Writes its path in the model on every module; undone by remove().

    Hooks keep track of which module is running. With `sdpa`, torch.nn.functional's
    scaled_dot_product_attention becomes limelight's. nn.MultiheadAttention calls it unless it is
    asked for its weights; then the same attention runs once more, without them, in the steps that
    are seen.
    """

    def __init__(self, model: nn.Module, *, sdpa: bool) -> None:
        self._named: list[nn.Module] = []
        self._hooks: list[Any] = []
        for path, module in bare(model).named_modules():
            self._named.append(module)
            _before.setdefault(module, []).append(module.__dict__.get(SITE))
            module.__dict__[SITE] = plain(path) or type(module).__name__
            if not _is_leaf(module):
                self._hooks.append(module.register_forward_pre_hook(_enter))
                self._hooks.append(module.register_forward_hook(_leave, always_call=True))
        self.sdpa = sdpa
        _patches.append(self)
        if sdpa:
            nn.functional.scaled_dot_product_attention = _attention
            nn.functional.multi_head_attention_forward = multi_head

    def current(self) -> str:
        """The name of the module whose forward is under way."""
        return bridge.site()

    def remove(self) -> None:
        for module in self._named:
            first, *others = _before[module]
            if others:  # another has named it, too
                _before[module] = [first, *others[1:]]
                continue
            del _before[module]
            if first is None:
                module.__dict__.pop(SITE, None)
            else:
                module.__dict__[SITE] = first
        for hook in self._hooks:
            hook.remove()
        if self in _patches:
            _patches.remove(self)
            if not any(patch.sdpa for patch in _patches):
                nn.functional.scaled_dot_product_attention = torch_attention
                nn.functional.multi_head_attention_forward = torch_multi_head
            if not _patches:
                _stack.clear()
        self._named, self._hooks = [], []


def ran(model: nn.Module) -> bool:
    """Whether the model's forward began since this was last asked; a compiled one's is not seen."""
    module = bare(model)
    found = module in _ran
    _ran.discard(module)
    return found


def running() -> Sequence[nn.Module]:
    """The modules whose forward is under way, the innermost last."""
    return _stack


def plain(path: str) -> str:
    """A module's path without what torch.compile and checkpointing put into it."""
    return path.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")


def site_of(module: nn.Module) -> str:
    """The name that a patch gave the module."""
    return str(getattr(module, SITE, ""))


def bare(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's and DDP's wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


torch_attention = nn.functional.scaled_dot_product_attention
torch_multi_head = nn.functional.multi_head_attention_forward
multi_head_arguments = signature(torch_multi_head)


def _attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    given = (query, key, value, attn_mask, dropout_p, is_causal)
    return sdpa.scaled_dot_product_attention(*given, scale, enable_gqa, site=bridge.site())


def multi_head(*given: Any, **named: Any) -> Any:
    asked = multi_head_arguments.bind(*given, **named)
    asked.apply_defaults()
    if asked.arguments["need_weights"] and bridge.watched():
        # Without dropout: health is that of the weights before it, and nothing is drawn.
        asked.arguments.update(need_weights=False, training=False)
        with torch.no_grad():
            torch_multi_head(*asked.args, **asked.kwargs)
    return torch_multi_head(*given, **named)


def _enter(module: nn.Module, _: Any) -> None:
    if not torch.compiler.is_compiling():
        _ran.add(module)
    _stack.append(module)


def _leave(module: nn.Module, *_: Any) -> None:
    if _stack:
        _stack.pop()


def _is_leaf(module: nn.Module) -> bool:
    """Torch's own layers without children call no attention."""
    return type(module).__module__.startswith("torch.nn") and not any(
        True for _ in module.children()
    )
