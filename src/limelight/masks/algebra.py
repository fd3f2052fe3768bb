"""Mask: which keys a query may attend to, as a value; and what `&`, `|` and `~` make of masks.

    Causal() & Window(4, 0)      ~Documents(ids)      Causal() | Prefix(3)      Causal() & array

The dense form is the definition: `mask.dense(nq, nk)` is True where attending is allowed. Engines
read `mask.allowed(nq, nk)`, which says the same in O(n) and lets them skip whole blocks.
"""

from __future__ import annotations

import operator
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import as_numpy, dtype_name, expand, is_integer, is_torch, of_lists
from limelight.errors import ArgumentError, DtypeError, LimelightError, ShapeError
from limelight.masks.allowed import EMPTY, FULL, PARTIAL, Allowed, check_sides, same_kind
from limelight.masks.memory import Remembers
from limelight.writing.numbers import counted

GLYPHS = {EMPTY: "·", PARTIAL: "▒", FULL: "■"}
ANY, SUITS, ONLY = range(3)  # what a side's length is to a mask: any will do, its own, no other
Side = tuple[int, int]  # which of those, and the length to draw


class Mask(Remembers):
    """A rule for which cells of an nq × nk matrix are allowed. Combine with `&`, `|`, `~`."""

    __array_ufunc__ = None  # so that `array & mask` reaches __rand__

    def dense(self, nq: int, nk: int) -> NDArray[np.bool_]:
        """The definition: bool [nq, nk], or [..., 1, nq, nk] where the batch differs."""
        raise NotImplementedError

    def allowed(self, nq: int, nk: int) -> Allowed:
        """What engines read: the same cells as bands and intervals.

        Intervals are worked out once for each size: every layer of a model asks for the same, and a
        GPU then finds them uploaded, also while a graph is being captured.
        """
        known: Allowed | None = self.memory.get((nq, nk))
        if known is None:
            check_sides(nq, nk)
            known = self._allowed(nq, nk)
            if self._lasts():
                self.memory.keep((nq, nk), known)
        return known

    def _allowed(self, nq: int, nk: int) -> Allowed:
        raise NotImplementedError

    def _lasts(self) -> bool:
        """Whether nobody can write to what it is made of."""
        return True

    def blocks(self, nq: int, nk: int, size: tuple[int, int] = (128, 128)) -> NDArray[np.uint8]:
        """How much of each block is allowed: 0 empty, 1 partial, 2 full.

        >>> from limelight.masks import Causal
        >>> Causal().blocks(256, 256)
        array([[1, 0],
               [2, 1]], dtype=uint8)
        """
        height, width = _block(size)
        return _squeeze(_four_axes(self.allowed(nq, nk)).blocks(height, width))

    def draw(self, nq: int | None = None, nk: int | None = None, most: int = 32) -> str:
        """The mask as text: ■ allowed, · hidden, ▒ a block that is partly allowed.

        >>> from limelight.masks import Causal
        >>> print(Causal().draw(2, 4))
        ■ ■ ■ ·
        ■ ■ ■ ■
        """
        own_nq, own_nk = self._size()
        nq, nk = own_nq if nq is None else nq, own_nk if nk is None else nk
        check_sides(nq, nk)
        if not is_integer(most) or most < 1:
            raise ArgumentError(f"most={most!r}: draw at least one row, a whole number of them")
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

    def _sides(self) -> tuple[Side, Side]:
        """How many queries and keys it draws itself with, and whether others would do."""
        return (ANY, 8), (ANY, 8)

    def _size(self) -> tuple[int, int]:
        """The size at which it draws itself."""
        (_, nq), (_, nk) = self._sides()
        return nq, nk

    def __repr__(self) -> str:
        try:
            drawn = self.draw()
        except LimelightError as error:  # parts that fit no size together, numbers that are on meta
            drawn = str(error)
        return f"{self.expression}\n{drawn}"

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mask) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        values = (getattr(self, each.name) for each in fields(self))  # type: ignore[arg-type]
        return (type(self).__name__, *(_frozen(value) for value in values))


@dataclass(frozen=True, eq=False, repr=False)
class Explicit(Mask):
    """A boolean array [..., nq, nk] (1 broadcasts) as a mask; NumPy or torch."""

    array: Any

    def dense(self, nq: int, nk: int) -> Any:
        check_sides(nq, nk)
        shape = tuple(self.array.shape)
        if shape[-2] not in (1, nq) or shape[-1] not in (1, nk):
            raise ShapeError(
                f"the mask has shape {shape}, but there are {counted(nq, 'query')} and "
                f"{counted(nk, 'key')}: its last two axes must be {nq} (or 1) and {nk} (or 1)"
            )
        return expand(self.array, (*shape[:-2], nq, nk))

    def allowed(self, nq: int, nk: int) -> Allowed:
        self.dense(nq, nk)  # the size check
        return Allowed(nq, nk, dense=self.array)

    def _lasts(self) -> bool:
        return not is_torch(self.array) and not self.array.flags.writeable

    def numpy(self) -> Mask:
        return Explicit(np.array(as_numpy(self.array)))

    @property
    def expression(self) -> str:
        return "mask" + "×".join(str(n) for n in self.array.shape)

    def _sides(self) -> tuple[Side, Side]:
        nq, nk = self.array.shape[-2:]
        return (ANY if nq == 1 else ONLY, nq), (ANY if nk == 1 else ONLY, nk)

    def _identity(self) -> tuple[Any, ...]:
        array = self.array
        return ("Explicit", _frozen(array) if isinstance(array, np.ndarray) else id(array))


