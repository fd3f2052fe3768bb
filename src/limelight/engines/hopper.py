"""The engine for H100 and H200: Gluon kernels, torch's fused backward where it applies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from limelight.call import Call
from limelight.engines.gpu.masks import MaskArguments, broadcast_strides, mask_arguments
from limelight.reference import Gradients, State

LOG2E = math.log2(math.e)
L2_BYTES = 24 << 20  # keys and values that one section of heads may hold, of the 50 MB of L2


@dataclass(frozen=True)
class Tile:
    """How a head size is tiled: consumer warpgroups of 64 rows, keys a block, buffers, registers."""

    consumers: int
    keys: int
    stages: int
    registers: int


def tile_for(head_size: int, value_size: int) -> Tile:
    """The tile for padded sizes (64, 128 or 256)."""
    if max(head_size, value_size) == 64:
        return Tile(consumers=3, keys=128, stages=4, registers=128)
    if max(head_size, value_size) == 128:
        return Tile(consumers=2, keys=128, stages=2, registers=168)
    return Tile(consumers=2, keys=64, stages=2, registers=168)


def padded(size: int) -> int:
    return 64 if size <= 64 else 128 if size <= 128 else 256


@cache
def _counter(device: torch.device, stream: int) -> torch.Tensor:
    return torch.zeros(2, dtype=torch.int32, device=device)


@cache
def _flags(device: torch.device, stream: int, size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.int32, device=device)


def run(
    call: Call, health: bool, tile: Tile | None = None, 
    programs: int | None = None, section: int | None = None, qreg: bool | None = None, overlap: bool = True,
) -> Any:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from limelight.engines.gpu import hopper_forward as kernel

    q, k, v = call.query, call.key, call.value
    d, dv = padded(call.head_size), padded(call.value_size)
    tile = tile or tile_for(d, dv)
    batch, heads, nq, nk = call.batch, call.query_heads, call.queries, call.keys
    out = torch.empty((batch, heads, nq, call.value_size), dtype=q.dtype, device=q.device)
    stats = torch.empty((3 if health else 1, batch, heads, nq), dtype=torch.float32, device=q.device)
    rows = 64 * tile.consumers
    tiles = -(-nq // rows)
    total = batch * heads * tiles
    stream = torch.cuda.current_stream().cuda_stream
    flags = _flags(q.device, stream, batch * heads * -(-nq // 64))
    mask = mask_arguments(call.allowed, q.device)
    layout = gl.NVMMASharedLayout(128, 16, 4)
    post = call.softcap is not None or call.bias is not None
    c = LOG2E if post else call.scale * LOG2E
    if qreg is None:
        qreg = d == 128
    config = kernel.Config(
        D=d, DV=dv, BN=tile.keys, STAGES=tile.stages, CONSUMERS=tile.consumers, HEALTH=health,
        MODE=0, MASKED=not mask.everything or nk % tile.keys != 0 or call.bias is not None, BAND=mask.band, LEFT=mask.band and mask.low > -nq, SPANS=mask.slots,
        DENSE=mask.dense is not None, BIAS=call.bias is not None, SOFTCAP=call.softcap is not None,
        SINKS=call.sinks is not None, QREG=qreg, OVERLAP=overlap, ALIAS=d == 256 and dv == 256, BM=rows,
    )
    if section is None:
        section = max(1, L2_BYTES // max(1, nk * (d + dv) * 2)) * call.group
    section = min(section, batch * heads)
    sms = 132
    grid = (min(total, sms) if programs is None else min(programs, total),)
    kernel.forward_kernel[grid](
        TensorDescriptor.from_tensor(q, [1, 1, 64, d], layout),
        TensorDescriptor.from_tensor(k, [1, 1, tile.keys, d], layout),
        TensorDescriptor.from_tensor(v, [1, 1, tile.keys, dv], layout),
        TensorDescriptor.from_tensor(out, [1, 1, 64, dv], layout),
        stats[0], stats[1] if health else None, stats[2] if health else None, flags, _counter(q.device, stream),
        heads, call.group, nq, nk, tiles, batch * heads, section,
        total, call.scale, c, -1e30 / c, call.softcap, call.sinks, mask.low, mask.high,
        None, 0, 0, None, 0, None, 0, 0, 0, None, 0, 0, 0, 0, None, 0, 0, 0, 0,
        config, num_warps=4, maxnreg=tile.registers,
    )
    return State(out, stats[0], stats[1] if health else None, stats[2] if health else None), flags
