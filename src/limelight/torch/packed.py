"""Sequences one after the other in one row, and where each begins: a token sees its own alone.

So come Transformers' packed batches (`cu_seq_lens_q` and `cu_seq_lens_k`, which it hands on to its
flash attention) and torch's jagged tensors: n + 1 places, where each of n sequences begins and
where the last ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from limelight.arrays import as_numpy
from limelight.errors import ArgumentError, ShapeError
from limelight.masks import Documents, Mask, as_mask

_last: tuple[Tensor, Tensor, int, Documents] | None = None  # all layers of a step ask for the same


def within(mask: Any, starts_q: Tensor, starts_k: Any, query: Tensor, key: Tensor) -> Any:
    """The mask, and only within a sequence."""
    starts_k = starts_q if starts_k is None else starts_k
    if query.shape[0] != 1:
        raise ShapeError(
            f"cu_seq_lens_q with {query.shape[0]} rows: packed sequences stand in one row, one "
            f"after the other"
        )
    if torch.compiler.is_compiling():
        queries, keys = (
            torch.bucketize(torch.arange(x.shape[2], device=x.device), starts[1:], right=True)
            for x, starts in ((query, starts_q), (key, starts_k))
        )
        same = queries[:, None] == keys
        return same if mask is None else as_mask(mask) & as_mask(same)
    documents = _documents(starts_q, starts_k, query.shape[2], key.shape[2])
    return documents if mask is None else as_mask(mask) & documents


def _documents(starts_q: Tensor, starts_k: Tensor, nq: int, nk: int) -> Mask:
    global _last
    version = -1 if starts_q.is_inference() else starts_q._version
    if _last is not None and version >= 0:
        of_q, of_k, at, known = _last
        if of_q is starts_q and of_k is starts_k and at == version:
            return known
    ids = []
    for name, starts, n in (("cu_seq_lens_k", starts_k, nk), ("cu_seq_lens_q", starts_q, nq)):
        places = as_numpy(starts)
        lengths = places[1:] - places[:-1]
        if places.ndim != 1 or len(places) < 2 or places[0] or places[-1] != n or lengths.min() < 0:
            raise ArgumentError(
                f"{name} is {places.tolist()[:8]}: it begins at 0, ascends, and ends at {n}, the "
                f"number of tokens"
            )
        ids.append(np.arange(len(lengths)).repeat(lengths))
    documents = Documents(*ids)
    _last = starts_q, starts_k, version, documents
    return documents
