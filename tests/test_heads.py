"""Heads of known kinds: made to order, found; and every score equal to its formula on dense weights."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import heads, reference
from limelight.capture import Capture, Site
from limelight.errors import ArgumentError
from limelight.heads import (
    NAMES,
    brackets,
    duplicates,
    find,
    pieces,
    repeats,
    scores,
    separators,
)
from tests.cases import CASES

TEXT = ("the", "cat", "(", "sat", "[", "on", "]", "the", ")", "mat", "and", "the", "cat", "(", "sat",
        "again", ")", "{", "here", "}", "(", "end", ")")  # fmt: skip
N = len(TEXT)


def made(targets: dict[int, list[int]], strength: float = 60.0, mask: Any = None) -> Site:
    """A head that looks where it is told, evenly among the targets, and elsewhere evenly over all."""
    query, key = np.zeros((1, 1, N, N)), np.eye(N)[None, None]
    for row, columns in targets.items():
        query[0, 0, row, columns] = strength
    return Site(
        "made", 0, query, key, scale=1.0, mask=ll.Causal() if mask is None else mask, tokens=(TEXT,)
    )


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
    "induction-2": grouped(*repeats(TEXT, ahead=2)),
    "duplicate": grouped(*duplicates(TEXT)),
    "separator": grouped(*separators(TEXT)),
    "bracket": grouped(*brackets(TEXT)),
    "uniform": {},
}


@pytest.mark.parametrize("kind", MADE)
def test_a_head_made_to_order_is_found(kind: str) -> None:
    found = find(Capture((made(MADE[kind]),)))
    assert found.scores[kind][0, 0] == pytest.approx(1.0, abs=1e-6)
    assert found.kinds(0, 0)[0] == kind
    assert found.best(kind) == [(0, 0, pytest.approx(1.0, abs=1e-6))]
    # brackets are separators too, and a bracket's opener is where another one was
    shared = {"bracket": {"separator", "duplicate"}, "separator": {"bracket"}}.get(kind, set())
    others = {k for k in NAMES if k not in (kind, "next") and found.is_kind(k)[0, 0]}
    assert others <= shared


def test_a_word_in_pieces() -> None:
    """By blanks, or by the marks of a vocabulary; without either nothing tells words apart."""
    text = ("So", " un", "be", "liev", "able", ".", " no", "1", "\n", "x", "-", "y")
    expected = {1: [3, 4], 2: [4], 3: [1], 4: [1, 2]}  # neighbours are another kind
    assert grouped(*pieces(text[1:])) == {0: [2, 3], 1: [3], 3: [1]}  # and so is the first token
    assert grouped(*pieces(text)) == expected
    assert grouped(*pieces(("[CLS]", "un", "##do", "##ne", "it"))) == {1: [3], 3: [1]}
    assert grouped(*pieces(("un", "do", "it"))) == {}
    assert len(pieces((" a", "b", "c") * 50, 10)[0]) <= 10
    padded = (text + (" z",) * N)[:N]
    found = find([replace(made(expected, mask=ll.Lengths([N])), tokens=(padded,))])
    assert found.scores["word"][0, 0] == pytest.approx(1.0, abs=1e-6)
    assert found.rows["word"][0, 0] == 4


def test_a_sample_of_rows_where_there_are_too_many_pairs() -> None:
    text = ("a", ".") * 60
    rows, columns = separators(text, most=300)
    assert len(rows) <= 300
    assert set(columns.tolist()) == set(range(1, 120, 2))
    assert np.diff(np.unique(rows)).max() <= 24
    assert len(duplicates(text, most=300)[0]) <= 400


def test_the_next_token_only_where_the_future_shows() -> None:
    ahead = {i: [i + 1] for i in range(N - 1)}
    everything = Site("made", 0, made(ahead).query, made(ahead).key, scale=1.0)
    assert find([everything]).kinds(0, 0)[0] == "next"
    assert np.isnan(find([made(ahead)]).scores["next"]).all()


def _beginning(allowed: Any, row: int, offset: int) -> list[int]:
    """The first key in view, if its own row sees nothing before it, and it is before the row's."""
    firsts = [int(seen[0]) if len(seen := np.flatnonzero(r)) else -1 for r in allowed]
    first = firsts[row]
    known = min(f for f in firsts if f >= 0)
    begins = firsts[first - offset] == first if first >= offset else first == known
    return [first] if begins and first < row + offset else []


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
                "sink": _beginning(allowed, i, offset),
                "induction": [j for j in range(1, p) if tokens[j - 1] == tokens[p]],
                "bracket": openers,
                "induction-2": [j for j in range(2, p) if tokens[j - 2] == tokens[p]],
                "duplicate": [j for j in range(p) if tokens[j] == tokens[p]],
                "separator": [j for j in range(1, len(tokens)) if tokens[j] in "()[]{}" and j != p],
            }  # fmt: skip
            for name, columns in targets.items():
                there = [j for j in columns if j in seen]
                if there:
                    rows[name].append(weights[i, there].sum())
            outcomes = len(seen) + (site.sinks is not None)
            rows["uniform"].append(done.entropy[batch, head, i] / np.log(outcomes))
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
    site = Site(
        "here",
        3,
        query,
        key,
        tokens=(TEXT, TEXT[::-1]),
        query_tokens=(TEXT[-queries:], TEXT[::-1][-queries:]),
        **options,
    )
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
        one = call.one_head(last[1], last[0])
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


