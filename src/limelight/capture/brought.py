"""How long what a key brings is: its value, or what W_O makes of that."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def lengths(value: Array, heads: int, out: Array | None = None) -> Array:
    """‖v‖, and with `out` [Hq, Dv, E], W_O by heads, ‖v·W_O‖: of value [B, Hk, N, Dv], [B, Hq, N].

    In float32, of wide values in float64; one head at a time, so that no more than [N, E] is held.

    >>> lengths(np.array([[[[3.0, 4.0]]]]), 2, np.array([[[2.0], [0.0]], [[0.0], [0.5]]])).tolist()
    [[[6.0], [2.0]]]
    """
    batch, key_heads, count, _ = value.shape
    wide = np.promote_types(value.dtype, np.float32)
    found = np.empty((batch, heads, count), wide)
    for entry in range(batch):
        for head in range(heads):
            read = value[entry, head * key_heads // heads].astype(wide)
            found[entry, head] = _norm(read if out is None else read @ out[head].astype(wide))
    return found


def _norm(vectors: Array) -> Array:
    """Along the last axis; finite wherever the length is."""
    most = np.abs(vectors).max(axis=-1, initial=0.0)
    scale = np.where((most > 0) & np.isfinite(most), most, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.linalg.norm(vectors / scale[..., None], axis=-1) * scale)