@dataclass(frozen=True, eq=False, repr=False)
class _Pair(Mask):
    """What two masks make together."""

    first: Mask
    second: Mask

    def _lasts(self) -> bool:
        return self.first._lasts() and self.second._lasts()

    def numpy(self) -> Mask:
        return type(self)(self.first.numpy(), self.second.numpy())

    def _cells(self, nq: int, nk: int) -> tuple[Any, Any]:
        return same_kind(self.first.dense(nq, nk), self.second.dense(nq, nk))

    def _sides(self) -> tuple[Side, Side]:
        (nq, nk), (others_nq, others_nk) = self.first._sides(), self.second._sides()
        return max(nq, others_nq), max(nk, others_nk)


class Both(_Pair):
    """Cells that both masks allow."""

    def dense(self, nq: int, nk: int) -> Any:
        first, second = self._cells(nq, nk)
        return first & second

    def _allowed(self, nq: int, nk: int) -> Allowed:
        return self.first.allowed(nq, nk).conjunction(self.second.allowed(nq, nk))

    @property
    def expression(self) -> str:
        return f"{_wrapped(self.first)} & {_wrapped(self.second)}"


class Either(_Pair):
    """Cells that at least one mask allows."""

    def dense(self, nq: int, nk: int) -> Any:
        first, second = self._cells(nq, nk)
        return first | second

    def _allowed(self, nq: int, nk: int) -> Allowed:
        return self.first.allowed(nq, nk).union(self.second.allowed(nq, nk))

    @property
    def expression(self) -> str:
        return f"{_wrapped(self.first)} | {_wrapped(self.second)}"


@dataclass(frozen=True, eq=False, repr=False)
class Not(Mask):
    """Cells that the mask forbids."""

    mask: Mask

    def dense(self, nq: int, nk: int) -> Any:
        return ~self.mask.dense(nq, nk)

    def _allowed(self, nq: int, nk: int) -> Allowed:
        return self.mask.allowed(nq, nk).complement()

    def _lasts(self) -> bool:
        return self.mask._lasts()

    def numpy(self) -> Mask:
        return Not(self.mask.numpy())

    @property
    def expression(self) -> str:
        return f"~{_wrapped(self.mask)}"

    def _sides(self) -> tuple[Side, Side]:
        return self.mask._sides()


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
        asks = any(each.default is MISSING for each in fields(mask))  # type: ignore[arg-type]
        raise DtypeError(f"{mask.__name__} is a class: write {mask.__name__}({'…' * asks})")
    if isinstance(mask, np.ma.MaskedArray):
        raise DtypeError(
            "the mask is a masked array, which says of some cells neither yes nor no: pass "
            "mask.filled(False), or mask.filled(True)"
        )
    array = mask if is_torch(mask) else of_lists(mask, "the mask")
    if isinstance(mask, (list, tuple)) and not array.size:  # which have no numbers to be of a type
        array = array.astype(np.bool_)
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


def _block(size: Any) -> tuple[int, int]:
    """A block's rows and columns, checked."""
    try:
        height, width = (operator.index(side) for side in size)
    except (TypeError, ValueError):
        height = width = 0
    if min(height, width) < 1:
        raise ArgumentError(
            f"size={size!r}: give a block's rows and columns as a pair of whole numbers from 1 on, "
            f"such as (128, 128)"
        )
    return height, width


def _four_axes(allowed: Allowed) -> Allowed:
    """With one batch axis, as broad as the parts themselves are."""
    parts = [
        part.shape[:n] for part, n in ((allowed.spans, -3), (allowed.dense, -2)) if part is not None
    ]
    lead = np.broadcast_shapes(*parts) if parts else (1, 1)
    return allowed.flatten(lead[:-1], lead[-1])


def _squeeze(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return blocks[0, 0] if blocks.shape[:2] == (1, 1) else blocks


def _wrapped(mask: Mask) -> str:
    return f"({mask.expression})" if isinstance(mask, _Pair) else mask.expression


def _frozen(value: Any) -> Any:
    if isinstance(value, Mask):
        return value._identity()
    return (value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value
