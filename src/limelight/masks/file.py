"""Masks to plain data and back: a small tree for the rule, tensors for the numbers in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from limelight.errors import ArgumentError, FileError, LimelightError
from limelight.masks import (
    Both,
    Causal,
    Documents,
    Either,
    Explicit,
    Lengths,
    Mask,
    Not,
    Prefix,
    Window,
)  # fmt: skip
from limelight.masks.measured import Entry, Intervals

Tensors = dict[str, Any]
DEEPEST = 32  # masks inside masks
MOST_PARTS = 65_536  # masks in one file, with those inside others
MOST_INTERVALS = 1 << 24  # of one mask, over batch, heads and rows
MOST_CELLS = 1 << 28  # of one mask that only a boolean array can say
LARGEST = 1 << 31  # no number in a mask, of positions or of documents, is as large


def encode(mask: Mask, name: str, tensors: Tensors, depth: int = 0) -> dict[str, Any]:
    """The mask's tree; its arrays go into `tensors` under names that begin with `name`."""
    if depth > DEEPEST:
        raise ArgumentError(
            f"a mask is nested more than {DEEPEST} deep, too deep for a file: save the cells it "
            f"allows, mask.dense(queries, keys)"
        )

    def keep(part: str, array: Any) -> Any:
        array = np.asarray(array)
        if array.ndim == 0:
            return int(array)
        tensors[f"{name}.{part}"] = array
        return f"{name}.{part}"

    def inner(part: str, other: Mask) -> dict[str, Any]:
        return encode(other, f"{name}.{part}", tensors, depth + 1)

    match mask:
        case Causal():
            return {"is": "causal", "align": mask.align}
        case Window():
            return {"is": "window", "left": mask.left, "right": mask.right, "align": mask.align}
        case Lengths():
            queries = None if mask.queries is None else keep("queries", mask.queries)
            return {"is": "lengths", "keys": keep("keys", mask.keys), "queries": queries}
        case Documents():
            queries = None if mask.queries is None else keep("queries", mask.queries)
            return {"is": "documents", "ids": keep("ids", mask.ids), "queries": queries}
        case Prefix():
            return {"is": "prefix", "n": keep("n", mask.n)}
        case Intervals():
            return {"is": "intervals", "spans": keep("spans", mask.spans), "nk": mask.nk}
        case Explicit():
            cells = np.asarray(mask.array, np.bool_)
            bits = keep("bits", np.packbits(cells.reshape(-1)))
            return {"is": "cells", "bits": bits, "shape": list(cells.shape)}
        case Both():
            return {"is": "both", "masks": [inner("a", mask.first), inner("b", mask.second)]}
        case Either():
            return {"is": "either", "masks": [inner("a", mask.first), inner("b", mask.second)]}
        case Not():
            return {"is": "not", "mask": inner("a", mask.mask)}
        case Entry():
            return {"is": "entry", "batch": mask.batch, "head": mask.head,
                    "mask": inner("a", mask.mask)}  # fmt: skip
    raise FileError(f"a mask of the type {type(mask).__name__} cannot be saved")


def decode_all(trees: list[Any], tensors: Tensors) -> list[Mask]:
    """The masks of trees from a file that nobody vouches for: every part is checked."""
    reader = _Reader(tensors)
    return [reader.decode(tree) for tree in trees]


