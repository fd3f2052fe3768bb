"""Calls like one before: on a GPU, what was worked out for their layout.

Most calls of a model differ from earlier ones in their numbers alone. Checking them again, choosing
the engine and planning its launches costs more than a small call itself; here the layout finds the
plan at once, there and back. Only what is plain is remembered: three dense tensors of four axes and
a mask that is a rule, nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from limelight.call import Call
from limelight.engines import choose
from limelight.masks import Causal, Mask, Window
from limelight.reference import State
from limelight.torch import autograd, quick

KEPT = 1024
RULES = 64  # masks that are more than a band: each keeps what it was made of
_compiling = torch.compiler.is_compiling
_autocast = torch.is_autocast_enabled
_known: dict[Any, Known] = {}
_ruled: OrderedDict[Any, Known] = OrderedDict()


@dataclass(frozen=True, eq=False)
class Known:
    """How calls of one layout are run: the parts of a call that are not tensors, and the plans."""

    rule: tuple[Any, ...]
    mask: Mask | None  # lives as long as what is known of it
    forward: Any
    backward: Any  # None where no graph is needed

    def run(self, call: Call, health: bool) -> tuple[Call, State]:
        if self.backward is None:
            return call, self.forward(call)
        return call, autograd.run(call, "auto", health, "", self)


def run(
    query: Any, key: Any, value: Any, mask: Any, scale: Any, softcap: Any, health: bool, more: bool
) -> tuple[Call, State] | None:
    """The call and its state, if one like it came before; `more` where there is more to it."""
    at = _layout(query, key, value, mask, scale, softcap, health, more)
    if at is None:
        return None
    known = _known.get(at) or _ruled.get(at)
    if known is None:
        return None
    return known.run(Call(query, key, value, *known.rule), health)


def start(
    call: Call, query: Any, key: Any, value: Any, mask: Any, scale: Any, softcap: Any,
    health: bool, more: bool,
) -> tuple[Call, State] | None:  # fmt: skip
    """The call and its state, run as later ones like it; None where it is not plain."""
    at = _layout(query, key, value, mask, scale, softcap, health, more)
    same = call.query is query and call.key is key and call.value is value
    if at is None or not same or call.empty or call.allowed.dense is not None:
        return None
    engine: Any = choose(call).module
    if not hasattr(engine, "plan"):
        return None
    from limelight.engines.gpu import launch

    graph = quick.needs_graph(query, key, value)
    room = launch.empty_state if graph else launch.lean_state
    known = Known(
        (call.allowed, None, call.scale, call.softcap, None, call.batch_shape, False), mask,
        engine.plan(call, health, room), engine.plan_back(call) if graph else None,
    )  # fmt: skip
    if call.allowed.spans is None:
        if len(_known) >= KEPT:
            _known.clear()
        _known[at] = known
    else:
        _ruled[at] = known
        if len(_ruled) > RULES:
            _ruled.popitem(last=False)
    return known.run(call, health)


def _layout(
    query: Any, key: Any, value: Any, mask: Any, scale: Any, softcap: Any, health: bool, more: bool
) -> Any:
    """What decides how a call is run; None where something is at work that is not plain."""
    if more or not (type(query) is type(key) is type(value) is Tensor) or not query.is_cuda:
        return None
    if (scale is not None and type(scale) is not float) or (
        softcap is not None and type(softcap) is not float
    ):
        return None
    rule: Any = None
    if mask is not None:
        if type(mask) is Causal or type(mask) is Window:
            rule = mask.left, mask.right, mask.align
        elif isinstance(mask, Mask):
            rule = id(mask)
        else:
            return None
    device = query.get_device()
    if (
        _compiling()
        or not quick.bare(query, key, value)
        or _autocast("cuda")
        or torch._C._cuda_getDevice() != device
    ):
        return None
    return (
        query.shape, query.stride(), key.shape, key.stride(), value.shape, value.stride(),
        query.dtype, key.dtype, value.dtype, device, key.get_device(), value.get_device(),
        query.data_ptr() % 16 | key.data_ptr() % 16 << 4 | value.data_ptr() % 16 << 8,
        rule, scale, softcap, health, quick.needs_graph(query, key, value),
    )  # fmt: skip
