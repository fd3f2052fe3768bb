"""Memory: what a run has seen so far, so that the next token costs one token."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.live.decoder import Decoder

Array = NDArray[Any]
FIRST = 64  # tokens there is room for at first


class Memory:
    """The queries, keys and values of every layer, and the residual stream between the layers.

    residual [layers + 1, N, width], query [layers, Hq, N, D], key and value [layers, Hk, N, D].
    Room doubles as it fills, so that n tokens cost O(n) copies in all. A run and what continues it
    share a memory; who comes second to the same place gets a copy.
    """

    def __init__(self, decoder: Decoder) -> None:
        depth, size = decoder.depth, decoder.head_size
        self._decoder, self._taken, self._lock = decoder, 0, Lock()
        self._arrays = {
            "residual": np.empty((depth + 1, FIRST, decoder.width), np.float32),
            "query": np.empty((depth, decoder.heads, FIRST, size), np.float32),
            "key": np.empty((depth, decoder.key_heads, FIRST, size), np.float32),
            "value": np.empty((depth, decoder.key_heads, FIRST, size), np.float32),
        }

    def get(self, name: str, length: int) -> Array:
        """The first tokens of an array, without copying."""
        return self._arrays[name][..., :length, :]

    def put(self, name: str, layer: int, start: int, array: Array) -> None:
        """A layer's tokens from `start` on, [.., N, size]."""
        self._arrays[name][layer][..., start : start + array.shape[-2], :] = array

    def room(self, start: int, more: int) -> Memory:
        """A memory with room for `more` tokens after the first `start`: this one, unless those
        are taken."""
        with self._lock:
            if self._taken == start:
                self._taken = start + more
                self._grow(start, start + more)
                return self
        copy = Memory(self._decoder)
        copy._taken = start + more
        copy._grow(0, start + more)
        for name, array in copy._arrays.items():
            array[..., :start, :] = self.get(name, start)
        return copy

    @property
    def bytes_a_token(self) -> int:
        return sum(array.nbytes // array.shape[-2] for array in self._arrays.values())

    def _grow(self, filled: int, length: int) -> None:
        for name, array in self._arrays.items():
            room = array.shape[-2]
            if room < length:
                shape = (*array.shape[:-2], max(length, 2 * room), array.shape[-1])
                grown = np.empty(shape, np.float32)
                grown[..., :filled, :] = array[..., :filled, :]
                self._arrays[name] = grown
