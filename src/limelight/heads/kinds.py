"""Heads of known kinds: what a head does, as the share of its attention that does it.

Each kind names target keys T(i) for a query i. A head's score is the mean, over the rows that have
a target and at least two keys to choose from, of the weight that lies on targets:

    score = mean over rows i of Σ_{j ∈ T(i)} w(i, j)           always in [0, 1]

with p the key that query i stands on (the last query on the last key) and t the tokens:

    previous    T = {p − 1}
    next        T = {p + 1}                                    only where the mask shows the future
    diagonal    T = {p}
    sink        T = {the first key that the row may see}       where it begins a text, before p
    induction   T = {j < p : t(j − 1) = t(p)}                  what came after this token before
    induction-2 T = {j < p : t(j − 2) = t(p)}                  … and the one after that
    duplicate   T = {j < p : t(j) = t(p)}                      this token, where it came before
    separator   T = punctuation, breaks and special tokens     but for p and the first of the text
    word        T = the other tokens of p's word               but for p − 1, p + 1 and the first
    bracket     T = the openers of the brackets that token p closes
    uniform     score = mean of entropy / ln(keys): 1 = even over all keys

`chance` is what a head that spreads its attention evenly would score. A head is named for a kind
when its score reaches the kind's threshold and twice the chance, over at least five rows: a name
from fewer does not hold (bench/kinds.py measures it). Padding is no row, no key and no token.

Only the target cells are computed, one dot product each: O(n) of them, never the n×n matrix; where
repeated tokens make more than 65,536 for a kind (16,384 for some), an even sample of the rows is
judged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import index
from limelight.call import Call
from limelight.capture import Capture, Site
from limelight.capture.capture import as_sites
from limelight.errors import ArgumentError
from limelight.heads.places import (
    FEWER_PAIRS,
    MOST_PAIRS,
    brackets,
    duplicates,
    pieces,
    repeats,
    separators,
)
from limelight.looking.weights import sharp
from limelight.reference import logits
from limelight.writing.frames import Frame, Tabular
from limelight.writing.numbers import counted

Array = NDArray[Any]
Looks = dict[str, tuple[Array, Array]]  # who looks, and at whom, by kind
LEAST_ROWS = 5  # from which a name holds for another part of the text (bench/kinds.py)
MOST_THREADS = 4
TOGETHER = 1 << 10  # single cells gathered at once: their vectors stay in the cache


def is_share(number: Any) -> bool:
    """Whether it is a number from 0 to 1, as scores and weights are."""
    plain = isinstance(number, (int, float, np.integer, np.floating))
    return plain and not isinstance(number, bool) and bool(0 <= number <= 1)


@dataclass(frozen=True)
class Kind:
    """One kind of head: its name, what such a head does, and the score from which it is one.

    A kind of one's own says by `targets` where such a head looks: from the tokens of a text to the
    positions that look and, beside each, a position that is looked at.

    >>> after_dot = Kind("sentence", "looks at the last full stop", 0.3, targets=lambda tokens: (
    ...     [i for i in range(len(tokens)) if "." in tokens[:i]],
    ...     [i - 1 - tokens[:i][::-1].index(".") for i in range(len(tokens)) if "." in tokens[:i]]))
    >>> after_dot.targets(("a", ".", "b", "c"))
    ([2, 3], [1, 1])
    """

    name: str
    meaning: str
    threshold: float
    targets: Callable[[Sequence[str]], tuple[Any, Any]] | None = None

    def __post_init__(self) -> None:
        for name in ("name", "meaning"):
            if not isinstance(getattr(self, name), str):
                raise ArgumentError(f"Kind({name}={getattr(self, name)!r}): its {name} is a text")
        if not is_share(self.threshold):
            raise ArgumentError(
                f"Kind({self.name!r}, threshold={self.threshold!r}): a score is from 0 to 1, and a "
                f"threshold the least at which a head is named"
            )
        if self.targets is not None and not callable(self.targets):
            raise ArgumentError(
                f"Kind({self.name!r}, targets={self.targets!r}): give a function from the tokens "
                f"of a text to the positions that look and those that are looked at"
            )


KINDS = (
    Kind("previous", "looks at the token before", 0.4),
    Kind("next", "looks at the token after", 0.4),
    Kind("diagonal", "looks at its own token", 0.4),
    Kind("sink", "rests on the first token", 0.6),
    Kind("induction", "looks at what followed this token before", 0.3),
    Kind("induction-2", "looks two behind where this token came before", 0.3),
    Kind("duplicate", "looks at where its own token came before", 0.3),
    Kind("separator", "rests on marks, breaks or special tokens", 0.5),
    Kind("word", "looks at further pieces of its own word", 0.4),
    Kind("bracket", "looks from a closing bracket to its opener", 0.3),
    Kind("uniform", "spreads evenly over all keys", 0.9),
)
NAMES = tuple(kind.name for kind in KINDS)
STEPS = {"previous": -1, "next": 1, "diagonal": 0}  # from a query's own place
LOOKS: dict[str, Callable[[Sequence[str]], tuple[Any, Any]]] = {
    "induction": repeats,
    "induction-2": partial(repeats, most=FEWER_PAIRS, ahead=2),
    "duplicate": duplicates,
    "separator": separators,
    "word": pieces,
    "bracket": brackets,
}


@dataclass(frozen=True)
class Score:
    """One head's score for one kind; NaN where no row has a target."""

    score: float
    chance: float
    rows: int  # how many were judged


