"""scaled_dot_product_attention: torch's function of that name, argument for argument, on limelight.

What torch allows and limelight's own function does not is brought into its form here: heads that
stand for all others, keys and values with different numbers of heads, queries without a single
number. Errors are of limelight's classes and of RuntimeError, which is what torch raises, so that
code that catches it goes on working. TorchScript finds an operator of this name and signature.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.bias import CausalBias

from limelight.arrays import a_type
from limelight.dropout import check_dropout
from limelight.errors import ArgumentError, DtypeError, LimelightError
from limelight.masks import Window
from limelight.torch import quick, wrapped
from limelight.torch.functional import attention, check_tensors

_CAUSAL = Window(None, 0, align="top-left")


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    site: str = "",
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention, argument for argument.

    `is_causal` aligns at the top left, as torch's does; `attn_mask` is boolean (True attends) or
    is added to the logits. Where torch gives NaN for a row without keys, or lets NaN through from
    behind a mask, this gives 0 and lets nothing through. Which weights `dropout_p` drops follows
    from torch's generator, though they are not the cells that torch's own function would drop.
    """
    if attn_mask is None and type(dropout_p) is float and dropout_p == 0.0:
        mask = _CAUSAL if is_causal else None
        output = quick.run(query, key, value, mask, scale, None, bool(enable_gqa))
        if output is not None:
            return output
    arguments = query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, site
    if torch.compiler.is_compiling():
        return _attend(*arguments)
    try:
        return _attend(*arguments)
    except LimelightError as error:
        kind: Any = type(error)
        raise _as_torch_s(kind)(*error.args) from None


def _attend(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float,
    is_causal: bool, scale: float | None, enable_gqa: bool, site: str,
) -> Tensor:  # fmt: skip
    dropout_p = check_dropout(dropout_p, "dropout_p")
    if is_causal and attn_mask is not None:
        which = "Explicit attn_mask should not be set when is_causal=True"
        if isinstance(attn_mask, CausalBias):
            which = "CausalBias should not be used with causal=True"
        raise ArgumentError(
            f"{which}: torch takes one or the other. Pass the mask with the causal rule in it, or "
            f"limelight.attention(..., mask=Causal() & mask)"
        )
    if wrapped.holds_others(query):
        cells = (
            {}
            if attn_mask is None
            else {"mask" if attn_mask.dtype == torch.bool else "bias": attn_mask}
        )
        rule: dict[str, Any] = {"mask": _CAUSAL} if is_causal else cells
        return attention(query, key, value, **rule, scale=scale, dropout=dropout_p, site=site)
    check_tensors(query, key, value)
    query, key, value = _heads(query, key, value, enable_gqa)
    if query.ndim >= 2 and query.shape[-1] == 0 == key.shape[-1]:  # all logits are 0
        query, key = (torch.nn.functional.pad(x, (0, 1)) for x in (query, key))
        scale = 1.0
    mask: Any = _CAUSAL if is_causal else None
    bias = None
    if attn_mask is not None:
        if not isinstance(attn_mask, Tensor):
            raise DtypeError(
                f"attn_mask is {a_type(attn_mask)}: it must be a tensor; "
                f"torch.as_tensor(…) makes one"
            )
        if attn_mask.dtype == torch.bool or isinstance(attn_mask, CausalBias):
            mask = attn_mask
        elif attn_mask.is_floating_point():
            bias = attn_mask
        else:
            raise DtypeError(
                f"attn_mask has dtype {attn_mask.dtype}: torch takes booleans (True attends), or "
                f"floats that are added to the logits. Cast it with .bool()"
            )
    return attention(
        query, key, value, mask=mask, bias=bias, scale=scale, dropout=dropout_p, site=site
    )


def _heads(
    query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value with numbers of heads that limelight takes, or an error."""
    heads, key_heads, value_heads = (x.shape[-3] if x.ndim > 2 else 1 for x in (query, key, value))
    if enable_gqa:
        if key_heads != value_heads and key_heads and value_heads:  # each is shared by itself
            common = math.lcm(key_heads, value_heads)
            key, value = (
                x.repeat_interleave(common // x.shape[-3], -3) if x.ndim > 2 else x
                for x in (key, value)
            )
        return query, key, value
    if key_heads != value_heads and 1 in (key_heads, value_heads):
        key_heads = max(key_heads, value_heads)
        key, value = _expand(key, key_heads), _expand(value, key_heads)
    if query.ndim == 2 < max(key.ndim, value.ndim):
        query = query[None]
    if heads == 1 < key_heads:  # one stands for all
        heads = key_heads
        query = _expand(query, heads)
    if heads != key_heads and key_heads != 1:
        raise ArgumentError(
            f"{heads} query heads and {key_heads} key heads: pass enable_gqa=True to let query "
            f"heads share key heads"
        )
    if query.ndim == 3:  # torch's [N, L, E]: the first axis is a batch; as heads it is the same
        key, value = _expand(key, heads), _expand(value, heads)
    return query, key, value


def _expand(tensor: Tensor, heads: int) -> Tensor:
    if tensor.ndim < 3 or tensor.shape[-3] != 1:
        return tensor
    return tensor.expand(*tensor.shape[:-3], heads, *tensor.shape[-2:])


@cache
def _as_torch_s(kind: Any) -> Any:
    """The class of errors that is one of limelight's and a RuntimeError too."""
    return type(kind.__name__, (kind, RuntimeError), {"__doc__": kind.__doc__})


# TorchScript compiles what a module calls, and this function it could not: it gets the operator.
torch.library.define(
    "limelight::scaled_dot_product_attention",
    "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
    "bool is_causal=False, float? scale=None, bool enable_gqa=False) -> Tensor",
)
torch.library.impl("limelight::scaled_dot_product_attention", "CompositeImplicitAutograd")(
    scaled_dot_product_attention
)
torch.jit._builtins._register_builtin(
    scaled_dot_product_attention, "limelight::scaled_dot_product_attention"
)
