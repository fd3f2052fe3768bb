"""limelight::attention by its parts, for backends that do not know the operator.

Registered with torch: `torch.export`'s run_decompositions takes it from torch._decomp's
get_decompositions([torch.ops.limelight.attention]), and torch.onnx.export(dynamo=True) by itself.
For ONNX it is the operator Attention (opset 23 and later), where that can say what was asked;
softcap under a mask, sinks and health go by their parts, which hold the n×n weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from limelight.errors import ArgumentError
from limelight.torch import operators
from limelight.torch.symbolic import Parts, cells_of

Outputs = tuple[Tensor, Tensor, Tensor, Tensor]


def decompose(
    query: Tensor, key: Tensor, value: Tensor, band: Sequence[int] | None, spans: Tensor | None,
    dense: Tensor | None, bias: Tensor | None, sinks: Tensor | None, scale: float,
    softcap: float | None, dropout: float, seed: Tensor | None, engine: str, health: bool,
    site: str,
) -> Outputs:  # fmt: skip
    """Output, logsumexp and, with health, largest logit and entropy, in torch's own operators."""
    if seed is not None:
        raise ArgumentError(
            "attention with dropout cannot be written by its parts: export the model after .eval()"
        )
    nq, nk = query.shape[2], key.shape[2]
    hides = not (band is None and spans is None and dense is None)
    sides = None if band is None else (band[0], band[1])
    cells = cells_of(Parts(sides, spans, dense), nq, nk, query.device) if hides else None
    whole = sinks is None and not (softcap and (hides or bias is not None))
    output, logsumexp, *rows = _by_parts(query, key, value, cells, bias, sinks, scale, softcap)
    if torch.onnx.is_in_onnx_export() and whole:
        causal = bias is None and spans is None and dense is None and _is_causal(sides, nq)
        mask = None if causal else cells if bias is None else _added(bias, cells, query)
        if mask is not None:  # runtimes want both lengths spelled out
            mask = mask.expand(*mask.shape[:-2], nq, nk)
        output, *_ = torch.onnx.ops.attention(
            query, key, value, mask, is_causal=causal, scale=scale, softcap=softcap or 0.0
        )
    largest, entropy = rows if health else (logsumexp.new_empty(0), logsumexp.new_empty(0))
    return output, logsumexp, largest, entropy


def _by_parts(
    query: Tensor, key: Tensor, value: Tensor, cells: Tensor | None, bias: Tensor | None,
    sinks: Tensor | None, scale: float, softcap: float | None,
) -> Outputs:  # fmt: skip
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    q, k, v = (x.to(wide) for x in (query, key, value))
    group = query.shape[1] // key.shape[1]
    if group > 1:
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    logits = (q * scale) @ k.transpose(2, 3)
    if softcap:
        logits = torch.tanh(logits / softcap) * softcap
    if bias is not None:
        logits = logits + bias.to(wide)
    if cells is not None:
        logits = logits.masked_fill(~cells, -torch.inf)
    largest = logits.amax(3, keepdim=True)
    top = largest
    if sinks is not None:
        extra = sinks.to(wide)[:, None, None].expand(*logits.shape[:3], 1)
        top = torch.maximum(top, extra)
    top = torch.where(torch.isneginf(top), 0.0, top)
    weights = torch.exp(logits - top)
    total = weights.sum(3, keepdim=True)
    moment = torch.where(weights > 0, weights * (logits - top), 0.0).sum(3, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(extra - top)
        sunk = torch.exp(extra - top) * (extra - top)
        moment = moment + torch.where(torch.isneginf(extra), 0.0, sunk)
    some = total > 0  # a row without keys gives 0
    safe = torch.where(some, total, 1.0)
    output = torch.where(some, weights @ v / safe, 0.0).to(query.dtype)
    logsumexp = torch.where(some, top + torch.log(safe), -torch.inf)
    entropy = torch.where(some, torch.log(safe) - moment / safe, 0.0)
    return output, logsumexp[..., 0], largest[..., 0], entropy[..., 0]


def _is_causal(band: tuple[int, int] | None, nq: int) -> bool:
    """Whether the band is the one that ONNX means by is_causal: from the top left."""
    return (
        band is not None
        and statically_known_true(band[1] == 0)
        and statically_known_true(band[0] <= 1 - nq)
    )


def _added(bias: Tensor, cells: Tensor | None, query: Tensor) -> Tensor:
    """Bias and mask as one array of the query's dtype: ONNX takes one or the other."""
    bias = bias.to(query.dtype)
    return bias if cells is None else torch.where(cells, bias, -torch.inf)


_operator = torch.ops.limelight.attention.default
torch._decomp.register_decomposition(_operator)(decompose)
# With symbolic sizes torch would ask a decomposition what an operator returns, rather than the
# operator's own fake; where there is a meta function, too, it does not.
torch._decomp.register_decomposition(_operator, type="meta")(operators.fake)
