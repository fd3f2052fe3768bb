"""Cache: the most recently used results, each made once however many ask at the same time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Kept = TypeVar("Kept")


class Cache(Generic[Kept]):
    """At most `most` entries, and of at most `room` by `size`; the least recently used goes first.

    >>> cache = Cache[int](2)
    >>> [cache.get(key, lambda: len(key)) for key in ("a", "bb", "ccc")], len(cache)
    ([1, 2, 3], 2)
    """

    def __init__(
        self, most: int, room: int | None = None, size: Callable[[Kept], int] = lambda _: 0
    ) -> None:
        self._most = most
        self._room = room
        self._size = size
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Kept]) -> Kept:
        """What `make` gave for this key, now or before; if it raises, nothing is kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._kept:
                    return self._kept[key]
            try:
                made = make()
                with self._lock:
                    self._kept[key] = made
                    while len(self._kept) > self._most or self._overfull():
                        self._kept.popitem(last=False)
            finally:
                with self._lock:
                    self._making.pop(key, None)
        return made

    def _overfull(self) -> bool:
        if self._room is None or len(self._kept) < 2:
            return False
        return sum(map(self._size, self._kept.values())) > self._room

    def __len__(self) -> int:
        return len(self._kept)
