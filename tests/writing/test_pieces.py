"""Tokens as a person reads them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from limelight.writing.pieces import SYMBOLS, joined, readable


def spelled(text: str, cuts: list[int]) -> list[str]:
    """A text as a byte-level vocabulary spells it, cut at these bytes."""
    symbols = "".join(SYMBOLS[byte] for byte in text.encode())
    edges = [0, *cuts, len(symbols)]
    return [symbols[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize(
    ("tokens", "read"),
    [
        (spelled("The cat", [3]), ("The", " cat")),
        (spelled(" a🙂!", [2, 3, 5, 6]), (" a", "🙂[1/3]", "🙂[2/3]", "🙂[3/3]", "!")),
        (spelled(" é猫", [2, 4]), (" é猫[1/3]", " é猫[2/3]", " é猫[3/3]")),
        (["<|endoftext|>", *spelled(" a\n", [2])], ("<|endoftext|>", " a", "\n")),
        (["<｜end｜>", *spelled(" a", [])], ("<｜end｜>", " a")),
        (["▁the", "▁cat", "s"], (" the", " cat", "s")),
        (["[CLS]", "play", "##ing", "naïve"], ("[CLS]", "play", "##ing", "naïve")),
        (["Ġa", SYMBOLS[0xE2]], (" a", "<0xE2>")),
        ([], ()),
    ],
    ids=str,
)
def test_spellings(tokens: list[str], read: tuple[str, ...]) -> None:
    assert readable(tokens) == read


def test_what_reads_as_nothing_keeps_its_spelling() -> None:
    assert joined(lambda start, stop: "", ["<s>"]) == ("<s>",)
    assert joined(lambda start, stop: None, ["x", "y"]) == ("x", "y")
