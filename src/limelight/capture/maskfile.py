"""Masks to plain data and back: a small tree for the rule, tensors for the numbers in it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from limelight.capture.intervals import Entry, Intervals
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

Tensors = dict[str, Any]
DEEPEST = 32  # masks inside masks


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


def decode(tree: Any, tensors: Tensors, depth: int = 0) -> Mask:
    """The mask of a tree from a file that nobody vouches for: every part is checked."""
    if depth > DEEPEST or not isinstance(tree, dict):
        raise FileError("a mask in it is malformed")
    try:
        return _decode(tree, tensors, depth)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, FileError):
            raise
        why = str(error) if isinstance(error, LimelightError) else "a part is missing or odd"
        raise FileError(f"a mask in it is malformed: {why}") from None


def _decode(tree: dict[str, Any], tensors: Tensors, depth: int) -> Mask:
    def numbers(part: str) -> Any:
        found = tree[part]
        if type(found) is int:
            return found
        array = tensors[found]
        if array.dtype.kind != "i":
            raise FileError(f"a mask in it is malformed: {part} are not whole numbers")
        return array

    def optional(part: str) -> Any:
        return None if tree[part] is None else numbers(part)

    match tree["is"]:
        case "causal":
            return Causal(align=tree["align"])
        case "window":
            return Window(tree["left"], tree["right"], tree["align"])
        case "lengths":
            return Lengths(numbers("keys"), optional("queries"))
        case "documents":
            return Documents(numbers("ids"), optional("queries"))
        case "prefix":
            return Prefix(numbers("n"))
        case "intervals":
            return _intervals(numbers("spans"), tree["nk"])
        case "cells":
            return _cells(tensors[tree["bits"]], tree["shape"])
        case "both" | "either" as how:
            first, second = (decode(part, tensors, depth + 1) for part in tree["masks"])
            return Both(first, second) if how == "both" else Either(first, second)
        case "not":
            return Not(decode(tree["mask"], tensors, depth + 1))
        case "entry":
            batch, head = tree["batch"], tree["head"]
            if not all(type(n) is int and n >= 0 for n in (batch, 0 if head is None else head)):
                raise ValueError
            return Entry(decode(tree["mask"], tensors, depth + 1), batch, head)
    raise FileError(
        f"a mask in it is of the unknown kind {tree['is']!r}: a newer limelight may know it"
    )


def _intervals(spans: Any, nk: Any) -> Intervals:
    """Engines trust intervals, so they are checked here: in order, disjoint, inside the keys."""
    if type(nk) is not int or spans.dtype != np.int32 or spans.ndim != 5 or spans.shape[-1] != 2:
        raise ValueError
    flat = spans.reshape(*spans.shape[:3], -1).astype(np.int64)
    if flat.size and (flat.min() < 0 or flat.max() > nk or (np.diff(flat, axis=-1) < 0).any()):
        raise FileError("a mask in it is malformed: its intervals are out of order")
    return Intervals(spans, nk)


def _cells(bits: Any, shape: Any) -> Explicit:
    if not all(type(n) is int and n >= 0 for n in shape) or not 2 <= len(shape) <= 4:
        raise ValueError
    count = math.prod(shape)
    if bits.dtype != np.uint8 or bits.shape != ((count + 7) // 8,):
        raise ValueError
    return Explicit(np.unpackbits(bits, count=count).astype(np.bool_).reshape(shape))
