"""Masks: which keys a query may attend to, as values that compose.

    Causal() & Window(4, 0)      ~Documents(ids)      Causal() | Prefix(3)      Causal() & array

The dense form is the definition: `mask.dense(nq, nk)` is True where attending is allowed. Engines
read `mask.allowed(nq, nk)`, which says the same in O(n) and lets them skip whole blocks.

Masks that speak of a diagonal align it bottom-right: the last query stands on the last key, as in
decoding, where a few new queries meet a long cache. `align="top-left"` puts query 0 on key 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight import spans as sp
from limelight.allowed import EMPTY, FULL, PARTIAL, Allowed, same_kind
from limelight.arrays import as_numpy, dtype_name, expand, is_integer, is_torch
from limelight.errors import ArgumentError, DtypeError, ShapeError

__all__ = [
    "Both",
    "Causal",
    "Documents",
    "Either",
    "Explicit",
    "Lengths",
    "Mask",
    "Not",
    "Prefix",
    "Window",
    "as_mask",
]

ALIGNMENTS = ("bottom-right", "top-left")
GLYPHS = {EMPTY: "·", PARTIAL: "▒", FULL: "■"}


class Mask:
    """A rule for which cells of an nq × nk matrix are allowed. Combine with `&`, `|`, `~`."""

    __array_ufunc__ = None  # so that `array & mask` reaches __rand__

    def dense(self, nq: int, nk: int) -> NDArray[np.bool_]:
        """The definition: bool [nq, nk], or [..., 1, nq, nk] where the batch differs."""
        raise NotImplementedError

    def allowed(self, nq: int, nk: int) -> Allowed:
        """What engines read: the same cells as bands and intervals."""
        raise NotImplementedError

    def blocks(self, nq: int, nk: int, size: tuple[int, int] = (128, 128)) -> NDArray[np.uint8]:
        """How much of each block is allowed: 0 empty, 1 partial, 2 full.

        >>> Causal().blocks(256, 256)
        array([[1, 0],
               [2, 1]], dtype=uint8)
        """
        return _squeeze(_four_axes(self.allowed(nq, nk)).blocks(*size))

    def draw(self, nq: int | None = None, nk: int | None = None, most: int = 32) -> str:
        """The mask as text: ■ allowed, · hidden, ▒ a block that is partly allowed.

        >>> print(Causal().draw(2, 4))
        ■ ■ ■ ·
        ■ ■ ■ ■
        """
        own_nq, own_nk = self._size()
        nq, nk = own_nq if nq is None else nq, own_nk if nk is None else nk
        size = (max(1, -(-nq // most)), max(1, -(-nk // most)))
        blocks = _four_axes(self.allowed(nq, nk)).blocks(*size)
        pictures = []
        for b, h in list(np.ndindex(blocks.shape[:2]))[:4]:
            title = []
            if blocks.shape[0] > 1:
                title.append(f"batch {b}")
            if blocks.shape[1] > 1:
                title.append(f"head {h}")
            lines = [" ".join(GLYPHS[int(cell)] for cell in row) for row in blocks[b, h]]
            pictures.append("\n".join([*([", ".join(title) + ":"] if title else []), *lines]))
        hidden = blocks.shape[0] * blocks.shape[1] - len(pictures)
        return "\n".join([*pictures, *([f"… and {hidden} more"] if hidden > 0 else [])])

    def numpy(self) -> Mask:
        """The same mask, with copies in NumPy of the arrays and tensors given to it."""
        return self

    @property
    def expression(self) -> str:
        """The mask in one line of code."""
        raise NotImplementedError

    def _size(self) -> tuple[int, int]:
        """The size at which it draws itself."""
        return 8, 8

    def __repr__(self) -> str:
        return f"{self.expression}\n{self.draw()}"

    def __and__(self, other: Any) -> Mask:
        return Both(self, _part(other))

    def __or__(self, other: Any) -> Mask:
        return Either(self, _part(other))

    def __rand__(self, other: Any) -> Mask:
        return Both(_part(other), self)

    def __ror__(self, other: Any) -> Mask:
        return Either(_part(other), self)

    def __invert__(self) -> Mask:
        return Not(self)

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        """`tensor & mask` and `tensor | mask`; in torch.compile `mask & tensor` comes here too."""
        if function.__name__ in ("__and__", "__rand__", "bitwise_and"):
            return Both(*map(_part, args))
        if function.__name__ in ("__or__", "__ror__", "bitwise_or"):
            return Either(*map(_part, args))
        return NotImplemented

    def __bool__(self) -> bool:
        raise ArgumentError(
            "a mask has no truth value: combine masks with &, | and ~, not and/or/not"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Its own fields: what was worked out from them for some shape does not travel."""
        own = {each.name for each in fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in vars(self).items() if name in own}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        values = (getattr(self, each.name) for each in fields(self))  # type: ignore[arg-type]
        return (type(self).__name__, *(_frozen(value) for value in values))


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
        row, column = np.arange(nq)[:, None], np.arange(nk)[None, :]
        distance = column - (row + _diagonal(self.align, nq, nk))
        near = np.ones((nq, nk), np.bool_)
        if self.left is not None:
            near &= distance >= -self.left
        if self.right is not None:
            near &= distance <= self.right
        return near

    def allowed(self, nq: int, nk: int) -> Allowed:
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

    def dense(self, nq: int, nk: int) -> NDArray[np.bool_]:
        self._check(nq, nk)
        real = np.arange(nk) < _over_batch(self.keys)
        if self.queries is not None:
            real = real & (np.arange(nq)[:, None] < _over_batch(self.queries))
        return np.array(np.broadcast_to(real, (*real.shape[:-2], nq, nk)))

    def allowed(self, nq: int, nk: int) -> Allowed:
        self._check(nq, nk)
        high = _over_batch(self.keys)[..., 0]  # [..., 1, 1], or [1]
        if self.queries is not None:
            high = np.where(np.arange(nq) < _over_batch(self.queries)[..., 0], high, 0)
        return Allowed(nq, nk, spans=sp.make(0, high, nk))

    def _check(self, nq: int, nk: int) -> None:
        for name, lengths, most in (("keys", self.keys, nk), ("queries", self.queries, nq)):
            if lengths is not None and lengths.max(initial=0) > most:
                raise ShapeError(
                    f"Lengths says {int(lengths.max())} {name}, but there are {most}: lengths "
                    f"count the real {name} of a padded batch and cannot exceed its size"
                )

    @property
    def expression(self) -> str:
        queries = "" if self.queries is None else f", queries={_short(self.queries)}"
        return f"Lengths({_short(self.keys)}{queries})"

    def _size(self) -> tuple[int, int]:
        nk = max(1, int(self.keys.max(initial=1)))
        if self.queries is None:  # all rows are alike: a picture's worth is enough
            return min(nk, 32), nk
        return max(1, int(self.queries.max(initial=1))), nk


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
        for name in ("ids", "queries"):
            if getattr(self, name) is not None:
                ids = _integers(getattr(self, name), f"Documents({name}=…)", least=None)
                if ids.ndim == 0:
                    raise ShapeError(f"Documents({name}={ids}): give one id for each position")
                object.__setattr__(self, name, ids)

    def dense(self, nq: int, nk: int) -> NDArray[np.bool_]:
        queries, keys = self._ids(nq, nk)
        same: NDArray[np.bool_] = queries[..., :, None] == keys[..., None, :]
        return same if same.ndim == 2 else same[..., None, :, :]

    def allowed(self, nq: int, nk: int) -> Allowed:
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
        queries = self.ids[..., max(0, nk - nq) :] if self.queries is None else self.queries
        if self.ids.shape[-1] != nk or queries.shape[-1] != nq:
            raise ShapeError(
                f"Documents has {self.ids.shape[-1]} ids for keys and {queries.shape[-1]} for "
                f"queries, but there are {nk} keys and {nq} queries: give one id for each key, and "
                f"queries=… where the queries are not the last of them"
            )
        return queries, self.ids

    @property
    def expression(self) -> str:
        queries = "" if self.queries is None else f", queries={_short(self.queries)}"
        return f"Documents({_short(self.ids)}{queries})"

    def _size(self) -> tuple[int, int]:
        nk = self.ids.shape[-1]
        return (nk if self.queries is None else self.queries.shape[-1]), nk


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
        first = np.arange(nk) < _over_batch(self.n)
        return np.array(np.broadcast_to(first, (*first.shape[:-2], nq, nk)))

    def allowed(self, nq: int, nk: int) -> Allowed:
        return Allowed(nq, nk, spans=sp.make(0, _over_batch(self.n)[..., 0], nk))

    @property
    def expression(self) -> str:
        return f"Prefix({_short(self.n)})"

    def _size(self) -> tuple[int, int]:
        side = max(8, 2 * int(self.n.max(initial=0)))
        return 8, side


