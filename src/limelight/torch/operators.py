"""The torch operators: limelight::attention, its backward, and limelight::count_keys.

An operator takes tensors and numbers only, so the parts of a mask cross the boundary one by one:
the band as two integers, spans and dense as tensors. torch.compile and torch.export put the
operator into their graphs whole; what it returns follows from the shapes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from limelight.arrays import as_numpy, output_like
from limelight.call import Call, check_scale, check_softcap
from limelight.dropout import Dropout, check_dropout
from limelight.masks.allowed import Allowed
from limelight.reference import Gradients, State
from limelight.torch import bridge
from limelight.torch.symbolic import Arguments

_CALL = (
    "Tensor query, Tensor key, Tensor value, SymInt[]? band, Tensor? spans, Tensor? dense, "
    "Tensor? bias, Tensor? sinks, float scale, float? softcap, float dropout, Tensor? seed, "
    "str engine"
)
_TAGS = (torch.Tag.pt2_compliant_tag,)

torch.library.define(
    "limelight::attention",
    f"({_CALL}, bool health, str site) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
torch.library.define(
    "limelight::attention_backward",
    f"({_CALL}, Tensor output, Tensor logsumexp, Tensor? entropy, Tensor? grad_output, "
    "Tensor? grad_logsumexp, Tensor? grad_entropy, bool[] needs) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
torch.library.define(
    "limelight::count_keys",
    "(Tensor query, SymInt keys, SymInt[]? band, Tensor? spans, Tensor? dense, Tensor? bias) "
    "-> Tensor",
    tags=_TAGS,
)

attention = torch.ops.limelight.attention
attention_backward = torch.ops.limelight.attention_backward
count_keys = torch.ops.limelight.count_keys


def make_call(
    query: Tensor, key: Tensor, value: Tensor, band: Sequence[int] | None, spans: Tensor | None,
    dense: Tensor | None, bias: Tensor | None, sinks: Tensor | None, scale: float,
    softcap: float | None, dropout: float = 0.0, seed: Tensor | None = None,
) -> Call:  # fmt: skip
    """The operator's arguments as a Call.

    Here, where they are no symbols, sizes clip the band and the two numbers are checked.
    """
    nq, nk = query.shape[2], key.shape[2]
    allowed = Allowed(
        nq, nk,
        band=None if band is None else (max(band[0], -nq), min(band[1], nk)),
        spans=as_numpy(spans),
        dense=dense,
    )  # fmt: skip
    scale, softcap = check_scale(scale), None if softcap is None else check_softcap(softcap)
    batch = (query.shape[0],)
    drops = None if seed is None else Dropout(check_dropout(dropout), seed)
    return Call(query, key, value, allowed, bias, scale, softcap, sinks, batch, False, drops)


def split(call: Call) -> Arguments:
    """The inverse: a checked call in the operator's terms."""
    allowed, drops = call.allowed, call.dropout
    spans = None if allowed.spans is None else torch.from_numpy(allowed.spans)
    return Arguments(
        call.query, call.key, call.value, allowed.band, spans, allowed.dense, call.bias, call.sinks,
        call.scale, call.softcap, *((0.0, None) if drops is None else (drops.p, drops.seed)),
    )  # fmt: skip


def measure(call: Call, engine: str, health: bool, site: str) -> State:
    """One pass whose results do not overlap, as torch needs them of an operator."""
    state = bridge.forward(call, engine, health=health, site=site)
    output, logsumexp = state.output, state.logsumexp.contiguous()
    if output.is_cuda:
        output = output.contiguous()
    if not health:
        return State(output, logsumexp)
    rows = logsumexp, state.max_logit, state.entropy
    if output.is_cuda and all(x.untyped_storage().nbytes() == x.nbytes for x in rows):
        return State(output, *rows)
    # An engine may fill one block with all three statistics.
    return State(output, *(figure.clone() for figure in rows))


