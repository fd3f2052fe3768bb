"""Bundle: a capture as plain data that views draw without a server, within a number of bytes.

    always    the facts of the capture, its tokens, every head's figures and scores for the known
              kinds, and what was found of it
    maps      each head's weights pooled to at most 128 × 128, coarser until they fit
    vectors   queries, keys and values, in the order of what to look at first, as long as there is
              room: with them a view computes any cell, and for short texts the whole map, from the
              digits kept

Arrays travel as base64 of zlib of little-endian numbers, maps in the 16 bits of views/tiles.py.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import jsonable
from limelight.capture import Capture, Site
from limelight.errors import ArgumentError
from limelight.heads import Heads
from limelight.health import Summary
from limelight.live.effects import Effects
from limelight.views.facts import entry_facts, health_of, health_table, kind_tables, site_health
from limelight.views.order import findings
from limelight.views.schema import Finding, SiteHealth
from limelight.views.tiles import HIDDEN, Values, coded, to_16
from limelight.writing.numbers import ranged

FORMAT, VERSION = "limelight.bundle", 2
LARGEST_MAP, SMALLEST_MAP = 128, 16
MOST_TOKENS = 4_096  # of a head whose vectors travel: its mask is one bit a cell
PRECISIONS = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
MAPS_SHARE = 0.5  # of the room, at most; the rest is for vectors
SENTENCES = 1024  # of the heads to look at first
TITLE = 200

Progress = Callable[[int, int], None]


@dataclass
class Bundle:
    """The data, and how many bytes its JSON takes."""

    data: dict[str, Any]
    size: int
    complete: list[tuple[int, int]] = field(default_factory=list)  # heads whose vectors travel

    def to_json(self) -> str:
        return _json(self.data)


def bundle(
    capture: Capture,
    *,
    budget: int,
    precision: str = "float16",
    batch: int = 0,
    title: str | None = None,
    found: Heads | None = None,
    first: Sequence[tuple[int, int]] | None = None,
    effects: Effects | None = None,
    progress: Progress | None = None,
    around: int = 0,
) -> Bundle:
    """`capture` as data of at most `budget` bytes of JSON, with what stands around it.

    precision  of the vectors: "float16" or "float32"
    found      the known kinds of its heads
    first      (layer, head) pairs whose vectors go in before all others
    effects    what each head's absence does: the most first, of heads of no known kind
    around     bytes of the budget that something else takes, such as a page
    """
    if precision not in PRECISIONS:
        raise ArgumentError(f"precision={precision!r}: choose {' or '.join(PRECISIONS)}")
    batch = capture.entry_number(batch)
    say = progress or (lambda done, total: None)
    steps = 2 * len(capture.sites)
    summaries = []
    for done, site in enumerate(capture.sites):
        summaries.append(health_of(site, batch))
        say(done + 1, steps)
    maps = []
    for done, site in enumerate(capture.sites):
        maps.append(_maps(site, min(batch, site.batch - 1)))
        say(len(capture.sites) + done + 1, steps)
    order = findings(capture, summaries, found, batch, effects)
    data = _base(capture, batch, title, precision, summaries, order)
    data |= {"kinds": [asdict(kind) for kind in kind_tables(found)]}
    data |= {"maps": [], "vectors": {"arrays": {}, "heads": {}}}
    room = budget - around - _size(data)
    data["maps"], taken = _fit_maps(maps, int(room * MAPS_SHARE))
    if taken > room:
        least = math.ceil((budget + taken - room) / 1e4) / 100  # so that asking for it works
        raise ArgumentError(
            f"a report of this capture takes at least {least:.2f} MB, with the coarsest maps and "
            f"no vectors, and {budget / 1e6:g} MB were allowed"
        )
    packer = Packer(capture, batch, PRECISIONS[precision], room - taken)
    ranked = dict.fromkeys(
        [*_places(capture, first or ()), *((one.site, one.head) for one in order)]
    )
    complete = [place for place in ranked if packer.add(*place)]
    data["vectors"] = packer.made
    return Bundle(data, _size(data), complete)


def _places(capture: Capture, named: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Heads by layer and number, as their sites and numbers."""
    found = []
    for layer, head in named:
        sites = [at for at, site in enumerate(capture.sites)
                 if site.layer == layer and 0 <= head < site.heads]  # fmt: skip
        if not sites:
            there = sorted({site.layer for site in capture.sites})
            heads = max((site.heads for site in capture.sites), default=0)
            raise ArgumentError(f"there is no head {layer}.{head}: the capture has {heads} heads "
                                f"in the layers {ranged(there)}")  # fmt: skip
        found += [(at, head) for at in sites]
    return found


def pack(array: NDArray[Any]) -> dict[str, Any]:
    """An array as {dtype, shape, data}."""
    plain = np.ascontiguousarray(array)
    data = base64.b64encode(zlib.compress(plain.tobytes(), 6)).decode()
    return {"dtype": plain.dtype.str.lstrip("<|"), "shape": list(plain.shape), "data": data}


