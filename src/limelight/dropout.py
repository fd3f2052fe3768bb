"""Dropout of attention weights: which cells fall is a function of a seed and of the cell's place.

Philox4x32-7 (Salmon, Moraes, Dror and Shaw 2011) turns a counter of four 32-bit words under a key
of two into four random words; seven rounds are the fewest of its authors' generators of this kind
that pass all of BigCrush. Nothing is kept from one to the next, so that every engine, in tiles of
any size and in any order, forward and backward, draws the same cells.

One draw serves 32 cells of a row, a bit of each of its words to a cell. For query i and key j of
head h of batch entry b, with H = b·Hq + h:

    counter  (4·(j div 128) + (j mod 8) div 2,  i,  H,  offset)
    key      (seed mod 2³², seed div 2³²)
    bit      16·(j mod 2) + (j mod 128) div 8

The cell stays where a number of 16 bits is at least round(p·2¹⁶). Its upper eight are that bit of
eight words, from the highest to the lowest:

    a, b, c, d, e ^ f, f ^ g, g ^ h, h ^ k

with a, b, c, d what was drawn and e, f, g, h, k = a, b, c, d, a turned left by 5, 10, 15, 20, 25.
Its lower eight, which one cell in 256 comes to, are the same for the 32: the highest of
a·0x9E3779B1 mod 2³².

So a draw is compared 32 cells at a time, with one operation for a bit. The 2·8 upper bits of any
two cells are linearly independent forms of the 128 that were drawn (a test counts their rank):
cells are independent in pairs, but for the lower bits, which correlate them by 4e-5 at p = 0.1.
32 cells are dealt out over 128 keys like the accumulators of a tensor core are over its threads
(two neighbours in every eight), so that there, too, each thread draws for its own cells alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import as_numpy
from limelight.errors import ArgumentError
from limelight.records import lean

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 7
LEVELS = 1 << 16  # of which p is a whole number
BLOCK = 128  # keys that four counters serve
TURNS = (5, 10, 15, 20, 25)
COMMON = 0x9E3779B1

Words = tuple[NDArray[np.uint64], ...]


@lean
@dataclass(frozen=True, eq=False)
class Dropout:
    """The share of the weights that fall, and the seed that says which.

    `seed` is two 64-bit whole numbers, the generator's seed and an offset of which the low 32 bits
    count, in an array or a tensor: a GPU reads it where it is.

    >>> kept(Dropout(0.5, np.array([7, 0])), 0, np.arange(2), np.arange(5))
    array([[ True, False,  True, False, False],
           [ True,  True, False,  True,  True]])
    """

    p: float
    seed: Any

    @property
    def threshold(self) -> int:
        """A cell's 16 bits below this: it falls."""
        return round(self.p * LEVELS)

    @property
    def bounds(self) -> tuple[int, int]:
        """The threshold's part of a cell's own eight bits, to 255, and of the common, to 256."""
        own = min(self.threshold >> 8, 255)
        return own, self.threshold - (own << 8)

    @property
    def scale(self) -> float:
        """What the others are multiplied with."""
        return 0.0 if self.p == 1.0 else 1.0 / (1.0 - self.p)

    @property
    def numbers(self) -> tuple[int, int]:
        """Seed and offset, as unsigned 64 and 32 bits."""
        seed, offset = as_numpy(self.seed).tolist()
        return seed % (1 << 64), offset % (1 << 32)


def check_dropout(p: Any, name: str = "dropout") -> float:
    """A share from 0 to 1, or an error."""
    meaning = "it is the share of the weights that are set to 0, from 0 to 1"
    try:
        if isinstance(p, (str, bytes)):
            raise TypeError
        share = float(p)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name}={p!r} is not a number: {meaning}") from None
    if not 0.0 <= share <= 1.0:
        raise ArgumentError(f"{name}={p}: {meaning}")
    return share


def kept(
    dropout: Dropout, heads: Any, rows: NDArray[Any], columns: NDArray[Any]
) -> NDArray[np.bool_]:
    """Which cells stay: bool [*heads, rows, columns], heads numbered b·Hq + h."""
    heads = np.asarray(heads, np.uint64)[..., None, None]
    if not (rows.size and columns.size):
        return np.zeros((*heads.shape[:-2], rows.size, columns.size), np.bool_)
    seed, offset = dropout.numbers
    first, last = (int(columns[at]) // BLOCK for at in (0, -1))
    counters = np.arange(4 * first, 4 * last + 4, dtype=np.uint64)
    words = philox((counters, rows.astype(np.uint64)[:, None], heads, np.uint64(offset)), seed)
    stay = _stay(words, *dropout.bounds).astype("<u4")[..., None]  # [*heads, rows, counters, 1]
    *lead, count, _ = stay.shape
    bits = np.unpackbits(stay.view(np.uint8), axis=-1, bitorder="little")
    # [.., block, counter, neighbour, eight] to the order of the keys
    cells = np.moveaxis(bits.reshape(*lead, count // 4, 4, 2, 16), -1, -3)
    return cells.reshape(*lead, BLOCK * (count // 4)).view(np.bool_)[..., columns - BLOCK * first]


def _stay(words: Words, own: int, common: int) -> NDArray[np.uint64]:
    """The bits of the cells that stay, 32 of each draw."""
    low = np.uint64(0xFFFFFFFF)
    turned = [
        (word << np.uint64(turn) | word >> np.uint64(32 - turn)) & low
        for word, turn in zip((*words, words[0]), TURNS, strict=True)
    ]
    planes = [*words, *(one ^ other for one, other in pairwise(turned))]
    shared = (words[0] * np.uint64(COMMON) & low) >> np.uint64(24)
    stay = np.where(shared >= common, low, np.uint64(0))
    for i, plane in enumerate(reversed(planes)):  # what a higher bit decides is decided
        stay = plane & stay if own >> i & 1 else plane | stay
    return stay


def philox(counter: tuple[Any, ...], seed: int) -> Words:
    """Four random 32-bit words for each counter of four, in 64 bits each.

    >>> [hex(int(word)) for word in philox((0, 0, 0, 0), 0)]
    ['0x5f6fb709', '0xd893f64', '0x4f121f81', '0x4f730a48']
    """
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b, c, d = (np.asarray(word, np.uint64) for word in counter)
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    first, second = (np.uint64(m) for m in MULTIPLIERS)
    for _ in range(ROUNDS):
        left, right = first * a, second * c
        a, b = (right >> half) ^ b ^ np.uint64(keys[0]), right & low
        c, d = (left >> half) ^ d ^ np.uint64(keys[1]), left & low
        keys = [(key + step) & 0xFFFFFFFF for key, step in zip(keys, KEY_STEPS, strict=True)]
    return a, b, c, d
