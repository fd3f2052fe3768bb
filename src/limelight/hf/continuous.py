"""Transformers' continuous batching on limelight: `generate_batch`, whose cache lies in pages.

Continuous batching takes implementations whose name says "flash": these it hands the lengths of the
sequences, where the others get a mask of n×n cells. So limelight has a second name for it, which
`serving` gives a model for a while. Where the cache of a layer is one of whole sequences, its rows
are read where they lie, by the table that Transformers made; those of a sliding window, which new
keys overwrite, it brings together itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from limelight.errors import ArgumentError
from limelight.hf.projections import transformer
from limelight.torch.paged import Plan

NAME = "limelight_flash"
BEYOND = ("position_bias", "sinks", "indices", "block_indices")  # no pages with these are read


@contextmanager
def serving(model: Any) -> Iterator[PreTrainedModel]:
    """The model on limelight for continuous batching, and afterwards as it was.

    with limelight.hf.serving(model):
        answers = model.generate_batch(prompts, generation_config=…)

    Of what limelight.hf.load gives, the Transformers model in it comes back.
    """
    model = transformer(model)
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, no_mask)
    before = model.config._attn_implementation
    # set_attn_implementation would look for a package of that name.
    model.config._attn_implementation = NAME
    try:
        yield model
    finally:
        model.config._attn_implementation = before


class Step(NamedTuple):
    """What was worked out for one step of the batch, for all its layers."""

    of: Any  # the step's own list of indices: another step has another
    plans: dict[tuple[int, int | None], Plan]


_steps: WeakKeyDictionary[Any, Step] = WeakKeyDictionary()


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    sliding_window: int | None = None,
    cache: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What Transformers calls in every layer; the tokens of a step are [1, H, tokens, D]."""
    if cache is None:
        raise ArgumentError(
            "limelight.hf.serving(model) is for continuous batching, model.generate_batch(…): for "
            'all else use attn_implementation="limelight"'
        )
    for name in BEYOND:
        if kwargs.get(name) is not None:
            raise ArgumentError(
                f"{type(module).__name__} gives its attention {name}=…, which continuous batching "
                f'does not take here: run the model by generate(…) on "limelight"'
            )
    layer: Any = module.layer_idx
    home = cache.layer_to_allocator[layer]
    read, write = (kwargs[name][home.index] for name in ("read_index", "write_index"))
    in_place = read.numel() > 0 and home.supports_block_table
    if in_place:
        keys, values = (pages.flatten(0, 1) for pages in home.get_cache_for_block_table(layer))
        keys.index_copy_(0, write, key[0].transpose(0, 1))
        values.index_copy_(0, write, value[0].transpose(0, 1))
    else:
        lengths = kwargs["cu_seq_lens_k"]
        key, value = cache.update(key, value, layer, kwargs)  # which puts one layer's for all
        kwargs["cu_seq_lens_k"] = lengths
        keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)  # [rows, Hk, D]
    step = _steps.get(cache)
    if step is None or step.of is not kwargs["read_index"]:
        step = _steps[cache] = Step(kwargs["read_index"], {})
    window = None if sliding_window is None else sliding_window - 1
    plan = step.plans.get((home.index, window))
    if plan is None:
        rows = read if in_place else torch.arange(len(keys), device=query.device)
        starts = kwargs["cu_seq_lens_q"], kwargs["cu_seq_lens_k"][home.layer_type]
        plan = step.plans[home.index, window] = _plan(rows, *starts, window)
    tokens = query[0].transpose(0, 1)
    seen = plan.run(tokens, keys, values, scale=scaling, softcap=softcap, sinks=s_aux, health=False)
    return seen.output[None], None


def _plan(rows: Tensor, starts_q: Tensor, starts_k: Tensor, window: int | None) -> Plan:
    """The rows of all sequences, one after the other, as a table of pages of one key."""
    queries, lengths = starts_q.diff().long(), starts_k.diff().long()
    most = int(lengths.max())
    at = (starts_k[:-1, None] + torch.arange(most, device=rows.device)).clamp_max(len(rows) - 1)
    return Plan.of(rows[at], lengths, queries, 1, int(queries.sum()), window)


def no_mask(*_: Any, **__: Any) -> None:
    """The mask function of that name: lengths say it all."""