@dataclass(frozen=True, eq=False, repr=False)
class Explicit(Mask):
    """A boolean array [..., nq, nk] (1 broadcasts) as a mask; NumPy or torch."""

    array: Any

    def dense(self, nq: int, nk: int) -> Any:
        shape = tuple(self.array.shape)
        if shape[-2] not in (1, nq) or shape[-1] not in (1, nk):
            raise ShapeError(
                f"the mask has shape {shape}, but there are {nq} queries and {nk} keys: its last "
                f"two axes must be {nq} (or 1) and {nk} (or 1)"
            )
        return expand(self.array, (*shape[:-2], nq, nk))

    def allowed(self, nq: int, nk: int) -> Allowed:
        self.dense(nq, nk)  # the size check
        return Allowed(nq, nk, dense=self.array)

    def numpy(self) -> Mask:
        return Explicit(np.array(as_numpy(self.array)))

    @property
    def expression(self) -> str:
        return "mask" + "×".join(str(n) for n in self.array.shape)

    def _size(self) -> tuple[int, int]:
        nq, nk = self.array.shape[-2:]
        return nq, nk

    def _identity(self) -> tuple[Any, ...]:
        array = self.array
        return ("Explicit", _frozen(array) if isinstance(array, np.ndarray) else id(array))


@dataclass(frozen=True, eq=False, repr=False)
class Both(Mask):
    """Cells that both masks allow."""

    first: Mask
    second: Mask

    def dense(self, nq: int, nk: int) -> Any:
        first, second = same_kind(self.first.dense(nq, nk), self.second.dense(nq, nk))
        return first & second

    def allowed(self, nq: int, nk: int) -> Allowed:
        return self.first.allowed(nq, nk).conjunction(self.second.allowed(nq, nk))

    def numpy(self) -> Mask:
        return Both(self.first.numpy(), self.second.numpy())

    @property
    def expression(self) -> str:
        return f"{_wrapped(self.first)} & {_wrapped(self.second)}"

    def _size(self) -> tuple[int, int]:
        return _joint_size(self.first, self.second)


