"""Sets of keys as intervals: what a row may attend to, in O(1) numbers instead of O(n) cells.

`spans` is an integer array [..., R, 2]: R disjoint half-open intervals [low, high) a row, in
ascending order, each inside [0, nk]; unused slots are (nk, nk). Rows of every structured mask are
such sets, and complement and intersection (hence union, by De Morgan) stay inside the form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Spans = NDArray[np.int32]


def make(low: Any, high: Any, nk: int) -> Spans:
    """One interval a row, clipped to the keys: shape [..., 1, 2]."""
    low, high = np.clip(low, 0, nk), np.clip(high, 0, nk)
    low, high = np.broadcast_arrays(low, high)
    empty = low >= high
    pair = np.stack([np.where(empty, nk, low), np.where(empty, nk, high)], axis=-1)
    return pair[..., None, :].astype(np.int32)


def complement(spans: Spans, nk: int) -> Spans:
    """The keys outside: the gaps before, between and after the intervals."""
    edge = (*spans.shape[:-2], 1)
    low = np.concatenate([np.zeros(edge, np.int32), spans[..., 1]], axis=-1)
    high = np.concatenate([spans[..., 0], np.full(edge, nk, np.int32)], axis=-1)
    return _tidy(low, high, nk)


def intersect(a: Spans, b: Spans, nk: int) -> Spans:
    """The keys in both: every interval of a against every interval of b."""
    low = np.maximum(a[..., :, None, 0], b[..., None, :, 0])
    high = np.minimum(a[..., :, None, 1], b[..., None, :, 1])
    flat = (*low.shape[:-2], low.shape[-2] * low.shape[-1])
    return _tidy(low.reshape(flat), high.reshape(flat), nk)


def move(spans: Spans, by: int, nk: int) -> Spans:
    """The same keys counted from key `by` on, nk of them: what lies outside is cut off."""
    moved = np.clip(spans - by, 0, nk)
    return _tidy(moved[..., 0], moved[..., 1], nk)


def union(a: Spans, b: Spans, nk: int) -> Spans:
    return complement(intersect(complement(a, nk), complement(b, nk), nk), nk)


def runs(flags: NDArray[np.bool_]) -> Spans:
    """The intervals of True along the last axis of a boolean array [..., nk]."""
    nk = flags.shape[-1]
    edge = np.zeros((*flags.shape[:-1], 1), np.int8)
    step = np.diff(np.concatenate([edge, flags.astype(np.int8), edge], axis=-1), axis=-1)
    slots = max(1, int((step == 1).sum(axis=-1).max(initial=0)))
    spans = np.full((*flags.shape[:-1], slots, 2), nk, np.int32)
    for side, sign in ((0, 1), (1, -1)):
        where = np.nonzero(step == sign)
        rank = np.cumsum(step == sign, axis=-1)[where] - 1
        spans[(*where[:-1], rank, np.full_like(rank, side))] = where[-1]
    return spans


def inside(spans: Spans, columns: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which of the columns each row holds: [..., len(columns)]."""
    hit = np.zeros(spans.shape[:-2] + columns.shape, np.bool_)
    for slot in range(spans.shape[-2]):
        low, high = spans[..., slot, 0, None], spans[..., slot, 1, None]
        hit |= (columns >= low) & (columns < high)
    return hit


def _tidy(low: NDArray[Any], high: NDArray[Any], nk: int) -> Spans:
    """Empty intervals to the end, the rest in order, and no slot that no row uses."""
    empty = low >= high
    low, high = np.where(empty, nk, low), np.where(empty, nk, high)
    order = np.argsort(low, axis=-1, kind="stable")
    low, high = np.take_along_axis(low, order, -1), np.take_along_axis(high, order, -1)
    used = max(1, int((~empty).sum(axis=-1).max(initial=0)))
    return np.stack([low, high], axis=-1)[..., :used, :].astype(np.int32)
