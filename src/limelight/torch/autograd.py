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

from limelight.torch import batching, operators


def run(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The operator's arguments in, output and row statistics out, with gradients of the output."""
    function = Eager if plain() else Attention
    found: tuple[Tensor, Tensor, Tensor, Tensor] = function.apply(*arguments)
    return found


class Eager(torch.autograd.Function):
    """Without a transform at work: the engine at once. A function whose context is set up apart,
    as torch.func needs it, costs a small call 20 µs more.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found = operators.run_attention(*arguments)
        operators.setup_context(ctx, arguments, found)
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        return _backward(ctx, grads[0])


class Attention(torch.autograd.Function):
    """The same through the operator, for torch.func and for modes that look at operators."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor, Tensor] = operators.attention(*arguments)
        return found

    setup_context = staticmethod(operators.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        return _backward(ctx, grads[0])

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        return batching.map_attention(info.batch_size, dims, arguments, Attention.apply)


def _backward(ctx: Any, grad_output: Tensor | None) -> tuple[Any, ...]:
    simple = plain() and not torch.is_grad_enabled()
    once = operators.run_backward if simple else AttentionBackward.apply
    return operators.differentiate(ctx, grad_output, run=once)


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


def plain() -> bool:
    """Whether tensors are just tensors: no functorch transform and no dispatch mode at work."""
    return (
        not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
    )
