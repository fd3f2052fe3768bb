"""compare(): two captures beside one another, their tokens aligned.

Two prompts, two checkpoints of a model, or two models of one shape. A row of a head is a
distribution over keys, and how much it changed is the distance between the two:

    change(i) = ½ · Σ_j |second(i, j) − first(i, j)|          from 0, the same, to 1, elsewhere

over the keys that both texts have; what goes to keys that only one of them has counts in full, and
a sink is one outcome more. A head's change is the mean over the rows that both have and in which
there is a choice. Beyond 1,024 rows an even sample of them is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import a_type, index, is_integer, jsonable
from limelight.capture.alignment import Alignment, align
from limelight.capture.capture import Capture
from limelight.capture.health import HealthTables
from limelight.capture.site import Site
from limelight.errors import ArgumentError
from limelight.looking.regions import edges
from limelight.offers import offered
from limelight.writing.frames import Frame, Tabular
from limelight.writing.numbers import counted, ranged
from limelight.writing.tables import lit

Array = NDArray[Any]
MOST_ROWS = 1_024
CELLS = 1 << 22  # of all heads, held at once


@dataclass(frozen=True)
class Change:
    """One head, how much it changed, and the row that changed most: its place in either text."""

    site: int  # its place in the comparison
    layer: int
    head: int
    change: float
    largest: float
    rows: tuple[int, int]
    tokens: tuple[str, str]

    def __str__(self) -> str:
        one, other = (token.strip() or token for token in self.tokens)
        said = f"{one!r}" if one == other else f"{one!r} / {other!r}"
        return (f"L{self.layer}H{self.head}  {self.change:.2f}  most at {said} "
                f"({self.rows[0]}): {self.largest:.2f}")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pair:
    """One site in both captures, each of one batch entry, and which positions are one another's."""

    first: Site
    second: Site
    queries: Alignment
    keys: Alignment

    def named(self, side: str) -> tuple[str, ...]:
        """Every pair of positions, as "cat" or "cat → dog"; side is "query" or "key"."""
        aligned = self.queries if side == "query" else self.keys
        one, other = self.first.labels(side), self.second.labels(side)
        pairs = zip(aligned.first, aligned.second, aligned.same, strict=True)
        return tuple(one[i] if same else f"{one[i]} → {other[j].strip()}" for i, j, same in pairs)


@dataclass(frozen=True, eq=False)
class Difference:
    """Second less first, on the positions that both have: values [rows, columns] from −1 to 1.

    Pooled, a bin is the difference in it that is furthest from 0. `empty` marks what neither may
    look at; there the value is NaN. `tokens` and `query_tokens` name every pair, as "cat" or
    "cat → dog"; `rows` and `columns` are the pairs shown.
    """

    values: Array
    empty: NDArray[np.bool_]
    tokens: tuple[str, ...]
    query_tokens: tuple[str, ...]
    rows: tuple[int, int]
    columns: tuple[int, int]

    def svg(self, **how: Any) -> str:
        """As an SVG picture, cool where the second looks less, warm where it looks more."""
        shown = np.ma.masked_array(self.values, self.empty)
        spans = {"tokens": self.tokens[slice(*self.columns)],
                 "query_tokens": self.query_tokens[slice(*self.rows)]}  # fmt: skip
        names = {side: [name.replace(" → ", "→") for name in some] for side, some in spans.items()}
        whole = self.values.shape == (len(names["query_tokens"]), len(names["tokens"]))
        drawn: str = offered("pictures").heatmap(shown, **(names if whole else {}), **how).svg()
        return drawn


