"""Heads of known kinds: made to order, found; and every score equal to its formula on dense weights."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import heads, reference
from limelight.capture import Capture, Site
from limelight.errors import ArgumentError
from limelight.heads import NAMES, brackets, find, repeats, scores
from limelight.regions import one_head
from tests.cases import CASES

TEXT = ("the", "cat", "(", "sat", "[", "on", "]", "the", ")", "mat", "and", "the", "cat", "(", "sat",
        "again", ")", "{", "here", "}")  # fmt: skip
N = len(TEXT)


def made(targets: dict[int, list[int]], strength: float = 60.0, mask: Any = None) -> Site:
    """A head that looks where it is told, evenly among the targets, and elsewhere evenly over all."""
    query, key = np.zeros((1, 1, N, N)), np.eye(N)[None, None]
    for row, columns in targets.items():
        query[0, 0, row, columns] = strength
    return Site("made", 0, query, key, scale=1.0, mask=ll.Causal() if mask is None else mask,
                tokens=(TEXT,))


def grouped(rows: Any, columns: Any) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        found.setdefault(row, []).append(column)
    return found


MADE = {
    "previous": {i: [i - 1] for i in range(1, N)},
    "diagonal": {i: [i] for i in range(N)},
    "sink": {i: [0] for i in range(N)},
    "induction": grouped(*repeats(TEXT)),
    "bracket": grouped(*brackets(TEXT)),
    "uniform": {},
}


@pytest.mark.parametrize("kind", MADE)
def test_a_head_made_to_order_is_found(kind: str) -> None:
    found = find(Capture((made(MADE[kind]),)))
    assert found.scores[kind][0, 0] == pytest.approx(1.0, abs=1e-6)
    assert found.kinds(0, 0)[0] == kind
    assert found.best(kind) == [(0, 0, pytest.approx(1.0, abs=1e-6))]
    others = [k for k in NAMES if k not in (kind, "next") and found.is_kind(k)[0, 0]]
    assert others == []


def test_the_next_token_only_where_the_future_shows() -> None:
    ahead = {i: [i + 1] for i in range(N - 1)}
    everything = Site("made", 0, made(ahead).query, made(ahead).key, scale=1.0)
    assert find([everything]).kinds(0, 0)[0] == "next"
    assert np.isnan(find([made(ahead)]).scores["next"]).all()


def by_definition(site: Site, batch: int) -> list[dict[str, float]]:
    """Every score straight from the dense weights and the words of the definition."""
    done = reference.steps(site.call)
    offset = site.keys - site.queries
    tokens = site.tokens[batch]
    out = []
    for head in range(site.heads):
        weights, allowed = done.weights[batch, head], done.allowed[batch, head]
        rows: dict[str, list[float]] = {name: [] for name in NAMES}
        for i in range(site.queries):
            p, seen = i + offset, np.flatnonzero(allowed[i])
            if len(seen) < 2:
                continue
            openers = [int(c) for r, c in zip(*brackets(tokens), strict=True) if r == p]
            targets = {
                "previous": [p - 1], "next": [p + 1], "diagonal": [p],
                "sink": [0] if p > 0 else [],
                "induction": [j for j in range(1, p) if tokens[j - 1] == tokens[p]],
                "bracket": openers,
            }  # fmt: skip
            for name, columns in targets.items():
                there = [j for j in columns if j in seen]
                if there:
                    rows[name].append(weights[i, there].sum())
            spread = done.entropy[batch, head, i] / np.log(len(seen))
            rows["uniform"].append(min(1.0, spread))  # a sink may take it beyond
        out.append({name: float(np.mean(r)) if r else np.nan for name, r in rows.items()})
    return out


@pytest.mark.parametrize("options", [
    {}, {"mask": ll.Causal()}, {"mask": ll.Causal() & ll.Window(5, None), "softcap": 3.0},
    {"mask": ll.Lengths([17, 9]), "sinks": True}, {"bias": True}, {"mask": "array"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("queries", [N, 7])
def test_scores_are_what_the_formulas_say(options: dict[str, Any], queries: int) -> None:
    rng = np.random.default_rng(4)
    options = dict(options)
    if options.get("sinks"):
        options["sinks"] = rng.normal(size=4)
    if options.get("bias"):
        options["bias"] = np.where(rng.random((1, 4, queries, N)) < 0.2, -np.inf, 0.5)
    if options.get("mask") == "array":
        options["mask"] = ll.masks.as_mask(rng.random((2, 4, queries, N)) < 0.4)
    query, key = 2 * rng.normal(size=(2, 4, queries, 8)), rng.normal(size=(2, 2, N, 8))
    site = Site("here", 3, query, key, tokens=(TEXT, TEXT[::-1]), query_tokens=(
        TEXT[-queries:], TEXT[::-1][-queries:]), **options)
    for batch in (0, 1):
        for got, exact in zip(scores(site, batch=batch), by_definition(site, batch), strict=True):
            for name in NAMES:
                assert got[name].score == pytest.approx(exact[name], rel=1e-6, nan_ok=True), name
                assert not got[name].score > 1
                assert not got[name].score < 0


def test_single_cells_of_every_case() -> None:
    rng = np.random.default_rng(0)
    for case in CASES:
        call = case.call(np.float64)
        done = reference.steps(call)
        rows, columns = rng.integers(0, call.queries, 97), rng.integers(0, call.keys, 97)
        last = call.batch - 1, call.query_heads - 1
        one = one_head(call, last[1], last[0])
        got, allowed = heads.pairs(one, done.logsumexp[last], rows, columns)
        np.testing.assert_array_equal(allowed, done.allowed[last][rows, columns])
        exact = np.where(allowed, done.weights[last][rows, columns], 0.0)
        np.testing.assert_allclose(got, exact, rtol=1e-9, atol=1e-15, err_msg=case.name)


def test_where_induction_looks() -> None:
    rows, columns = repeats(["a", "b", "a", "b", "a", "a"])
    exact = [(p, j) for p in range(6) for j in range(1, p) if "ababaa"[j - 1] == "ababaa"[p]]
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == exact
    assert [len(side) for side in repeats([])] == [0, 0]
    rows, columns = repeats(["x"] * 500, most=1000)  # 124,750 pairs: a sample of the rows
    assert 500 < len(rows) < 2000
    assert (columns < rows).all()
    kept = np.unique(rows)
    assert all((rows == p).sum() == p - 1 for p in kept)  # each with all its targets
    assert np.ptp(np.diff(kept)) == 0  # evenly spread


def test_brackets() -> None:
    assert [side.tolist() for side in brackets(["(", "a", ")"])] == [[2], [0]]
    assert [side.tolist() for side in brackets(["([", "{}", "])"])] == [[2], [0]]
    assert [side.tolist() for side in brackets([")", "(", "]", "()"])] == [[], []]
    assert [side.tolist() for side in brackets(["(", "[", ")", "]"])] == [[2, 3], [0, 1]]


def test_what_cannot_be_judged_is_not_scored() -> None:
    rng = np.random.default_rng(0)
    bare = Site("bare", 0, *rng.normal(size=(2, 1, 3, 6, 4)))
    cross = Site("cross", 1, *rng.normal(size=(2, 1, 2, 6, 4)), kind="cross")
    found = find([bare, cross])
    assert np.isnan(found.scores["induction"]).all()
    assert np.isnan(found.scores["previous"][1]).all()
    assert np.isfinite(found.scores["sink"][1, :2]).all()
    assert np.isnan(found.scores["sink"][1, 2])
    lone = find([Site("one", 0, *rng.normal(size=(2, 1, 1, 1, 4)))])
    assert all(np.isnan(lone.scores[name]).all() for name in NAMES)
    assert lone.kinds(0, 0) == ()


def test_an_even_head_is_not_named_for_what_chance_gives() -> None:
    tokens = ("x",) * 12
    site = Site("even", 0, np.zeros((1, 1, 12, 4)), np.zeros((1, 1, 12, 4)), mask=ll.Causal(),
                tokens=(tokens,))
    found = find([site])
    assert found.scores["induction"][0, 0] > 0.3
    assert found.scores["induction"][0, 0] == pytest.approx(found.chance["induction"][0, 0])
    assert found.kinds(0, 0) == ("uniform",)


def test_it_tells_and_shows_itself() -> None:
    told: list[tuple[int, int]] = []
    sites = [made(MADE["previous"]), made(MADE["sink"])]
    found = find(sites, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]
    assert "previous   L0H0 1.00" in repr(found)
    assert "looks at the token before" in found._repr_html_()
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["heads"][0]["kinds"] == ["previous"]
    assert data["heads"][0]["scores"]["next"] is None
    assert data["heads"][1]["scores"]["sink"]["rows"] == N - 1


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ArgumentError, match="there is no site to look at: the capture is empty"):
        find(Capture(()))
    with pytest.raises(ArgumentError, match="there is no batch entry 1 at"):
        find([made({})], batch=1)
    found = find([made({})])
    for ask in (found.best, found.is_kind):
        with pytest.raises(ArgumentError, match="there is no kind 'copy': choose previous, next"):
            ask("copy")
    assert heads.KINDS[0].threshold == 0.4
