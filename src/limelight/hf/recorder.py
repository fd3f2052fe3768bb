"""Recorder: sits in a model's attention while a capture is open, and keeps what passes by."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limelight.arrays import as_numpy, is_integer
from limelight.attention import Inspection
from limelight.capture import Rows
from limelight.errors import ArgumentError
from limelight.hf.attention import RECORDER, Asked
from limelight.hf.inputs import Inputs
from limelight.hf.series import Said, Series
from limelight.masks import Explicit, as_mask
from limelight.masks.measured import measured
from limelight.torch import functional
from limelight.torch.recording import kind_of
from limelight.torch.rules import split

LARGE = 1 << 20  # numbers in the queries of one call


class Recorder:
    """Keeps the calls of the chosen layers, by module and by how often it ran in one pass."""

    def __init__(
        self, model: PreTrainedModel, layers: Any, *, values: bool, dtype: Any,
        progress: Callable[[str], None] | None,
    ) -> None:  # fmt: skip
        self.model, self.values, self.dtype, self.progress = model, values, dtype, progress
        self.names = {module: name for name, module in model.named_modules()}
        self.layers = layer_numbers(model)
        self.wanted = choose(layers, self.layers, type(model).__name__)
        self.series: dict[tuple[str, int], Series] = {}
        self.inputs = Inputs()
        self._ran: set[str] = set()  # of the innermost attention modules
        self._seen: set[str] = set()  # that went through here
        self._depth = 0
        self._calls: Counter[str] = Counter()
        self._measured: dict[int, tuple[Any, Any]] = {}
        self._biases: dict[Any, tuple[Tensor, Any]] = {}
        self._hooks: list[Any] = []

    def attach(self) -> None:
        """Stand in every module, and listen where the model and its parts begin and end."""
        for module in self.names:
            setattr(module, RECORDER, self)
            if isinstance(module, PreTrainedModel):
                begin = module.register_forward_pre_hook(self._begin, with_kwargs=True)
                end = module.register_forward_hook(self._end, always_call=True)
                self._hooks += [begin, end]
        for module, _ in _innermost(self.names):
            self._hooks.append(module.register_forward_pre_hook(self._run))

    def __deepcopy__(self, _: Any) -> Recorder:
        """What a copy of the model gets: one that knows none of its modules, and keeps nothing."""
        stranger = object.__new__(Recorder)
        stranger.names = {}
        return stranger

    def detach(self) -> None:
        for module in self.names:
            module.__dict__.pop(RECORDER, None)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def attention(self, module: nn.Module, asked: Asked, site: str) -> Tensor:
        """Attention as the model asked for, with its health; kept if it is one of the wanted."""
        name = self.names.get(module)
        if name is None:
            return functional.attention(*asked[:3], **asked.rule, site=site)
        turn = self._calls[name]
        self._calls[name] += 1
        self._seen.add(name)
        layer = self._layer(module, name)
        # Outside of a forward pass this is checkpointing's second run: seen before.
        if self._depth == 0 or (self.wanted is not None and layer not in self.wanted):
            return functional.attention(*asked[:3], **asked.rule, site=site)
        # Under torch.autocast the statistics are those of the rounded numbers: keep these.
        asked = Asked(*functional.autocast(*asked[:3]), asked.rule)
        asked = _without_tail(_with_hidden(asked))
        seen = functional.inspect(*asked[:3], **asked.rule, site=site)
        self.keep((name, turn), layer, module, asked, seen)
        if asked.query.numel() > LARGE:
            release()
        if self.progress is not None:
            self.progress(name)
        output: Tensor = seen.output
        return output

    def keep(
        self, at: tuple[str, int], layer: int, module: nn.Module, asked: Asked, seen: Inspection
    ) -> None:
        """What is wanted of one attention: by module and turn, its queries, keys and rows."""
        name, turn = at
        query, key, value, rule = asked
        spans, mask = self._rows(rule["mask"], query.shape[2], key.shape[2])
        health = seen.health.numpy()
        rows = Rows(*(np.array(x) for x in (health.logsumexp, health.max_logit, health.entropy)))
        said = Said(rows, self._array(rule["bias"]), spans, mask, key.shape[2])
        if at not in self.series:
            self.series[at] = Series(
                name=name if turn == 0 else f"{name}#{turn}", layer=layer,
                kind=_kind(module, name, query.shape[2], key.shape[2], spans),
                scale=rule["scale"], softcap=rule["softcap"],
                sinks=None if rule["sinks"] is None else np.array(as_numpy(rule["sinks"])),
                dtype=self.dtype,
            )  # fmt: skip
        self.series[at].add(query, key, value if self.values else None, said)

    def warn_of_unseen(self, stacklevel: int) -> None:
        """Say which attention ran and is not kept, since its module computes it by itself."""
        unseen = {}
        for module, name in _innermost(self.names):
            wanted = self.wanted is None or layer_number(module, name) in self.wanted
            if wanted and name in self._ran and not any(_one_in_other(name, n) for n in self._seen):
                unseen[name] = type(module).__name__
        if unseen:
            kinds, first = " and ".join(dict.fromkeys(unseen.values())), next(iter(unseen))
            warnings.warn(
                f"the attention of {kinds} was not seen, in {len(unseen)} of the model's modules "
                f"({first}{', …' if len(unseen) > 1 else ''}), which compute it by themselves. "
                f"limelight.torch.capture(model) sees what calls torch's attention",
                stacklevel=stacklevel + 1,
            )

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _run(self, module: nn.Module, _: Any) -> None:
        if module in self.names:
            self._ran.add(self.names[module])

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if module not in self.names:
            return
        if self._depth == 0:
            self._calls.clear()
            self._measured.clear()
            self._biases.clear()
        self._depth += 1
        self.inputs.add(self.names[module], module, args, kwargs)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _end(self, module: nn.Module, *_: Any) -> None:
        if module in self.names:
            self._depth = max(0, self._depth - 1)

    def _rows(self, mask: Any, nq: int, nk: int) -> tuple[Any, Any]:
        """The mask in rows, or itself where they are too scattered.

        Worked out once for all layers that share it.
        """
        known = self._measured.get(id(mask))
        if known is None or known[0] is not mask or known[1][0] != (nq, nk):
            known = self._measured[id(mask)] = (mask, ((nq, nk), *measured(mask, nq, nk)))
        _, spans, scattered = known[1]
        return spans, scattered

    def _array(self, bias: Tensor | None) -> Any:
        """The bias as NumPy, one array for all layers that share the tensor; None if it adds 0."""
        if bias is None:
            return None
        key = (bias.data_ptr(), tuple(bias.shape), bias.stride())
        if key not in self._biases:  # the tensor is kept, so that its place is not used again
            array = np.array(as_numpy(bias))
            self._biases[key] = (bias, array if array.any() else None)
        return self._biases[key][1]

    def _layer(self, module: nn.Module, name: str) -> int:
        """The module's layer; where layers share modules (ALBERT), how many ran before it."""
        if len(self.layers) > len({layer_number(m, n) for m, n in _attentions(self.names)}):
            return sum(self._calls.values()) - 1
        return layer_number(module, name)


