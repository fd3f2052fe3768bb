"""Tensor subclasses: read where their meaning is known, refused where their memory is not it.

A wrapper with a __torch_dispatch__ passes operators on to what it holds, and works. A subclass
with a __torch_function__ of its own gives torch's functions another meaning than its memory has:
torch.nn.attention.bias.CausalBias lies over memory that nobody has written to.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias, CausalVariant

from limelight.errors import DtypeError, ShapeError
from limelight.masks import Window

_PLAIN = (Tensor, torch.nn.Parameter)
# The way to a plain tensor, where it has a name of its own.
_PLAIN_FROM = {
    "DTensor": ".to_local() where every rank holds whole heads, or split the sequence with "
    "limelight.torch.context_parallel",
    "MaskedTensor": ".get_data(), and which keys may be attended to as mask=…",
    "NestedTensor": ".unbind()'s parts one after the other, with the others' (attention alone "
    "takes jagged tensors as they are)",
    "CausalBias": " as mask=…, or as attn_mask=… of scaled_dot_product_attention: it hides cells "
    "and adds nothing",
}
_OTHERWISE = ".as_subclass(torch.Tensor) if what its memory holds is what is meant"


def refuse(**named: Any) -> None:
    """An error for the first tensor whose memory is not what it means."""
    for name, given in named.items():
        kind = type(given)
        if kind in _PLAIN or not isinstance(given, Tensor):
            continue
        way = _PLAIN_FROM.get(kind.__name__)
        if way is None and _function(kind) not in _ORDINARY:
            way = _OTHERWISE
        if way is not None:
            raise DtypeError(
                f"{name} is a {kind.__name__}: attention takes plain tensors; pass {name}{way}"
            )


def _function(kind: type[Tensor]) -> Any:
    """The class's __torch_function__ as it was written, bound to no class."""
    return getattr(kind.__torch_function__, "__func__", kind.__torch_function__)


_ORDINARY = (_function(Tensor), torch._C._disabled_torch_function_impl)


def read(mask: Any, query: Any, key: Any) -> Any:
    """The mask itself, and torch's CausalBias as the rule that it stands for."""
    if not isinstance(mask, CausalBias):
        return mask
    sizes, given = (query.shape[-2], key.shape[-2]), (mask.seq_len_q, mask.seq_len_kv)
    if sizes != given:
        raise ShapeError(
            f"the causal bias is for {given[0]} queries and {given[1]} keys, and there are "
            f"{sizes[0]} and {sizes[1]}: make one for those, or give mask=Causal(), which fits all"
        )
    top = mask.variant == CausalVariant.UPPER_LEFT
    return Window(None, 0, align="top-left" if top else "bottom-right")
