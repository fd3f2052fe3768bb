"""How the portable kernels run a backward pass."""

from __future__ import annotations

import torch

from limelight.call import Call
from limelight.engines.gpu import blocks, launch
from limelight.engines.gpu.backward import (
    Numbers,
    bias_kernel,
    key_kernel,
    query_kernel,
    rows_kernel,
)
from limelight.reference import Gradients, State

Figure = torch.Tensor | None


def _numbers(
    call: Call, state: State, grad_output: torch.Tensor, by_logsumexp: Figure, by_entropy: Figure
) -> Numbers:
    """What the kernels need of each row."""
    delta = torch.empty_like(state.logsumexp)
    rows = 64 if call.value_size <= 128 else 16
    entropy = None if by_entropy is None else state.entropy
    launch.start(
        rows_kernel,
        -(-call.queries // rows) * call.batch * call.query_heads,
        (launch.plain(state.output), launch.plain(grad_output), by_logsumexp, entropy, by_entropy,
         delta, launch.sizes_of(call)),
        (rows, launch.power_of_two(call.value_size)),
    )  # fmt: skip
    return Numbers(state.logsumexp, delta, 0, call.queries, by_entropy)


def sinks_gradient(
    call: Call, state: State, delta: torch.Tensor, by_entropy: Figure
) -> torch.Tensor | None:
    """Σ ds over batch and rows: the sink takes weight and gives no value, so its dp is 0."""
    if call.sinks is None:
        return None
    log = call.sinks.float()[None, :, None] - state.logsumexp
    log = torch.where(state.logsumexp == float("-inf"), float("-inf"), log)
    weight = log.exp()
    slope = delta if by_entropy is None else delta + by_entropy * torch.where(weight > 0, log, 0.0)
    gradient: torch.Tensor = -(weight * slope).sum(dim=(0, 2)).to(call.sinks.dtype)
    return gradient


def bias_gradient(call: Call, grad_output: torch.Tensor, numbers: Numbers) -> torch.Tensor | None:
    """ds, summed over what each element of the bias serves."""
    if call.bias is None:
        return None
    b, h, nq, nk = call.bias.shape
    found = torch.zeros(call.bias.shape, dtype=torch.float32, device=call.query.device)
    tile = blocks.square(call)
    all_rows, all_columns = nq < call.queries, nk < call.keys
    down = 1 if all_rows else -(-nq // tile.rows)
    across = 1 if all_columns else -(-nk // tile.keys)
    launch.start(
        bias_kernel,
        down * across * b * h,
        (*launch.inputs(call), launch.plain(grad_output), numbers, launch.where_of(call)[0],
         launch.form_of(call), launch.plain(found), launch.sizes_of(call), call.batch // b,
         call.query_heads // h),
        (*_constants(call, tile), all_rows, all_columns), **_options(call, tile, False),
    )  # fmt: skip
    return found.to(call.bias.dtype)


def _query(
    call: Call, grad_output: torch.Tensor, numbers: Numbers, grad_query: torch.Tensor, again: bool
) -> None:
    tile = blocks.square(call) if again else blocks.query_gradient(call)
    launch.start(
        query_kernel,
        -(-call.queries // tile.rows) * call.batch * call.query_heads,
        (*launch.inputs(call), launch.plain(grad_output), numbers, launch.where_of(call)[0],
         launch.form_of(call), launch.plain(grad_query), launch.sizes_of(call)),
        (*_constants(call, tile), again), **_options(call, tile, again),
    )  # fmt: skip


def _key(
    call: Call, grad_output: torch.Tensor, numbers: Numbers, grad_key: torch.Tensor,
    grad_value: torch.Tensor, again: bool,
) -> None:  # fmt: skip
    tile = blocks.square(call) if again else blocks.key_gradient(call)
    launch.start(
        key_kernel,
        -(-call.keys // tile.keys) * call.batch * call.key_heads,
        (*launch.inputs(call), launch.plain(grad_output), numbers, launch.where_of(call)[0],
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


def backward(
    call: Call, state: State, grad_output: torch.Tensor, by_logsumexp: Figure, by_entropy: Figure,
    with_bias: bool = True,
) -> Gradients:  # fmt: skip
    """All gradients, each summed in a fixed order; the bias's where it is wanted."""
    wide = blocks.fitted(call)
    size = wide.value_size
    output, grad = blocks.pad(state.output, size), blocks.pad(grad_output, size)
    given = State(output, state.logsumexp.contiguous(), None, dense(state.entropy))
    grads = _backward(wide, given, grad, dense(by_logsumexp), dense(by_entropy), with_bias)
    return Gradients(
        query=blocks.cut(grads.query, call.head_size),
        key=blocks.cut(grads.key, call.head_size),
        value=blocks.cut(grads.value, call.value_size),
        bias=grads.bias,
        sinks=grads.sinks,
    )


def dense(figure: Figure) -> Figure:
    return None if figure is None else figure.float().contiguous()


def _backward(
    call: Call, state: State, grad_output: torch.Tensor, by_logsumexp: Figure, by_entropy: Figure,
    with_bias: bool,
) -> Gradients:  # fmt: skip
    query, key, value = call.query, call.key, call.value
    if call.empty:
        zeros = torch.zeros_like
        sinks = sinks_gradient(call, state, _without_keys(state, by_logsumexp), None)
        return Gradients(
            query=zeros(query), key=zeros(key), value=zeros(value), sinks=sinks,
            bias=None if call.bias is None else zeros(call.bias),
        )  # fmt: skip
    grad_query, grad_key, grad_value = (
        torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (query, key, value)
    )
    numbers = _numbers(call, state, grad_output, by_logsumexp, by_entropy)
    for again in (False, True) if call.hides else (False,):
        _query(call, grad_output, numbers, grad_query, again)
        _key(call, grad_output, numbers, grad_key, grad_value, again)
    return Gradients(
        query=grad_query,
        key=grad_key,
        value=grad_value,
        bias=bias_gradient(call, grad_output, numbers) if with_bias else None,
        sinks=sinks_gradient(call, state, numbers.delta, by_entropy),
    )


def _without_keys(state: State, by_logsumexp: Figure) -> torch.Tensor:
    """delta of rows that have at most a sink: its weight is 1, its entropy 0."""
    return torch.zeros_like(state.logsumexp) if by_logsumexp is None else -by_logsumexp