def test_a_score_on_the_bound_is_within_it() -> None:
    """At the threshold, at twice the chance and at five rows a head is named; just below, not."""
    least = heads.KINDS[0].threshold
    for score, chance, rows, named in (
        (least, 0.0, 5, True), (np.nextafter(least, 0), 0.0, 5, False), (least, least / 2, 5, True),
        (least, np.nextafter(least / 2, 1), 5, False), (least, 0.0, 4, False),
    ):  # fmt: skip
        parts = ({name: np.full((1, 1), x) for name in NAMES} for x in (score, chance, rows))
        assert heads.Heads(("a",), (0,), (1,), *parts).is_kind("previous").item() == named


def test_a_name_needs_rows() -> None:
    """A head that looks where it should is not named for it from fewer than five rows."""
    few, enough = (made({i: [i - 1] for i in range(1, n)}) for n in (5, 6))
    for site, rows in ((few, 4), (enough, 5)):
        short = Site("short", 0, site.query[:, :, : rows + 1], site.key[:, :, : rows + 1], scale=1.0,
                     mask=ll.Causal(), tokens=(TEXT[: rows + 1],))  # fmt: skip
        found = find([short])
        assert found.scores["previous"][0, 0] == pytest.approx(1.0)
        assert found.judged("previous") == found.rows["previous"][0, 0] == rows
        assert ("previous" in found.kinds(0, 0)) == (rows == 5)
        assert f"previous       {rows} rows  L0H0 1.00{'?' if rows == 4 else ''}" in repr(found)
        assert found.to_dict()["kinds"][0]["rows"] == rows


@pytest.mark.parametrize("mask", [
    ll.Causal(), None, ll.Causal() & ll.Window(3, None), ll.Window(4, 4), ll.Documents([0] * 9 + [1] * 14),
], ids=["causal", "everything", "window", "both ways", "documents"])  # fmt: skip
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_score(side: str, mask: Any) -> None:
    """A text in a padded batch scores as it does alone: kinds, chances, rows and health."""
    rng, pads = np.random.default_rng(1), 6
    whole = slice(pads, None) if side == "left" else slice(None, N)
    query, key = rng.normal(size=(2, 1, 2, N + pads, 8)) * 2
    real = np.zeros((1, N + pads), np.bool_)
    real[0, whole] = True
    filler = ("the",) * pads  # a word of the text, as models pad with one
    tokens = (*filler, *TEXT) if side == "left" else (*TEXT, *filler)
    rule = ll.Window(None, None) if mask is None else mask
    cells = np.zeros((N + pads, N + pads), np.bool_)
    cells[whole, whole] = rule.dense(N, N)
    cells |= real[0] & ~real[0][:, None]  # what is padding may see the text
    padded = Site("a", 0, query, key, mask=cells, tokens=(tokens,), real_keys=real)
    alone = Site("a", 0, query[:, :, whole], key[:, :, whole], mask=mask, tokens=(TEXT,))
    for got, exact in zip(scores(padded), scores(alone), strict=True):
        for name in NAMES:
            assert vars(got[name]) == pytest.approx(vars(exact[name]), rel=1e-6, nan_ok=True), name
    got, exact = padded.health().summary(), alone.health().summary()
    for name in vars(exact):
        np.testing.assert_allclose(getattr(got, name), getattr(exact, name), rtol=1e-6)
    np.testing.assert_allclose(padded.received(head=0)[whole], alone.received(head=0), rtol=1e-5)
    assert not padded.weights(head=0)[~real[0]].any()


