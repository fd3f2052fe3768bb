"""What Transformers calls in every attention layer of a model on limelight.

The arguments are those of Transformers' attention interface: query, key and value as
[batch, heads, length, size], the mask that the registered mask function made (or None, or the
caller's own), and what a model may add: softcap (Gemma 2), s_aux (gpt-oss's sinks), position_bias
(T5). Returns the output as [batch, length, heads, size] and no weights: a capture has those.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from limelight.errors import ArgumentError, ShapeError
from limelight.hf.compact import CompactMask
from limelight.hf.masks import only_eager
from limelight.masks import Causal, Mask
from limelight.torch import functional
from limelight.torch.bridge import SITE

CAUSAL = Causal()  # one for all layers, so that a recorder measures it once
RECORDER = "limelight_recorder"  # the attribute on the modules of a model that is captured


class Asked(NamedTuple):
    """One attention in limelight's terms."""

    query: Tensor
    key: Tensor
    value: Tensor
    rule: dict[str, Any]  # mask, bias, scale, softcap, sinks


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
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Registered as `attn_implementation="limelight"`."""
    if dropout > 0.0:
        raise ArgumentError(
            f"{type(module).__name__} asks for attention dropout {dropout}: limelight has none. "
            f"Set the config's attention dropout (attention_dropout, attn_pdrop, "
            f"attention_probs_dropout_prob) to 0, or use model.eval()"
        )
    if kwargs.get("cache") is not None:
        raise ArgumentError(
            "a paged cache (continuous batching) keeps its keys in pages that limelight does not "
            'read: use attn_implementation="sdpa" for it'
        )
    if kwargs.get("output_attentions") and not torch.compiler.is_compiling():
        warnings.warn(
            "output_attentions=True gives nothing here: limelight makes no n×n weights. Run the "
            "model inside `with limelight.hf.capture(model) as cap:`, then "
            "cap[layer].weights(head=…) gives those of a head",
            stacklevel=2,
        )
    if is_causal is None:
        is_causal = getattr(module, "is_causal", False)
    is_causal = is_causal and not only_eager(type(module).__module__)
    asked = understand(query, key, value, attention_mask, is_causal, position_bias)
    asked.rule.update(scale=scaling, softcap=softcap, sinks=s_aux)
    recorder = getattr(module, RECORDER, None)
    if recorder is not None:
        output = recorder.attention(module, asked)
    else:
        output = functional.attention(*asked[:3], **asked.rule, site=site_name(module))
    return output.transpose(1, 2).contiguous(), None


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
    elif attention_mask.dtype == torch.bool:
        mask = attention_mask
    else:
        bias = attention_mask if bias is None else bias + attention_mask
    if keys < key.shape[2]:
        key, value = key[:, :, :keys], value[:, :, :keys]
        bias = bias if bias is None or bias.shape[3] == 1 else bias[..., :keys]
    return Asked(query, key, value, {"mask": mask, "bias": bias})


def site_name(module: torch.nn.Module) -> str:
    """How a Monitor calls this place: the name it gave the module, else class and layer."""
    name = getattr(module, SITE, "")
    if not name:
        layer = getattr(module, "layer_idx", None)
        name = type(module).__name__ + ("" if layer is None else f".{layer}")
    return str(name)
