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


class Attention(torch.autograd.Function):
    """The operator's arguments in, output and row statistics out; only the output has gradients."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if plain():
            return operators.run_attention(*arguments)
        found: tuple[Tensor, Tensor, Tensor, Tensor] = operators.attention(*arguments)
        return found

    setup_context = staticmethod(operators.setup_context)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        simple = plain() and not torch.is_grad_enabled()
        run = operators.run_backward if simple else AttentionBackward.apply
        return operators.differentiate(ctx, grads[0], run=run)

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


def plain() -> bool:
    """Whether tensors are just tensors: no functorch transform and no dispatch mode at work."""
    return (
        not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
    )
