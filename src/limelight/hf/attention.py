"""What Transformers calls in every attention layer of a model on limelight.

The arguments are those of Transformers' attention interface: query, key and value as
[batch, heads, length, size], the mask that the registered mask function made (or None, or the
caller's own), and what a model may add: softcap (Gemma 2), s_aux (gpt-oss's sinks), sinks of each
query (Inkling 2), position_bias (T5), and the keys that a sparse attention picked for each query:
indices (DeepSeek V3.2) or block_indices (MiniMax M3). Returns the output as [batch, length, heads,
size] and no weights: a capture has those.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias

from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.hf.compact import CompactMask
from limelight.hf.masks import learned_sdpa, only_eager
from limelight.masks import Causal, Mask, as_mask
from limelight.torch import bridge, functional, packed
from limelight.torch.recording import CROSS

_gathering: Any = None  # by name, what the pass that runs now gives beside its output
with suppress(ImportError):
    from transformers.utils.output_capturing import _active_collector as _gathering

CAUSAL = Causal()  # one for all layers, so that a recorder measures it once
SAID = {"sliding_window", "output_attentions"}  # by the mask; in a warning
READ: dict[tuple[str, str], bool] = {}
RECORDER = "limelight_recorder"  # the attribute on the modules of a model that is captured


class Asked(NamedTuple):
    """One attention in limelight's terms."""

    query: Tensor
    key: Tensor
    value: Tensor
    rule: dict[str, Any]  # mask, bias, scale, softcap, sinks, dropout


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    sinks: Tensor | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Registered as `attn_implementation="limelight"`."""
    if kwargs.get("cache") is not None:
        raise ArgumentError(
            "a paged cache (continuous batching) was given: its pages are read inside of "
            "`with limelight.hf.serving(model):`"
        )
    if not torch.compiler.is_compiling() and _weights_asked(kwargs):
        warnings.warn(
            "output_attentions=True gives nothing here: limelight makes no n×n weights. Run the "
            "model inside `with limelight.hf.capture(model) as cap:`, then "
            "cap[layer].weights(head=…) gives those of a head",
            stacklevel=2,
        )
    for name, given in kwargs.items():
        if given is None or name in SAID:
            continue
        if _read_on_eager(type(module).forward.__module__, name):
            raise ArgumentError(
                f"{type(module).__name__} gives its attention {name}=…, which means something to "
                f"this model's own attention and nothing to limelight: run it on "
                f'attn_implementation="eager"'
            )
    if attention_mask is None and query.shape[2] > 1:
        is_causal = _is_causal(module, is_causal)
    if sinks is not None:  # [B, H, Nq, 1]: less its own sink's logit, each row has the sink at 0
        position_bias = -sinks if position_bias is None else position_bias - sinks
        s_aux = sinks.new_zeros(query.shape[1])
    asked = understand(query, key, value, attention_mask, bool(is_causal), position_bias)
    starts = kwargs.get("cu_seq_lens_q")
    if starts is not None:
        ends = kwargs.get("cu_seq_lens_k")
        asked.rule["mask"] = packed.within(asked.rule["mask"], starts, ends, asked.query, asked.key)
    if indices is not None:
        asked.rule["mask"] = _picked(indices[:, None], 1, asked)
    elif block_indices is not None:
        indexer: Any = module.indexer
        asked.rule["mask"] = _picked(block_indices, indexer.block_size, asked)
    asked.rule.update(scale=scaling, softcap=softcap, sinks=s_aux, dropout=dropout)
    recorder, site = bridge.set_on(module, RECORDER), bridge.key_of(module)
    if recorder is not None:
        output = recorder.attention(module, asked, site)
    else:
        output = functional.attention(*asked[:3], **asked.rule, site=site)
    return output.transpose(1, 2).contiguous(), None


def _weights_asked(kwargs: dict[str, Any]) -> bool:
    """Whether the call says so, or Transformers gathers them: GPT-2 tells its layers nothing."""
    gathered = None if _gathering is None else _gathering.get()
    return bool(kwargs.get("output_attentions")) or any(
        name.endswith("attentions") for name in gathered or ()
    )


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _read_on_eager(place: str, name: str) -> bool:
    """Whether the attention that a model's file has for eager takes a keyword that is not ours."""
    found = READ.get((place, name))
    if found is None:
        file = getattr(sys.modules.get(place), "__dict__", {})
        own = [part for at, part in file.items() if at.endswith("eager_attention_forward")]
        found = any(name in inspect.signature(one).parameters for one in own)
        READ[place, name] = found
    return found


