"""Heads of known kinds: what a head does, as the share of its attention that does it.

Each kind names target keys T(i) for a query i. A head's score is the mean, over the rows that have
a target and at least two keys to choose from, of the weight that lies on targets:

    score = mean over rows i of Σ_{j ∈ T(i)} w(i, j)           always in [0, 1]

with p the key that query i stands on (the last query on the last key) and t the tokens:

    previous    T = {p − 1}
    next        T = {p + 1}                                    only where the mask shows the future
    diagonal    T = {p}
    sink        T = {0}, for rows past the first
    induction   T = {j < p : t(j − 1) = t(p)}                  what came after this token before
    bracket     T = the openers of the brackets that token p closes
    uniform     score = mean of entropy / ln(keys): 1 = even over all keys

`chance` is what a head that spreads its attention evenly would score. A head is named for a kind
when its score reaches the kind's threshold and twice the chance. Only the target cells are
computed, one dot product each: O(n) of them, never the n×n matrix; where repeated tokens make more
than a million for induction, an even sample of the rows is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import index
from limelight.call import Call
from limelight.capture import Capture, Site
from limelight.errors import ArgumentError
from limelight.numbers import counted
from limelight.regions import one_head

Array = NDArray[Any]
MOST_PAIRS = 1 << 20
TOGETHER = 1 << 15  # single cells gathered at once
OPENERS = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True)
class Kind:
    """One kind of head: its name, what such a head does, and the score from which it is one."""

    name: str
    meaning: str
    threshold: float


KINDS = (
    Kind("previous", "looks at the token before", 0.4),
    Kind("next", "looks at the token after", 0.4),
    Kind("diagonal", "looks at its own token", 0.4),
    Kind("sink", "rests on the first token", 0.6),
    Kind("induction", "looks at what followed this token before", 0.3),
    Kind("bracket", "looks from a closing bracket to its opener", 0.3),
    Kind("uniform", "spreads evenly over all keys", 0.9),
)
NAMES = tuple(kind.name for kind in KINDS)


@dataclass(frozen=True)
class Score:
    """One head's score for one kind; NaN where no row has a target."""

    score: float
    chance: float
    rows: int  # how many were judged


