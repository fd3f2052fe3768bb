"""Attention on tensors that hold others: jagged ones, and DTensors whose heads are spread out.

A jagged tensor [B, H, j, D] is its sequences one after the other: one call over all of them, in
which a token sees its own sequence alone. Of a DTensor each rank has some heads or batch entries,
and they do not need each other: each attends by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.masks import Window
from limelight.torch import packed

Attend = Callable[..., Tensor]


def holds_others(query: Any) -> bool:
    """Whether it is a jagged tensor or a DTensor."""
    if type(query) is Tensor or not isinstance(query, Tensor):
        return False
    return query.layout is torch.jagged or type(query).__name__ == "DTensor"


def attention(attend: Attend, query: Any, key: Any, value: Any, rule: dict[str, Any]) -> Tensor:
    """What `attend` gives for what they hold, held the same way."""
    kinds = {type(x) for x in (query, key, value)}
    if len(kinds) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DtypeError(
            f"query, key and value are of different kinds ({names}): bring them to one"
        )
    held = _jagged if query.layout is torch.jagged else _spread
    return held(attend, query, key, value, rule)


def _jagged(attend: Attend, query: Any, key: Any, value: Any, rule: dict[str, Any]) -> Tensor:
    for name, given in (("query", query), ("key", key), ("value", value)):
        if given.ndim != 4 or given._ragged_idx != 2 or given.lengths() is not None:
            raise ShapeError(
                f"{name} is a jagged tensor of {given.ndim} axes: attention takes [batch, heads, "
                f"length, size] without holes, of which the length is jagged; x.transpose(1, 2) "
                f"makes it of [batch, length, heads, size]"
            )
    if rule["bias"] is not None or isinstance(rule["mask"], Tensor):
        raise ArgumentError(
            "a mask or bias of cells with jagged tensors: its cells would be those of all "
            "sequences one after the other. Mask objects work, such as Causal() and Window(…)"
        )
    starts_q, starts_k = query.offsets(), key.offsets()
    same = starts_q is starts_k or torch.equal(starts_q, starts_k)
    if not (rule["mask"] is None or (same and isinstance(rule["mask"], Window))):
        raise ArgumentError(
            "jagged tensors take Causal() and Window(…), where each sequence has as many keys as "
            "queries; pad them for other masks, and use mask=Lengths(…) & …"
        )
    rows = [x.values().unsqueeze(0) for x in (query, key, value)]  # [1, H, all, D]
    mask = packed.within(rule["mask"], starts_q, starts_k, *rows[:2])
    output = attend(*rows, **{**rule, "mask": mask})
    found: Tensor = torch.nested.nested_tensor_from_jagged(output[0].transpose(0, 1), starts_q)
    return found.transpose(1, 2)


def _spread(attend: Attend, query: Any, key: Any, value: Any, rule: dict[str, Any]) -> Tensor:
    from torch.distributed.tensor import DTensor, Replicate, Shard

    places = query.placements
    alike = all(x.placements == places and x.device_mesh == query.device_mesh for x in (key, value))
    whole = (Replicate(), Shard(0), Shard(1))
    if query.ndim != 4 or not alike or any(place not in whole for place in places):
        raise ArgumentError(
            f"query, key and value are DTensors placed as {query.placements}, {key.placements} and "
            f"{value.placements}: each rank needs whole heads or whole batch entries of [batch, "
            f"heads, length, size], the same of all three. Split the sequence with "
            f"limelight.torch.context_parallel"
        )
    rule = dict(rule)
    for name in ("mask", "bias", "sinks"):
        given = rule[name]
        if isinstance(given, DTensor):
            rule[name] = given.to_local()
        elif isinstance(given, Tensor) and any(place != Replicate() for place in places):
            wide = given.ndim > 2 and (given.shape[-3] > 1 or given[..., 0, 0, 0].numel() > 1)
            if name == "sinks" or wide:
                raise ArgumentError(
                    f"{name} is a plain tensor with entries for heads or batch that are spread "
                    f"over ranks: give it as a DTensor, placed as the query is"
                )
    output = attend(*(x.to_local() for x in (query, key, value)), **rule)
    found: Tensor = DTensor.from_local(output, query.device_mesh, places, run_check=False)
    return found