def choose(layers: Any, numbers: set[int], model: str) -> set[int] | None:
    """The layers that were asked for, negative ones from the end; None for all."""
    if layers is None:
        return None
    known = sorted(numbers)
    wanted = set()
    for layer in list(layers) if isinstance(layers, Iterable) else [layers]:
        if not is_integer(layer):
            raise ArgumentError(
                f"layers={layers!r}: give layer numbers, as in layers=[0, -1], or None for all"
            )
        number = int(layer)
        at = known[number] if -len(known) <= number < 0 else number
        if at not in numbers:
            raise ArgumentError(
                f"layer {layer} does not exist: {model} has {len(known)} layers, numbered from "
                f"{known[0]} to {known[-1]}"
            )
        wanted.add(at)
    if not wanted:
        raise ArgumentError("no layer was asked for: give layer numbers, or None for all")
    return wanted


def release() -> None:
    """Hand memory that was freed back to the system.

    What a capture keeps lies between the model's short-lived tensors, and the C library then finds
    no gap for the next ones: SmolLM2 at 8,192 tokens grew to 4.1 GB, for 0.75 GB kept. Trimming
    costs milliseconds a layer. Only glibc needs it, and has it.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def layer_numbers(model: PreTrainedModel) -> set[int]:
    """The numbers that the model's layers go by."""
    named = {module: name for name, module in model.named_modules()}
    found = {layer_number(module, name) for module, name in _attentions(named)}
    config = model.config.get_text_config(decoder=True)  # Musicgen has two
    return found | set(range(layer_count(config))) or {0}


