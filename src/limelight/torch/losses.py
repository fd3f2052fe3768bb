"""Small losses over differentiable health, to add to a model's own.

    seen = layer.inspect(x)
    loss = task_loss + 1e-4 * z_loss(seen.health) + 1e-2 * entropy_floor(seen.health, nats=0.5)

Both are means over the rows that they concern, so that a weight means the same at any batch size
and length; what a row without keys says is left out. `rows`, a boolean tensor that broadcasts to
the health's figures, leaves out others too: attention_mask[:, None].bool() those of padding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from limelight.attention import Inspection
from limelight.errors import ArgumentError
from limelight.health import Health
from limelight.torch.arguments import positive

LARGEST = math.log(2**63)  # lengths are int64


def z_loss(health: Health, *, rows: Tensor | None = None) -> Tensor:
    """The mean of logsumexp²: keeps logits from drifting, where a softmax alone does not care.

    PaLM (Chowdhery et al. 2022) adds 1e-4 of it over the output softmax, ST-MoE (Zoph et al. 2022)
    1e-3 over the router's; over attention it holds back the growth of logits that Wortsman et al.
    (2023) and Dehghani et al. (2023) describe.

    >>> import torch, limelight as ll
    >>> x = torch.zeros(4, 2, requires_grad=True)
    >>> z_loss(ll.inspect(x, x, x).health).sqrt().item()  # ln 4, for even weights on four keys
    1.3862943649291992
    """
    _check("z_loss", health)
    counted = _counted(health.keys > 0, rows)
    figure = torch.where(counted, health.logsumexp, 0.0)
    return figure.square().sum() / counted.sum().clamp_min(1)


def entropy_floor(health: Health, nats: float, *, rows: Tensor | None = None) -> Tensor:
    """How far rows lie below an entropy of `nats`, in the mean: keeps heads from going one-hot.

    Entropy that collapses goes along with training that diverges (Zhai et al. 2023). A row with
    fewer than e^nats outcomes (its keys and, where there is one, its sink) cannot reach the floor
    and is left out, such as the first of a causal mask. At an entropy near 0 the softmax is flat,
    and the push back is weak: begin early.

    >>> import torch, limelight as ll
    >>> x = torch.eye(4, requires_grad=True)
    >>> entropy_floor(ll.inspect(x, x, x, scale=50.0).health, nats=1.0).item()
    1.0
    """
    _check("entropy_floor", health)
    nats = positive("nats", nats, "the entropy that no row should fall below, a number above 0")
    if nats > LARGEST:
        raise ArgumentError(
            f"nats={nats:g}: a row would need e^{nats:g} keys to have that entropy, and none has. "
            f"Give a floor below the logarithm of the number of keys"
        )
    outcomes = health.keys if health.outcomes is None else health.outcomes
    counted = _counted(outcomes >= math.exp(nats), rows)
    short = torch.where(counted, (nats - health.entropy).clamp_min(0.0), 0.0)
    return short.sum() / counted.sum().clamp_min(1)


def _check(name: str, health: object) -> None:
    if not isinstance(health, Health):
        kind = type(health).__name__
        way = "its .health" if isinstance(health, Inspection) else "what inspect(…).health gives"
        raise ArgumentError(f"{name} takes a Health, and got {kind}: give {way}")
    if not isinstance(health.logsumexp, Tensor):
        raise ArgumentError(
            "this health is of NumPy arrays, which carry no gradients: inspect torch tensors"
        )


def _counted(concerned: Tensor, rows: object) -> Tensor:
    """The rows that a loss is the mean over: those that it concerns, of those asked for."""
    if rows is None:
        return concerned
    shape = tuple(concerned.shape)
    if isinstance(rows, Tensor) and rows.dtype == torch.bool and rows.ndim <= len(shape):
        sizes = zip(rows.shape[::-1], shape[::-1], strict=False)
        if all(given in (1, wanted) for given, wanted in sizes):
            return concerned & rows
    came = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, Tensor) else type(rows).__name__
    raise ArgumentError(
        f"rows={came}: give a boolean tensor that broadcasts to {list(shape)}, True for the rows "
        f"that count, such as attention_mask[:, None].bool()"
    )