def test_an_even_head_is_not_named_for_what_chance_gives() -> None:
    tokens = ("x",) * 12
    site = Site(
        "even",
        0,
        np.zeros((1, 1, 12, 4)),
        np.zeros((1, 1, 12, 4)),
        mask=ll.Causal(),
        tokens=(tokens,),
    )
    found = find([site])
    assert found.scores["induction"][0, 0] > 0.3
    assert found.scores["induction"][0, 0] == pytest.approx(found.chance["induction"][0, 0])
    assert found.kinds(0, 0) == ("uniform",)


def test_it_tells_and_shows_itself() -> None:
    told: list[tuple[int, int]] = []
    sites = [made(MADE["previous"]), made(MADE["sink"])]
    found = find(sites, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]
    assert f"previous      {N - 1} rows  L0H0 1.00" in repr(found)
    assert "looks at the token before" in found._repr_html_()
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["heads"][0]["kinds"] == ["previous"]
    assert data["heads"][0]["scores"]["next"] is None
    assert data["heads"][1]["scores"]["sink"]["rows"] == N - 1


def test_errors_say_what_to_do() -> None:
    with pytest.raises(
        ArgumentError, match="the capture is empty: capture a run that has attention"
    ):
        find(Capture(()))
    with pytest.raises(ArgumentError, match="there is no batch entry 1 at"):
        find([made({})], batch=1)
    found = find([made({})])
    for ask in (found.best, found.is_kind):
        with pytest.raises(ArgumentError, match="there is no kind 'copy': choose previous, next"):
            ask("copy")
    assert heads.KINDS[0].threshold == 0.4


def test_which_heads_look_from_here_to_there() -> None:
    held = ll.captures()["llama"]
    found = heads.search(held, query="cat", key="curious", at_least=0.3)
    assert [(each.layer, each.head) for each in found[:2]] == [(11, 1), (2, 1)]
    assert found[0].weight == pytest.approx(0.93, abs=0.005)
    for each in found[:3]:
        site = held.sites[each.site]
        assert each.weight == pytest.approx(
            float(site.weights(head=each.head)[each.row, each.column]), abs=1e-6
        )
    by_place = heads.search(held, query=2, key=re.compile("cur.*"), at_least=0.3)
    assert by_place == found
    every = heads.search(held, key="curious", at_least=0.9)  # from anywhere
    assert {(each.layer, each.head) for each in every} >= {(11, 1)}
    assert all(each.weight >= 0.9 for each in every)
    with pytest.raises(ArgumentError, match="no key is 'dog': the text begins with The, curious"):
        heads.search(held, query="cat", key="dog")
    with pytest.raises(ArgumentError, match="name what is looked from, or at"):
        heads.search(held)


