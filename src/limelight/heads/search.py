"""search(): the heads that look from one token to another."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from limelight.arrays import index, is_integer
from limelight.capture import Site
from limelight.capture.capture import as_sites
from limelight.errors import ArgumentError
from limelight.heads.kinds import Kind, is_share


@dataclass(frozen=True)
class Sighting:
    """One head that looks from a query to a key: where, and with how much of its attention."""

    site: int  # its place in the capture
    layer: int
    head: int
    row: int
    column: int
    query: str
    key: str
    weight: float

    def __str__(self) -> str:
        looks = f"{self.query.strip()!r} ({self.row}) → {self.key.strip()!r} ({self.column})"
        return f"L{self.layer}H{self.head}  {self.weight:.2f}  {looks}"


def search(
    capture: Any,
    *,
    query: Any = None,
    key: Any = None,
    at_least: float = 0.0,
    batch: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Any]:
    """The heads that look from `query` to `key` with at least so much, the strongest first.

    Either side is a token as a person reads it ("cat"), a position (2, or −1 for the last), a
    pattern (re.compile(…), matched against the whole token), or None for any token. Each head
    stands once, with its strongest such cell: a Sighting. `progress(done,
    all)` is told of every site that is done.

    A survey has no single cells, but knows how much each token was given: of one, `key` is a token,
    and each head stands with the share of all its attention that goes there, a limelight.survey
    Pull. What looks from one token to another over many texts is a kind: see between().

    >>> import limelight as ll
    >>> found = search(ll.captures()["llama"], query="cat", key="curious", at_least=0.3)
    >>> [str(each) for each in found[:2]]
    ["L11H1  0.93  'cat' (2) → 'curious' (1)", "L2H1  0.90  'cat' (2) → 'curious' (1)"]
    """
    _check_sides(query, key)
    if not is_share(at_least):
        raise ArgumentError(f"at_least={at_least!r}: a weight is a number from 0 to 1, and heads "
                            f"are asked for that have so much or more")  # fmt: skip
    if hasattr(capture, "search"):
        return list(capture.search(query=query, key=key, at_least=at_least))
    found: list[Sighting] = []
    missing: dict[str, int] = {"query": 0, "key": 0}
    sites = as_sites(capture)
    batch = index(batch, max((site.batch for site in sites), default=1), "batch entry")
    for at, site in enumerate(sites):
        if progress is not None:
            progress(at, len(sites))
        if batch >= site.batch:
            continue
        rows = _places(site, "query", query, batch)
        columns = _places(site, "key", key, batch)
        missing["query"] += not len(rows)
        missing["key"] += not len(columns)
        if len(rows) and len(columns):
            found += _strongest(site, at, rows, columns, batch)
    for side, given in (("query", query), ("key", key)):
        if sites and missing[side] == len(sites):
            shown = ", ".join(token.strip() for token in sites[0].labels(side, 0)[:12])
            raise ArgumentError(f"no {side} is {_said(given)}: the text begins with {shown}")
    strong = [each for each in found if each.weight >= at_least and each.weight > 0]
    return sorted(strong, key=lambda each: (-each.weight, each.site, each.head))


def between(query: Any = None, key: Any = None, *, threshold: float = 0.3) -> Kind:
    """The kind that looks from one token to another, for find() and surveys: any text has its own.

    Either side is a token, a pattern, or None for any, as in search().

    >>> between("cat", "curious").targets(("The", " curious", " cat"))
    ([2], [1])
    """
    _check_sides(query, key)
    for which in (query, key):
        if which is not None and not isinstance(which, (str, re.Pattern)):
            raise ArgumentError(f"{which!r} is no token or pattern: give a text or re.compile(…)")

    def targets(tokens: Sequence[str]) -> tuple[list[int], list[int]]:
        sides = [[at for at, token in enumerate(tokens) if which is None or _hit(token, which)]
                 for which in (query, key)]  # fmt: skip
        cells = [(i, j) for i in sides[0] for j in sides[1] if i != j]
        return [i for i, _ in cells], [j for _, j in cells]

    said = [("any token" if which is None else _said(which)) for which in (query, key)]
    return Kind(f"{said[0]} → {said[1]}", f"looks from {said[0]} to {said[1]}", threshold, targets)


def _check_sides(query: Any, key: Any) -> None:
    if query is None and key is None:
        raise ArgumentError("name what is looked from, or at: query=…, key=…, or both")


def _hit(token: str, which: str | re.Pattern[str]) -> bool:
    """Whether a token is the one, or of the pattern, that was meant."""
    if isinstance(which, re.Pattern):
        return which.fullmatch(token.strip()) is not None
    return token == which or token.strip() == which.strip()


def _strongest(site: Site, at: int, rows: Any, columns: Any, batch: int) -> list[Sighting]:
    """Each head's strongest cell among the rows and columns."""
    weights = np.nan_to_num(site.weights(rows.tolist(), columns.tolist(), batch=batch))
    best = weights.reshape(len(weights), -1).argmax(axis=1)
    queries, keys = site.labels("query", batch), site.labels("key", batch)
    found = []
    for head, cell in enumerate(best):
        i, j = divmod(int(cell), len(columns))
        row, column = int(rows[i]), int(columns[j])
        found.append(Sighting(at, site.layer, head, row, column, queries[row], keys[column],
                              float(weights[head, i, j])))  # fmt: skip
    return found


def _places(site: Site, side: str, which: Any, batch: int) -> Any:
    """The positions that were meant, padding left out."""
    labels = site.labels(side, batch)
    real = site.real_queries if side == "query" else site.real_keys
    there = np.ones(len(labels), np.bool_) if real is None else real[batch]
    if which is None:
        return np.flatnonzero(there)
    if is_integer(which):
        place = which + len(labels) if which < 0 else which
        return np.array([place] if 0 <= place < len(labels) else [], np.int64)
    if not isinstance(which, (str, re.Pattern)):
        raise ArgumentError(f"{side}={which!r} is no token, position or pattern: give a text, a "
                            f"number or re.compile(…)")  # fmt: skip
    hit = [_hit(token, which) for token in labels]
    return np.flatnonzero(np.array(hit, np.bool_) & there)


def _said(which: Any) -> str:
    return f"like {which.pattern!r}" if isinstance(which, re.Pattern) else repr(which)
