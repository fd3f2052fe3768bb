"""What decoders are made of apart from attention: norms, rotations, the feed-forward's bend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
STEPS, REACH = 256, 8  # the table of Φ: so many steps a unit, from −8 to 8


@dataclass(frozen=True, eq=False)
class Norm:
    """Each row brought to one size: w·x/rms(x), and with a bias w·(x − mean)/std + b."""

    weight: Array
    bias: Array | None
    eps: float

    def __call__(self, x: Array) -> Array:
        return self.linear(x, self.size(x)) if self.bias is None else self._layer(x)

    def size(self, x: Array) -> Array:
        """What each row is divided by, [rows, 1]."""
        x = x if self.bias is None else x - x.mean(axis=-1, keepdims=True)
        mean = np.einsum("...i,...i->...", x, x)[..., None] / x.shape[-1]
        return np.asarray(np.sqrt(mean + x.dtype.type(self.eps)))

    def linear(self, x: Array, size: Array) -> Array:
        """The norm with its divisor held fast: linear in x, and without the bias."""
        x = x if self.bias is None else x - x.mean(axis=-1, keepdims=True)
        return x / size * self.weight

    def _layer(self, x: Array) -> Array:
        assert self.bias is not None
        return self.linear(x, self.size(x)) + self.bias


@dataclass(frozen=True, eq=False)
class Rotation:
    """Position encoding by rotation (RoPE).

    Number i and number i + D/2 of a head are a plane, which turns by position / base^(2i/D).
    """

    cos: Array  # [N, 1, D/2]
    sin: Array

    @classmethod
    def at(cls, frequencies: Array, start: int, length: int) -> Rotation:
        angles = np.arange(start, start + length)[:, None, None] * frequencies
        return cls(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))

    def __call__(self, x: Array) -> Array:
        """x [B, N, H, D], turned."""
        half = x.shape[-1] // 2
        a, b = x[..., :half], x[..., half:]
        turned = np.empty(x.shape, x.dtype)
        np.multiply(a, self.cos, out=turned[..., :half])
        turned[..., :half] -= b * self.sin
        np.multiply(b, self.cos, out=turned[..., half:])
        turned[..., half:] += a * self.sin
        return turned


def silu(x: Array) -> Array:
    """x / (1 + e^−x)."""
    with np.errstate(over="ignore"):  # e^−x beyond float32: the quotient is 0, as it should be
        below = np.exp(-x)
    below += 1
    return np.divide(x, below, out=below)


def gelu(x: Array) -> Array:
    """x·Φ(x), with Φ the normal distribution function.

    NumPy has no erf. Φ is read from a table and bent between its points by its own slope (cubic
    Hermite), which is right to 1e−12.

    >>> gelu(np.array([-1.0, 0.0, 2.0])).round(6)
    array([-0.158655,  0.      ,  1.9545  ])
    """
    values, slopes = _normal()
    place = (np.clip(x, -REACH, REACH) + REACH) * STEPS
    left = np.minimum(place.astype(np.int32), 2 * REACH * STEPS - 1)
    t = place - left
    u = 1 - t
    bend = u * u * ((1 + 2 * t) * values[left] + t * slopes[left])
    bend += t * t * ((1 + 2 * u) * values[left + 1] - u * slopes[left + 1])
    return np.asarray(x * bend, x.dtype)


@cache
def _normal() -> tuple[Array, Array]:
    """Φ and its slope a step, at the table's points."""
    points = np.arange(-REACH * STEPS, REACH * STEPS + 1) / STEPS
    values = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in points])
    return values, np.exp(-points * points / 2) / math.sqrt(2 * math.pi) / STEPS
