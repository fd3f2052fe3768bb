"""Attention as a torch.autograd.Function, for eager mode and torch.func.

In a compiled graph the operator brings its own derivative. Eager mode comes through here instead:
with no transform at work the engine is called without the dispatcher in between, and torch.func's
grad, vjp, jacrev and vmap find what they need (a registered operator offers them no setup_context).
Forward-mode derivatives and second derivatives are errors, not silent zeros.
"""

from __future__ import annotations

from typing import Any, Protocol

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


class Plans(Protocol):
    """How calls of one layout are run, there and back, where that was worked out before."""

    @property
    def forward(self) -> Any: ...

    @property
    def backward(self) -> Any: ...


def run(call: Call, engine: str, health: bool, site: str, known: Plans | None = None) -> State:
    """One pass, with gradients of its output, logsumexp and entropy."""
    if known is not None or ordinary(*tensors_of(call)):
        tensors = (call.query, call.key, call.value, call.bias, call.sinks)
        return State(*Eager.apply(call, engine, health, site, known, *tensors))
    return State(*Attention.apply(*operators.split(call), engine, health, site))


def count_keys(call: Call) -> Tensor:
    """How many keys each row may attend to, int64 [B, Hq, Nq]."""
    if ordinary(*tensors_of(call)):
        keys: Tensor = call.row_keys()
        return keys
    arguments = operators.split(call)
    counts: Tensor = operators.count_keys(call.query, call.keys, *arguments[3:7])
    return counts


class Eager(torch.autograd.Function):
    """Without a transform at work: the engine at once, with the call as it is.

    A function whose context is set up apart, as torch.func needs it, costs a small call 20 µs more.
    """

    @staticmethod
    def forward(
        ctx: Any, call: Call, engine: str, health: bool, site: str, known: Plans | None,
        *tensors: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
        if known is None:
            state = operators.measure(call, engine, health, site)
        else:
            state = known.forward(call)
        # As many tensors whether health was asked for or not: a checkpoint that runs a part again,
        # unseen by a capture the second time, counts them.
        entropy = state.logsumexp if state.entropy is None else state.entropy
        ctx.save_for_backward(*tensors, call.allowed.dense, state.output, state.logsumexp, entropy)
        ctx.rule = call.allowed, call.scale, call.softcap, call.dropout, engine, known
        if health:
            ctx.mark_non_differentiable(state.max_logit)
        ctx.set_materialize_grads(False)
        return state.output, state.logsumexp, state.max_logit, state.entropy

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(NO_FORWARD_MODE)

    @staticmethod
    def backward(
        ctx: Any, by_output: Tensor | None, by_logsumexp: Tensor | None, _: Any,
        by_entropy: Tensor | None,
    ) -> tuple[Any, ...]:  # fmt: skip
        query, key, value, bias, sinks, _, output, logsumexp, entropy = ctx.saved_tensors
        allowed, scale, softcap, dropout, engine, known = ctx.rule
        needs = ctx.needs_input_grad[5:]
        nothing = (None,) * 5
        given = by_output, by_logsumexp, by_entropy
        if all(x is None for x in given):
            return (*nothing, *(None for _ in needs))
        batch = (query.shape[0],)
        call = Call(query, key, value, allowed, bias, scale, softcap, sinks, batch, False, dropout)
        entropy = None if by_entropy is None else entropy
        batched = torch._C._functorch.is_legacy_batchedtensor  # is_grads_batched=True
        several = any(x is not None and batched(x) for x in given)
        if ordinary(*given) and not several and not torch.is_grad_enabled():
            state = State(output, logsumexp, None, entropy)
            if known is None or by_output is None:
                return *nothing, *operators.gradients(call, engine, state, given, needs)
            by = [None if x is None else x.resolve_neg() for x in given]
            return *nothing, *operators.wanted(known.backward(call, state, *by, needs[3]), needs)
        grads = operators.attention_backward(
            *operators.split(call), engine, output, logsumexp, entropy, *given, list(needs)
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
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return operators.differentiate(ctx, *grads, run=AttentionBackward.apply)

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
    seed = None if call.dropout is None else call.dropout.seed
    return call.query, call.key, call.value, call.allowed.dense, call.bias, call.sinks, seed


def ordinary(*tensors: Tensor | None) -> bool:
    """Whether tensors are just tensors: no functorch transform and no dispatch mode at work.

    Nor is any of the given ones a wrapper, whose own memory holds nothing: only an operator reaches
    what it stands for, by the wrapper's __torch_dispatch__. Nor is one on meta, where there are
    shapes alone, which the operator knows.
    """
    return (
        not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and all(
            x is None or (type(x).__torch_dispatch__ is _NO_WRAPPER and not x.is_meta)
            for x in tensors
        )
    )
