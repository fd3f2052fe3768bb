"""Dropout of attention weights: which cells fall is a function of a seed and of the cell's place.

Philox4x32-7 (Salmon, Moraes, Dror and Shaw 2011) turns a counter of four 32-bit words under a key
of two into four random words; seven rounds are the fewest of its authors' generators of this kind
that pass all of BigCrush. Nothing is kept from one to the next, so that every engine, in tiles of
any size and in any order, forward and backward, draws the same cells.

One draw serves sixteen cells of a row, four to a word: the 16 bits that start at bit 0, 8, 16 or 24
of it (around its end for the last). Each is uniform; two that share eight bits are correlated by
0.2 % at p = 0.1. For query i and key j of head h of batch entry b, with H = b·Hq + h:

    counter  (4·(j div 64) + (j mod 8) div 2,  i,  H,  offset)
    key      (seed mod 2³², seed div 2³²)
    word     (j mod 64) div 16
    from bit 16·((j div 8) mod 2) + 8·(j mod 2)

and the cell stays where its 16 bits are at least round(p·2¹⁶). Sixteen cells are dealt out over 64
keys like the accumulators of a tensor core are over its threads (two neighbours in every eight), so
that there, too, each thread draws for its own cells alone.
"""

from __future__ import annotations

from dataclasses import dataclass
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
BLOCK = 64  # keys that four counters serve

Words = tuple[NDArray[np.uint64], ...]


@lean
@dataclass(frozen=True, eq=False)
class Dropout:
    """The share of the weights that fall, and the seed that says which.

    `seed` is two 64-bit whole numbers, the generator's seed and an offset of which the low 32 bits
    count, in an array or a tensor: a GPU reads it where it is.

    >>> kept(Dropout(0.5, np.array([7, 0])), 0, np.arange(2), np.arange(5))
    array([[False, False, False,  True, False],
           [ True, False, False,  True,  True]])
    """

    p: float
    seed: Any

    @property
    def threshold(self) -> int:
        """A cell's 16 bits below this: it falls."""
        return round(self.p * LEVELS)

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
    drawn = np.stack([word.astype("<u4") for word in words], axis=-1)  # [*heads, rows, counters, 4]
    *lead, count, _ = drawn.shape
    octets = drawn.view(np.uint8).reshape(*lead, count // 4, 4, 4, 2, 2).astype(np.uint16)
    after = np.roll(octets.reshape(*lead, count // 4, 4, 4, 4), -1, axis=-1).reshape(octets.shape)
    stay = octets | after << np.uint16(8) >= dropout.threshold
    # [.., block, counter, word, half, neighbour] to the order of the keys
    cells = np.moveaxis(stay, -4, -2).reshape(*lead, BLOCK * (count // 4))
    return cells[..., columns - BLOCK * first]


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