def test_a_kind_of_ones_own_goes_where_the_others_go() -> None:
    held = ll.captures()["llama"]
    before = heads.Kind("before", "looks at the token before", 0.4, targets=lambda tokens: (
        range(1, len(tokens)), range(len(tokens) - 1)))  # fmt: skip
    found = heads.find(held, kinds=["previous", before])
    np.testing.assert_array_equal(found.scores["before"], found.scores["previous"])
    assert found.kinds(11, 1) == ("previous", "before")
    assert [row["kind"] for row in found.to_dict()["kinds"]] == ["previous", "before"]
    with pytest.raises(
        ArgumentError, match="there is no kind 'induction': choose previous, before"
    ):
        found.is_kind("induction")


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (["penultimate"], "there is no kind 'penultimate'"),
        (["sink", "sink"], "given twice"),
        ([heads.Kind("mine", "", 0.5)], "without targets"),
        ([], "no kind is named"),
        ([heads.Kind("mine", "", 0.5, targets=lambda t: ([0], [99]))], "pairs of positions"),
        ([heads.Kind("mine", "", 0.5, targets=lambda t: 3)], "not two lists of positions"),
        (
            [heads.Kind("mine", "", 0.5, targets=lambda t: ([1.5], [0]))],
            "positions in whole numbers",
        ),
        (
            [heads.Kind("mine", "", 0.5, targets=lambda t: ([True], [0]))],
            "positions in whole numbers",
        ),
        ([heads.Kind("mine", "", 0.5, targets=lambda t: ([10**30], [0]))], "in whole numbers"),
        (3, "there is no kind 3"),
        (None, "there is no kind None"),
    ],
)
def test_kinds_that_are_none(kinds: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        heads.find(ll.captures()["llama"], kinds=kinds)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("a", "b", "x"), r"Kind\('a', threshold='x'\): a score is from 0 to 1"),
        (("a", "b", float("nan")), "threshold=nan"),
        (("a", "b", True), "threshold=True"),
        (("a", "b", 1.5), "threshold=1.5"),
        ((3, "b", 0.3), r"Kind\(name=3\): its name is a text"),
        (("a", None, 0.3), r"Kind\(meaning=None\): its meaning is a text"),
        (("a", "b", 0.3, 3), r"Kind\('a', targets=3\): give a function from the tokens"),
    ],
)
def test_what_makes_no_kind(given: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        heads.Kind(*given)


@pytest.mark.parametrize("shape", [(1, 1, 0, 0), (1, 2, 3, 0), (1, 2, 0, 4), (2, 0, 3, 3)], ids=str)
def test_weights_without_queries_keys_or_heads_have_no_kinds(shape: tuple[int, ...]) -> None:
    found = heads.find(ll.Capture((ll.Site.from_weights("a", 0, np.zeros(shape)),)))
    assert [kinds.shape for kinds in found.scores.values()] == [(1, shape[1])] * len(heads.KINDS)
    assert all(np.isnan(kinds).all() for kinds in found.scores.values())
    ll.show(np.zeros(shape), None)


def test_what_holds_no_sites() -> None:
    held = ll.captures()["llama"]
    for odd, said in ((3, "got int"), (None, "got NoneType"), ([held[0], "a"], "got str"),
                      (held[0], r"give \[site\]")):  # fmt: skip
        for look in (heads.find, ll.Capture, lambda given: heads.search(given, query="cat")):
            with pytest.raises(ArgumentError, match=f"a capture or as a list of Site: .*{said}"):
                look(odd)
    assert type(ll.Capture([held[0]]).sites) is tuple  # type: ignore[arg-type]
    assert len(heads.search([held[11]], query="cat")) == 9


def test_what_is_asked_of_a_search() -> None:
    held = ll.captures()["llama"]
    assert heads.search(held, query="cat", batch=-1) == heads.search(held, query="cat")
    for at_least in ("x", None, float("nan"), -0.5, 2, True):
        with pytest.raises(ArgumentError, match=r"at_least=.*: a weight is a number from 0 to 1"):
            heads.search(held, query="cat", at_least=at_least)  # type: ignore[arg-type]
    for batch in (7, -2):
        with pytest.raises(ArgumentError, match=f"there is no batch entry {batch}: there is one"):
            heads.search(held, query="cat", batch=batch)
    with pytest.raises(ArgumentError, match="3 is no token or pattern"):
        heads.between(3)


def test_between_any_token_and_one() -> None:
    tokens = ("a", " b", " a")
    assert heads.between(key="a").targets(tokens) == ([0, 1, 1, 2], [2, 0, 2, 0])
    assert heads.between("b").targets(tokens) == ([1, 1], [0, 2])
    assert heads.between("b").name == "'b' → any token"
    assert heads.between(re.compile("[ab]"), "b").targets(tokens) == ([0, 2], [1, 1])
