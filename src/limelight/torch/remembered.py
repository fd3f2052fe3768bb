"""Calls like one before: on a GPU without gradients, what was worked out for their layout.

Most calls of a model that serves differ from earlier ones in their numbers alone. Checking them
again, choosing the engine and planning its launches costs more than a small call itself; here the
layout finds the plan at once. Only what is plain is remembered: three dense tensors of four axes,
no mask or a band, nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from limelight.call import Call
from limelight.engines import choose
from limelight.masks import Causal, Window
from limelight.reference import State
from limelight.torch import quick

KEPT = 1024
_known: dict[Any, tuple[Call, Any]] = {}


def run(
    query: Any, key: Any, value: Any, mask: Any, scale: Any, softcap: Any, health: bool, more: bool
) -> tuple[Call, State] | None:
    """The call and its state, if one like it came before; `more` where there is more to it."""
    at = _layout(query, key, value, mask, scale, softcap, health, more)
    found = None if at is None else _known.get(at)
    if found is None:
        return None
    like, plan = found
    call = Call(query, key, value, like.allowed, None, like.scale, like.softcap, None,
                like.batch_shape, False)  # fmt: skip
    return call, plan(call)


def keep(
    call: Call, query: Any, key: Any, value: Any, mask: Any, scale: Any, softcap: Any,
    health: bool, more: bool,
) -> None:  # fmt: skip
    """Remember how a call is run, where it is plain and its engine can tell."""
    at = _layout(query, key, value, mask, scale, softcap, health, more)
    if at is None or call.empty or call.query is not query:
        return
    plan = getattr(choose(call).module, "plan", None)
    if plan is not None:
        if len(_known) >= KEPT:
            _known.clear()
        nothing = query.new_empty(0)  # a call keeps no memory alive
        like = replace(call, query=nothing, key=nothing, value=nothing)
        _known[at] = like, plan(call, health)


def _layout(
    query: Any, key: Any, value: Any, mask: Any, scale: Any, softcap: Any, health: bool, more: bool
) -> Any:
    """What decides how a call is run; None where something is at work that is not plain."""
    if not (type(query) is type(key) is type(value) is Tensor) or not query.is_cuda:
        return None
    if more or any(type(x) is not float for x in (scale, softcap) if x is not None):
        return None
    band = None
    if mask is not None:
        if type(mask) not in (Window, Causal):
            return None
        band = mask.left, mask.right, mask.align
    if (
        torch.compiler.is_compiling()
        or not quick.plain(query, key, value)
        or torch.is_autocast_enabled("cuda")
        or torch.cuda.current_device() != query.get_device()
    ):
        return None
    return (
        query.shape, query.stride(), key.shape, key.stride(), value.shape, value.stride(),
        query.dtype, key.dtype, value.dtype, query.get_device(), key.device, value.device,
        query.data_ptr() % 16 | key.data_ptr() % 16 << 4 | value.data_ptr() % 16 << 8,
        band, scale, softcap, health,
    )  # fmt: skip
