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

from limelight.allowed import Allowed
from limelight.arrays import as_numpy
from limelight.call import Call, check_scale, check_softcap
from limelight.reference import State
from limelight.torch import bridge
from limelight.torch.tracing import Arguments

_CALL = (
    "Tensor query, Tensor key, Tensor value, SymInt[]? band, Tensor? spans, Tensor? dense, "
    "Tensor? bias, Tensor? sinks, float scale, float? softcap, str engine"
)
_TAGS = (torch.Tag.pt2_compliant_tag,)

torch.library.define(
    "limelight::attention",
    f"({_CALL}, bool health, str site) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=_TAGS,
)
torch.library.define(
    "limelight::attention_backward",
    f"({_CALL}, Tensor output, Tensor logsumexp, Tensor grad_output, bool[] needs) "
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
    softcap: float | None,
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
    return Call(query, key, value, allowed, bias, scale, softcap, sinks, batch, headless=False)


def split(call: Call) -> Arguments:
    """The inverse: a checked call in the operator's terms."""
    allowed = call.allowed
    spans = None if allowed.spans is None else torch.from_numpy(allowed.spans)
    return Arguments(
        call.query, call.key, call.value, allowed.band, spans, allowed.dense, call.bias, call.sinks,
        call.scale, call.softcap,
    )  # fmt: skip


def measure(call: Call, engine: str, health: bool, site: str) -> State:
    """One pass whose results do not overlap, as torch needs them of an operator."""
    state = bridge.forward(call, engine, health=health, site=site)
    output, logsumexp = state.output.contiguous(), state.logsumexp.contiguous()
    if not health:
        return State(output, logsumexp)
    # An engine may fill one block with all three statistics.
    return State(output, logsumexp.clone(), state.max_logit.clone(), state.entropy.clone())


def _attention(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    *call_arguments, engine, health, site = arguments
    state = measure(make_call(*call_arguments), engine, health, site)
    if health:
        return state.output, state.logsumexp, state.max_logit, state.entropy
    none = state.logsumexp.new_empty
    return state.output, state.logsumexp, none(0), none(0)


torch.library.impl("limelight::attention", ("cpu", "cuda"), _attention)


@torch.library.register_fake("limelight::attention")
def _attention_fake(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, value, health = arguments[0], arguments[2], arguments[-2]
    rows = query.shape[:3]
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    statistics = rows if health else (0,)
    return (
        query.new_empty((*rows, value.shape[3])), query.new_empty(rows, dtype=wide),
        query.new_empty(statistics, dtype=wide), query.new_empty(statistics, dtype=wide),
    )  # fmt: skip


def gradients(
    call: Call, engine: str, state: State, grad_output: Tensor, needs: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients by query, key, value, bias and sinks, where they are needed."""
    grads = bridge.backward(call, engine, state, grad_output)
    found = (grads.query, grads.key, grads.value, grads.bias, grads.sinks)
    return tuple(
        gradient.contiguous() if need else None for gradient, need in zip(found, needs, strict=True)
    )


@torch.library.impl("limelight::attention_backward", ("cpu", "cuda"))
def _attention_backward(*arguments: Any) -> tuple[Tensor, ...]:
    *call_arguments, engine, output, logsumexp, grad_output, needs = arguments
    call = make_call(*call_arguments)
    found = gradients(call, engine, State(output, logsumexp), grad_output, needs)
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
    query, key, value, band, spans, dense, bias, sinks, scale, softcap, engine, _, _ = inputs
    out, logsumexp, max_logit, entropy = output
    ctx.save_for_backward(query, key, value, spans, dense, bias, sinks, out, logsumexp)
    ctx.plain = band, scale, softcap, engine
    ctx.mark_non_differentiable(logsumexp, max_logit, entropy)
    ctx.set_materialize_grads(False)


def differentiate(
    ctx: Any, grad_output: Tensor | None, *_: Any, run: Any = attention_backward
) -> tuple[Any, ...]:
    """The gradients by the thirteen arguments of the operator."""
    query, key, value, spans, dense, bias, sinks, output, logsumexp = ctx.saved_tensors
    band, scale, softcap, engine = ctx.plain
    wanted = ctx.needs_input_grad
    needs = [*wanted[:3], wanted[6], wanted[7]]
    if grad_output is None or not any(needs):
        return (None,) * 13
    call = (query, key, value, band, spans, dense, bias, sinks, scale, softcap, engine)
    grads = run(*call, output, logsumexp, grad_output, needs)
    dq, dk, dv, db, ds = (g if need else None for g, need in zip(grads, needs, strict=True))
    return dq, dk, dv, None, None, None, db, ds, None, None, None, None, None


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
    rows = query.shape[:3]
    return count(call).expand(rows).clone(memory_format=torch.contiguous_format)


@torch.library.register_fake("limelight::count_keys")
def _count_keys_fake(query: Tensor, *_: Any) -> Tensor:
    return query.new_empty(query.shape[:3], dtype=torch.int64)


def count(call: Call) -> Tensor:
    """How many keys each row may attend to, int64 [B|1, Hq|1, Nq], on the call's device.

    A band is counted on the device itself, spans on the host and once; rows against a dense part
    or a bias in chunks.
    """
    allowed, device = call.allowed, call.query.device
    nq, nk = allowed.nq, allowed.nk
    if allowed.dense is None and call.bias is None:
        if allowed.everything:
            return torch.full((1, 1, nq), nk, device=device)
        if allowed.spans is None:
            low, high = allowed.band or (-nq, nk)
            counts = _bounds(high + 1, nq, nk, device)
            if low + nq > 1:  # some row does not see the first key
                counts = (counts - _bounds(low, nq, nk, device)).clamp_min_(0)
            return counts[None, None]
        known: dict[Any, Tensor] = vars(allowed).setdefault("counted", {})
        if device not in known:
            known[device] = torch.from_numpy(allowed.count()).to(device)
        return known[device].clone()
    parts = [part for part in (allowed.dense, call.bias) if part is not None]
    alike = allowed.band is None and allowed.spans is None and all(p.shape[2] == 1 for p in parts)
    if alike and nq > 1:
        first = _cells(call, slice(0, 1)).sum(-1)
        return first.expand(*first.shape[:2], nq)
    heads = max(part.shape[0] * part.shape[1] for part in parts)
    step = max(1, (1 << 24) // max(1, heads * nk))
    chunks = [slice(start, min(start + step, nq)) for start in range(0, nq, step)]
    if not chunks:
        return torch.zeros((1, 1, 0), dtype=torch.int64, device=device)
    return torch.cat([_cells(call, rows).sum(-1) for rows in chunks], 2)


def _bounds(first: int, nq: int, nk: int, device: torch.device) -> Tensor:
    """first, first + 1, … for each row, as far as there are keys; few launches, for small calls."""
    bounds = torch.arange(first, first + nq, device=device)
    return bounds if first >= 0 and first + nq <= nk + 1 else bounds.clamp_(0, nk)


def _cells(call: Call, rows: slice) -> Tensor:
    """Which cells of some rows are allowed, bool [B|1, Hq|1, rows, Nk]."""
    allowed, device = call.allowed, call.query.device
    cells = torch.ones((1, 1, rows.stop - rows.start, allowed.nk), dtype=torch.bool, device=device)
    if allowed.band is not None or allowed.spans is not None:
        column = torch.arange(allowed.nk, device=device)
        spans = torch.from_numpy(allowed.rows[:, :, rows]).to(device)
        within = (column >= spans[..., :1]) & (column < spans[..., 1:])  # [.., rows, R, Nk]
        cells = within.any(-2)
    if allowed.dense is not None:
        dense = allowed.dense
        cells = cells & (dense if dense.shape[2] == 1 else dense[:, :, rows])
    if call.bias is not None:
        bias = call.bias
        cells = cells & (bias if bias.shape[2] == 1 else bias[:, :, rows]).ne(-torch.inf)
    return cells
