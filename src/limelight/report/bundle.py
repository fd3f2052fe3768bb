"""Bundle: a capture as plain data that views draw without a server, within a number of bytes.

    always    the facts of the capture, its tokens, every head's figures, the heads to look at first
    maps      each head's weights pooled to at most 128 × 128, coarser until they fit
    vectors   queries, keys and values, worst heads first, as long as there is room: with them a
              view computes any cell, and for short texts the whole map, from the digits kept

Arrays travel as base64 of zlib of little-endian numbers. A pooled weight w is kept as √w in 16
bits, so that small weights keep their digits; 65,535 is "no allowed cell".
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import index, jsonable
from limelight.capture import Capture, Site
from limelight.capture.health import FIGURES
from limelight.errors import ArgumentError
from limelight.health import Summary
from limelight.report.facts import facts, health_of
from limelight.report.judge import Finding, worst_first

FORMAT, VERSION = "limelight.bundle", 1
LARGEST_MAP, SMALLEST_MAP = 128, 16
HIDDEN = 65_535
MOST_TOKENS = 4_096  # of a head whose vectors travel: its mask is one bit a cell
PRECISIONS = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
MAPS_SHARE = 0.5  # of the room, at most; the rest is for vectors
SENTENCES = 64
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
    labels: dict[tuple[int, int], list[str]] | None = None,
    progress: Progress | None = None,
    written: Callable[[str], str] = str,
    around: int = 0,
) -> Bundle:
    """`capture` as data of at most `budget` bytes of JSON, with what stands around it.

    precision  of the vectors: "float16" or "float32"
    labels     known kinds of heads, by (site, head)
    written    how the JSON will be written, where that makes it longer
    around     bytes of the budget that something else takes, such as a page
    """
    if precision not in PRECISIONS:
        raise ArgumentError(f"precision={precision!r}: choose {' or '.join(PRECISIONS)}")
    batch = index(batch, capture.entries, "batch entry")
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
    most = None if _few(summaries) else SENTENCES
    findings = worst_first(capture, tuple(summaries), most, batch)
    data = _base(capture, batch, title, precision, summaries, findings, labels or {})
    data |= {"maps": [], "vectors": {"arrays": {}, "heads": {}}}
    room = budget - around - len(written(_json(data)))
    data["maps"], taken = _fit_maps(maps, int(room * MAPS_SHARE))
    if taken > room:
        least = math.ceil((budget + taken - room) / 1e4) / 100  # so that asking for it works
        raise ArgumentError(
            f"a report of this capture takes at least {least:.2f} MB, with the coarsest maps and "
            f"no vectors, and {budget / 1e6:g} MB were allowed"
        )
    packer = Packer(capture, batch, PRECISIONS[precision], room - taken)
    order = [(f.site, f.head) for f in findings]
    seen = set(order)
    order += [(s, h) for s, site in enumerate(capture.sites) for h in range(site.heads)
              if (s, h) not in seen]  # fmt: skip
    complete = [place for place in order if packer.add(*place)]
    data["vectors"] = packer.made
    return Bundle(data, _size(data), complete)


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
        wanted: dict[str, tuple[str, Callable[[], NDArray[Any]]]] = {
            "query": (f"q{index}.{head}", lambda: one.query[0, 0].astype(self.dtype)),
            "key": (f"k{index}.{shared}", lambda: one.key[0, 0].astype(self.dtype)),
        }
        if one.value is not None:
            value = one.value
            wanted["value"] = (f"v{index}.{shared}", lambda: value[0, 0].astype(self.dtype))
        if one.mask is not None:
            cells = np.packbits(_cells(one).reshape(-1))
            name = f"m{one.queries}x{one.keys}.{zlib.crc32(cells.tobytes()):08x}"
            wanted["mask"] = (name, lambda: cells)
        if one.bias is not None:
            bias = np.broadcast_to(one.bias[0, 0], (one.queries, one.keys))
            wanted["bias"] = (f"b{index}.{head}", lambda: bias.astype("<f4"))
        fresh = {name: pack(make()) for name, make in wanted.values()
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
    findings: list[Finding], labels: dict[tuple[int, int], list[str]],
) -> dict[str, Any]:  # fmt: skip
    held = facts(capture, batch)
    named = title or held["model"] or "Capture"
    return {
        "format": FORMAT, "version": VERSION, "precision": precision, "batch": batch,
        "title": named if len(named) <= TITLE else f"{named[: TITLE - 1]}…",
        "capture": held,
        "health": {
            "layers": [site.layer for site in capture.sites],
            "heads": max((site.heads for site in capture.sites), default=0),
            "figures": {name: [jsonable(_short(getattr(seen, name))) for seen in summaries]
                        for name in FIGURES},
            "verdicts": [seen.verdict.tolist() for seen in summaries],
        },
        "findings": [vars(finding) for finding in findings],
        "kinds": {f"{site}.{head}": names for (site, head), names in labels.items() if names},
    }  # fmt: skip


def _few(summaries: list[Summary]) -> bool:
    return sum(len(seen.rows) for seen in summaries) <= SENTENCES


def _short(figure: NDArray[Any]) -> NDArray[Any]:
    """Six digits are more than anybody reads in a table."""
    return np.array([float(f"{x:.6g}") for x in figure.astype(np.float64)])


def _maps(site: Site, batch: int) -> NDArray[np.float32]:
    """Every head pooled to at most 128 × 128: [heads, P, Q]."""
    shape = (min(site.queries, LARGEST_MAP), min(site.keys, LARGEST_MAP))
    if not all(shape):
        return np.full((site.heads, 1, 1), np.nan, np.float32)
    found = [
        site.heatmap(shape, "max", head=head, batch=batch).values for head in range(site.heads)
    ]
    return np.stack(found) if found else np.zeros((0, *shape), np.float32)


def _fit_maps(maps: list[NDArray[np.float32]], room: int) -> tuple[list[dict[str, Any]], int]:
    """The largest maps that fit the room, or the smallest there are."""
    side = LARGEST_MAP
    while True:
        made = [pack(_coded(_halved(table, side))) for table in maps]
        taken = _size(made)
        if taken <= room or side <= SMALLEST_MAP:
            return made, taken
        side //= 2


def _halved(table: NDArray[np.float32], side: int) -> NDArray[np.float32]:
    """Pooled by the maximum until neither side is longer; the edges stay those of heatmap()."""
    for axis in (1, 2):
        while table.shape[axis] > side:
            bins = -(-table.shape[axis] // 2)
            edges = np.arange(bins) * table.shape[axis] // bins
            table = np.fmax.reduceat(table, edges, axis=axis)
    return table


def _coded(table: NDArray[np.float32]) -> NDArray[np.uint16]:
    known = np.sqrt(np.clip(np.nan_to_num(table), 0.0, 1.0)) * (HIDDEN - 1)
    return np.where(np.isnan(table), HIDDEN, np.rint(known)).astype("<u2")


def _cells(one: Site) -> NDArray[np.bool_]:
    shape = (one.queries, one.keys)
    tile = one.call.allowed.tile(np.arange(shape[0]), np.arange(shape[1]))
    return np.ones(shape, np.bool_) if tile is None else tile[0, 0]


def _size(data: Any) -> int:
    return len(_json(data))


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
