"""Weigher: keeps the weights of models that compute attention by themselves.

GPT-J, GPT-Neo, Bloom, Falcon, MPT, DeBERTa, XLNet, Longformer and others do not go through
Transformers' attention interface, so their queries and keys pass unseen. But they hand out their
weights on request: n×n numbers a head, which is why there is a bound, and said before the model
runs. What the caller gets back from the model is what the caller asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from limelight.arrays import as_numpy
from limelight.capture import Site
from limelight.capture.bound import Bound
from limelight.errors import ArgumentError
from limelight.hf.inputs import Inputs
from limelight.hf.recorder import choose, layer_count, layer_number
from limelight.torch.arguments import by_name
from limelight.torch.recording import CROSS

Array = NDArray[Any]
TABLES = ("encoder_attentions", "attentions", "decoder_attentions", "cross_attentions")
GLOBAL = ("global_attentions", "encoder_global_attentions")  # Longformer's and LED's
HANDED_OUT = (*TABLES, *GLOBAL)
WINDOWED = {"longformer": "attentions", "led": "encoder_attentions"}  # given by distance


class Weights:
    """The weights of one site: of one pass, or of the steps of a generation."""

    def __init__(self, name: str, layer: int, kind: str) -> None:
        self.name, self.layer, self.kind = name, layer, kind
        self.parts: list[Array] = []
        self.replaced = False

    @property
    def batch(self) -> int:
        return int(self.parts[0].shape[0])

    @property
    def queries(self) -> int:
        return sum(part.shape[2] for part in self.parts)

    @property
    def keys(self) -> int:
        return int(self.parts[-1].shape[3])

    def add(self, table: Array) -> None:
        """Continue the run with these rows, or begin a new one that replaces it."""
        new = 0 if self.kind == "cross" else table.shape[2]
        same = bool(self.parts) and table.shape[:2] == self.parts[0].shape[:2]
        grows = same and table.shape[3] > table.shape[2] and table.shape[3] == self.keys + new
        if self.parts and not grows:
            self.replaced, self.parts = True, []
        self.parts.append(table)

    def begun(self) -> None:
        """Which keys are no padding cannot be told from weights alone."""

    def site(self, names: dict[str, Any]) -> Site:
        batch, heads = self.parts[0].shape[:2]
        table = np.zeros((batch, heads, self.queries, self.keys), self.parts[0].dtype)
        at = 0
        for part in self.parts:
            table[:, :, at : at + part.shape[2], : part.shape[3]] = part
            at += part.shape[2]
        try:
            return replace(Site.from_weights(self.name, self.layer, table, kind=self.kind), **names)
        except ArgumentError as error:
            raise ArgumentError(
                f"{self.name}: what the model hands out are no weights as they leave the softmax, "
                f"for dropout (run it after model.eval()) or by its own design: {error}"
            ) from None


class Weigher:
    """Asks a model for its weights whenever it runs, and keeps those of the chosen layers."""

    def __init__(
        self, model: PreTrainedModel, layers: Any, *, bound: Bound,
        progress: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        taken = inspect.signature(model.forward).parameters
        anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
        if "output_attentions" not in taken and not anything:
            raise ArgumentError(
                f"{type(model).__name__} computes its attention by itself and takes no "
                f"output_attentions=True, so its weights cannot be had. If it calls torch's "
                f"attention, limelight.torch.capture(model) sees it; weights that you have "
                f"yourself are shown by limelight.Site.from_weights"
            )
        self.model, self.progress, self.bound = model, progress, bound
        config = model.config.get_text_config()
        self.count = layer_count(config)
        self.wanted = choose(layers, set(range(self.count)), type(model).__name__)
        self.series: dict[tuple[str, int], Weights] = {}
        self.inputs = Inputs()
        self._global: Tensor | None = None
        self._asked: list[tuple[bool, bool]] = []
        self._hooks: list[Any] = []

    def attach(self) -> None:
        begin = self.model.register_forward_pre_hook(self._begin, with_kwargs=True)
        end = self.model.register_forward_hook(self._end)
        self._hooks = [begin, end]
        for name, module in self.model.named_modules():
            if isinstance(module, PreTrainedModel):
                listen = self._listen(name)
                self._hooks.append(module.register_forward_pre_hook(listen, with_kwargs=True))

    def detach(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _listen(self, name: str) -> Callable[..., None]:
        def listen(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.inputs.add(name, module, args, kwargs)
            # Longformer's: which tokens see everything. The heads of its models fill it in.
            self._global = kwargs.get("global_attention_mask", self._global)

        return listen

    def _begin(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = by_name(module, args, kwargs)
        self._room(given)
        self._global = None
        config = self.model.config
        weights = given.pop("output_attentions", None)
        plain = given.pop("return_dict", None)
        self._asked.append((
            bool(config.output_attentions if weights is None else weights),
            bool(config.return_dict if plain is None else plain),
        ))  # fmt: skip
        return (), {**given, "output_attentions": True, "return_dict": True}

    def _room(self, given: dict[str, Any]) -> None:
        """Room for the weights of one pass, or an error before it."""
        names = ("input_ids", "inputs_embeds", "decoder_input_ids")
        found = [given.get(name) for name in names]
        sizes = [tensor.shape[:2] for tensor in found if isinstance(tensor, Tensor)]
        if not sizes:
            return
        past = given.get("past_key_values")
        before = int(getattr(past, "get_seq_length", int)())
        config = self.model.config.get_text_config()
        heads = int(getattr(config, "num_attention_heads", None) or 1)
        cells = sum(batch * length * (before + length) for batch, length in sizes)
        # Of all layers, whichever are kept: the model holds them until it has run.
        what = f"all {self.count} layers of {type(self.model).__name__}"
        self.bound.take(4 * self.count * heads * cells, what, "a smaller batch")

    def _end(self, module: nn.Module, args: Any, output: Any) -> Any:
        weights, plain = self._asked.pop()
        if not isinstance(output, Mapping):  # SpeechT5's vocoder gives a tensor
            return output
        with torch.no_grad():
            for kind in TABLES:
                everywhere = next((output[name] for name in GLOBAL if name in output), None)
                self._keep(kind, output.get(kind), everywhere)
        if not weights:
            rest = {name: part for name, part in output.items() if name not in HANDED_OUT}
            output = type(output)(**rest)
        return output if plain else output.to_tuple()

    def _keep(self, kind: str, tables: Any, everywhere: Any) -> None:
        for layer, table in enumerate(tables or ()):
            if not isinstance(table, Tensor) or table.ndim != 4:
                raise ArgumentError(
                    f"{type(self.model).__name__} gives no weights for its layer {layer}: load it "
                    f'with attn_implementation="eager", and run it without a second stream '
                    f"(target_mapping)"
                )
            if self.wanted is not None and layer not in self.wanted:
                continue
            if WINDOWED.get(self.model.config.model_type) == kind:
                table = unrolled(table, None if everywhere is None else everywhere[layer],
                                 self._global)  # fmt: skip
            at = (kind, layer)
            if at not in self.series:
                cross = kind == "cross_attentions"
                self.series[at] = Weights(self._name(kind, layer), layer,
                                          "cross" if cross else "self")  # fmt: skip
            self.series[at].add(np.array(as_numpy(table)))
            if self.progress is not None:
                self.progress(self.series[at].name)

    def _name(self, kind: str, layer: int) -> str:
        """The innermost attention module of the layer: that is where weights are computed."""
        named = dict(self.model.named_modules())
        found = [
            name
            for name, module in named.items()
            if "attention" in type(module).__name__.lower() and layer_number(module, name) == layer
        ]
        part = {"encoder_attentions": "encoder."}.get(kind, "decoder.")
        if kind != "attentions":
            found = [name for name in found if part in f"{name}."]
        else:  # the text's, where the layers of another part (GOT-OCR2's eyes) have its numbers
            text = self.model.config.get_text_config(decoder=True)
            parts = [
                n for n, m in named.items() if isinstance(m, PreTrainedModel) and m.config is text
            ]
            own = [n for n in found if any(not at or n.startswith(f"{at}.") for at in parts)]
            found = own or found
        cross = kind == "cross_attentions"
        found = [name for name in found if bool(CROSS.search(name)) == cross] or found
        deepest = max((name.count(".") for name in found), default=0)
        return next((n for n in found if n.count(".") == deepest), f"{kind}.{layer}")


def unrolled(table: Tensor, everywhere: Tensor | None, flags: Tensor | None) -> Tensor:
    """Longformer's weights as [B, H, N, N].

    table       [B, H, N, x + w + 1]: of the x tokens that all see, then of the w + 1 around oneself
    everywhere  [B, H, N, x]: what those x tokens, which see everything, give to each
    flags       [B, N or more], 1 at these tokens
    """
    batch, heads, length, width = table.shape
    full = 0 if everywhere is None else everywhere.shape[3]
    found = table.new_zeros((batch, heads, length, length))
    around = width - full
    rows = torch.arange(length)
    for step in range(around):
        columns = rows + step - around // 2
        there = (columns >= 0) & (columns < length)
        found[:, :, rows[there], columns[there]] = table[:, :, there, full + step]
    if everywhere is None or flags is None:
        return found
    for entry, at in enumerate(_places(flags, length)):
        found[entry, :, :, at] += table[entry, :, :, : len(at)]
        found[entry, :, at] = everywhere[entry, :, :length, : len(at)].mT
    return found


def _places(flags: Tensor, length: int) -> Iterator[Tensor]:
    for entry in flags[:, :length]:
        yield entry.gt(0).nonzero().flatten()
