"""off() and patch(): a Transformers model without some of its heads, or with another text's.

    with limelight.hf.off(model, heads=[(11, 1)]):
        model(**inputs)

What a head read is cut out where the heads join, before W_O: by zero, by its mean over a reference
text, or by what it read in another text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from limelight.errors import ArgumentError
from limelight.hf.projections import Projection, chosen, projections, transformer


@contextmanager
def off(
    model: Any, heads: Any = (), attention: Any = (), *, mean_over: Any = None
) -> Iterator[None]:
    """Run the model without these heads while the context is open.

    model      a Transformers model, or what limelight.hf.load gives
    heads      (layer, head) pairs; negative ones count from the end
    attention  layers whose heads are all off
    mean_over  what is off gives its mean over this text (or these inputs), and not zero
    """
    there, wanted = chosen(transformer(model), heads, attention)
    means = None if mean_over is None else means_of(model, mean_over, wanted)
    with ExitStack() as hooks:
        for layer, which in wanted.items():
            instead = None if means is None else means[layer]
            hooks.enter_context(replaced(there[layer], _cut(which, instead)))
        yield


@contextmanager
def patch(model: Any, *, from_run: Any, heads: Any = (), attention: Any = ()) -> Iterator[None]:
    """Run the model with what these heads read in another text of the same length.

    from_run   that text (where limelight.hf.load gave the model), or the model's inputs
    """
    there, wanted = chosen(transformer(model), heads, attention)
    known = recorded(model, from_run, wanted)
    with ExitStack() as hooks:
        for layer, which in wanted.items():
            hooks.enter_context(replaced(there[layer], _put(which, known[layer])))
        yield


@contextmanager
def replaced(projection: Projection, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Hand the projection what `change` makes of the heads, [.., heads, size].

    Compiled code runs eager meanwhile: a finished graph calls no hooks.
    """

    def hook(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        read = given[0]
        return (change(projection.split(read)).reshape(read.shape), *given[1:])

    compiled = "torch._dynamo" in sys.modules  # else nothing can have been
    handle = projection.module.register_forward_pre_hook(hook)
    try:
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            yield
    finally:
        handle.remove()


def recorded(model: Any, given: Any, layers: Any) -> dict[int, Tensor]:
    """What the heads of these layers read in a run over a text or inputs: [B, N, heads, size]."""
    inputs = as_inputs(model, given)
    found: dict[int, Tensor] = {}
    known = projections(transformer(model))

    def keep(layer: int) -> Callable[[Tensor], Tensor]:
        def kept(read: Tensor) -> Tensor:
            found[layer] = read.detach().clone()
            return read

        return kept

    with ExitStack() as hooks, torch.no_grad():
        for layer in layers:
            hooks.enter_context(replaced(known[layer], keep(layer)))
        transformer(model)(**inputs)
    silent = [known[layer].name for layer in layers if layer not in found]
    if silent:
        raise ArgumentError(
            f"{', '.join(silent)} did not run: its heads cannot be replaced. Leave them out, or "
            f"give a run that reaches it"
        )
    return found


def as_inputs(model: Any, given: Any) -> Mapping[str, Any]:
    """A text through the model's own tokenizer; inputs as they are."""
    if not isinstance(given, str):
        if not isinstance(given, Mapping):
            raise ArgumentError(
                f"a run is given as a text or as the model's inputs, and this is a "
                f"{type(given).__name__}"
            )
        return given
    if not hasattr(model, "inputs"):
        raise ArgumentError(
            "a text needs a tokenizer: give what limelight.hf.load returns, or the model's inputs"
        )
    inputs: Mapping[str, Any] = model.inputs(given)
    device = transformer(model).device
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def means_of(model: Any, given: Any, layers: Any) -> dict[int, Tensor]:
    """What each head reads on average, [heads, size]; padding does not count."""
    inputs = as_inputs(model, given)
    read, real = recorded(model, inputs, layers), inputs.get("attention_mask")
    if real is None:
        return {layer: heads.flatten(0, -3).mean(0) for layer, heads in read.items()}
    return {layer: heads[real.bool()].mean(0) for layer, heads in read.items()}


def _cut(which: list[int], instead: Tensor | None) -> Callable[[Tensor], Tensor]:
    def change(read: Tensor) -> Tensor:
        read = read.clone()
        read[..., which, :] = 0.0 if instead is None else instead[which].to(read)
        return read

    return change


def _put(which: list[int], other: Tensor) -> Callable[[Tensor], Tensor]:
    def change(read: Tensor) -> Tensor:
        if read.shape[-3] != other.shape[-3] or other.shape[0] not in (1, read.shape[0]):
            raise ArgumentError(
                f"the other run is {tuple(other.shape[:-2])} (batch, tokens) and this one "
                f"{tuple(read.shape[:-2])}: patch from a text of as many tokens"
            )
        read = read.clone()
        read[..., which, :] = other[..., which, :].to(read)
        return read

    return change