@dataclass(frozen=True, eq=False)
class Heads(Tabular):
    """The scores of every head: `scores[kind]`, `chance[kind]` and `rows[kind]` are [sites, heads].

    NaN where a kind cannot be judged: no target in the text, no tokens, or a site with fewer heads.
    """

    sites: tuple[str, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    scores: dict[str, Array]
    chance: dict[str, Array]
    rows: dict[str, Array]
    known: tuple[Kind, ...] = KINDS
    errors: dict[str, Array] = field(default_factory=dict)  # standard errors, of a survey's scores

    def is_kind(self, kind: str) -> NDArray[np.bool_]:
        """Which heads are of that kind, [sites, heads]."""
        row = self._kind(kind)
        with np.errstate(invalid="ignore"):
            strong = self.scores[kind] >= row.threshold
            beyond = self.scores[kind] >= 2 * self.chance[kind]
            enough = self.rows[kind] >= LEAST_ROWS
        return strong & enough & (beyond | (kind == "uniform"))

    def judged(self, kind: str) -> int:
        """How many rows a kind was judged by, at the head that has the most."""
        self._kind(kind)
        return int(np.nan_to_num(self.rows[kind]).max(initial=0))

    def kinds(self, site: int, head: int) -> tuple[str, ...]:
        """The kinds of one head, the best score first."""
        named = [row.name for row in self.known if self.is_kind(row.name)[site, head]]
        return tuple(sorted(named, key=lambda kind: -float(self.scores[kind][site, head])))

    def best(self, kind: str, most: int = 5) -> list[tuple[int, int, float]]:
        """The heads with the best scores of a kind: (index of the site, head, score)."""
        self._kind(kind)
        scores = self.scores[kind]
        order = np.argsort(np.where(np.isnan(scores), np.inf, -scores), axis=None, kind="stable")
        found = [(int(n) // scores.shape[1], int(n) % scores.shape[1]) for n in order[:most]]
        return [(s, h, float(scores[s, h])) for s, h in found if not np.isnan(scores[s, h])]

    def _kind(self, name: str) -> Kind:
        for kind in self.known:
            if kind.name == name:
                return kind
        names = ", ".join(kind.name for kind in self.known)
        raise ArgumentError(f"there is no kind {name!r}: choose {names}")

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: the kinds, and every head with its scores."""
        return {
            "kinds": [{"kind": kind.name, "meaning": kind.meaning, "threshold": kind.threshold,
                       "rows": self.judged(kind.name)} for kind in self.known],
            "heads": [
                {"site": self.sites[s], "layer": self.layers[s], "head": h,
                 "kinds": list(self.kinds(s, h)),
                 "scores": {row.name: self._record(row.name, s, h) for row in self.known}}
                for s in range(len(self.sites)) for h in range(self.heads[s])
            ],
        }  # fmt: skip

    def frame(self) -> Frame:
        """Each kind's score, chance and rows, and a survey's errors, by site and head."""
        parts = {"": self.scores, " chance": self.chance, " rows": self.rows}
        parts |= {" error": self.errors} if self.errors else {}
        values = {f"{kind.name}{part}": tables[kind.name]
                  for kind in self.known for part, tables in parts.items()}  # fmt: skip
        columns = max(self.heads, default=0)
        there = np.arange(columns) < np.array(self.heads, np.intp)[:, None]
        axes = {"site": self.sites, "head": range(columns)}
        return Frame(axes, values, {"layer": ("site", self.layers)}, there)

    def _record(self, kind: str, site: int, head: int) -> dict[str, Any] | None:
        score = float(self.scores[kind][site, head])
        if np.isnan(score):
            return None
        chance = float(self.chance[kind][site, head])
        found = {"score": score, "chance": chance, "rows": int(self.rows[kind][site, head])}
        error = self.error(kind, site, head)
        return found if error is None else {**found, "error": error}

    def error(self, kind: str, site: int, head: int) -> float | None:
        """The standard error of a score; None where there is none, as of one text."""
        error = float(self.errors[kind][site, head]) if kind in self.errors else np.nan
        return None if np.isnan(error) else error

    def lines(self, most: int = 5) -> list[tuple[str, str, list[str]]]:
        """For each kind: its name, meaning, and its best heads as text, as "L3H1 0.83"."""
        return [
            (kind.name, kind.meaning, [
                f"L{self.layers[s]}H{h} {score:.2f}{self._plus(kind.name, s, h)}"
                f"{'' if self.is_kind(kind.name)[s, h] else '?'}"
                for s, h, score in self.best(kind.name, most)
            ])
            for kind in self.known
        ]  # fmt: skip

    def _plus(self, kind: str, site: int, head: int) -> str:
        error = self.error(kind, site, head)
        return "" if error is None else f"±{error:.2f}"

    def __repr__(self) -> str:
        size = f"{counted(sum(self.heads), 'head')} in {counted(len(self.sites), 'layer')}"
        title = f"Kinds of {size} (L3H1: layer 3, head 1; ? = weak, or from too few rows)"
        body = [
            f"  {name:<10} {counted(self.judged(name), 'row'):>10}  {', '.join(best) or '–'}"
            for name, _, best in self.lines()
        ]
        return "\n".join([title, *body])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(meaning)}</td>"
            f"<td style='text-align:right'>{self.judged(name):,}</td>"
            f"<td>{escape(', '.join(best) or '–')}</td></tr>"
            for name, meaning, best in self.lines()
        )
        return ("<table><thead><tr><th>kind</th><th>such a head</th><th>rows</th>"
                "<th>the strongest</th></tr>"
                f"</thead><tbody>{rows}</tbody></table>")  # fmt: skip


def find(
    capture: Capture | Iterable[Site],
    *,
    batch: int = 0,
    kinds: Iterable[str | Kind] = KINDS,
    progress: Callable[[int, int], None] | None = None,
) -> Heads:
    """The scores of every head of a capture (or of some sites), of one entry of its batch.

    `kinds` are those that come along, by name, and any of one's own. `progress(done, all)` is told
    of every site that is done.
    """
    sites, known = as_sites(capture), known_kinds(kinds)
    if not sites:
        raise ArgumentError("the capture is empty: capture a run that has attention in it")
    width = max(site.heads for site in sites)
    tables = {kind.name: np.full((3, len(sites), width), np.nan) for kind in known}
    read: dict[tuple[str, ...], Looks] = {}
    for s, site in enumerate(sites):
        for head, found in enumerate(_scores(site, batch, known, read)):
            for name, one in found.items():
                tables[name][:, s, head] = one.score, one.chance, one.rows
        if progress is not None:
            progress(s + 1, len(sites))
    names, layers = tuple(site.name for site in sites), tuple(site.layer for site in sites)
    parts = [{name: table[part] for name, table in tables.items()} for part in range(3)]
    heads = tuple(site.heads for site in sites)
    return Heads(names, layers, heads, parts[0], parts[1], parts[2], known)


def known_kinds(kinds: Iterable[str | Kind]) -> tuple[Kind, ...]:
    """Kinds as they are, or by the names of those that come along; each name once."""
    own = {kind.name: kind for kind in KINDS}
    found: dict[str, Kind] = {}
    for given in kinds if isinstance(kinds, Iterable) and not isinstance(kinds, str) else (kinds,):
        kind = own.get(given) if isinstance(given, str) else given
        if not isinstance(kind, Kind):
            raise ArgumentError(f"there is no kind {given!r}: choose {', '.join(own)}, or give a "
                                f"Kind of your own")  # fmt: skip
        if kind.name in found or (kind.targets is None and kind.name not in own):
            why = ("twice: give each once" if kind.name in found else
                   "without targets=…, the function that says where such a head looks")  # fmt: skip
            raise ArgumentError(f"the kind {kind.name!r} is given {why}")
        found[kind.name] = kind
    if not found:
        raise ArgumentError("no kind is named: give some, or leave kinds out for all")
    return tuple(found.values())


def scores(
    site: Site, *, batch: int = 0, kinds: Iterable[str | Kind] = KINDS
) -> list[dict[str, Score]]:
    """Every head's scores at one site, kind by kind."""
    return _scores(site, batch, known_kinds(kinds), {})


@dataclass(frozen=True)
class _Cells:
    """The cells that a head is judged by, one kind's after another's; none that its mask hides."""

    ends: dict[str, int]  # where each kind's cells end
    rows: Array
    columns: Array

    @classmethod
    def of(cls, call: Call, keys: Array, targets: Looks) -> _Cells:
        """Of one head: all targets that it may see, in rows with at least two keys."""
        sizes = np.cumsum([len(rows) for rows, _ in targets.values()], dtype=np.int64)
        none = np.zeros(0, np.int64)  # so that there is something to join where no kind has a place
        rows, columns = (np.concatenate([none, *(at[part] for at in targets.values())])
                         for part in range(2))  # fmt: skip
        kept = (keys[rows] >= 2) & _visible(call, rows, columns)
        ends = np.concatenate([[0], np.cumsum(kept)])[sizes]
        return cls(dict(zip(targets, map(int, ends), strict=True)), rows[kept], columns[kept])


def _scores(
    site: Site, batch: int, kinds: tuple[Kind, ...], known: dict[tuple[str, ...], Looks]
) -> list[dict[str, Score]]:
    """`known` remembers where the kinds look in a text, for the next site with the same tokens."""
    batch = index(batch, site.batch, "batch entry", f" at {site.name}")
    asked = {kind.name: kind for kind in kinds}
    targets = _targets(site, batch, asked, known)
    health, logsumexp = site.health(), site.statistics.logsumexp
    spread, calls = health.spread, [site.call.one_head(head, batch) for head in range(site.heads)]
    differ, cross = _differs(site.call), site.kind == "cross"

    def cells(head: int) -> _Cells:
        sinks = _is_own("sink", asked)
        own = {"sink": _sinks(calls[head], cross=cross)} if sinks else {}
        return _Cells.of(calls[head], np.asarray(health.keys[batch, head]), targets | own)

    shared = cells(0) if calls and not differ else None

    def judge(head: int) -> dict[str, Score]:
        keys, at = np.asarray(health.keys[batch, head]), shared or cells(head)
        weights, allowed = _weights(calls[head], logsumexp[batch, head], at.rows, at.columns, None)
        own, start = {}, 0
        for name, end in at.ends.items():
            here = slice(start, end)
            shown = slice(None) if allowed is None else allowed[here]
            own[name] = _score(keys, at.rows[here][shown], weights[here][shown])
            start = end
        if _is_own("uniform", asked):
            judged = keys >= 2
            even = float(spread[batch, head][judged].mean()) if judged.any() else np.nan
            own["uniform"] = Score(even, 1.0, int(judged.sum()))
        return own

    # NumPy gathers and multiplies outside of Python's lock.
    with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(judge, range(site.heads)))


def _score(keys: Array, rows: Array, weights: Array) -> Score:
    """The mean weight that judged rows put on their targets, and an even head's."""
    counts = np.bincount(rows, minlength=len(keys))
    judged = np.flatnonzero(counts)
    if not judged.size:
        return Score(np.nan, np.nan, 0)
    mass = np.bincount(rows, weights, minlength=len(keys))[judged]
    even = counts[judged] / keys[judged]
    return Score(min(1.0, float(mass.mean())), float(even.mean()), len(judged))


def pairs(call: Call, logsumexp: Array, rows: Array, columns: Array) -> tuple[Array, Array]:
    """The weights of single cells (rows[n], columns[n]) of one head, and which are allowed.

    In float64, a dot product each; 0 where not allowed. logsumexp is [Nq].
    """
    weights, allowed = _weights(call, logsumexp, rows, columns, _visible(call, rows, columns))
    assert allowed is not None  # as given, less what the bias hides
    return weights, allowed


def _weights(
    call: Call, logsumexp: Array, rows: Array, columns: Array, allowed: Array | None
) -> tuple[Array, Array | None]:
    """Those of `pairs`, where it is known which cells the mask allows (None: all of them)."""
    # Once, and not for every cell that a vector takes part in.
    query, key = (np.asarray(side[0, 0], np.float64) for side in (call.query, call.key))
    left, right = (np.empty((min(TOGETHER, len(rows)), query.shape[-1])) for _ in range(2))
    shift = sharp(call, logsumexp[None, None], 0, call.queries)[0, 0]
    shift = np.array(np.where(np.isneginf(shift), 0.0, shift), np.float64, ndmin=2)
    scores = np.empty(len(rows))
    for start in range(0, len(rows), TOGETHER):
        at = slice(start, start + TOGETHER)
        count = len(rows[at])
        # Places are known to be there; "clip" spares a copy that "raise" makes.
        np.take(query, rows[at], axis=0, out=left[:count], mode="clip")
        np.take(key, columns[at], axis=0, out=right[:count], mode="clip")
        np.einsum("nd,nd->n", left[:count], right[:count], out=scores[at])
    bias = None if call.bias is None else _at(call.bias[0, 0], rows, columns)
    with np.errstate(all="ignore"):
        cells = logits(call, scores, bias, allowed)
        below = cells.logits - shift[0, rows]
        for part in shift[1:]:
            below -= part[rows]
        power = np.minimum(np.exp(below), 1.0)
    return power if cells.allowed is None else np.where(cells.allowed, power, 0.0), cells.allowed


def _visible(call: Call, rows: Array, columns: Array) -> Array:
    """Which cells of one head the mask allows; what a bias hides is not known here."""
    allowed = np.ones(len(rows), np.bool_)
    if call.allowed.band is not None or call.allowed.spans is not None:
        spans = call.allowed.rows[0, 0, rows]  # [n, R, 2]
        inside = (spans[..., 0] <= columns[:, None]) & (columns[:, None] < spans[..., 1])
        allowed &= inside.any(axis=-1)
    if call.allowed.dense is not None:
        allowed &= _at(call.allowed.dense[0, 0], rows, columns)
    return allowed


def _at(array: Array, rows: Array, columns: Array) -> Array:
    """Single cells of an array [Nq|1, Nk|1]."""
    height, width = array.shape
    return np.asarray(array[rows if height != 1 else 0, columns if width != 1 else 0])


def _is_own(name: str, asked: dict[str, Kind]) -> bool:
    """Whether a kind that comes along is asked for, and not one that only shares its name."""
    return name in asked and asked[name].targets is None


def _targets(
    site: Site, batch: int, asked: dict[str, Kind], known: dict[tuple[str, ...], Looks]
) -> Looks:
    """The cells of each kind as row and column numbers, not yet masked; those of sinks apart."""
    queries, keys = site.queries, site.keys
    if site.kind == "cross":  # its queries stand on no key
        return {}
    row = np.arange(queries)
    place = row + keys - queries
    targets = {
        name: _inside(row, place + step, keys)
        for name, step in STEPS.items()
        if _is_own(name, asked)
    }
    if not site.tokens:
        return targets
    real = np.arange(keys)
    if site.real_keys is not None:
        real = np.flatnonzero(site.real_keys[batch])
    text = tuple(site.tokens[batch][at] for at in real)
    if text not in known:
        known[text] = looks(text, asked.values())
    for name, cells in known[text].items():
        at, column = real[cells[0]] - (keys - queries), real[cells[1]]
        targets[name] = at[at >= 0], column[at >= 0]
    return targets


def looks(tokens: Sequence[str], kinds: Iterable[Kind]) -> Looks:
    """Where the kinds that go by tokens look in a text: who looks, and at whom."""
    asked = ((kind, kind.targets or LOOKS.get(kind.name)) for kind in kinds)
    return {kind.name: _cells(kind, look(tokens), len(tokens))
            for kind, look in asked if look is not None}  # fmt: skip


def targets(site: Site, batch: int, kind: str) -> tuple[Array, Array] | None:
    """The cells that make a head one of that kind, as rows and columns; None where it has none."""
    asked = {one.name: one for one in KINDS if one.name == kind}
    if _is_own("sink", asked):
        return _sinks(site.call.one_head(0, batch), cross=site.kind == "cross")
    return _targets(site, batch, asked, {}).get(kind)


def _cells(kind: Kind, given: Any, length: int) -> tuple[Array, Array]:
    """What a kind's function said, as two arrays of positions in the text."""
    try:
        rows, columns = (_positions(part) for part in given)
    except (OverflowError, TypeError, ValueError):
        raise ArgumentError(f"the targets of the kind {kind.name!r} are not two lists of positions "
                            f"in whole numbers: who looks, and at whom") from None  # fmt: skip
    outside = any(((part < 0) | (part >= length)).any() for part in (rows, columns))
    if len(rows) != len(columns) or outside:
        raise ArgumentError(f"the targets of the kind {kind.name!r} name "
                            f"{counted(len(rows), 'query')} and {counted(len(columns), 'key')}: "
                            f"they are pairs of positions from 0 to {length - 1}")  # fmt: skip
    return rows, columns


def _positions(part: Any) -> Array:
    array = np.asarray(part).reshape(-1)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError
    return array.astype(np.int64)


def _sinks(call: Call, cross: bool) -> tuple[Array, Array]:
    """Each row of one head, and the first key that it may see, where that begins a text.

    A key begins one if its own row sees nothing before it: not the edge of a window. Of keys from
    before the first query only the first of all can be known to.
    """
    first, row = _first(call), np.arange(call.queries)
    seen = first < call.keys
    if not cross:
        place = row + call.keys - call.queries
        own = first - (call.keys - call.queries)  # the row of that key
        begins = first[np.clip(own, 0, call.queries - 1)] == first
        begins = np.where(own >= 0, begins, first == first.min(initial=call.keys))
        seen &= begins & (first < place)
    return row[seen], first[seen]


def _first(call: Call) -> Array:
    """The first key that each row of one head may see; as many as there are keys where none."""
    if call.allowed.dense is None and call.bias is None:
        first = call.allowed.rows[0, 0, :, :, 0].min(axis=1)  # of [Nq, R, 2]; (Nk, Nk) is unused
        return np.asarray(first, np.int64)
    found, step = np.full(call.queries, call.keys), max(1, MOST_PAIRS // max(1, call.keys))
    columns = np.arange(call.keys)
    for start in range(0, call.queries if call.keys else 0, step):
        rows = np.arange(start, min(start + step, call.queries))
        tile = call.allowed.tile(rows, columns)
        cells = np.ones((len(rows), call.keys), np.bool_) if tile is None else tile[0, 0]
        if call.bias is not None:
            bias = call.bias[0, 0]
            cells = cells & ~np.isneginf(bias[rows] if bias.shape[0] > 1 else bias)
        found[rows] = np.where(cells.any(axis=1), cells.argmax(axis=1), call.keys)
    return found


def _differs(call: Call) -> bool:
    """Whether heads may see different keys."""
    parts = (call.allowed.spans, call.allowed.dense, call.bias)
    return any(part is not None and part.shape[1] > 1 for part in parts)


def _inside(rows: Array, columns: Array, keys: int) -> tuple[Array, Array]:
    there = (columns >= 0) & (columns < keys)
    return rows[there], columns[there]
