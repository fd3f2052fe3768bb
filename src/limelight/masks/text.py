"""Masks from text, in the words in which they print themselves.

    parse("causal & window(4, 0)")   parse("Causal() | Prefix(3)")   parse("~documents([0, 0, 1])")

Only the masks of this package, numbers, lists of numbers, and `&`, `|`, `~` are understood; nothing
is evaluated, so text from anywhere is safe to read.
"""

from __future__ import annotations

import ast
import inspect
import warnings
from typing import Any

from limelight.errors import ArgumentError, LimelightError
from limelight.masks import Causal, Documents, Lengths, Mask, Prefix, Window

MASKS: dict[str, type[Mask]] = {
    mask.__name__.lower(): mask for mask in (Causal, Window, Lengths, Documents, Prefix)
}
MOST_CHARACTERS, DEEPEST = 10_000, 100


def parse(text: str) -> Mask:
    """The mask that an expression describes; names may be in any case, empty brackets left out.

    >>> parse("causal & window(2, 0)").expression
    'Causal() & Window(left=2, right=0)'
    """
    if not isinstance(text, str):
        raise ArgumentError(f"{text!r} is not a mask in words: {_advice()}")
    if len(text) > MOST_CHARACTERS:
        raise ArgumentError(
            f"the mask expression has {len(text):,} characters: {MOST_CHARACTERS:,} are the most"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's own of "4or 5", which is refused below
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(f"{text!r} is not a mask: {_advice()}") from None
    return _mask(tree.body, text)


def _mask(node: ast.expr, text: str, depth: int = 0) -> Mask:
    if depth > DEEPEST:
        raise ArgumentError(f"the mask joins more than {DEEPEST} masks: write it with fewer")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return _mask(node.left, text, depth + 1) & _mask(node.right, text, depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _mask(node.left, text, depth + 1) | _mask(node.right, text, depth + 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return ~_mask(node.operand, text, depth + 1)
    if isinstance(node, ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    ):
        raise ArgumentError(f"{_part(node, text)!r}: combine masks with &, | and ~, not and/or/not")
    if isinstance(node, ast.Name):
        return _build(node, [], {})
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        values = [_literal(value, text) for value in node.args]
        named = {str(word.arg): _literal(word.value, text) for word in node.keywords}
        return _build(node.func, values, named)
    raise ArgumentError(f"{_part(node, text)!r} is not a mask: {_advice()}")


def _build(name: ast.Name, values: list[Any], named: dict[str, Any]) -> Mask:
    kind = MASKS.get(name.id.lower())
    if kind is None:
        raise ArgumentError(f"there is no mask {name.id!r}: {_advice()}")
    try:
        return kind(*values, **named)
    except LimelightError:
        raise
    except TypeError:  # too many arguments, too few, or an unknown one
        takes = ", ".join(inspect.signature(kind).parameters)
        given = ", ".join([*map(repr, values), *(f"{k}={v!r}" for k, v in named.items())])
        raise ArgumentError(f"{kind.__name__}({given}): it takes {takes}") from None


def _literal(node: ast.expr, text: str) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        raise ArgumentError(
            f"{_part(node, text)!r}: a mask takes numbers, lists of numbers and None"
        ) from None


def _part(node: ast.expr, text: str) -> str:
    return ast.get_source_segment(text.strip(), node) or text


def _advice() -> str:
    return (
        "write causal, window(4, 0), lengths(5), documents([0, 0, 1]) or prefix(3), and combine "
        "with &, | and ~"
    )
