"""Projections: where a Transformers model's heads join, so that a head can be told from the others.

Every attention ends in a product with W_O, whose input holds the heads side by side. Families call
it by a few names; a model that has none of them, or several attentions to a layer, is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from limelight.arrays import index
from limelight.errors import ArgumentError
from limelight.hf.recorder import layer_number
from limelight.torch.monitor.patch import bare
from limelight.torch.projections import by_heads

NAMES = ("o_proj", "out_proj", "c_proj", "dense", "out_lin", "wo", "o", "W_O", "Wo")
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")


@dataclass(frozen=True, eq=False)
class Projection:
    """The W_O of one layer; its input is [.., heads · size]."""

    name: str
    module: nn.Module
    heads: int

    def split(self, read: Tensor) -> Tensor:
        """What the heads read, by heads: [.., heads, size]."""
        return read.reshape(*read.shape[:-1], self.heads, -1)

    def out(self, size: int) -> Tensor | None:
        """W_O by heads of that size, [heads, size, width]; None where its weight is packed."""
        weight = getattr(self.module, "weight", None)
        if not isinstance(weight, Tensor):
            return None
        return by_heads(weight.T if _turned(self.module) else weight, self.heads, size)


def inner(model: Any) -> Any:
    """The Transformers model in what limelight.hf.load gives, and in torch.compile's and DDP's
    wrappers; anything else as it is."""
    found = bare(model)
    return found if isinstance(found, PreTrainedModel) else bare(getattr(found, "model", found))


def transformer(model: Any) -> PreTrainedModel:
    """The Transformers model itself, or an error that says what came."""
    found = inner(model)
    if not isinstance(found, PreTrainedModel):
        raise ArgumentError(
            f"this takes a Transformers model, and got {type(model).__name__}: give what "
            f"limelight.hf.load or from_pretrained returns"
        )
    return found


def projections(model: PreTrainedModel) -> dict[int, Projection]:
    """By layer, or an error that names the way out."""
    kind, named = type(model).__name__, dict(model.named_modules())
    found: dict[int, Projection] = {}
    for name, module in named.items():
        above = name.split(".")
        around = [named[".".join(above[:n])] for n in range(1, len(above))]
        attention = [m for m in around if "attention" in type(m).__name__.lower()]
        if above[-1] not in NAMES or not attention or not isinstance(_width(module), int):
            continue
        heads = _heads(attention, model)
        layer = layer_number(attention[-1], name)
        if heads is None or _width(module) % heads:
            raise ArgumentError(
                f"{name} of {kind} takes {_width(module)} numbers, which are not {heads} heads "
                f"side by side: {_OUT.format(name=name)}"
            )
        if layer in found:
            raise ArgumentError(
                f"layer {layer} of {kind} has two attentions, {found[layer].name} and {name}: give "
                f"the part that is meant, such as model.encoder or model.decoder, where each has "
                f"one; else {_OUT.format(name=name)}"
            )
        found[layer] = Projection(name, module, heads)
    if not found:
        raise ArgumentError(
            f"no output projection of an attention is known in {kind} (looked for "
            f"{', '.join(NAMES)}): {_OUT.format(name='the module that joins the heads')}"
        )
    return found


_OUT = "a forward pre-hook of torch's on {name} can set a head's part of its input"


def chosen(
    model: PreTrainedModel, heads: Any, attention: Any = ()
) -> tuple[dict[int, Projection], dict[int, list[int]]]:
    """The projections, and the heads that are meant by layer, each checked."""
    from limelight.live.off import Off

    asked, there = Off(heads=heads, attention=attention), projections(model)
    layers = sorted(there)
    wanted: dict[int, list[int]] = {}
    for layer, head in asked.heads:
        at = layers[index(layer, len(layers), "layer")]
        wanted.setdefault(at, []).append(index(head, there[at].heads, "head"))
    for layer in asked.attention:
        at = layers[index(layer, len(layers), "layer")]
        wanted[at] = list(range(there[at].heads))
    return there, wanted


def _width(module: nn.Module) -> Any:
    """How many numbers a linear module takes; Conv1D, GPT-2's, has its weight turned."""
    if hasattr(module, "in_features"):
        return module.in_features
    weight = getattr(module, "weight", None)
    if _turned(module) and isinstance(weight, Tensor):
        return weight.shape[0]
    return None


def _turned(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D"


def _heads(around: list[nn.Module], model: PreTrainedModel) -> int | None:
    """What the nearest attention says, then its config, then the model's."""
    places = [*reversed(around), *(getattr(m, "config", None) for m in reversed(around))]
    for place in (*places, model.config.get_text_config(decoder=True), model.config):
        for name in HEADS:
            said = getattr(place, name, None)
            if isinstance(said, int):
                return said
    return None
