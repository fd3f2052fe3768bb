"""How the GPU engines look at the weights: pictures and sums by kernels, the rest in torch."""

from __future__ import annotations

from typing import Any

import torch

from limelight.call import Call, beyond_float32
from limelight.engines import _torch_pool
from limelight.engines._torch_pool import block as block
from limelight.engines._torch_pool import strongest as strongest
from limelight.engines.gpu import blocks, launch


def pool(
    call: Call, logsumexp: torch.Tensor, row_edges: Any, column_edges: Any, kind: str
) -> torch.Tensor:
    if beyond_float32(call):
        return _torch_pool.pool(call, logsumexp, row_edges, column_edges, kind)
    with launch.device_of(call):
        values, counts = _pool(call, logsumexp, row_edges, column_edges, kind == "max")
    return _torch_pool.finish(values, counts, kind)


def _pool(
    call: Call, logsumexp: torch.Tensor, row_edges: Any, column_edges: Any, largest: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest or summed weight of each bin, and its number of allowed cells."""
    from limelight.engines.gpu import pool as kernels

    call = blocks.fitted(call)
    device = call.query.device
    row_edges = torch.as_tensor(row_edges, dtype=torch.int32, device=device)
    column_edges = torch.as_tensor(column_edges, dtype=torch.int32, device=device)
    height, width = max(0, row_edges.numel() - 1), max(0, column_edges.numel() - 1)
    shape = (call.batch, call.query_heads, height, width)
    picture = torch.zeros(shape, dtype=torch.float32, device=device)
    counts = torch.zeros(shape, dtype=torch.int64, device=device)
    if picture.numel() == 0:
        return picture, counts
    tile = blocks.square(call)
    where, band, spans = launch.where_of(call)
    launch.start(
        kernels.pool_kernel,
        picture.numel(),
        (launch.plain(call.query), launch.plain(call.key), where, launch.form_of(call), logsumexp,
         row_edges, column_edges, picture, counts, launch.sizes_of(call), height, width),
        (tile.rows, tile.keys, launch.power_of_two(call.head_size), largest, band, spans,
         launch.precision_of(call)),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return picture, counts


def received(call: Call, logsumexp: torch.Tensor) -> torch.Tensor:
    if beyond_float32(call):
        return _torch_pool.received(call, logsumexp)
    with launch.device_of(call):
        return _received(call, logsumexp)


def _received(call: Call, logsumexp: torch.Tensor) -> torch.Tensor:
    from limelight.engines.gpu import pool as kernels

    call = blocks.fitted(call)
    shape = (call.batch, call.query_heads, call.keys)
    sums = torch.zeros(shape, dtype=torch.float32, device=call.query.device)
    if sums.numel() == 0 or call.queries == 0:
        return sums
    tile = blocks.square(call)
    where, band, spans = launch.where_of(call)
    launch.start(
        kernels.received_kernel,
        -(-call.keys // tile.keys) * call.batch * call.query_heads,
        (launch.plain(call.query), launch.plain(call.key), where, launch.form_of(call), logsumexp,
         sums, launch.sizes_of(call)),
        (tile.rows, tile.keys, launch.power_of_two(call.head_size), band, spans,
         launch.precision_of(call)),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return sums