@dataclass(frozen=True, eq=False, repr=False)
class Either(Mask):
    """Cells that at least one mask allows."""

    first: Mask
    second: Mask

    def dense(self, nq: int, nk: int) -> Any:
        first, second = same_kind(self.first.dense(nq, nk), self.second.dense(nq, nk))
        return first | second

    def allowed(self, nq: int, nk: int) -> Allowed:
        return self.first.allowed(nq, nk).union(self.second.allowed(nq, nk))

    def numpy(self) -> Mask:
        return Either(self.first.numpy(), self.second.numpy())

    @property
    def expression(self) -> str:
        return f"{_wrapped(self.first)} | {_wrapped(self.second)}"

    def _size(self) -> tuple[int, int]:
        return _joint_size(self.first, self.second)


@dataclass(frozen=True, eq=False, repr=False)
class Not(Mask):
    """Cells that the mask forbids."""

    mask: Mask

    def dense(self, nq: int, nk: int) -> Any:
        return ~self.mask.dense(nq, nk)

    def allowed(self, nq: int, nk: int) -> Allowed:
        return self.mask.allowed(nq, nk).complement()

    def numpy(self) -> Mask:
        return Not(self.mask.numpy())

    @property
    def expression(self) -> str:
        return f"~{_wrapped(self.mask)}"

    def _size(self) -> tuple[int, int]:
        return self.mask._size()


