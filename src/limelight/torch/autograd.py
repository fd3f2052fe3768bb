"""Attention as a torch.autograd.Function, for eager mode and torch.func.

In a compiled graph the operator brings its own derivative. Eager mode comes through here instead:
with no transform at work the engine is called without the dispatcher in between, and torch.func's
grad, vjp, jacrev and vmap find what they need (a registered operator offers them no setup_context).
Forward-mode derivatives and second derivatives are errors, not silent zeros.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from limelight.call import Call
from limelight.reference import State
from limelight.torch import batching, operators

NO_FORWARD_MODE = (
    "a forward-mode derivative of attention was asked for (jvp, jacfwd, hessian, …): fused "
    "attention has none. torch.func.vjp and jacrev go backwards and work"
)

_NO_WRAPPER = Tensor.__torch_dispatch__


def run(call: Call, engine: str, health: bool, site: str) -> State:
    """One pass with gradients of its output."""
    if plain(*tensors_of(call)):
        tensors = (call.query, call.key, call.value, call.bias, call.sinks)
        return State(*Eager.apply(call, engine, health, site, *tensors))
    return State(*Attention.apply(*operators.split(call), engine, health, site))


def count_keys(call: Call) -> Tensor:
    """How many keys each row may attend to, int64 [B, Hq, Nq]."""
    if plain(*tensors_of(call)):
        return operators.count(call).expand(call.query.shape[:3])
    arguments = operators.split(call)
    counts: Tensor = operators.count_keys(call.query, call.keys, *arguments[3:7])
    return counts


class Eager(torch.autograd.Function):
    """Without a transform at work: the engine at once, with the call as it is.

    A function whose context is set up apart, as torch.func needs it, costs a small call 20 µs more.
    """

    @staticmethod
    def forward(
        ctx: Any, call: Call, engine: str, health: bool, site: str, *tensors: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        state = operators.measure(call, engine, health, site)
        rows = (state.logsumexp, state.max_logit, state.entropy)
        ctx.save_for_backward(*tensors, call.allowed.dense, state.output, state.logsumexp)
        ctx.rule = call.allowed, call.scale, call.softcap, engine
        ctx.mark_non_differentiable(*(figure for figure in rows if figure is not None))
        ctx.set_materialize_grads(False)
        return state.output, *rows

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(NO_FORWARD_MODE)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None, *_: Any) -> tuple[Any, ...]:
        query, key, value, bias, sinks, _, output, logsumexp = ctx.saved_tensors
        allowed, scale, softcap, engine = ctx.rule
        needs = ctx.needs_input_grad[4:]
        nothing = (None,) * 4
        if grad_output is None:
            return (*nothing, *(None for _ in needs))
        batch = (query.shape[0],)
        call = Call(query, key, value, allowed, bias, scale, softcap, sinks, batch, False)
        several = torch._C._functorch.is_legacy_batchedtensor(grad_output)  # is_grads_batched=True
        if plain(grad_output) and not several and not torch.is_grad_enabled():
            state, grad_output = State(output, logsumexp), grad_output.resolve_neg()
            return *nothing, *operators.gradients(call, engine, state, grad_output, needs)
        grads = operators.attention_backward(
            *operators.split(call), engine, output, logsumexp, grad_output, list(needs)
        )
        return *nothing, *(g if need else None for g, need in zip(grads, needs, strict=True))


class Attention(torch.autograd.Function):
    """The same through the operator, for torch.func and for modes that look at operators."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor, Tensor] = operators.attention(*arguments)
        return found

    setup_context = staticmethod(operators.setup_context)
    jvp = Eager.jvp

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        return operators.differentiate(ctx, grads[0], run=AttentionBackward.apply)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        return batching.map_attention(info.batch_size, dims, arguments, Attention.apply)


class AttentionBackward(torch.autograd.Function):
    """The first derivative, in a form that says so when a second one is asked for."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        grads: tuple[Tensor, ...] = operators.attention_backward(*arguments)
        return grads

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    backward = staticmethod(operators.no_second_derivative)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        return batching.map_backward(info.batch_size, dims, arguments, AttentionBackward.apply)


def tensors_of(call: Call) -> tuple[Tensor | None, ...]:
    return call.query, call.key, call.value, call.allowed.dense, call.bias, call.sinks


def plain(*tensors: Tensor | None) -> bool:
    """Whether tensors are just tensors: no functorch transform and no dispatch mode at work.

    Nor is any of the given ones a wrapper, whose own memory holds nothing: only an operator reaches
    what it stands for, by the wrapper's __torch_dispatch__.
    """
    return (
        not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and all(x is None or type(x).__torch_dispatch__ is _NO_WRAPPER for x in tensors)
    )