def understand(
    query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, is_causal: bool,
    position_bias: Tensor | None,
) -> Asked:  # fmt: skip
    """The call as the model meant it: which keys, which mask, which bias."""
    mask: Mask | Tensor | None = None
    bias, keys = position_bias, key.shape[2]
    if attention_mask is None:
        if is_causal and query.shape[2] > 1:
            # Without a mask causal starts at the first key; keys after the last query are the
            # unused end of a static cache.
            mask, keys = CAUSAL, query.shape[2]
    elif isinstance(attention_mask, CompactMask):
        if attention_mask.shape[3] != keys:  # a static cache's keys and masks are both of its size
            raise ShapeError(
                f"the attention_mask says which of {attention_mask.shape[3]} keys are real, and "
                f"there are {keys}: give one flag for every token, those in a cache included"
            )
        mask, keys = attention_mask.rule, attention_mask.keys
    elif attention_mask.dtype == torch.bool or isinstance(attention_mask, CausalBias):
        mask = attention_mask
    elif not attention_mask.is_floating_point():
        raise DtypeError(
            f"the attention_mask of {tuple(attention_mask.shape)} has dtype "
            f"{attention_mask.dtype}: a mask of four axes is boolean (True attends), or of floats "
            f"that are added to the logits. Cast it with .bool()"
        )
    else:
        bias = attention_mask if bias is None else bias + attention_mask
    if keys < key.shape[2]:
        key, value = key[:, :, :keys], value[:, :, :keys]
        bias = bias if bias is None or bias.shape[3] == 1 else bias[..., :keys]
    return Asked(query, key, value, {"mask": mask, "bias": bias})


def _picked(places: Tensor, width: int, asked: Asked) -> Any:
    """The mask, and only the keys that were picked: on sdpa and eager Transformers' mask says so.

    places [B, groups, Nq, K] are numbers of blocks of so many keys; a negative one is none.
    """
    heads, keys = asked.query.shape[1], asked.key.shape[2]
    blocks = -(-keys // width)
    none = (places < 0) | (places >= blocks)  # or in the unused end of a static cache
    shown = places.new_zeros((*places.shape[:3], blocks + 1), dtype=torch.bool)
    shown.scatter_(-1, places.masked_fill(none, blocks).long(), True)
    shown = shown[..., :blocks].repeat_interleave(width, dim=-1)[..., :keys]
    if shown.shape[1] > 1:
        shown = shown.repeat_interleave(heads // shown.shape[1], dim=1)
    mask = asked.rule["mask"]
    return shown if mask is None else as_mask(mask) & as_mask(shown)


def _is_causal(module: torch.nn.Module, said: bool | None) -> bool:
    """Whether a call without a mask is causal, by what sdpa would do.

    It asks the call, then the module, and takes a silent module for causal, but for a cross
    attention (Mllama's), whose keys are not its queries' own past. Where a model never learned
    sdpa, nobody has tried that guess: eager hides nothing without a mask.
    """
    place = type(module).__module__
    if only_eager(place):
        return False
    said = getattr(module, "is_causal", None) if said is None else said
    if said is None and not learned_sdpa(place):
        raise ArgumentError(
            f"{type(module).__name__} asks for attention without a mask, and nothing says whether "
            f"its queries may see what comes after them. Give the module an attribute is_causal, "
            f"or pass is_causal=… or a mask with the call; for a model that runs on sdpa, "
            f"_supports_sdpa = True in its class says so too"
        )
    return not CROSS.search(type(module).__name__) if said is None else bool(said)
