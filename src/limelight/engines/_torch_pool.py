"""Looking at weights with plain torch operations, on whatever device the tensors are.

For engines on tensors that have no kernel of their own for it. Rows are taken some at a time, so
that memory stays O(picture + n). Products are in float32 (float64 for float64), whatever the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from limelight.arrays import crop
from limelight.call import Call

CELLS = 1 << 26  # scores held at a time: 256 MB of float32
Edges = NDArray[np.int64]


def pool(call: Call, logsumexp: Tensor, row_edges: Edges, column_edges: Edges, kind: str) -> Tensor:
    shape = call.batch, call.query_heads, len(row_edges) - 1, len(column_edges) - 1
    pooled = torch.empty(shape, dtype=torch.float32, device=call.query.device)
    for b, h in np.ndindex(shape[:2]):
        pooled[b, h] = _pool(call.one_head(h, b), logsumexp[b, h], row_edges, column_edges, kind)
    return pooled


def finish(values: Tensor, counts: Tensor, kind: str) -> Tensor:
    """Largest or summed weights and numbers of allowed cells as what `pool` gives."""
    values = values if kind == "max" else values / counts
    return torch.where(counts == 0, torch.nan, values).float()


def _pool(
    call: Call, logsumexp: Tensor, row_edges: Edges, column_edges: Edges, kind: str
) -> Tensor:
    """One head's picture."""
    device = call.query.device
    first, last = int(column_edges[0]), int(column_edges[-1])
    shape = len(row_edges) - 1, len(column_edges) - 1
    begin = -torch.inf if kind == "max" else 0.0
    picture = torch.full(shape, begin, dtype=torch.float64, device=device)
    read = call.allowed.dense is not None or call.bias is not None
    counts = torch.zeros(shape, dtype=torch.int64, device=device)
    if not read:  # from the intervals alone
        counted = call.allowed.count_in(row_edges, column_edges)[0, 0]
        counts += torch.from_numpy(counted).to(device)
    bins = np.repeat(np.arange(shape[0]), np.diff(row_edges))
    for rows in _steps(int(row_edges[0]), int(row_edges[-1]), last - first):
        index = torch.arange(rows.start, rows.stop, device=device)
        to = torch.from_numpy(bins[rows.start - row_edges[0] : rows.stop - row_edges[0]]).to(device)
        logits, allowed = _logits(call, index, slice(first, last))
        power = _below(logits, logsumexp[rows])
        if kind == "max":
            across = _across(power, column_edges - first, "max").double()
            picture.scatter_reduce_(0, to[:, None].expand_as(across), across, "amax")
        else:
            across = _across(power.exp().clamp(max=1.0), column_edges - first, "sum").double()
            picture.index_add_(0, to, across)
        if read:
            seen = torch.ones_like(power) if allowed is None else allowed.to(power.dtype)
            counts.index_add_(0, to, _across(seen, column_edges - first, "sum").long())
    if kind == "max":
        picture = picture.exp().clamp(max=1.0)
    return finish(picture, counts, kind)


def received(call: Call, logsumexp: Tensor) -> Tensor:
    shape = call.batch, call.query_heads, call.keys
    total = torch.zeros(shape, dtype=torch.float64, device=call.query.device)
    for b, h in np.ndindex(shape[:2]):
        own = call.one_head(h, b)
        for rows in _steps(0, call.queries, call.keys):
            index = torch.arange(rows.start, rows.stop, device=call.query.device)
            logits, _ = _logits(own, index, slice(0, call.keys))
            total[b, h] += _weights(logits, logsumexp[b, h, rows]).sum(0, dtype=torch.float64)
    return total.to(_wide(call))


def block(call: Call, logsumexp: Tensor, rows: Edges, columns: Edges) -> Tensor:
    device = call.query.device
    at, across = (torch.from_numpy(chosen).to(device) for chosen in (rows, columns))
    heads = []
    for b, h in np.ndindex(call.batch, call.query_heads):
        logits, _ = _logits(call.one_head(h, b), at, across)
        heads.append(_weights(logits, logsumexp[b, h, at]))
    return torch.stack(heads).reshape(call.batch, call.query_heads, len(rows), len(columns))


