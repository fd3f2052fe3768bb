"""How the portable kernels run a backward pass."""

from __future__ import annotations

import torch

from limelight.call import Call
from limelight.engines.gpu import blocks, launch
from limelight.reference import Gradients, State


def delta_of(call: Call, state: State, grad_output: torch.Tensor) -> torch.Tensor:
    """Σ grad_output·output of each row, [B, Hq, Nq]."""
    from limelight.engines.gpu import backward as kernels

    delta = torch.empty_like(state.logsumexp)
    rows = 64 if call.value_size <= 128 else 16
    launch.start(
        kernels.delta_kernel,
        (-(-call.queries // rows), call.batch * call.query_heads, 1),
        (launch.plain(state.output), launch.plain(grad_output), delta, launch.sizes_of(call)),
        (rows, launch.power_of_two(call.value_size)),
    )
    return delta


def sinks_gradient(call: Call, state: State, delta: torch.Tensor) -> torch.Tensor | None:
    """-Σ p(sink)·delta over batch and rows: the sink takes weight and gives no value."""
    if call.sinks is None:
        return None
    weight = (call.sinks.float()[None, :, None] - state.logsumexp).exp()
    weight = torch.where(state.logsumexp == float("-inf"), 0.0, weight)
    gradient: torch.Tensor = -(weight * delta).sum(dim=(0, 2)).to(call.sinks.dtype)
    return gradient


def query_again(
    call: Call, state: State, grad_output: torch.Tensor, grad_query: torch.Tensor
) -> None:
    """Compute with care the tiles of grad_query that hold an infinity or NaN."""
    state = State(state.output, state.logsumexp.contiguous())
    _query(call, state, grad_output, state.logsumexp, grad_query, again=True)


def _query(
    call: Call, state: State, grad_output: torch.Tensor, delta: torch.Tensor,
    grad_query: torch.Tensor, again: bool,
) -> None:  # fmt: skip
    from limelight.engines.gpu import backward as kernels

    tile = blocks.backward(call)
    where, band, spans = launch.where_of(call)
    launch.start(
        kernels.query_kernel,
        (-(-call.queries // tile.rows), call.batch * call.query_heads, 1),
        (*launch.inputs(call), launch.plain(state.output), launch.plain(grad_output),
         state.logsumexp, delta, where, launch.form_of(call), launch.plain(grad_query),
         launch.sizes_of(call)),
        (tile.rows, tile.keys, *blocks.widths(call), band, spans, launch.precision_of(call), again),
        num_warps=tile.warps, num_stages=1 if again else tile.stages,
    )  # fmt: skip


def backward(call: Call, state: State, grad_output: torch.Tensor) -> Gradients:
    """All gradients, each summed in a fixed order."""
    state = State(state.output, state.logsumexp.contiguous())
    wide = blocks.fitted(call)
    if wide is call:
        return _backward(call, state, grad_output)
    size = wide.value_size
    padded = State(blocks.pad(state.output, size), state.logsumexp)
    grads = _backward(wide, padded, blocks.pad(grad_output, size))
    return Gradients(
        query=grads.query[..., : call.head_size].contiguous(),
        key=grads.key[..., : call.head_size].contiguous(),
        value=grads.value[..., : call.value_size].contiguous(),
        bias=grads.bias,
        sinks=grads.sinks,
    )


def _backward(call: Call, state: State, grad_output: torch.Tensor) -> Gradients:
    from limelight.engines.gpu import backward as kernels

    device = call.query.device
    grad_query = torch.zeros(call.query.shape, dtype=call.query.dtype, device=device)
    grad_key = torch.zeros(call.key.shape, dtype=call.key.dtype, device=device)
    grad_value = torch.zeros(call.value.shape, dtype=call.value.dtype, device=device)
    grad_bias = None if call.bias is None else torch.zeros(
        call.bias.shape, dtype=torch.float32, device=device)  # fmt: skip
    empty = not (call.keys and call.batch and call.query_heads and call.queries)
    if empty:
        delta = torch.zeros_like(state.logsumexp)
    else:
        delta = delta_of(call, state, grad_output)
        _query(call, state, grad_output, delta, grad_query, again=False)
        tile = blocks.backward(call)
        where, band, spans = launch.where_of(call)
        shared = (
            *launch.inputs(call), launch.plain(grad_output), state.logsumexp, delta, where,
            launch.form_of(call),
        )  # fmt: skip
        constants = (
            tile.rows, tile.keys, *blocks.widths(call), band, spans, launch.precision_of(call),
        )  # fmt: skip
        options = {"num_warps": tile.warps, "num_stages": tile.stages}
        launch.start(
            kernels.key_kernel,
            (-(-call.keys // tile.keys), call.batch * call.key_heads, 1),
            (*shared, launch.plain(grad_key), launch.plain(grad_value), launch.sizes_of(call)),
            constants,
            **options,
        )
        if grad_bias is not None:
            b, h, nq, nk = grad_bias.shape
            all_rows, all_columns = nq < call.queries, nk < call.keys
            down = 1 if all_rows else -(-nq // tile.rows)
            across = 1 if all_columns else -(-nk // tile.keys)
            launch.start(
                kernels.bias_kernel,
                (down, across, b * h),
                (*shared, launch.plain(grad_bias), launch.sizes_of(call), call.batch // b,
                 call.query_heads // h),
                (*constants, all_rows, all_columns),
                **options,
            )  # fmt: skip
    return Gradients(
        query=grad_query,
        key=grad_key,
        value=grad_value,
        bias=None if grad_bias is None else grad_bias.to(call.bias.dtype),
        sinks=sinks_gradient(call, state, delta),
    )