@dataclass(frozen=True, eq=False)
class Heads:
    """The scores of every head: `scores[kind]`, `chance[kind]` and `rows[kind]` are [sites, heads].

    NaN where a kind cannot be judged: no target in the text, no tokens, or a site with fewer heads.
    """

    sites: tuple[str, ...]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    scores: dict[str, Array]
    chance: dict[str, Array]
    rows: dict[str, Array]

    def is_kind(self, kind: str) -> NDArray[np.bool_]:
        """Which heads are of that kind, [sites, heads]."""
        row = _kind(kind)
        with np.errstate(invalid="ignore"):
            strong = self.scores[kind] >= row.threshold
            beyond = self.scores[kind] >= 2 * self.chance[kind]
        return strong & (beyond | (kind == "uniform"))

    def kinds(self, site: int, head: int) -> tuple[str, ...]:
        """The kinds of one head, the best score first."""
        named = [kind for kind in NAMES if self.is_kind(kind)[site, head]]
        return tuple(sorted(named, key=lambda kind: -float(self.scores[kind][site, head])))

    def best(self, kind: str, most: int = 5) -> list[tuple[int, int, float]]:
        """The heads with the best scores of a kind: (index of the site, head, score)."""
        _kind(kind)
        scores = self.scores[kind]
        order = np.argsort(np.where(np.isnan(scores), np.inf, -scores), axis=None, kind="stable")
        found = [(int(n) // scores.shape[1], int(n) % scores.shape[1]) for n in order[:most]]
        return [(s, h, float(scores[s, h])) for s, h in found if not np.isnan(scores[s, h])]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: the kinds, and every head with its scores."""
        return {
            "kinds": [{"kind": kind.name, "meaning": kind.meaning, "threshold": kind.threshold}
                      for kind in KINDS],
            "heads": [
                {"site": self.sites[s], "layer": self.layers[s], "head": h,
                 "kinds": list(self.kinds(s, h)),
                 "scores": {kind: self._record(kind, s, h) for kind in NAMES}}
                for s in range(len(self.sites)) for h in range(self.heads[s])
            ],
        }  # fmt: skip

    def _record(self, kind: str, site: int, head: int) -> dict[str, Any] | None:
        score = float(self.scores[kind][site, head])
        if np.isnan(score):
            return None
        chance = float(self.chance[kind][site, head])
        return {"score": score, "chance": chance, "rows": int(self.rows[kind][site, head])}

    def lines(self, most: int = 5) -> list[tuple[str, str, list[str]]]:
        """For each kind: its name, meaning, and its best heads as text, as "L3H1 0.83"."""
        return [
            (kind.name, kind.meaning, [
                f"L{self.layers[s]}H{h} {score:.2f}{'' if self.is_kind(kind.name)[s, h] else '?'}"
                for s, h, score in self.best(kind.name, most)
            ])
            for kind in KINDS
        ]  # fmt: skip

    def __repr__(self) -> str:
        size = f"{counted(sum(self.heads), 'head')} in {counted(len(self.sites), 'layer')}"
        title = f"Kinds of {size} (L3H1: layer 3, head 1; ? = weak)"
        body = [f"  {name:<10} {', '.join(best) or '–'}" for name, _, best in self.lines()]
        return "\n".join([title, *body])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(meaning)}</td>"
            f"<td>{escape(', '.join(best) or '–')}</td></tr>"
            for name, meaning, best in self.lines()
        )
        return ("<table><thead><tr><th>kind</th><th>such a head</th><th>the strongest</th></tr>"
                f"</thead><tbody>{rows}</tbody></table>")  # fmt: skip


def find(
    capture: Capture | Iterable[Site],
    *,
    batch: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Heads:
    """The scores of every head of a capture (or of some sites), of one entry of its batch.

    `progress(done, all)` is told of every site that is done.
    """
    sites = tuple(capture)
    if not sites:
        raise ArgumentError("there is no site to look at: the capture is empty")
    width = max(site.heads for site in sites)
    tables = {name: np.full((3, len(sites), width), np.nan) for name in NAMES}
    for s, site in enumerate(sites):
        for head, found in enumerate(scores(site, batch=batch)):
            for name, one in found.items():
                tables[name][:, s, head] = one.score, one.chance, one.rows
        if progress is not None:
            progress(s + 1, len(sites))
    names, layers = tuple(site.name for site in sites), tuple(site.layer for site in sites)
    parts = [{name: table[part] for name, table in tables.items()} for part in range(3)]
    return Heads(names, layers, tuple(site.heads for site in sites), *parts)


def scores(site: Site, *, batch: int = 0) -> list[dict[str, Score]]:
    """Every head's scores at one site, kind by kind."""
    batch = index(batch, site.batch, "batch entry", f" at {site.name}")
    targets = _targets(site, batch)
    health = site.health()
    spread = health.spread
    found = []
    for head in range(site.heads):
        call = one_head(site.call, head, batch)
        keys = np.asarray(health.keys[batch, head])
        logsumexp = site.statistics.logsumexp[batch, head]
        own = {name: _score(call, logsumexp, keys, *cells) for name, cells in targets.items()}
        judged = keys >= 2
        # With a sink the entropy has one outcome more than there are keys.
        even = float(spread[batch, head][judged].clip(max=1.0).mean()) if judged.any() else np.nan
        own["uniform"] = Score(even, 1.0, int(judged.sum()))
        found.append(own)
    return found


def _score(call: Call, logsumexp: Array, keys: Array, rows: Array, columns: Array) -> Score:
    """The mean weight that judged rows put on their targets, and an even head's."""
    keep = keys[rows] >= 2
    rows, columns = rows[keep], columns[keep]
    weights, allowed = pairs(call, logsumexp, rows, columns)
    rows, weights = rows[allowed], weights[allowed]
    judged = np.unique(rows)
    if not judged.size:
        return Score(np.nan, np.nan, 0)
    mass = np.bincount(rows, weights, minlength=call.queries)[judged]
    even = np.bincount(rows, minlength=call.queries)[judged] / keys[judged]
    return Score(min(1.0, float(mass.mean())), float(even.mean()), len(judged))


def pairs(call: Call, logsumexp: Array, rows: Array, columns: Array) -> tuple[Array, Array]:
    """The weights of single cells (rows[n], columns[n]) of one head, and which are allowed.

    In float64, a dot product each; 0 where not allowed. logsumexp is [Nq].
    """
    query, key = call.query[0, 0], call.key[0, 0]
    shift = np.where(np.isneginf(logsumexp), 0.0, logsumexp).astype(np.float64)
    logits = np.empty(len(rows))
    for start in range(0, len(rows), TOGETHER):
        at = slice(start, start + TOGETHER)
        left, right = query[rows[at]].astype(np.float64), key[columns[at]].astype(np.float64)
        logits[at] = call.scale * np.einsum("nd,nd->n", left, right)
    if call.softcap is not None:
        logits = call.softcap * np.tanh(logits / call.softcap)
    allowed = np.ones(len(rows), np.bool_)
    if call.allowed.band is not None or call.allowed.spans is not None:
        spans = call.allowed.rows[0, 0, rows]  # [n, R, 2]
        inside = (spans[..., 0] <= columns[:, None]) & (columns[:, None] < spans[..., 1])
        allowed &= inside.any(axis=-1)
    if call.allowed.dense is not None:
        allowed &= _at(call.allowed.dense[0, 0], rows, columns)
    if call.bias is not None:
        bias = _at(call.bias[0, 0], rows, columns).astype(np.float64)
        logits, allowed = logits + bias, allowed & ~np.isneginf(bias)
    with np.errstate(all="ignore"):
        weights = np.where(allowed, np.minimum(np.exp(logits - shift[rows]), 1.0), 0.0)
    return weights, allowed


def _at(array: Array, rows: Array, columns: Array) -> Array:
    """Single cells of an array [Nq|1, Nk|1]."""
    height, width = array.shape
    return np.asarray(array[rows if height > 1 else 0, columns if width > 1 else 0])


def _targets(site: Site, batch: int) -> dict[str, tuple[Array, Array]]:
    """The cells of each kind as row and column numbers, not yet masked."""
    queries, keys = site.queries, site.keys
    row = np.arange(queries)
    if site.kind == "cross":  # its queries stand on no key
        return {"sink": (row, np.zeros_like(row))}
    place = row + keys - queries
    targets = {
        "previous": _inside(row, place - 1, keys),
        "next": _inside(row, place + 1, keys),
        "diagonal": _inside(row, place, keys),
        "sink": (row[place > 0], np.zeros((place > 0).sum(), np.int64)),
    }
    if site.tokens:
        tokens = site.tokens[batch]
        for name, cells in (("induction", repeats(tokens)), ("bracket", brackets(tokens))):
            at, column = cells
            at = at - (keys - queries)
            targets[name] = at[at >= 0], column[at >= 0]
    return targets


def _inside(rows: Array, columns: Array, keys: int) -> tuple[Array, Array]:
    there = (columns >= 0) & (columns < keys)
    return rows[there], columns[there]


def repeats(tokens: Sequence[str], most: int = MOST_PAIRS) -> tuple[Array, Array]:
    """Where induction looks: every position p with each j < p that follows an earlier t(p).

    >>> repeats(["a", "b", "c", "a", "b"])
    (array([3, 4]), array([1, 2]))
    """
    _, which = np.unique(np.asarray(tokens, dtype=object).astype(str), return_inverse=True)
    order = np.argsort(which, kind="stable")  # the places of each token, ascending
    rank = np.empty(len(which), np.int64)
    first = np.searchsorted(which[order], np.arange(which.max(initial=-1) + 1))
    rank[order] = np.arange(len(which)) - first[which[order]]  # how often it came before
    total = int(rank.sum())
    chosen = np.flatnonzero(rank)
    if total > most:
        chosen = chosen[:: -(-total // most)]
    counts = rank[chosen]
    rows = np.repeat(chosen, counts)
    step = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = order[first[which[rows]] + step] + 1
    past = columns < rows  # a token that follows itself would count its own place
    return rows[past], columns[past]


def brackets(tokens: Sequence[str]) -> tuple[Array, Array]:
    """Closers and their openers, as token positions: () [] {}, each closer to its own kind.

    >>> brackets(["f", "(", "x", "[", "0", "])"])
    (array([5, 5]), array([1, 3]))
    """
    open_at: dict[str, list[int]] = {opener: [] for opener in OPENERS.values()}
    found: set[tuple[int, int]] = set()
    for place, token in enumerate(tokens):
        for sign in token:
            if sign in open_at:
                open_at[sign].append(place)
            elif sign in OPENERS and open_at[OPENERS[sign]]:
                opener = open_at[OPENERS[sign]].pop()
                if opener != place:
                    found.add((place, opener))
    cells = np.array(sorted(found), np.int64).reshape(-1, 2)
    return cells[:, 0], cells[:, 1]


def _kind(name: str) -> Kind:
    for kind in KINDS:
        if kind.name == name:
            return kind
    raise ArgumentError(f"there is no kind {name!r}: choose {', '.join(NAMES)}")