def strongest(call: Call, logsumexp: Tensor, rows: Edges, k: int) -> tuple[Tensor, Tensor]:
    device = call.query.device
    shape = call.batch, call.query_heads, len(rows), k
    columns = torch.full(shape, -1, dtype=torch.int64, device=device)
    weights = torch.zeros(shape, dtype=_wide(call), device=device)
    for b, h in np.ndindex(shape[:2]):
        own = call.one_head(h, b)
        for part in _steps(0, len(rows), 4 * call.keys):  # a sort holds numbers and places
            at = torch.from_numpy(rows[part]).to(device)
            logits, _ = _logits(own, at, slice(0, call.keys))
            best, where = torch.sort(logits, dim=1, descending=True, stable=True)
            best, where = best[:, :k], where[:, :k]
            wide = best.shape[1]
            columns[b, h, part, :wide] = torch.where(best == -torch.inf, -1, where)
            weights[b, h, part, :wide] = _weights(best, logsumexp[b, h, at])
    return columns, weights


def _steps(start: int, stop: int, width: int) -> Iterator[slice]:
    step = max(1, CELLS // max(1, width))
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def _logits(call: Call, rows: Tensor, columns: Any) -> tuple[Tensor, Tensor | None]:
    """One head's logits of some rows × columns, −inf where not allowed; and where they are."""
    wide, allowed = _wide(call), None
    key = call.key[0, 0, columns].to(wide)
    logits = call.scale * (call.query[0, 0, rows].to(wide) @ key.T)
    if call.softcap is not None:
        logits = call.softcap * torch.tanh(logits / call.softcap)
    if call.allowed.band is not None or call.allowed.spans is not None:
        spans = torch.from_numpy(call.allowed.rows[0, 0]).to(rows.device)[rows]  # [rows, R, 2]
        at = torch.arange(call.keys, device=rows.device)[columns]
        allowed = torch.zeros_like(logits, dtype=torch.bool)
        for slot in range(spans.shape[1]):
            allowed |= (at >= spans[:, slot, :1]) & (at < spans[:, slot, 1:])
    if call.allowed.dense is not None:
        dense = crop(call.allowed.dense[0, 0], rows, columns)
        allowed = dense.expand(logits.shape) if allowed is None else allowed & dense
    if call.bias is not None:
        bias = crop(call.bias[0, 0], rows, columns).to(wide)
        logits, shown = logits + bias, bias != -torch.inf
        allowed = shown.expand(logits.shape) if allowed is None else allowed & shown
    if allowed is not None:
        logits = torch.where(allowed, logits, -torch.inf)
    return logits, allowed


def _below(logits: Tensor, logsumexp: Tensor) -> Tensor:
    """logit − logsumexp; −inf where nothing is allowed, also in a row that saw a NaN."""
    shifted = logits - logsumexp.to(logits.dtype)[:, None]
    return torch.where(logits == -torch.inf, -torch.inf, shifted)


def _weights(logits: Tensor, logsumexp: Tensor) -> Tensor:
    return _below(logits, logsumexp).exp().clamp(max=1.0)


def _across(cells: Tensor, edges: Edges, how: str) -> Tensor:
    """Reduce each row's cells to bins: [rows, bins]."""
    sizes = np.diff(edges)
    if (sizes == sizes[0]).all():
        table = cells.reshape(len(cells), len(sizes), int(sizes[0]))
    else:  # bins of different size, the shorter ones filled up
        place = edges[:-1, None] + np.arange(sizes.max())
        inside = torch.from_numpy(place < edges[1:, None]).to(cells.device)
        at = torch.from_numpy(np.minimum(place, edges[-1] - 1)).to(cells.device)
        table = torch.where(inside, cells[:, at], -torch.inf if how == "max" else 0.0)
    return table.amax(2) if how == "max" else table.sum(2)


def _wide(call: Call) -> torch.dtype:
    return torch.float64 if call.dtype == "float64" else torch.float32
