"""Padding: which rows of a pass are text, as the model was told by its attention_mask, or torch's
own attention by its key_padding_mask.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from limelight.call import Call
from limelight.torch.arguments import by_name
from limelight.torch.monitor.hooks import Hook
from limelight.torch.monitor.patch import bare, multi_head, plain

OWN, DECODER = "attention_mask", "decoder_attention_mask"
# What reads pictures or sound, as models call it: CLIP's vision_model, Qwen's visual, audio_tower.
_READS = re.compile(
    r"(.+_)?(vision|visual|image|video|audio|speech)(_(model|tower|encoder|backbone))?|qformer"
)
_told: list[tuple[nn.Module, dict[str, Any]]] = []  # by the forwards under way, the innermost last


class Padding:
    """Listens to what the model is called with; undone by remove().

    What a pass was told is forgotten when it is over. A part that reads pictures or sound has rows
    of its own, of which the model's attention_mask says nothing, however many they are: of those
    counts what the part itself is told. A pass inside a compiled model is not heard, unless the
    monitor was given the compiled one: all of its rows then count. nn.MultiheadAttention that
    attends to itself says by its key_padding_mask which rows are text, unless it is compiled.
    """

    def __init__(self, model: nn.Module) -> None:
        inner = bare(model)
        self._two_sides = bool(getattr(getattr(inner, "config", None), "is_encoder_decoder", False))
        self._whole = {model, inner}
        self._parts = {
            plain(path): module for path, module in inner.named_modules()
            if _READS.fullmatch(path.rpartition(".")[2])
        }  # fmt: skip
        self._hooks: list[tuple[Hook, nn.Module]] = []
        try:
            for module in {*self._whole, *self._parts.values()}:
                if not isinstance(module, torch.jit.ScriptModule):
                    self._put(HEAR, module)
                    self._put(FORGET, module)
        except BaseException:
            self.remove()
            raise

    def rows(self, site: str, call: Call) -> Tensor | None:
        """Bool [batch, queries], False for padding; None where nothing was told of these rows.

        `site` is the path of the module that attends. A mask may lie on another device.
        """
        part = max((p for p in self._parts if f"{site}.".startswith(f"{p}.")), key=len, default="")
        listeners = {self._parts[part]} if part else self._whole
        named = next((said for module, said in reversed(_told) if module in listeners), None)
        decoder = self._two_sides and not part and "decoder" in site.split(".")
        told = named and named[DECODER if decoder else OWN]
        told = told if multi_head.text is None else multi_head.text
        if not isinstance(told, Tensor) or told.shape != (call.batch, call.queries):
            return None
        return (told != 0).to(call.query.device)

    def between(self) -> None:
        """No forward is under way: one that an interrupt ended (Ctrl+C) left what it was told."""
        _forget({module for _, module in self._hooks})

    def remove(self) -> None:
        for hook, module in self._hooks:
            if hook.take(module):  # perhaps amid a pass, whose end nobody hears then
                _forget({module})
        self._hooks = []

    def _put(self, hook: Hook, module: nn.Module) -> None:
        self._hooks.append((hook, module))
        hook.put(module)


def _forget(modules: set[nn.Module]) -> None:
    _told[:] = [entry for entry in _told if entry[0] not in modules]


class _Hear(Hook):
    before = named = True

    def __call__(self, module: nn.Module, *asked: Any) -> None:
        if not torch.compiler.is_compiling():
            told = by_name(bare(module), *asked)
            _told.append((module, {name: told.get(name) for name in (OWN, DECODER)}))


class _Forget(Hook):
    def __call__(self, module: nn.Module, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            for place in range(len(_told) - 1, -1, -1):
                if _told[place][0] is module:
                    del _told[place:]
                    return


HEAR, FORGET = _Hear(), _Forget()