class _Reader:
    """One file's masks. What a tensor says is worked out once, however many masks name it."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._left = MOST_PARTS
        self._made: dict[Any, Any] = {}

    def decode(self, tree: Any, depth: int = 0) -> Mask:
        self._left -= 1
        if depth > DEEPEST or self._left < 0 or not isinstance(tree, dict):
            raise FileError("a mask in it is malformed")
        try:
            return self._decode(tree, depth)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            if isinstance(error, FileError):
                raise
            why = str(error) if isinstance(error, LimelightError) else "a part is missing or odd"
            raise FileError(f"a mask in it is malformed: {why}") from None

    def _decode(self, tree: dict[str, Any], depth: int) -> Mask:
        match tree["is"]:
            case "causal":
                return Causal(align=tree["align"])
            case "window":
                return Window(_width(tree["left"]), _width(tree["right"]), tree["align"])
            case "lengths":
                return self._of_numbers(Lengths, tree, "keys", "queries")
            case "documents":
                return self._of_numbers(Documents, tree, "ids", "queries")
            case "prefix":
                return self._of_numbers(Prefix, tree, "n")
            case "intervals":
                spans, nk = self._numbers(tree["spans"], "spans"), tree["nk"]
                return self._once(("intervals", tree["spans"], nk), lambda: _intervals(spans, nk))
            case "cells":
                bits, shape = self._tensors[tree["bits"]], tree["shape"]
                key = ("cells", tree["bits"], *shape)
                return self._once(key, lambda: _cells(bits, shape))
            case "both" | "either" as how:
                first, second = (self.decode(part, depth + 1) for part in tree["masks"])
                return Both(first, second) if how == "both" else Either(first, second)
            case "not":
                return Not(self.decode(tree["mask"], depth + 1))
            case "entry":
                batch, head = tree["batch"], tree["head"]
                if not all(type(n) is int and n >= 0 for n in (batch, 0 if head is None else head)):
                    raise ValueError
                return Entry(self.decode(tree["mask"], depth + 1), batch, head)
        raise FileError(
            f"a mask in it is of the unknown kind {str(tree['is'])[:40]!r}: a newer limelight may "
            f"know it"
        )

    def _of_numbers(self, kind: Callable[..., Mask], tree: dict[str, Any], *names: str) -> Mask:
        given = tuple(tree[name] for name in names)
        return self._once((kind, *given), lambda: kind(*map(self._numbers, given, names)))

    def _numbers(self, found: Any, part: str) -> Any:
        if found is None and part == "queries":
            return None
        array = np.int64(found) if type(found) is int else self._tensors[found]
        if array.dtype.kind != "i":
            raise FileError(f"a mask in it is malformed: {part} are not whole numbers")
        if array.size and not -LARGEST <= array.min() <= array.max() < LARGEST:
            raise FileError(f"a mask in it is malformed: {part} has {int(np.abs(array).max()):,}")
        return array

    def _once(self, key: tuple[Any, ...], make: Callable[[], Mask]) -> Mask:
        if key not in self._made:
            self._made[key] = make()
        made: Mask = self._made[key]
        return made


def intervals(mask: Mask, queries: int, keys: int) -> int:
    """At most how many intervals it takes to say the mask at this size; a FileError if too many."""
    heads, slots, dense = _extent(mask, queries, keys)
    if dense and heads * queries * keys > MOST_CELLS:
        raise FileError(f"a mask in it takes {heads * queries * keys:,} cells, and a mask that is "
                        f"no few intervals a row may have {MOST_CELLS:,}")  # fmt: skip
    if not dense and heads * queries * slots > MOST_INTERVALS:
        raise FileError(f"a mask in it takes up to {heads * queries * slots:,} intervals, and may "
                        f"take {MOST_INTERVALS:,}")  # fmt: skip
    return heads * queries * (1 if dense else slots)


def _extent(mask: Mask, queries: int, keys: int) -> tuple[int, int, bool]:
    """Batch × heads, intervals a row, and whether a boolean array is needed, none of them less."""
    match mask:
        case Lengths():
            return max(1, mask.keys.size), 1, False
        case Prefix():
            return max(1, mask.n.size), 1, False
        case Documents():
            runs = _runs(mask.ids)
            lead = math.prod(mask.ids.shape[:-1])
            if mask.queries is not None:
                lead *= math.prod(mask.queries.shape[:-1])
            return max(1, lead), runs, runs > max(keys, 8) // 8
        case Intervals():
            return max(1, math.prod(mask.spans.shape[:2])), max(1, mask.spans.shape[3]), False
        case Explicit():
            return max(1, math.prod(mask.array.shape[:-2])), 1, True
        case Not():
            heads, slots, dense = _extent(mask.mask, queries, keys)
            return heads, slots + 1, dense
        case Entry():
            return _extent(mask.mask, queries, keys)
        case Both() | Either():
            a, b = (_extent(part, queries, keys) for part in (mask.first, mask.second))
            # An intersection meets every interval with every other, a union every gap.
            slots = a[1] * b[1] if isinstance(mask, Both) else (a[1] + 1) * (b[1] + 1) + 1
            return (
                a[0] if b[0] == 1 else b[0] * (1 if a[0] in (1, b[0]) else a[0]),
                slots,
                (a[2] or b[2]),
            )
    return 1, 1, False


def _runs(ids: Any) -> int:
    """The most runs of keys that one document of one entry is scattered over."""
    most = 1
    for row in ids.reshape(-1, ids.shape[-1]) if ids.size else ():
        starts = row[np.flatnonzero(np.diff(row, prepend=row[:1] - 1))]
        most = max(most, int(np.unique(starts, return_counts=True)[1].max()))
    return most


def _width(value: Any) -> int | None:
    if value is not None and (type(value) is not int or not 0 <= value < LARGEST):
        raise ArgumentError("a window's width is a whole number below 2³¹, or null")
    return value


def _intervals(spans: Any, nk: Any) -> Intervals:
    """Engines trust intervals, so they are checked here: in order, disjoint, inside the keys."""
    whole = type(nk) is int and 0 <= nk < LARGEST
    if not whole or spans.dtype != np.int32 or spans.ndim != 5 or spans.shape[-1] != 2:
        raise ValueError
    flat = spans.reshape(*spans.shape[:3], -1).astype(np.int64)
    if flat.size and (flat.min() < 0 or flat.max() > nk or (np.diff(flat, axis=-1) < 0).any()):
        raise FileError("a mask in it is malformed: its intervals are out of order")
    return Intervals(spans, nk)


def _cells(bits: Any, shape: Any) -> Explicit:
    if not all(type(n) is int and 0 <= n < LARGEST for n in shape) or not 2 <= len(shape) <= 4:
        raise ValueError
    count = math.prod(shape)
    if bits.dtype != np.uint8 or bits.shape != ((count + 7) // 8,):
        raise ValueError
    return Explicit(np.unpackbits(bits, count=count).astype(np.bool_).reshape(shape))