def layer_count(config: Any) -> int:
    """How many layers a config says there are; 0 where it says none, or (LXMERT's) those of each
    part."""
    said = getattr(config, "num_hidden_layers", None)
    return said if isinstance(said, int) else 0


def layer_number(module: nn.Module, name: str) -> int:
    """What the module says, or the first number in its name."""
    said = getattr(module, "layer_idx", None)
    if isinstance(said, int):
        return said
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    return numbers[0] if numbers else 0


def _attentions(names: dict[nn.Module, str]) -> list[tuple[nn.Module, str]]:
    return [(m, n) for m, n in names.items() if "attention" in type(m).__name__.lower()]


def _innermost(names: dict[nn.Module, str]) -> list[tuple[nn.Module, str]]:
    """Attention modules without another one inside: BertSelfAttention, and not BertAttention.

    A layer named for its attention (OlmoHybridLinearAttentionDecoderLayer) is none.
    """
    named = _attentions(names)
    found = {m: n for m, n in named if type(m).__name__.lower().endswith("attention")}
    return [(m, n) for m, n in found.items() if sum(part in found for part in m.modules()) == 1]


def _one_in_other(first: str, second: str) -> bool:
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


def _kind(module: nn.Module, name: str, nq: int, nk: int, spans: Any) -> str:
    sees_all = spans is not None and bool((spans[..., 0, :] == (0, nk)).all())
    return kind_of(module, name, nq, nk, sees_all)


def _with_hidden(asked: Asked) -> Asked:
    """An additive mask's "minus infinity", which models write as the least float, as a mask."""
    bias = asked.rule["bias"]
    if bias is None or not bias.is_floating_point():
        return asked
    shown: Any
    shown, rest = split(bias)
    if shown is not None and asked.rule["mask"] is not None:
        shown = as_mask(asked.rule["mask"]) & Explicit(shown)
    mask = asked.rule["mask"] if shown is None else shown
    return asked._replace(rule={**asked.rule, "mask": mask, "bias": rest})


def _without_tail(asked: Asked) -> Asked:
    """Without the keys that no query may see, at the end of a static cache: they are not there yet.

    Only a step that comes with a plain tensor as mask can have them; rules leave them out.
    """
    mask = asked.rule["mask"]
    nq, nk = asked.query.shape[2], asked.key.shape[2]
    if not isinstance(mask, Tensor) or nq >= nk or mask.shape[3] != nk:
        return asked
    used = int((mask.flatten(0, 2).any(dim=0) * torch.arange(1, nk + 1, device=mask.device)).max())
    if not nq <= used < nk:
        return asked
    bias = asked.rule["bias"]
    rule = {
        **asked.rule,
        "mask": mask[..., :used],
        "bias": bias if bias is None or bias.shape[3] == 1 else bias[..., :used],
    }
    return Asked(asked.query, asked.key[:, :, :used], asked.value[:, :, :used], rule)
