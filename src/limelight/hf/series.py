"""Series: the calls of one attention while a capture is open, put together to one site.

A forward pass makes one call. Generation makes one call a step: the first with the whole prompt,
then a new query against all keys so far (or the last ones, in a sliding cache). The new keys of a
step are those of its new queries, so each step adds a row and a column, and the whole becomes the
causal square that one pass over the finished text would have made, in O(n) numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from limelight.arrays import as_numpy
from limelight.capture import Rows, Site
from limelight.errors import ArgumentError
from limelight.masks import Explicit, Mask
from limelight.masks import spans as sp
from limelight.masks.measured import simplify, stack

Array = NDArray[Any]
CLOSE = 1e-2  # a cache may hold its keys quantised; those of another text differ by far more


@dataclass(frozen=True)
class Said:
    """What a call's pass said about its rows, and its mask row by row."""

    rows: Rows
    bias: Array | None
    spans: sp.Spans | None  # [B|1, H|1, nq, R, 2], None where they are too scattered
    mask: Mask | None  # then this
    keys: int  # in view of the call


@dataclass
class Series:
    """What is known of one site so far."""

    name: str
    layer: int
    kind: str
    scale: float | None
    softcap: float | None
    sinks: Array | None
    dtype: Any = None
    rounded: bool = False  # whether `dtype` is narrower than what the model computes with
    replaced: bool = False  # whether another text's run was here before
    steps: list[tuple[Said, int]] = field(default_factory=list)  # and the first key in view
    query: list[Array] = field(default_factory=list)
    key: list[Array] = field(default_factory=list)
    value: list[Array] = field(default_factory=list)

    @property
    def batch(self) -> int:
        return int(self.query[0].shape[0])

    @property
    def keys(self) -> int:
        return sum(part.shape[2] for part in self.key)

    @property
    def queries(self) -> int:
        return sum(part.shape[2] for part in self.query)

    def add(self, query: Tensor, key: Tensor, value: Tensor | None, said: Said) -> None:
        """Continue the run with this call, or begin a new one that replaces it."""
        nq, nk = query.shape[2], key.shape[2]
        call = (query, key, value, said)
        if self.kind == "cross":
            if not self.key or nk != self.keys or not self._same(key, nk - 1):
                self._begin(*call)
            else:
                self._append(*call, new=0, first=0)
        elif not self.key or nk == nq:
            self._begin(*call)
        else:
            past = nk - nq
            if past > self.keys or not self._same(key, past - 1):
                raise ArgumentError(
                    f"{self.name}: the keys of earlier steps changed while the model generated, as "
                    f"in beam search or assisted decoding, so the steps make no one picture. "
                    f"Capture greedy or sampled generation, or one pass over the finished text"
                )
            self._append(*call, new=nq, first=self.keys - past)

    def site(self, labels: dict[str, Any]) -> Site:
        """The whole run as one site."""
        rows = Rows(*(
            _joined([getattr(said.rows, name) for said, _ in self.steps])
            for name in ("logsumexp", "max_logit", "entropy")
        ))  # fmt: skip
        # What the pass measured belongs to its own numbers, not to rounded ones.
        recorded = None if self.rounded else rows
        return Site(
            name=self.name, layer=self.layer, kind=self.kind, scale=self.scale,
            softcap=self.softcap, sinks=self.sinks,
            query=_joined(self.query), key=_joined(self.key),
            value=_joined(self.value) if self.value else None,
            mask=self._mask(), bias=self._bias(), rows=recorded, **labels,
        )  # fmt: skip

    def begun(self) -> Array | None:
        """Which keys do not stand before the first that any query sees, [B, Nk]: left padding."""
        firsts = [
            np.where(said.spans[..., 0] < said.spans[..., 1], said.spans[..., 0] + first, self.keys)
            for said, first in self.steps
            if said.spans is not None
        ]
        if not firsts:
            return None
        first = reduce(np.minimum, [found.min(axis=(1, 2, 3)) for found in firsts])  # [B|1]
        real = np.arange(self.keys) >= first[:, None]
        return np.broadcast_to(real, (self.query[0].shape[0], self.keys)).copy()

    def _begin(self, query: Tensor, key: Tensor, value: Tensor | None, said: Said) -> None:
        if self.key:
            self.replaced |= not self._continues(key)
        self.steps, self.query, self.key, self.value = [], [], [], []
        self._append(query, key, value, said, new=key.shape[2], first=0)

    def _append(
        self, query: Tensor, key: Tensor, value: Tensor | None, said: Said, *, new: int, first: int
    ) -> None:  # fmt: skip
        self.query.append(self._keep(query))
        if new:
            self.key.append(self._keep(key[:, :, -new:]))
            if value is not None:
                self.value.append(self._keep(value[:, :, -new:]))
        self.steps.append((said, first))

    def _keep(self, tensor: Tensor) -> Array:
        """A copy of its own, in memory that the model will not write to again."""
        array = as_numpy(tensor)
        kept = np.array(array, self.dtype or array.dtype, order="C")
        self.rounded |= kept.itemsize < array.itemsize
        return kept

    def _same(self, key: Tensor, at: int) -> bool:
        """Whether the last key known is still the key at that place of the view."""
        return _close(self.key[-1][:, :, -1], as_numpy(key[:, :, at]))

    def _continues(self, key: Tensor) -> bool:
        """Whether a new run is about the same text and perhaps more, as without a cache."""
        known = _joined(self.key)
        return _close(known, as_numpy(key[:, :, : known.shape[2]]))

    def _mask(self) -> Mask | None:
        nk = self.keys
        tables = []
        for said, first in self.steps:
            if said.spans is None:
                return said.mask if len(self.steps) == 1 else Explicit(self._cells(nk))
            tables.append(np.minimum(said.spans + np.int32(first), np.int32(nk)))
        return simplify(stack(tables, nk))

    def _cells(self, nk: int) -> Array:
        parts = [_cells(said, first, nk) for said, first in self.steps]
        lead = np.broadcast_shapes(*(part.shape[:2] for part in parts))
        return np.concatenate([np.broadcast_to(p, lead + p.shape[2:]) for p in parts], axis=2)

    def _bias(self) -> Array | None:
        """Every step's row by row; a step without one added nothing."""
        biases = [said.bias for said, _ in self.steps]
        given = [bias for bias in biases if bias is not None]
        if not given or len(biases) == 1:
            return biases[0]
        lead, nk = np.broadcast_shapes(*(bias.shape[:2] for bias in given)), self.keys
        parts = []
        for bias, (_, first), query in zip(biases, self.steps, self.query, strict=True):
            part = np.zeros((*lead, query.shape[2], nk), np.result_type(*given))
            if bias is not None:  # one number for all keys reaches those after the step: hidden
                end = nk if bias.shape[3] == 1 else first + bias.shape[3]
                part[..., first:end] = bias
            parts.append(part)
        return np.concatenate(parts, axis=2)


def _close(known: Array, seen: Array) -> bool:
    if known.shape != seen.shape:
        return False
    known, seen = known.astype(np.float64), seen.astype(np.float64)
    return bool(np.abs(known - seen).max(initial=0.0) <= CLOSE * np.abs(known).max(initial=0.0))


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)


def _cells(said: Said, first: int, nk: int) -> Array:
    """A call's allowed cells among all the keys of the run."""
    if said.spans is not None:
        return sp.inside(said.spans + np.int32(first), np.arange(nk))
    assert said.mask is not None
    nq = said.rows.entropy.shape[2]
    cells = said.mask.allowed(nq, said.keys).tile(np.arange(nq), np.arange(said.keys))
    assert cells is not None  # what is too scattered is not everything
    wide = np.zeros((*cells.shape[:3], nk), np.bool_)
    wide[..., first : first + said.keys] = cells
    return wide