def _attention(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *call_arguments, engine, health, site = arguments
    state = measure(make_call(*call_arguments), engine, health, site)
    if health:
        return state.output, state.logsumexp, state.max_logit, state.entropy
    none = state.logsumexp.new_empty
    return state.output, state.logsumexp, none(0), none(0)


torch.library.impl("limelight::attention", ("cpu", "cuda"), _attention)


@torch.library.register_fake("limelight::attention")
def fake(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, value, health = arguments[0], arguments[2], arguments[-2]
    rows = query.shape[:3]
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    statistics = rows if health else (0,)
    return (
        output_like(query, value.shape[3]), query.new_empty(rows, dtype=wide),
        query.new_empty(statistics, dtype=wide), query.new_empty(statistics, dtype=wide),
    )  # fmt: skip


def gradients(
    call: Call, engine: str, state: State, grads_of: Sequence[Tensor | None], needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients by query, key, value, bias and sinks, where they are needed.

    From those of output, logsumexp and entropy, None for what the loss does not depend on.
    """
    output, logsumexp, entropy = (None if x is None else x.resolve_neg() for x in grads_of)
    grads = bridge.backward(call, engine, state, output, logsumexp, entropy, with_bias=needs[3])
    return wanted(grads, needs)


def wanted(grads: Gradients, needs: Sequence[bool]) -> tuple[Tensor | None, ...]:
    """Those that are needed, each dense."""
    found = (grads.query, grads.key, grads.value, grads.bias, grads.sinks)
    return tuple([
        gradient.contiguous() if need else None for gradient, need in zip(found, needs, strict=True)
    ])  # fmt: skip


@torch.library.impl("limelight::attention_backward", ("cpu", "cuda"))
def _attention_backward(*arguments: Any) -> tuple[Tensor, ...]:
    *call_arguments, engine, output, logsumexp, entropy = arguments[:-4]
    call, state = make_call(*call_arguments), State(output, logsumexp, None, entropy)
    found = gradients(call, engine, state, arguments[-4:-1], arguments[-1])
    return tuple(call.query.new_empty(0) if gradient is None else gradient for gradient in found)


@torch.library.register_fake("limelight::attention_backward")
def _backward_fake(*arguments: Any) -> tuple[Tensor, ...]:
    query, needs = arguments[0], arguments[-1]
    given = (*arguments[:3], arguments[6], arguments[7])
    return tuple(
        like.new_empty(like.shape) if need else query.new_empty(0)
        for like, need in zip(given, needs, strict=True)
    )


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    query, key, value, band, spans, dense, bias, sinks, scale, softcap, *rest = inputs
    dropout, seed, engine, health, _ = rest
    out, logsumexp, max_logit, entropy = output
    kept = (query, key, value, spans, dense, bias, sinks, seed, out, logsumexp, entropy)
    ctx.save_for_backward(*kept)
    ctx.plain = band, scale, softcap, dropout, engine
    ctx.mark_non_differentiable(max_logit, *(() if health else (entropy,)))
    ctx.set_materialize_grads(False)


def differentiate(
    ctx: Any, by_output: Tensor | None, by_logsumexp: Tensor | None, _: Any,
    by_entropy: Tensor | None, *, run: Any = attention_backward,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients by the fifteen arguments of the operator."""
    query, key, value, spans, dense, bias, sinks, seed, *saved = ctx.saved_tensors
    output, logsumexp, entropy = saved
    band, scale, softcap, dropout, engine = ctx.plain
    wanted, given = ctx.needs_input_grad, (by_output, by_logsumexp, by_entropy)
    needs = [*wanted[:3], wanted[6], wanted[7]]
    if all(x is None for x in given) or not any(needs):
        return (None,) * 15
    call = (query, key, value, band, spans, dense, bias, sinks, scale, softcap, dropout, seed)
    entropy = None if by_entropy is None else entropy
    grads = run(*call, engine, output, logsumexp, entropy, *given, needs)
    dq, dk, dv, db, ds = (g if need else None for g, need in zip(grads, needs, strict=True))
    return dq, dk, dv, None, None, None, db, ds, *(None,) * 7


def no_second_derivative(ctx: Any, *grads: Any) -> None:
    """What a backward pass through the backward pass meets."""
    raise NotImplementedError(
        "the second derivative of attention was asked for (create_graph=True, hessian, …): fused "
        "attention has only the first. For a small model write softmax(q @ k.mT) @ v in torch"
    )


torch.library.register_autograd("limelight::attention", differentiate, setup_context=setup_context)
torch.library.register_autograd("limelight::attention_backward", no_second_derivative)


@torch.library.impl("limelight::count_keys", ("cpu", "cuda"))
def _count_keys(
    query: Tensor, keys: int, band: Sequence[int] | None, spans: Tensor | None,
    dense: Tensor | None, bias: Tensor | None,
) -> Tensor:  # fmt: skip
    key = query[:, :, :0].new_empty((1, 1, keys, 0))
    call = make_call(query, key, key, band, spans, dense, bias, None, 1.0, None)
    counts: Tensor = call.row_keys()
    return counts.clone(memory_format=torch.contiguous_format)


@torch.library.register_fake("limelight::count_keys")
def _count_keys_fake(query: Tensor, *_: Any) -> Tensor:
    return query.new_empty(query.shape[:3], dtype=torch.int64)
