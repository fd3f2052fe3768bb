"""Pyramid: one head's weights as tiles at every zoom, computed when they are asked for.

Level 0 holds the cells themselves; each level above has bins of twice the side, so that a bin of
level l covers the cells i·2ˡ … (i+1)·2ˡ in each direction and has four bins under it. A tile is
256 × 256 bins, smaller at the right and bottom edge. The levels agree: under pool="max" a bin is
exactly the largest of the four under it, under pool="mean" their mean weighted by how many allowed
cells each has, to the rounding of a float32.

A tile is made from the four under it where those are at hand, else from the queries and keys. Used
tiles are kept within a budget of bytes, the least recently used given up first. Any number of
threads may ask; two that want the same tile share the work.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from limelight.call import Call
from limelight.errors import ArgumentError, LimelightError
from limelight.looking import regions
from limelight.looking.heatmap import check_pool, pooled
from limelight.looking.weights import sharp

Values = NDArray[np.float32]
SIDE = 256  # bins of a tile's side
WORK = 1 << 23  # cells between two looks at the cancel switch: some 10 ms on the native engine
PATIENCE = 0.02  # seconds between looks at the switch while another thread makes the tile


class Cancelled(LimelightError):
    """The work was called off before it was done."""


class Sited(Protocol):
    """What a pyramid needs of a site: its call, and each row's logsumexp."""

    @property
    def call(self) -> Call: ...
    @property
    def statistics(self) -> Any: ...


@dataclass(frozen=True, order=True)
class Address:
    """A tile by number: its level, and its row and column among that level's tiles."""

    level: int
    row: int
    column: int


