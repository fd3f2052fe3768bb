"""Which key blocks each tile of rows needs, where the kernel cannot work it out from a band alone.

ranges   one span a row: four numbers a tile, [any_low, any_high) seen by some row of it and
         [all_low, all_high) seen by all
lists    anything else: the blocks that some row sees, the partly masked ones first, and how many
keyed    the other way round, for gradients: the tiles of rows that see each block of keys
"""

from __future__ import annotations

from typing import Any

import torch

from limelight.call import Call
from limelight.engines.gpu import launch
from limelight.engines.gpu.kept import remember
from limelight.engines.gpu.masks import MaskArguments


def ranges(call: Call, mask: MaskArguments, rows: int) -> torch.Tensor:
    """int32 [B|1, H|1, tiles, 4] for tiles of `rows` rows; mask.slots is 1 and nothing is dense."""
    key = ("ranges", mask.low, mask.high, rows, call.queries, call.keys)
    device = call.query.device
    return remember(call.allowed.spans, key, lambda: _ranges(call, mask, rows), device)


def _ranges(call: Call, mask: MaskArguments, rows: int) -> torch.Tensor:
    nq, nk = call.queries, call.keys
    spans = mask.spans
    assert spans is not None
    row = torch.arange(nq, device=spans.device, dtype=torch.int32)
    low = spans[..., 0, 0].expand(*spans.shape[:2], nq)  # [B|1, H|1, Nq]
    high = spans[..., 0, 1].expand(*spans.shape[:2], nq)
    if mask.band:
        low = torch.maximum(low, row + mask.low)
        high = torch.minimum(high, row + mask.high + 1)
    low, high = low.clamp(0, nk), high.clamp(0, nk)
    some = high > low
    low, high = torch.where(some, low, nk), torch.where(some, high, 0)

    def tiled(x: torch.Tensor, fill: int) -> torch.Tensor:
        padded = torch.nn.functional.pad(x, (0, -nq % rows), value=fill)
        return padded.reshape(*x.shape[:2], -1, rows)

    parts = (
        tiled(low, nk).amin(-1),
        tiled(high, 0).amax(-1),
        tiled(low, 0).amax(-1),
        tiled(high, nk).amin(-1),
    )
    return torch.stack(parts, -1).to(torch.int32).contiguous()


def lists(
    call: Call, mask: MaskArguments, where: Any, rows: int, keys: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(counts, blocks): int32 [B|1, H|1, tiles, 2] of (partial, all), and the blocks in order."""
    return _in_order(_classes(call, mask, where, rows, keys))


def keyed(call: Call, mask: MaskArguments, where: Any, rows: int, keys: int) -> torch.Tensor:
    """int32 [B|1, H|1, blocks, 2 + tiles]: partial, all, and the tiles in order.

    Spans do not change after they were made, so that theirs are kept.
    """

    def make() -> torch.Tensor:
        classes = _classes(call, mask, where, rows, keys).transpose(-1, -2)
        return torch.cat(_in_order(classes), -1)

    if mask.dense is not None:
        return make()
    key = ("keyed", mask.low, mask.high, rows, keys, call.queries, call.keys)
    return remember(call.allowed.spans, key, make, call.query.device)


def _classes(call: Call, mask: MaskArguments, where: Any, rows: int, keys: int) -> torch.Tensor:
    """int32 [B|1, H|1, tiles, blocks]: 0 where no row of a tile sees a block, 2 where all do."""
    from limelight.engines.gpu.classify import classify_kernel

    parts = [part for part in (mask.spans, mask.dense) if part is not None]
    batch = max(int(part.shape[0]) for part in parts)
    heads = max(int(part.shape[1]) for part in parts)
    tiles, blocks = -(-call.queries // rows), -(-call.keys // keys)
    device = call.query.device
    classes = torch.empty((batch, heads, tiles, blocks), dtype=torch.int32, device=device)
    launch.start(
        classify_kernel,
        classes.numel(),
        (where, classes, heads, call.queries, call.keys, rows),
        (64, keys, mask.band, mask.slots),
    )
    return classes


def _in_order(classes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # Partial before full before empty; the kernel's loop without masks then needs no test.
    order = torch.where(classes == 1, 0, torch.where(classes == 2, 1, 2))
    listed = torch.argsort(order, dim=-1, stable=True).to(torch.int32)
    counts = torch.stack([(classes == 1).sum(-1), (classes > 0).sum(-1)], -1).to(torch.int32)
    return counts.contiguous(), listed.contiguous()