def as_mask(mask: Any) -> Mask:
    """A mask, or anything boolean that can be one."""
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, str):
        raise DtypeError(
            f"a mask cannot be the text {mask!r}: pass a mask value, such as "
            f"limelight.Causal(), or a boolean array"
        )
    if isinstance(mask, type) and issubclass(mask, Mask):
        call = f"{mask.__name__}({'' if issubclass(mask, Window) else '…'})"
        raise DtypeError(f"{mask.__name__} is a class: write {call}")
    array = mask if is_torch(mask) else np.asarray(mask)
    if str(array.dtype) not in ("bool", "torch.bool"):
        raise DtypeError(
            f"a mask is boolean (True = may attend), but this one is {dtype_name(array)}: compare "
            f"it first, or pass numbers that are added to the logits as bias=…"
        )
    if array.ndim < 2:
        array = array.reshape((1,) * (2 - array.ndim) + tuple(array.shape))
    return Explicit(array)


def _part(mask: Any) -> Mask:
    """What becomes part of another mask; of an array a copy, so that the mask is a value."""
    part = as_mask(mask)
    if part is mask or not isinstance(part, Explicit):
        return part
    if is_torch(part.array):
        return Explicit(part.array.clone())
    array = part.array.copy()
    array.setflags(write=False)
    return Explicit(array)


def _four_axes(allowed: Allowed) -> Allowed:
    """With one batch axis, as broad as the parts themselves are."""
    parts = [
        part.shape[:n] for part, n in ((allowed.spans, -3), (allowed.dense, -2)) if part is not None
    ]
    lead = np.broadcast_shapes(*parts) if parts else (1, 1)
    return allowed.flatten(lead[:-1], lead[-1])


def _squeeze(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return blocks[0, 0] if blocks.shape[:2] == (1, 1) else blocks


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
    array = np.asarray(as_numpy(value))
    if array.dtype.kind not in "iu" and array.size:
        raise DtypeError(f"{name} takes whole numbers, and got {array.dtype} {_short(array)}")
    array = array.astype(np.int64)
    if least is not None and array.size and array.min() < least:
        raise ArgumentError(f"{name} takes numbers ≥ {least}, and got {int(array.min())}")
    array.setflags(write=False)
    return array


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


def _joint_size(first: Mask, second: Mask) -> tuple[int, int]:
    """The size of the one that has a size of its own."""
    sizes = [first._size(), second._size()]
    own = [
        size
        for mask, size in zip((first, second), sizes, strict=True)
        if not isinstance(mask, Window) and not isinstance(mask, Prefix)
    ]
    return max(own or sizes)


def _wrapped(mask: Mask) -> str:
    return f"({mask.expression})" if isinstance(mask, (Both, Either)) else mask.expression


def _short(numbers: NDArray[Any]) -> str:
    if numbers.ndim == 0:
        return str(numbers)
    flat = numbers.reshape(-1)
    shown = ", ".join(str(n) for n in flat[:8]) + (", …" if flat.size > 8 else "")
    return f"[{shown}]"


def _frozen(value: Any) -> Any:
    if isinstance(value, Mask):
        return value._identity()
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
