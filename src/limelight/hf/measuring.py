"""effects(): what each head's absence does to what a Transformers model says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limelight.arrays import as_numpy, is_integer
from limelight.errors import ArgumentError
from limelight.hf.inputs import texts
from limelight.hf.loading import Loaded
from limelight.hf.projections import projections, transformer
from limelight.hf.switching import means_of, replaced
from limelight.live.effects import Effects
from limelight.live.measure import Measure
from limelight.writing.pieces import SPACE

Array = NDArray[Any]


def effects(
    model: Any,
    text: str,
    *,
    tokenizer: Any = None,
    answer: int | str | None = None,
    against: int | str | None = None,
    loss: bool = False,
    since: int = 1,
    mean_over: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Effects:
    """As limelight.live's effects, on any model that foretells tokens: layers × heads.

    model      what limelight.hf.load gives; or a Transformers model, with tokenizer=
    tokenizer  what turns the text into tokens, where it does not come with the model

    All heads of a layer go through the model as one batch, each entry with another head off.
    """
    loaded = _with_tokenizer(model, tokenizer)
    model, inputs = loaded.model, loaded.inputs(text)
    ids = [int(i) for i in inputs["input_ids"][0]]

    def logits(copies: int) -> Array:
        given = {name: tensor.expand(copies, *tensor.shape[1:]).to(model.device)
                 for name, tensor in inputs.items()}  # fmt: skip
        with torch.no_grad():
            found = getattr(model(**given), "logits", None)
        if found is None or found.ndim != 3 or not model.can_generate():
            raise ArgumentError(
                f"{loaded.name} ({type(model).__name__}) foretells no next token: effects need a "
                f"language model; limelight.hf.off switches its heads off around any run of yours"
            )
        return np.asarray(as_numpy(found))

    def named(i: int) -> str:
        return texts(np.array([[i]]), loaded.tokenizer)[0][0]

    def token(given: int | str) -> int:
        if is_integer(given):
            if not 0 <= int(given) < whole.shape[2]:
                raise ArgumentError(
                    f"there is no token {given}: those of {loaded.name} are numbered 0 to "
                    f"{whole.shape[2] - 1:,}"
                )
            return int(given)
        if not isinstance(given, str):
            raise ArgumentError(f"{given!r} names no token: give its text, or its number")
        found = loaded.tokenizer(given, add_special_tokens=False)["input_ids"]
        if len(found) != 1 or named(found[0]) != given:  # Llama 2's kind puts a space before it
            exact = loaded.tokenizer.get_vocab().get(given.replace(" ", SPACE))
            found = found if exact is None or named(exact) != given else [exact]
        if len(found) != 1:
            raise ArgumentError(f"{given!r} is {len(found)} tokens for {loaded.name}: give one")
        return int(found[0])

    whole = logits(1)
    follow = Measure.of(ids, whole[0, -1], token, answer=answer, against=against,
                        loss=loss, since=since)  # fmt: skip
    there = projections(model)
    means = None if mean_over is None else means_of(loaded, mean_over, there)
    after = np.full((len(there), max(p.heads for p in there.values())), np.nan)
    for row, (layer, projection) in enumerate(sorted(there.items())):
        instead = None if means is None else means[layer]
        with replaced(projection, _each(instead)):
            after[row, : projection.heads] = follow(follow.rows(logits(projection.heads)))
        if progress is not None:
            progress(f"layer {row + 1} of {len(there)}")
    before = float(follow(follow.rows(whole))[0])
    return Effects.of(
        follow, before, after, texts(np.array([ids]), loaded.tokenizer)[0], named,
        names=tuple(str(head) for head in range(after.shape[1])), source=loaded.name,
    )  # fmt: skip


def _with_tokenizer(model: Any, tokenizer: Any) -> Loaded:
    """The model beside what turns texts into its inputs, or an error that names the way out."""
    bare = transformer(model)
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    source = getattr(model, "source", {})
    loaded = Loaded(bare, tokenizer, source=source if isinstance(source, dict) else {})
    if tokenizer is None:
        raise ArgumentError(
            f"{loaded.name} comes without a tokenizer, and effects are those on a text: give "
            f"tokenizer=…, or a language model as limelight.hf.load returns it"
        )
    if not callable(tokenizer):
        raise ArgumentError(
            f"tokenizer={tokenizer!r} is no tokenizer: give what AutoTokenizer.from_pretrained "
            f"returns, or a model as limelight.hf.load returns it"
        )
    return loaded


def _each(instead: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Entry h of the batch without head h."""

    def change(read: Tensor) -> Tensor:
        heads = torch.arange(read.shape[-2])
        if read.ndim != 4 or len(read) != len(heads):
            raise ArgumentError(
                f"the heads come as {tuple(read.shape)}, and one batch entry each was asked for: "
                f"measure them one by one inside limelight.hf.off"
            )
        read = read.clone()
        new = 0.0 if instead is None else instead.to(read)[:, None]
        read[heads, :, heads] = new
        return read

    return change
