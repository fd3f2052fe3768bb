"""The masks that people write: by the diagonal, by length, by document, by prefix.

Those that speak of a diagonal align it bottom-right: the last query stands on the last key, as in
decoding, where a few new queries meet a long cache. `align="top-left"` puts query 0 on key 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import as_numpy, is_integer, of_lists
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.masks import spans as sp
from limelight.masks.algebra import ANY, ONLY, SUITS, Mask, Side
from limelight.masks.allowed import LONGEST, Allowed, check_sides
from limelight.writing.numbers import counted

ALIGNMENTS = ("bottom-right", "top-left")


@dataclass(frozen=True, eq=False, repr=False)
class Window(Mask):
    """Keys near the diagonal: −left ≤ j − diagonal(i) ≤ right; None leaves a side open.

    >>> Window(2, 0)
    Window(left=2, right=0)
    ■ · · · · · · ·
    ■ ■ · · · · · ·
    ■ ■ ■ · · · · ·
    · ■ ■ ■ · · · ·
    · · ■ ■ ■ · · ·
    · · · ■ ■ ■ · ·
    · · · · ■ ■ ■ ·
    · · · · · ■ ■ ■
    """

    left: int | None = None
    right: int | None = None
    align: str = "bottom-right"

    def __post_init__(self) -> None:
        _check_align(self.align)
        for side in ("left", "right"):
            width = getattr(self, side)
            if width is not None and (not is_integer(width) or width < 0):
                raise ArgumentError(
                    f"Window({side}={width!r}): a width is a whole number ≥ 0 of keys to that side "
                    f"of the diagonal, or None for all of them"
                )
            if type(width) not in (int, type(None)):  # NumPy's
                object.__setattr__(self, side, int(width))

    def dense(self, nq: int, nk: int) -> NDArray[np.bool_]:
        check_sides(nq, nk)
        row, column = np.arange(nq)[:, None], np.arange(nk)[None, :]
        distance = column - (row + _diagonal(self.align, nq, nk))
        near = np.ones((nq, nk), np.bool_)
        if self.left is not None:
            near &= distance >= -self.left
        if self.right is not None:
            near &= distance <= self.right
        return near

    def allowed(self, nq: int, nk: int) -> Allowed:  # two numbers: sooner made than remembered
        check_sides(nq, nk)
        offset = _diagonal(self.align, nq, nk)
        low = -nq if self.left is None else max(offset - int(self.left), -nq)
        high = nk if self.right is None else min(offset + int(self.right), nk)
        return Allowed(nq, nk, band=(low, high))

    @property
    def expression(self) -> str:
        align = "" if self.align == ALIGNMENTS[0] else f", align={self.align!r}"
        return f"Window(left={self.left}, right={self.right}{align})"


@dataclass(frozen=True, eq=False, repr=False)
class Causal(Window):
    """Each query sees the keys up to its own position and none after it.

    >>> print(Causal().draw(3, 5))
    ■ ■ ■ · ·
    ■ ■ ■ ■ ·
    ■ ■ ■ ■ ■
    >>> print(Causal(align="top-left").draw(3, 5))
    ■ · · · ·
    ■ ■ · · ·
    ■ ■ ■ · ·
    """

    left: int | None = field(default=None, init=False)
    right: int | None = field(default=0, init=False)
    align: str = field(default="bottom-right", kw_only=True)

    @property
    def expression(self) -> str:
        return "Causal()" if self.align == ALIGNMENTS[0] else f"Causal(align={self.align!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Lengths(Mask):
    """Padding: only the first `keys` keys are real, and only the first `queries` queries.

    Both are a number, or an array with one number for each batch entry.

    >>> print(Lengths([2, 3]).draw(2, 4))
    batch 0:
    ■ ■ · ·
    ■ ■ · ·
    batch 1:
    ■ ■ ■ ·
    ■ ■ ■ ·
    """

    keys: Any
    queries: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", _integers(self.keys, "Lengths(keys=…)"))
        if self.queries is not None:
            object.__setattr__(self, "queries", _integers(self.queries, "Lengths(queries=…)"))
            _check_batches("Lengths", self.keys.shape, self.queries.shape)

    def dense(self, nq: int, nk: int) -> NDArray[np.bool_]:
        self._check(nq, nk)
        real = np.arange(nk) < _over_batch(self.keys)
        if self.queries is not None:
            real = real & (np.arange(nq)[:, None] < _over_batch(self.queries))
        return np.array(np.broadcast_to(real, (*real.shape[:-2], nq, nk)))

    def _allowed(self, nq: int, nk: int) -> Allowed:
        self._check(nq, nk)
        high = _over_batch(self.keys)[..., 0]  # [..., 1, 1], or [1]
        if self.queries is not None:
            high = np.where(np.arange(nq) < _over_batch(self.queries)[..., 0], high, 0)
        return Allowed(nq, nk, spans=sp.make(0, high, nk))

    def _check(self, nq: int, nk: int) -> None:
        check_sides(nq, nk)
        for name, lengths, most in (("key", self.keys, nk), ("query", self.queries, nq)):
            if lengths is not None and lengths.max(initial=0) > most:
                raise ShapeError(
                    f"Lengths says {counted(int(lengths.max()), name)}, but there are {most}: "
                    f"lengths count what is real of a padded batch and cannot exceed its size"
                )

    @property
    def expression(self) -> str:
        queries = "" if self.queries is None else f", queries={_short(self.queries)}"
        return f"Lengths({_short(self.keys)}{queries})"

    def _sides(self) -> tuple[Side, Side]:
        nk = int(self.keys.max(initial=1))
        # Without lengths all rows are alike: a picture's worth is enough.
        nq = min(nk, 32) if self.queries is None else int(self.queries.max(initial=1))
        return (SUITS, nq), (SUITS, nk)


@dataclass(frozen=True, eq=False, repr=False)
class Documents(Mask):
    """Several documents packed in one sequence: a query sees only keys of its own document.

    `ids` [..., nk] names each key's document. With fewer queries than keys the queries are the
    last ones; `queries` [..., nq] names theirs where that is not so.

    >>> print(Documents([0, 0, 1, 1, 1]).draw())
    ■ ■ · · ·
    ■ ■ · · ·
    · · ■ ■ ■
    · · ■ ■ ■
    · · ■ ■ ■
    """

    ids: Any
    queries: Any = None

    def __post_init__(self) -> None:
        for name in ("ids",) if self.queries is None else ("ids", "queries"):
            ids = _integers(getattr(self, name), f"Documents({name}=…)", least=None)
            if ids.ndim == 0:
                raise ShapeError(f"Documents({name}={ids}): give one id for each position")
            object.__setattr__(self, name, ids)
        if self.queries is not None:
            _check_batches("Documents", self.ids.shape[:-1], self.queries.shape[:-1])

    def dense(self, nq: int, nk: int) -> NDArray[np.bool_]:
        queries, keys = self._ids(nq, nk)
        same: NDArray[np.bool_] = queries[..., :, None] == keys[..., None, :]
        return same if same.ndim == 2 else same[..., None, :, :]

    def _allowed(self, nq: int, nk: int) -> Allowed:
        queries, keys = self._ids(nq, nk)
        lead = np.broadcast_shapes(queries.shape[:-1], keys.shape[:-1])
        queries = np.broadcast_to(queries, (*lead, nq)).reshape(math.prod(lead), nq)
        keys = np.broadcast_to(keys, (*lead, nk)).reshape(math.prod(lead), nk)
        tables = []
        for q, k in zip(queries, keys, strict=True):
            table = _document_spans(q, k, most=max(nk, 8) // 8)
            if table is None:  # scattered documents: the boolean matrix is smaller
                return Allowed(nq, nk, dense=self.dense(nq, nk))
            tables.append(table)
        slots = max((table.shape[1] for table in tables), default=1)
        spans = np.full((len(tables), nq, slots, 2), nk, np.int32)
        for row, table in zip(spans, tables, strict=True):
            row[:, : table.shape[1]] = table
        return Allowed(nq, nk, spans=spans.reshape(*lead, 1, nq, slots, 2))

    def _ids(self, nq: int, nk: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        check_sides(nq, nk)
        queries = self.ids[..., max(0, nk - nq) :] if self.queries is None else self.queries
        if self.ids.shape[-1] != nk or queries.shape[-1] != nq:
            raise ShapeError(
                f"Documents has {counted(self.ids.shape[-1], 'id')} for keys and "
                f"{queries.shape[-1]} for queries, but there are {counted(nk, 'key')} and "
                f"{counted(nq, 'query')}: give one id for each key, and queries=… where the "
                f"queries are not the last of them"
            )
        return queries, self.ids

    @property
    def expression(self) -> str:
        queries = "" if self.queries is None else f", queries={_short(self.queries)}"
        return f"Documents({_short(self.ids)}{queries})"

    def _sides(self) -> tuple[Side, Side]:
        nk = self.ids.shape[-1]
        return (SUITS, nk) if self.queries is None else (ONLY, self.queries.shape[-1]), (ONLY, nk)


@dataclass(frozen=True, eq=False, repr=False)
class Prefix(Mask):
    """The first n keys, for every query; `Causal() | Prefix(n)` is a prefix language model.

    >>> print((Causal() | Prefix(3)).draw(5, 5))
    ■ ■ ■ · ·
    ■ ■ ■ · ·
    ■ ■ ■ · ·
    ■ ■ ■ ■ ·
    ■ ■ ■ ■ ■
    """

    n: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", _integers(self.n, "Prefix(…)"))

    def dense(self, nq: int, nk: int) -> NDArray[np.bool_]:
        check_sides(nq, nk)
        first = np.arange(nk) < _over_batch(self.n)
        return np.array(np.broadcast_to(first, (*first.shape[:-2], nq, nk)))

    def _allowed(self, nq: int, nk: int) -> Allowed:
        return Allowed(nq, nk, spans=sp.make(0, _over_batch(self.n)[..., 0], nk))

    @property
    def expression(self) -> str:
        return f"Prefix({_short(self.n)})"

    def _sides(self) -> tuple[Side, Side]:
        return (ANY, 8), (ANY, min(max(8, 2 * int(self.n.max(initial=0))), LONGEST))


def _diagonal(align: str, nq: int, nk: int) -> int:
    """The key on which query 0 stands."""
    return nk - nq if align == ALIGNMENTS[0] else 0


def _check_align(align: str) -> None:
    if align not in ALIGNMENTS:
        raise ArgumentError(
            f"align={align!r}: the diagonal is aligned {ALIGNMENTS[0]!r} (the last "
            f"query on the last key) or {ALIGNMENTS[1]!r} (the first on the first)"
        )


def _integers(value: Any, name: str, least: int | None = 0) -> NDArray[np.int64]:
    """A read-only copy as int64, so that the mask cannot change under whoever holds it."""
    array = of_lists(as_numpy(value), name)
    if array.dtype.kind not in "iu" and array.size:
        raise DtypeError(f"{name} takes whole numbers, and got {array.dtype} {_short(array)}")
    if array.dtype.kind == "u" and array.size and array.max() >= 2**63:
        raise ArgumentError(f"{name} takes numbers below 2**63, and got {int(array.max())}")
    array = array.astype(np.int64)
    if least is not None and array.size and array.min() < least:
        raise ArgumentError(f"{name} takes numbers ≥ {least}, and got {int(array.min())}")
    array.setflags(write=False)
    return array


def _check_batches(name: str, keys: tuple[int, ...], queries: tuple[int, ...]) -> None:
    try:
        np.broadcast_shapes(keys, queries)
    except ValueError:
        raise ShapeError(
            f"{name} is told of a batch of shape {keys} for its keys and of {queries} for its "
            f"queries: give both for the same batch entries"
        ) from None


def _over_batch(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """[] to [1, 1], and [...] to [..., 1, 1, 1]: ready to meet [heads, rows, columns]."""
    return numbers.reshape((*numbers.shape, 1, 1, 1) if numbers.ndim else (1, 1))


def _document_spans(
    queries: NDArray[np.int64], keys: NDArray[np.int64], most: int
) -> sp.Spans | None:
    """Each query's document as intervals of keys, [nq, R, 2]; None if one has more than `most`."""
    names, which = np.unique(keys, return_inverse=True)
    edges = np.flatnonzero(np.diff(which)) + 1
    low = np.concatenate([[0], edges]) if len(keys) else np.zeros(0, np.int64)
    high = np.concatenate([edges, [len(keys)]]) if len(keys) else low
    owner = which[low]  # the document of each run of keys
    order = np.argsort(owner, kind="stable")
    first = np.searchsorted(owner[order], np.arange(len(names)))
    rank = np.arange(len(owner)) - first[owner[order]]
    runs = int(rank.max(initial=0)) + 1
    if runs > most:
        return None
    table = np.full((len(names) + 1, runs, 2), len(keys), np.int32)
    table[owner[order], rank, 0], table[owner[order], rank, 1] = low[order], high[order]
    place = np.searchsorted(names, queries)
    known = (place < len(names)) & (np.append(names, 0)[place] == queries)
    return table[np.where(known, place, len(names))]


def _short(numbers: NDArray[Any]) -> str:
    if numbers.ndim == 0:
        return str(numbers)
    most = 8 if numbers.ndim == 1 else 3
    shown = ", ".join(_short(n) for n in numbers[:most]) + (", …" if len(numbers) > most else "")
    return f"[{shown}]"
