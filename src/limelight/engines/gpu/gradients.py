"""How the portable kernels run a backward pass."""

from __future__ import annotations

import torch

from limelight.call import Call
from limelight.engines.gpu import blocks, launch
from limelight.reference import Gradients, State


def of_rows(call: Call, state: State, grad_output: torch.Tensor) -> torch.Tensor:
    """What the kernels need of each row, [2, B, Hq, Nq]: logsumexp and delta."""
    from limelight.engines.gpu import backward as kernels

    found = torch.empty((2, *state.logsumexp.shape), dtype=torch.float32, device=call.query.device)
    rows = 64 if call.value_size <= 128 else 16
    launch.start(
        kernels.rows_kernel,
        -(-call.queries // rows) * call.batch * call.query_heads,
        (launch.plain(state.output), launch.plain(grad_output), state.logsumexp, found,
         launch.sizes_of(call)),
        (rows, launch.power_of_two(call.value_size)),
    )  # fmt: skip
    return found


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
    call: Call, state: State, grad_output: torch.Tensor, rows: torch.Tensor,
    grad_query: torch.Tensor, again: bool,
) -> None:  # fmt: skip
    from limelight.engines.gpu import backward as kernels

    tile = blocks.square(call) if again else blocks.query_gradient(call)
    launch.start(
        kernels.query_kernel,
        -(-call.queries // tile.rows) * call.batch * call.query_heads,
        (*launch.inputs(call), launch.plain(state.output), launch.plain(grad_output),
         rows, launch.where_of(call)[0], launch.form_of(call), launch.plain(grad_query),
         launch.sizes_of(call)),
        (*_constants(call, tile), again), **_options(call, tile, again),
    )  # fmt: skip


def _key(
    call: Call, grad_output: torch.Tensor, rows: torch.Tensor,
    grad_key: torch.Tensor, grad_value: torch.Tensor, again: bool,
) -> None:  # fmt: skip
    from limelight.engines.gpu import backward as kernels

    tile = blocks.square(call) if again else blocks.key_gradient(call)
    launch.start(
        kernels.key_kernel,
        -(-call.keys // tile.keys) * call.batch * call.key_heads,
        (*launch.inputs(call), launch.plain(grad_output), rows, launch.where_of(call)[0],
         launch.form_of(call), launch.plain(grad_key), launch.plain(grad_value),
         launch.sizes_of(call)),
        (*_constants(call, tile), again), **_options(call, tile, again),
    )  # fmt: skip


def _constants(call: Call, tile: blocks.Blocks) -> tuple[object, ...]:
    _, band, spans = launch.where_of(call)
    return (
        tile.rows, tile.keys, *blocks.widths(call), band, spans, launch.precision_of(call)
    )  # fmt: skip


def _options(call: Call, tile: blocks.Blocks, again: bool) -> dict[str, int]:
    """How Triton runs a gradient kernel: half types without FMA between products, see `slopes`."""
    stages = 1 if again else tile.stages
    exact = call.dtype == "float32"  # its dot products are FMAs, and every block has a mask
    return {"num_warps": tile.warps, "num_stages": stages, "enable_fp_fusion": exact}


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
        query=blocks.cut(grads.query, call.head_size),
        key=blocks.cut(grads.key, call.head_size),
        value=blocks.cut(grads.value, call.value_size),
        bias=grads.bias,
        sinks=grads.sinks,
    )


def _backward(call: Call, state: State, grad_output: torch.Tensor) -> Gradients:
    from limelight.engines.gpu import backward as kernels

    device = call.query.device
    room = torch.zeros if call.empty else torch.empty
    grad_query = room(call.query.shape, dtype=call.query.dtype, device=device)
    grad_key = room(call.key.shape, dtype=call.key.dtype, device=device)
    grad_value = room(call.value.shape, dtype=call.value.dtype, device=device)
    grad_bias = None if call.bias is None else torch.zeros(
        call.bias.shape, dtype=torch.float32, device=device)  # fmt: skip
    delta = torch.zeros_like(state.logsumexp)
    if not call.empty:
        rows = of_rows(call, state, grad_output)
        delta = rows[1]
        _query(call, state, grad_output, rows, grad_query, again=False)
        _key(call, grad_output, rows, grad_key, grad_value, again=False)
        if call.hides:
            _query(call, state, grad_output, state.logsumexp, grad_query, again=True)
            _key(call, grad_output, rows, grad_key, grad_value, again=True)
        if grad_bias is not None:
            tile = blocks.square(call)
            where = launch.where_of(call)[0]
            b, h, nq, nk = grad_bias.shape
            all_rows, all_columns = nq < call.queries, nk < call.keys
            down = 1 if all_rows else -(-nq // tile.rows)
            across = 1 if all_columns else -(-nk // tile.keys)
            launch.start(
                kernels.bias_kernel,
                down * across * b * h,
                (*launch.inputs(call), launch.plain(grad_output), rows, where,
                 launch.form_of(call), launch.plain(grad_bias), launch.sizes_of(call),
                 call.batch // b, call.query_heads // h),
                (*_constants(call, tile), all_rows, all_columns), **_options(call, tile, False),
            )  # fmt: skip
    return Gradients(
        query=grad_query,
        key=grad_key,
        value=grad_value,
        bias=None if grad_bias is None else grad_bias.to(call.bias.dtype),
        sinks=sinks_gradient(call, state, delta),
    )