@dataclass(frozen=True, eq=False)
class Comparison(Tabular):
    """Two captures beside one another.

    first, second   the captures
    pairs           the sites that both have, with their alignment
    change          [sites, heads]: the mean change of a head's rows; NaN where there is none
    largest         [sites, heads]: that of the row that changed most; `row` is its pair
    compared        [sites]: how many rows that was judged by
    """

    first: Capture
    second: Capture
    pairs: tuple[Pair, ...]
    change: Array
    largest: Array
    row: NDArray[np.int64]
    compared: NDArray[np.int64]

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(pair.first.layer for pair in self.pairs)

    def strongest(self, most: int | None = None) -> list[Change]:
        """The heads by how much they changed, most first."""
        known = np.where(np.isnan(self.change), -1.0, self.change)
        order = np.argsort(-known, axis=None, kind="stable")[: int((known >= 0).sum())]
        places = [divmod(int(n), known.shape[1]) for n in order[:most]]
        return [self._change(site, head) for site, head in places]

    def _change(self, site: int, head: int) -> Change:
        pair, at = self.pairs[site], int(self.row[site, head])
        rows = int(pair.queries.first[at]), int(pair.queries.second[at])
        tokens = pair.first.labels("query")[rows[0]], pair.second.labels("query")[rows[1]]
        return Change(site, pair.first.layer, head, float(self.change[site, head]),
                      float(self.largest[site, head]), rows, tokens)  # fmt: skip

    def frame(self) -> Frame:
        """How much each head changed, by site and head."""
        names = [pair.first.name for pair in self.pairs]
        return Frame(
            {"site": names, "head": range(self.change.shape[1])},
            {"change": self.change, "largest": self.largest},
            {"layer": ("site", self.layers)},
            ~np.isnan(self.change),
        )

    def health(self, figure: str) -> Array:
        """A figure of health, second less first: [sites, heads]."""
        one, other = (HealthTables.of([getattr(pair, side) for pair in self.pairs])[figure]
                      for side in ("first", "second"))  # fmt: skip
        with np.errstate(invalid="ignore"):
            return np.asarray(other - one)

    def site(self, which: int | str) -> int:
        """The place of a site, by its layer's number or its name in the first capture."""
        if isinstance(which, str) or is_integer(which):
            wanted = self.first[which].name
            for at, pair in enumerate(self.pairs):
                if pair.first.name == wanted:
                    return at
        raise ArgumentError(f"the comparison has no site {which!r}: it has the layers "
                            f"{ranged(self.layers)}")  # fmt: skip

    def difference(
        self, site: int, head: int, *, shape: tuple[int, int] | None = None, rows: Any = None,
        columns: Any = None, progress: Callable[[int, int], None] | None = None,
    ) -> Difference:  # fmt: skip
        """What one head looks at more and less in the second: second less first.

        site           its place in the comparison, as strongest() names it and site() finds it
        shape          pooled to at most so many bins; None for every pair
        rows, columns  (start, stop) of the pairs; None for all
        progress       told of every step, as progress(rows done, all)
        """
        pair = self.pairs[index(site, len(self.pairs), "site of the comparison")]
        one, other = (getattr(pair, side).one(head) for side in ("first", "second"))
        spans = _span(rows, len(pair.queries), "rows"), _span(columns, len(pair.keys), "columns")
        height, width = (stop - start for start, stop in spans)
        bins = (height, width) if shape is None else (min(shape[0], height), min(shape[1], width))
        if shape is None and height * width > 1 << 26:
            raise ArgumentError(f"{height:,} × {width:,} differences are a picture that nobody can "
                                f"see: pool them with shape=(512, 512)")  # fmt: skip
        values, empty = np.full(bins, np.nan, np.float32), np.ones(bins, np.bool_)
        if height and width:
            down, across = (edges(*span, n) for span, n in zip(spans, bins, strict=True))
            step = max(1, CELLS // width)
            fine = np.union1d(down, np.arange(*spans[0], step))  # a tall bin is pooled in parts
            parts = []
            for start in range(*spans[0], step):
                stop = min(start + step, spans[0][1])
                cells, hidden = _less(one, other, pair, slice(start, stop), slice(*spans[1]))
                inside = fine[(start <= fine) & (fine < stop)] - start
                parts.append(_furthest(cells, hidden, inside, across[:-1] - across[0]))
                if progress is not None:
                    progress(stop - spans[0][0], height)
            found, unseen = (np.concatenate(part) for part in zip(*parts, strict=True))
            whole = np.searchsorted(fine, down[:-1]), np.arange(bins[1])
            values[:], empty[:] = _furthest(found, unseen, *whole)
        return Difference(values, empty, pair.named("key"), pair.named("query"), *spans)

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: the heads by how much they changed, with their most changed rows."""
        return {
            "first": str(self.first.source.get("model", "")),
            "second": str(self.second.source.get("model", "")),
            "sites": [
                {"site": pair.first.name, "layer": pair.first.layer,
                 "rows": int(self.compared[at]), "queries": len(pair.queries),
                 "keys": len(pair.keys), "change": jsonable(self.change[at, : pair.first.heads])}
                for at, pair in enumerate(self.pairs)
            ],
            "heads": [
                {"layer": one.layer, "head": one.head, "change": one.change,
                 "largest": one.largest, "rows": list(one.rows), "tokens": list(one.tokens)}
                for one in self.strongest()
            ],
        }  # fmt: skip

    @property
    def title(self) -> str:
        """What was compared, in a line."""
        heads = sum(pair.first.heads for pair in self.pairs)
        pairs = max((len(pair.queries) for pair in self.pairs), default=0)
        layers = counted(len(self.pairs), "layer")
        return f"{counted(heads, 'head')} in {layers}, {counted(pairs, 'token')} in common"

    def __repr__(self) -> str:
        told = [f"  {one}" for one in self.strongest(8) if one.change > 0]
        said = told or ["  no head changed"]
        return "\n".join([f"Comparison of {self.title}: mean change of a row, 0 to 1", *said])

    def _repr_html_(self) -> str:
        heads = range(self.change.shape[1])
        names = HealthTables.of([pair.first for pair in self.pairs]).names()
        top = float(np.nanmax(self.change, initial=0.0)) or 1.0
        body = "".join(
            f"<tr><th style='text-align:left'>{name}</th>"
            + "".join(lit("–" if np.isnan(x) else f"{x:.2f}", float(np.nan_to_num(x)) / top)
                      for x in row) + "</tr>"
            for name, row in zip(names, self.change, strict=True)
        )  # fmt: skip
        heading = "".join(f"<th>{head}</th>" for head in heads)
        return (f"<table><caption>mean change of a row, 0 to 1</caption><thead><tr><th></th>"
                f"{heading}</tr></thead><tbody>{body}</tbody></table>")  # fmt: skip


def compare(
    first: Capture,
    second: Capture,
    *,
    batch: int | tuple[int, int] = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Two captures beside one another: what changed, head by head, their tokens aligned.

    batch      the entry of the batch that is compared; a pair for another in each
    progress   told of every site that is done, as progress(done, all)

    >>> import limelight as ll
    >>> cat = ll.captures()["llama"]
    >>> float(ll.compare(cat, cat).change.max())
    0.0
    """
    for capture in (first, second):
        if not isinstance(capture, Capture):
            raise ArgumentError(f"compare() takes two captures, and got {a_type(capture)}")
    entries = (batch, batch) if is_integer(batch) else tuple(batch)  # type: ignore[arg-type]
    one, other = (index(entry, capture.entries, "batch entry")
                  for entry, capture in zip(entries, (first, second), strict=True))  # fmt: skip
    known: dict[Any, Alignment] = {}
    pairs = tuple(
        _pair(a.entry(min(one, a.batch - 1)), b.entry(min(other, b.batch - 1)), known)
        for a, b in _matched(first, second)
    )
    if not any(len(pair.queries) and len(pair.keys) for pair in pairs):
        shown = " and ".join(", ".join(t.strip() for t in site.labels("query")[:6])
                             for site in (pairs[0].first, pairs[0].second))  # fmt: skip
        raise ArgumentError(f"the two texts have no token in common, and nothing to compare: they "
                            f"begin with {shown}. Take texts that share words")  # fmt: skip
    width = max(pair.first.heads for pair in pairs)
    change, largest = (np.full((len(pairs), width), np.nan) for _ in range(2))
    row, compared = np.zeros((len(pairs), width), np.int64), np.zeros(len(pairs), np.int64)
    for at, pair in enumerate(pairs):
        distance, rows = _distances(pair)
        compared[at] = int((~np.isnan(distance)).any(axis=0).sum())
        if compared[at]:
            heads, judged = len(distance), ~np.isnan(distance)
            filled = np.where(judged, distance, -1.0)
            best = filled.argmax(axis=1)
            there = judged.any(axis=1)
            mean = np.where(judged, distance, 0.0).sum(axis=1) / np.maximum(judged.sum(axis=1), 1)
            change[at, :heads] = np.where(there, mean, np.nan)
            largest[at, :heads] = np.where(there, filled[np.arange(heads), best], np.nan)
            row[at, :heads] = rows[best]
        if progress is not None:
            progress(at + 1, len(pairs))
    return Comparison(first, second, pairs, change, largest, row, compared)


def _matched(first: Capture, second: Capture) -> list[tuple[Site, Site]]:
    """The sites that both have: by name, else the layers in their order."""
    named = {site.name: site for site in second}
    found = [(site, named[site.name]) for site in first if site.name in named]
    if not found and len(first) == len(second):
        found = list(zip(first, second, strict=True))
    if not found:
        raise ArgumentError(
            f"the captures have no site in common: {len(first)} and {len(second)} of them, such as "
            f"{', '.join(c.sites[0].name if c.sites else 'none' for c in (first, second))}. Two "
            f"models of one shape can be compared, or runs of one model"
        )
    for a, b in found:
        if a.heads != b.heads or a.kind != b.kind:
            raise ArgumentError(
                f"{a.name} has {counted(a.heads, 'head')} of {a.kind}-attention, and {b.name} has "
                f"{b.heads} of {b.kind}-attention: heads are compared one by one, so both models "
                f"must have the same shape"
            )
    return found


def _pair(first: Site, second: Site, known: dict[Any, Alignment]) -> Pair:
    """Two sites of one entry each; sites that share their texts share the alignment."""

    def aligned(side: str) -> Alignment:
        texts = tuple(_real(site, side) for site in (first, second))
        if texts not in known:
            one, other = texts
            found = align([token for _, token in one], [token for _, token in other])
            places = [np.array([at for at, _ in text], np.int64) for text in texts]
            known[texts] = Alignment(places[0][found.first], places[1][found.second], found.same)
        return known[texts]

    return Pair(first, second, aligned("query"), aligned("key"))


def _real(site: Site, side: str) -> tuple[tuple[int, str], ...]:
    """The tokens of one side that are no padding, with their places."""
    flags = site.real_queries if side == "query" else site.real_keys
    labels = site.labels(side)
    return tuple((at, token) for at, token in enumerate(labels) if flags is None or flags[0, at])


def _distances(pair: Pair) -> tuple[Array, NDArray[np.int64]]:
    """The change of every head's rows [heads, rows], NaN where there is none; and which pairs."""
    heads, count = pair.first.heads, len(pair.queries)
    rows = np.arange(count)[:: max(1, -(-count // MOST_ROWS))]
    found = np.full((heads, len(rows)), np.nan)
    counts = [np.asarray(site.health().keys[0], np.int64) for site in (pair.first, pair.second)]
    step = max(1, CELLS // max(1, heads * (pair.first.keys + pair.second.keys)))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        at = pair.queries.first[some], pair.queries.second[some]
        weights = [np.asarray(site.weights(place.tolist()), np.float64)
                   for site, place in zip((pair.first, pair.second), at, strict=True)]  # fmt: skip
        shared = weights[0][..., pair.keys.first], weights[1][..., pair.keys.second]
        distance = np.abs(shared[1] - shared[0]).sum(axis=-1)
        for table, place in zip(weights, (pair.keys.first, pair.keys.second), strict=True):
            distance += np.delete(table, place, axis=-1).sum(axis=-1)  # keys that the other lacks
        totals = [table.sum(axis=-1) for table in weights]
        if pair.first.sinks is not None or pair.second.sinks is not None:
            distance += np.abs(totals[1] - totals[0])
        choice = [table[:, place] for table, place in zip(counts, at, strict=True)]
        judged = (np.minimum(*choice) >= 1) & (np.maximum(*choice) >= 2)
        found[:, start : start + step] = np.where(judged, np.minimum(distance / 2, 1.0), np.nan)
    return found, rows


def _less(
    one: Site, other: Site, pair: Pair, at: slice, across: slice
) -> tuple[Array, NDArray[np.bool_]]:
    """Second less first on some pairs, and which cells neither may look at."""
    rows = pair.queries.first[at], pair.queries.second[at]
    keys = pair.keys.first[across], pair.keys.second[across]
    parts, hidden = [], np.ones((len(rows[0]), len(keys[0])), np.bool_)
    for site, row, key in zip((one, other), rows, keys, strict=True):
        parts.append(site.weights(row.tolist(), key.tolist(), head=0))
        tile = site.call.allowed.tile(row, key)
        hidden &= False if tile is None else ~tile[0, 0]
    return np.where(hidden, np.nan, parts[1] - parts[0]), hidden


def _furthest(
    cells: Array, hidden: NDArray[np.bool_], down: Array, across: Array
) -> tuple[Array, Array]:
    """What is furthest from 0 in each bin, NaN staying one, and which bins are hidden."""
    high = _pooled(np.maximum, np.where(hidden, -np.inf, cells), down, across)
    low = _pooled(np.minimum, np.where(hidden, np.inf, cells), down, across)
    far = np.where(np.abs(low) > np.abs(high), low, high)
    return np.where(np.isinf(far), np.nan, far), _pooled(np.logical_and, hidden, down, across)


def _pooled(how: Any, cells: Array, down: Array, across: Array) -> Array:
    return np.asarray(how.reduceat(how.reduceat(cells, down, axis=0), across, axis=1))


def _span(given: Any, length: int, name: str) -> tuple[int, int]:
    if given is None:
        return 0, length
    try:
        start, stop = (int(part) for part in given)
    except (TypeError, ValueError):
        raise ArgumentError(f"{name}={given!r}: give (start, stop), or None for all") from None
    if not 0 <= start < stop <= length:
        raise ArgumentError(f"{name}={given!r}: the pairs go from 0 to {length}")
    return start, stop