class Pyramid:
    """The tiles of one head.

    site     a capture's site
    head     which query head, of which batch entry
    tile     bins a side
    pool     "max" or "mean"
    budget   bytes of tiles to keep

    >>> import numpy as np
    >>> from limelight.capture import Site
    >>> rng = np.random.default_rng(0)
    >>> site = Site("demo", 0, *rng.normal(size=(2, 1, 1, 700, 8)))
    >>> pyramid = Pyramid(site, head=0)
    >>> pyramid.levels, pyramid.grid(0), pyramid.tile(0, 2, 0).shape
    (3, (3, 3), (188, 256))
    """

    def __init__(
        self,
        site: Sited,
        head: int,
        batch: int = 0,
        *,
        tile: int = SIDE,
        pool: str = "max",
        budget: int = 64 << 20,
        engine: str = "auto",
    ) -> None:
        check_pool(pool)
        if tile < 2 or tile & (tile - 1):
            raise ArgumentError(f"tile={tile}: give a power of two, such as 256")
        if budget < 0:
            raise ArgumentError(f"budget={budget}: give the bytes to keep tiles in, 0 for none")
        self.call = site.call.one_head(head, batch)
        if not self.call.queries or not self.call.keys:
            raise ArgumentError(
                f"{self.call.queries} queries and {self.call.keys} keys: there is no cell to show; "
                f"capture at least one token"
            )
        self.side, self.pool, self.budget, self.engine = tile, pool, budget, engine
        self._site, self._at = site, (batch, head)
        self._kept: OrderedDict[Address, Values] = OrderedDict()
        self._bytes = 0
        self._under_way: dict[Address, threading.Event] = {}
        self._lock = threading.Lock()

    @property
    def levels(self) -> int:
        """How many there are; on the last one the whole matrix is one tile."""
        longest = max(self.call.queries, self.call.keys)
        return 1 + max(0, (-(-longest // self.side) - 1).bit_length())

    def shape(self, level: int) -> tuple[int, int]:
        """The size of a level in bins."""
        return -(-self.call.queries >> level), -(-self.call.keys >> level)

    def grid(self, level: int) -> tuple[int, int]:
        """The size of a level in tiles."""
        height, width = self.shape(level)
        return -(-height // self.side), -(-width // self.side)

    def cells(self, level: int, row: int, column: int) -> tuple[range, range]:
        """The rows and columns of the matrix that a tile covers."""
        self._check(level, row, column)
        step = self.side << level
        return (range(row * step, min((row + 1) * step, self.call.queries)),
                range(column * step, min((column + 1) * step, self.call.keys)))  # fmt: skip

    def tile(
        self, level: int, row: int, column: int, cancel: Callable[[], bool] | Any = None
    ) -> Values:
        """The bins of one tile, float32 and read-only; NaN where no cell is allowed.

        `cancel` is a function, or an event with is_set(), looked at between steps of the work: once
        it says yes, Cancelled is raised.
        """
        self._check(level, row, column)
        stop = _switch(cancel)
        address = Address(level, row, column)
        while True:
            with self._lock:
                if address in self._kept:
                    self._kept.move_to_end(address)
                    return self._kept[address]
                others = self._under_way.get(address)
                if others is None:
                    done = self._under_way[address] = threading.Event()
                    break
            while not others.wait(PATIENCE):
                _look(stop)
        try:
            values = self._from_below(address)
            if values is None:
                values = self._from_cells(address, stop)
            values.flags.writeable = False
            self._keep(address, values)
        finally:
            with self._lock:
                del self._under_way[address]
            done.set()
        return values

    def empty(self, level: int, row: int, column: int, values: Values) -> NDArray[np.bool_]:
        """Which bins of that tile, `values`, have no allowed cell.

        NaN says so where every row is a number; only elsewhere the cells are counted.
        """
        empty = np.isnan(values)
        rows, _ = self.cells(level, row, column)
        logsumexp = self._site.statistics.logsumexp[self._at][rows.start : rows.stop]
        if empty.any() and not (logsumexp < np.inf).all():
            edges = self._edges(Address(level, row, column))
            empty &= self.call.allowed.count_in(*edges, self.call.bias)[0, 0] == 0
        return empty

    @property
    def kept(self) -> int:
        """Bytes of tiles kept now."""
        return self._bytes

    def __contains__(self, address: object) -> bool:
        with self._lock:
            return address in self._kept

    def __repr__(self) -> str:
        size = f"{self.call.queries:,} × {self.call.keys:,}"
        tiles = f"{self.levels} levels of {self.side} × {self.side} tiles"
        return f"Pyramid({size}, {self.pool}, {tiles}, {self.kept / 2**20:.1f} MiB kept)"

    def _edges(self, address: Address) -> tuple[regions.Index, regions.Index]:
        """The edges of a tile's bins in cells."""
        rows, columns = self.cells(address.level, address.row, address.column)
        return tuple(  # type: ignore[return-value]
            np.append(np.arange(span.start, span.stop, 1 << address.level), span.stop)
            for span in (rows, columns)
        )

    def _from_cells(self, address: Address, stop: Callable[[], bool]) -> Values:
        _look(stop)
        row_edges, column_edges = self._edges(address)
        values = np.empty((len(row_edges) - 1, len(column_edges) - 1), np.float32)
        for rows, columns in regions.chunks(row_edges, column_edges, WORK):
            _look(stop)
            values[rows, columns] = pooled(
                self.call, row_edges[rows.start : rows.stop + 1],
                column_edges[columns.start : columns.stop + 1], self.pool,
                logsumexp=self._logsumexp, engine=self.engine,
            )[0, 0]  # fmt: skip
        return values

    @cached_property
    def _logsumexp(self) -> Any:
        """Found once for all tiles where the site's own does not tell weights."""
        logsumexp = self._site.statistics.logsumexp[self._at][None, None]
        return sharp(self.call, logsumexp, 0, self.call.queries)

    def _from_below(self, address: Address) -> Values | None:
        """From the four tiles under it, if all of them are kept."""
        if address.level == 0:
            return None
        under = list(self._children(address))
        with self._lock:
            if any(child not in self._kept for child in under):
                return None
            tiles = [self._kept[child] for child in under]
        row_edges, column_edges = self._edges(address)
        values = np.empty((len(row_edges) - 1, len(column_edges) - 1), np.float32)
        half = self.side // 2
        for child, tile in zip(under, tiles, strict=True):
            top, left = (child.row & 1) * half, (child.column & 1) * half
            pooled_tile = self._halve(child, tile)
            height, width = pooled_tile.shape
            values[top : top + height, left : left + width] = pooled_tile
        return values

    def _children(self, address: Address) -> Iterator[Address]:
        height, width = self.grid(address.level - 1)
        for row in (2 * address.row, 2 * address.row + 1):
            for column in (2 * address.column, 2 * address.column + 1):
                if row < height and column < width:
                    yield Address(address.level - 1, row, column)

    def _halve(self, address: Address, tile: Values) -> Values:
        """One tile at half the size."""
        starts = [np.arange(0, n, 2) for n in tile.shape]

        def both(how: np.ufunc, bins: Any) -> Any:
            return how.reduceat(how.reduceat(bins, starts[1], axis=1), starts[0], axis=0)

        # The counts tell bins without a cell from weights that are not a number, which stay so.
        counts = self.call.allowed.count_in(*self._edges(address), self.call.bias)[0, 0]
        total = both(np.add, counts)
        if self.pool == "max":
            values = both(np.maximum, np.where(counts == 0, -np.inf, tile))
        else:
            sums = both(np.add, np.where(counts == 0, 0.0, tile.astype(np.float64) * counts))
            values = sums / np.maximum(total, 1)
        return np.where(total == 0, np.nan, values).astype(np.float32)

    def _keep(self, address: Address, values: Values) -> None:
        if values.nbytes > self.budget:
            return
        with self._lock:
            self._kept[address] = values
            self._bytes += values.nbytes
            while self._bytes > self.budget:
                self._bytes -= self._kept.popitem(last=False)[1].nbytes

    def _check(self, level: int, row: int, column: int) -> None:
        if not 0 <= level < self.levels:
            raise ArgumentError(
                f"level {level} is outside the pyramid's {self.levels}: 0 shows "
                f"single cells, {self.levels - 1} the whole matrix"
            )
        height, width = self.grid(level)
        if not (0 <= row < height and 0 <= column < width):
            raise ArgumentError(
                f"tile ({row}, {column}) is outside level {level}: it has {height} "
                f"× {width} tiles, numbered from 0"
            )


def _switch(cancel: Any) -> Callable[[], bool]:
    if cancel is None:
        return lambda: False
    is_set = getattr(cancel, "is_set", cancel)
    if not callable(is_set):
        raise ArgumentError(
            f"cancel={cancel!r}: give a function that says whether to stop, or an "
            f"event with is_set()"
        )
    return is_set  # type: ignore[no-any-return]


def _look(stop: Callable[[], bool]) -> None:
    if stop():
        raise Cancelled("the tile was called off before it was done")