class Packer:
    """Vectors of one head after the other, each array once, while there is room."""

    def __init__(self, capture: Capture, batch: int, dtype: Any, room: int) -> None:
        self.capture = capture
        self.batch = batch
        self.dtype = dtype
        self.room = room
        self.made: dict[str, Any] = {"arrays": {}, "heads": {}}

    def add(self, index: int, head: int) -> bool:
        """Whether the head's vectors found room."""
        site = self.capture.sites[index]
        if max(site.queries, site.keys) > MOST_TOKENS or not site.keys:
            return False
        one = site.one(head, min(self.batch, site.batch - 1))
        shared = head // max(1, site.heads // max(1, site.key_heads))
        wanted: dict[str, tuple[str, NDArray[Any]]] = {}
        for part, name in (("query", f"q{index}.{head}"), ("key", f"k{index}.{shared}"),
                           ("value", f"v{index}.{shared}")):  # fmt: skip
            array = getattr(one, part)
            held = None if array is None else _held(array[0, 0], self.dtype)
            if held is not None:
                wanted[part] = (name, held)
            elif array is not None:
                return False
        if one.shown is not None:
            cells = np.packbits(_cells(one).reshape(-1))
            name = f"m{one.queries}x{one.keys}.{zlib.crc32(cells.tobytes()):08x}"
            wanted["mask"] = (name, cells)
        if one.bias is not None:
            bias = np.broadcast_to(one.bias[0, 0], (one.queries, one.keys))
            wanted["bias"] = (f"b{index}.{head}", bias.astype("<f4"))
        fresh = {name: pack(array) for name, array in wanted.values()
                 if name not in self.made["arrays"]}  # fmt: skip
        entry: dict[str, Any] = {part: name for part, (name, _) in wanted.items()}
        entry["sink"] = None if one.sinks is None else jsonable(np.float64(one.sinks[0]))
        cost = _size(fresh) + _size(entry) + 16
        if cost > self.room:
            return False
        self.room -= cost
        self.made["arrays"].update(fresh)
        self.made["heads"][f"{index}.{head}"] = entry
        return True


def _base(
    capture: Capture, batch: int, title: str | None, precision: str, summaries: list[Summary],
    order: list[Finding],
) -> dict[str, Any]:  # fmt: skip
    model = capture.source.get("model")
    named = title or (model if isinstance(model, str) else "") or "Capture"
    named = named if len(named) <= TITLE else f"{named[: TITLE - 1]}…"
    rows = [_short(site_health(n, seen)) for n, seen in enumerate(summaries)]
    told = [one if n < SENTENCES else replace(one, why="") for n, one in enumerate(order)]
    return {
        "format": FORMAT, "version": VERSION, "precision": precision, "batch": batch,
        "title": named, "capture": asdict(entry_facts(capture, named, batch)),
        "health": asdict(health_table(capture, rows)), "findings": [asdict(one) for one in told],
    }  # fmt: skip


def _short(row: SiteHealth) -> SiteHealth:
    """Six digits are more than anybody reads in a table."""
    figures = {name: [None if x is None else float(f"{x:.6g}") for x in heads]
               for name, heads in row.figures.items()}  # fmt: skip
    return replace(row, figures=figures)


def _maps(site: Site, batch: int) -> Values:
    """Every head pooled to at most 128 × 128, coded: [heads, P, Q]."""
    shape = (min(site.queries, LARGEST_MAP), min(site.keys, LARGEST_MAP))
    if not all(shape):
        return np.full((site.heads, 1, 1), HIDDEN, np.float32)
    found = [coded(site.heatmap(shape, "max", head=head, batch=batch))
             for head in range(site.heads)]  # fmt: skip
    return np.stack(found) if found else np.zeros((0, *shape), np.float32)


def _fit_maps(maps: list[Values], room: int) -> tuple[list[dict[str, Any]], int]:
    """The largest maps that fit the room, or the smallest there are."""
    side = LARGEST_MAP
    while True:
        made = [pack(to_16(_halved(table, side))) for table in maps]
        taken = _size(made)
        if taken <= room or side <= SMALLEST_MAP:
            return made, taken
        side //= 2


def _halved(table: Values, side: int) -> Values:
    """Pooled by the maximum until neither side is longer; the edges stay those of heatmap().

    What is hidden is below every weight, and what is not a number stays so.
    """
    for axis in (1, 2):
        while table.shape[axis] > side:
            bins = -(-table.shape[axis] // 2)
            edges = np.arange(bins) * table.shape[axis] // bins
            table = np.maximum.reduceat(table, edges, axis=axis)
    return table


def _held(array: NDArray[Any], dtype: Any) -> NDArray[Any] | None:
    """The array in that precision, or in float32 where its numbers are too large for it."""
    kinds: tuple[Any, ...] = (dtype, PRECISIONS["float32"])
    for kind in kinds:
        with np.errstate(over="ignore"):
            cast = array.astype(kind)
        if (np.isfinite(cast) == np.isfinite(array)).all():
            return cast
    return None


def _cells(one: Site) -> NDArray[np.bool_]:
    shape = (one.queries, one.keys)
    tile = one.call.allowed.tile(np.arange(shape[0]), np.arange(shape[1]))
    return np.ones(shape, np.bool_) if tile is None else tile[0, 0]


def _size(data: Any) -> int:
    return len(_json(data))


def _json(data: Any) -> str:
    return for_page(json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")))


def for_page(data: str) -> str:
    """JSON that cannot end the element of a page that holds it, whatever the texts in it are."""
    return data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
