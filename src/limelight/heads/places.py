"""Where heads of the kinds that go by tokens look: from a text to pairs of its positions.

Each function gives two arrays of one length: who looks, and at whom. Where repeated tokens make
more than `most` pairs, an even sample of those that look is taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MOST_PAIRS = 1 << 16  # of a kind: 8 ms a head
FEWER_PAIRS = 1 << 14  # of each kind that text has many of, so that all of them stay quick
OPENERS = {")": "(", "]": "[", "}": "{"}
# A special token of any vocabulary ([SEP], </s>, <|im_end|>), or nothing but punctuation and breaks
SEPARATOR = re.compile(r"\s*(\[[A-Z]+\d*\]|<[^<>\s]+>|[^\w\s]+)\s*|\s*\n\s*")
PIECE = "##"  # how WordPiece marks what does not begin a word


def repeats(
    tokens: Sequence[str], most: int = MOST_PAIRS, *, ahead: int = 1
) -> tuple[Array, Array]:
    """Where induction looks: every position p with each j < p that is `ahead` of an earlier t(p).

    >>> repeats(["a", "b", "c", "a", "b"])
    (array([3, 4]), array([1, 2]))
    """
    rows, columns = _earlier(tokens, most)
    columns = columns + ahead
    past = columns < rows  # a token that follows itself would count its own place
    return rows[past], columns[past]


def duplicates(tokens: Sequence[str], most: int = FEWER_PAIRS) -> tuple[Array, Array]:
    """Every position with each earlier one of the same token.

    >>> duplicates(["a", "b", "a", "a"])
    (array([2, 3, 3]), array([0, 0, 2]))
    """
    return _earlier(tokens, most)


def _earlier(tokens: Sequence[str], most: int) -> tuple[Array, Array]:
    _, which = np.unique(np.asarray(tokens, dtype=object).astype(str), return_inverse=True)
    order = np.argsort(which, kind="stable")  # the places of each token, ascending
    rank = np.empty(len(which), np.int64)
    first = np.searchsorted(which[order], np.arange(which.max(initial=-1) + 1))
    rank[order] = np.arange(len(which)) - first[which[order]]  # how often it came before
    rows = _sampled(np.flatnonzero(rank), rank, most)
    counts = rank[rows]
    looks = np.repeat(rows, counts)
    step = np.arange(len(looks)) - np.repeat(np.cumsum(counts) - counts, counts)
    return looks, order[first[which[looks]] + step]


def brackets(tokens: Sequence[str]) -> tuple[Array, Array]:
    """Closers and their openers, as token positions: () [] {}, each closer to its own kind.

    >>> brackets(["f", "(", "x", "[", "0", "])"])
    (array([5, 5]), array([1, 3]))
    """
    open_at: dict[str, list[int]] = {opener: [] for opener in OPENERS.values()}
    found: set[tuple[int, int]] = set()
    for place, token in enumerate(tokens):
        for sign in token:
            if sign in open_at:
                open_at[sign].append(place)
            elif sign in OPENERS and open_at[OPENERS[sign]]:
                opener = open_at[OPENERS[sign]].pop()
                if opener != place:
                    found.add((place, opener))
    cells = np.array(sorted(found), np.int64).reshape(-1, 2)
    return cells[:, 0], cells[:, 1]


def separators(tokens: Sequence[str], most: int = FEWER_PAIRS) -> tuple[Array, Array]:
    """Every position with every separator of the text: punctuation, breaks and special tokens.

    The first token is none of them, for resting on it is a kind of its own; and none looks at
    itself.

    >>> separators(["[CLS]", "a", ".", "b", "[SEP]"])
    (array([0, 0, 1, 1, 2, 3, 3, 4]), array([2, 4, 2, 4, 4, 2, 4, 2]))
    """
    signs = np.array([at for at, token in enumerate(tokens)
                      if at and SEPARATOR.fullmatch(token)], np.int64)  # fmt: skip
    every = np.arange(len(tokens))
    rows = _sampled(every, np.full(len(every), len(signs)), most)
    looks, at = np.repeat(rows, len(signs)), np.tile(signs, len(rows))
    return looks[looks != at], at[looks != at]


def pieces(tokens: Sequence[str], most: int = FEWER_PAIRS) -> tuple[Array, Array]:
    """Every position with the other pieces of its word, where a word is several tokens.

    Its neighbours and the first token of the text are left out, for looking at the token before, or
    resting on the first, is a kind of its own. A token goes on with the word before it if nothing
    but letters and digits meet, without a blank; in a vocabulary that marks such pieces ("##ing"),
    if it is marked. Where no token has a blank or a mark, nothing tells where a word ends.

    >>> pieces(["It", " is", " un", "believ", "able"])
    (array([2, 4]), array([4, 2]))
    """
    marked = any(token.startswith(PIECE) for token in tokens)
    if not marked and not any(token[:1].isspace() for token in tokens):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    word, words = 0, []
    for at, token in enumerate(tokens):
        if marked:
            on = token.startswith(PIECE)
        else:
            on = at > 0 and token[:1].isalnum() and tokens[at - 1][-1:].isalnum()
        word += not on
        words.append(word)
    own = np.array(words, np.int64)
    start, stop = np.searchsorted(own, own), np.searchsorted(own, own, side="right")
    counts = stop - start
    rows = _sampled(np.flatnonzero(counts > 2), counts, most)
    looks = np.repeat(rows, counts[rows])
    ends = np.cumsum(counts[rows])
    at = np.arange(len(looks)) - np.repeat(ends - counts[rows], counts[rows]) + start[looks]
    apart = (np.abs(looks - at) > 1) & (at > 0)
    return looks[apart], at[apart]


def _sampled(rows: Array, counts: Array, most: int) -> Array:
    """The rows, or an even sample where they have more pairs than `most`."""
    total = int(counts[rows].sum())
    return rows[:: -(-total // most)] if total > most else rows
