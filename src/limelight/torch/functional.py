"""attention() and inspect() on tensors.

Three ways lead from here. While torch.compile or torch.export trace, the call goes into the graph
as an operator, and nothing may depend on what a tensor holds. In eager mode with gradients asked
for, the same operator brings autograd. In eager mode without, the engine is called directly, which
saves the dispatcher's share of a small call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

import limelight.torch.decomposition  # noqa: F401  torch finds it where it was registered
from limelight.arrays import a_type
from limelight.attention import Inspection
from limelight.call import Call, check_value, prepare
from limelight.dropout import Dropout, check_dropout
from limelight.errors import ArgumentError, DtypeError
from limelight.health import Health, count_outcomes
from limelight.torch import autograd, bridge, operators, quick, remembered, subclasses, wrapped
from limelight.torch.symbolic import trace

_TENSORS = (Tensor, torch.nn.Parameter)
_DENSE = torch.strided


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    dropout: float = 0.0,
    engine: str = "auto",
    site: str = "",
) -> Tensor:
    """limelight.attention on tensors, with gradients for query, key, value, bias and sinks.

    `dropout` is the share of the weights that are set to 0, the others scaled up to make up for
    them; torch's generator says which (torch.manual_seed). `site` is what a Monitor calls it,
    after the path of its module.

    >>> import torch
    >>> q, k, v = torch.eye(2), torch.eye(2), torch.tensor([[1.0], [0.0]])
    >>> attention(q, k, v, scale=1.0).flatten()
    tensor([0.7311, 0.2689])
    """
    more = _more(bias, sinks, dropout, engine)
    if not more:
        output = quick.run(query, key, value, mask, scale, softcap)
        if output is not None:
            return output
    if wrapped.holds_others(query):
        rule = {"mask": mask, "bias": bias, "scale": scale, "softcap": softcap, "sinks": sinks}
        rest = {"dropout": dropout, "engine": engine, "site": site}
        return wrapped.attention(attention, query, key, value, {**rule, **rest})
    layout = query, key, value, mask, scale, softcap, False, more
    known = remembered.run(*layout)
    if known is not None:
        return known[1].output
    mask = subclasses.read(mask, query, key)
    same = {"mask": mask, "bias": bias, "scale": scale, "softcap": softcap, "sinks": sinks}
    query, key, value = autocast(query, key, value)
    same["dropout"], same["seed"] = _seeded(dropout, query)
    if torch.compiler.is_compiling():
        arguments, restore = trace(query, key, value, **same)
        return restore(operators.attention(*arguments, engine, False, bridge.site(site))[0])
    call = _checked(query, key, value, **same)
    known = remembered.start(call, *layout)
    if known is not None:
        return known[1].output
    if _needs_no_graph(call):
        return call.restore(bridge.forward(call, engine, health=False, site=site).output)
    return call.restore(autograd.run(call, engine, False, site).output)


def inspect(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    dropout: float = 0.0,
    engine: str = "auto",
    site: str = "",
) -> Inspection:
    """limelight.inspect on tensors, with gradients of the output and of the health.

    health.logsumexp and health.entropy (and spread and effective_keys, which follow from it) are
    differentiable by query, key, bias and sinks; max_logit, and what depends on it, is not. Health
    is that of the weights before dropout.
    """
    more = _more(bias, sinks, dropout, engine)
    layout = query, key, value, mask, scale, softcap, True, more
    known = remembered.run(*layout)
    if known is not None:
        return Inspection(known[1].output, Health.later(*known))
    mask = subclasses.read(mask, query, key)
    same = {"mask": mask, "bias": bias, "scale": scale, "softcap": softcap, "sinks": sinks}
    query, key, value = autocast(query, key, value)
    same["dropout"], same["seed"] = _seeded(dropout, query)
    if torch.compiler.is_compiling():
        arguments, restore = trace(query, key, value, **same)
        output, *rows = operators.attention(*arguments, engine, True, bridge.site(site))
        keys = operators.count_keys(arguments.query, arguments.key.shape[2], *arguments[3:7])
        return Inspection(restore(output), _health(rows, keys, arguments.sinks, restore))
    call = _checked(query, key, value, **same)
    known = remembered.start(call, *layout)
    if known is not None:
        return Inspection(known[1].output, Health.later(*known))
    if _needs_no_graph(call):
        state = bridge.forward(call, engine, health=True, site=site)
        return Inspection(call.restore(state.output), Health.of(call, state))
    state = autograd.run(call, engine, True, site)
    rows = [state.logsumexp, state.max_logit, state.entropy]
    cells = call.allowed.dense is not None or call.bias is not None or call.sinks is not None
    if not cells and autograd.ordinary(*autograd.tensors_of(call)):
        return Inspection(call.restore(state.output), Health.of(call, state))
    health = _health(rows, autograd.count_keys(call), call.sinks, call.restore)
    return Inspection(call.restore(state.output), health)


def _more(bias: Any, sinks: Any, dropout: Any, engine: str) -> bool:
    """Whether there is more to a call than its three tensors, a mask and two numbers."""
    some = bias is not None or sinks is not None or engine != "auto"
    return some or type(dropout) is not float or dropout != 0.0


def _health(
    rows: Sequence[Tensor], keys: Tensor, sinks: Tensor | None, restore: Callable[[Tensor], Tensor]
) -> Health:
    """From logsumexp, largest logit and entropy of each row."""
    logsumexp, max_logit, entropy = (restore(figure) for figure in rows)
    outcomes = None if sinks is None else restore(count_outcomes(keys, sinks))
    return Health(max_logit, logsumexp, entropy, restore(keys), outcomes)


def _needs_no_graph(call: Call) -> bool:
    """Whether the engine can be called as it is: no gradient asked for, tensors just tensors."""
    if call.device == "meta":
        return False
    grad = torch.is_grad_enabled()
    for tensor in autograd.tensors_of(call):
        if tensor is not None and (type(tensor) not in _TENSORS or (grad and tensor.requires_grad)):
            return False
    return forward_ad._current_level < 0 and autograd.ordinary()


def _seeded(p: Any, query: Any) -> tuple[float, Tensor | None]:
    """A share to drop and a fresh seed from the generator of the query's device, if there is one.

    The seed is a tensor: it goes into graphs and is drawn anew when they run, and a GPU reads it
    without the CPU waiting.
    """
    share = p if torch.compiler.is_compiling() else check_dropout(p)
    if share == 0.0 or not isinstance(query, Tensor):
        return 0.0, None
    low, high = -(1 << 63), (1 << 63) - 1
    return share, torch.randint(low, high, (2,), dtype=torch.int64, device=query.device)


def _checked(
    query: Any, key: Any, value: Any, *, mask: Any, dropout: float, seed: Tensor | None, **rest: Any
) -> Call:
    """The call as it was meant, or an error that says what does not fit."""
    if torch._C._is_tracing():
        raise ArgumentError(
            "torch.jit.trace cannot record attention: use torch.export or torch.compile, and "
            "torch.onnx.export with dynamo=True"
        )
    check_tensors(query, key, value, mask=mask, bias=rest["bias"], sinks=rest["sinks"])
    rest["dropout"] = None if seed is None else Dropout(dropout, seed)
    return prepare(query, key, value, mask=mask, **rest)


def check_tensors(query: Any, key: Any, value: Any, **others: Any) -> None:
    """Dense tensors, at least one; where some are none, `prepare` knows what to say."""
    subclasses.refuse(query=query, key=key, value=value, **others)
    some = False
    for name, given in (("query", query), ("key", key), ("value", value)):
        if not isinstance(given, Tensor):
            continue
        some = True
        if given.is_nested or given.layout is not _DENSE:
            kind = "nested" if given.is_nested else str(given.layout).removeprefix("torch.")
            raise DtypeError(
                f"{name} is a {kind} tensor: attention takes dense ones. Sequences of different "
                f"lengths go padded with mask=limelight.Lengths(…), or one after the other with "
                f"mask=limelight.Documents(…)"
            )
    if not some:
        raise DtypeError(
            f"query is {a_type(query)}: here go tensors; limelight.attention "
            f"and limelight.inspect take NumPy arrays and lists too"
        )
    check_value(value)


def autocast(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """Under torch.autocast, as torch does for its own attention: its dtype, except for float64."""
    kind = query.device.type if isinstance(query, Tensor) else ""
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return query, key, value
    dtype = torch.get_autocast_dtype(kind)
    query, key, value = (
        x.to(dtype)
        if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
        else x
        for x in (query, key, value)
    )
    return query, key, value
