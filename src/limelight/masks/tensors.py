"""How many keys each row may attend to, as a tensor: the same as Allowed.count, on any device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from limelight.arrays import crop
from limelight.masks.allowed import CHUNK, Allowed


def count_keys(allowed: Allowed, bias: Tensor | None, device: torch.device) -> Tensor:
    """int64 [B|1, Hq|1, Nq]; −inf in the bias forbids.

    A band is counted on the device itself, spans on the host and once; rows against a dense part
    or a bias in chunks.
    """
    nq, nk = allowed.nq, allowed.nk
    if allowed.dense is None and bias is None:
        if allowed.everything:
            return torch.full((1, 1, nq), nk, device=device)
        if allowed.spans is None:
            low, high = allowed.band or (-nq, nk)
            counts = _bounds(high + 1, nq, nk, device)
            if low + nq > 1:  # some row does not see the first key
                counts = (counts - _bounds(low, nq, nk, device)).clamp_min_(0)
            return counts[None, None]
        known: Tensor | None = allowed.memory.get(("keys", device))
        if known is None:
            known = allowed.memory.keep(
                ("keys", device), torch.from_numpy(allowed.count()).to(device)
            )
        return known.clone()
    parts = [part for part in (allowed.dense, bias) if part is not None]
    alike = allowed.band is None and allowed.spans is None and all(p.shape[2] == 1 for p in parts)
    if alike and nq > 1:
        first = cells_of(allowed, bias, slice(0, 1), device).sum(-1)
        return first.expand(*first.shape[:2], nq)
    found = [cells.sum(-1) for _, cells in cells_in_chunks(allowed, bias, device)]
    if not found:
        return torch.zeros((1, 1, 0), dtype=torch.int64, device=device)
    return torch.cat(found, 2)


def _bounds(first: int, nq: int, nk: int, device: torch.device) -> Tensor:
    """first, first + 1, … for each row, as far as there are keys; few launches, for small calls."""
    bounds = torch.arange(first, first + nq, device=device)
    return bounds if first >= 0 and first + nq <= nk + 1 else bounds.clamp_(0, nk)


def cells_in_chunks(
    allowed: Allowed, bias: Tensor | None, device: torch.device
) -> Iterator[tuple[slice, Tensor]]:
    """All rows, so many at a time that their cells are few: (rows, `cells_of` them)."""
    parts = [part for part in (allowed.dense, bias) if part is not None]
    heads = max([1, *(part.shape[0] * part.shape[1] for part in parts)])
    step = max(1, CHUNK // max(1, heads * allowed.nk))
    for start in range(0, allowed.nq, step):
        rows = slice(start, min(start + step, allowed.nq))
        yield rows, cells_of(allowed, bias, rows, device)


def cells_of(allowed: Allowed, bias: Tensor | None, rows: slice, device: torch.device) -> Tensor:
    """Which cells of some rows are allowed, bool [B|1, Hq|1, rows, Nk]."""
    cells = torch.ones((1, 1, rows.stop - rows.start, allowed.nk), dtype=torch.bool, device=device)
    if allowed.band is not None or allowed.spans is not None:
        column = torch.arange(allowed.nk, device=device)
        spans = torch.from_numpy(allowed.rows[:, :, rows]).to(device)
        within = (column >= spans[..., :1]) & (column < spans[..., 1:])  # [.., rows, R, Nk]
        cells = within.any(-2)
    if allowed.dense is not None:
        cells = cells & crop(allowed.dense, rows, slice(None))
    if bias is not None:
        cells = cells & crop(bias, rows, slice(None)).ne(-torch.inf)
    return cells
