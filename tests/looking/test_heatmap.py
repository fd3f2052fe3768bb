"""Weights, heat-maps, received attention and strongest keys, against the dense float64 weights."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import tracemalloc
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import limelight as ll
from limelight import reference
from limelight.call import Call, prepare
from limelight.engines import find
from limelight.errors import ArgumentError, DtypeError, EngineError, ShapeError
from limelight.looking import regions
from limelight.looking.heatmap import Heatmap, heatmap, heatmap_of, pooled
from limelight.looking.weights import (
    Top,
    received,
    received_of,
    top,
    top_of,
    weights,
    weights_of,
)
from limelight.masks import as_mask
from tests.cases import CASES, HERE, Case

IDS = {"ids": str}


def usable(engine: str, dtype: Any) -> bool:
    return np.dtype(dtype).name in find(engine).dtypes


@lru_cache(maxsize=4)
def steps(call: Call) -> reference.Steps:
    return reference.steps(call)


def dense(call: Call) -> tuple[Any, Any]:
    """The float64 weights and which cells are allowed, [B, Hq, Nq, Nk]."""
    done = steps(call)
    return np.where(done.allowed, done.weights, 0.0), done.allowed


def plain(call: Call, dtype: Any) -> Any:
    """exp(s − logsumexp) with every step rounded to one precision, and its logsumexp too."""
    wide = np.float64 if dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        query, key = (np.asarray(x).astype(wide) for x in (call.query, call.key))
        s = query @ np.repeat(key, call.group, axis=1).swapaxes(-1, -2) * wide(call.scale)
        if call.softcap is not None:
            s = wide(call.softcap) * np.tanh(s / wide(call.softcap))
        if call.bias is not None:
            s = s + call.bias.astype(wide)
        s = np.where(steps(call).allowed, s, wide(-np.inf))
        return np.where(np.isneginf(s), wide(0), np.exp(s - logsumexp(call, s, wide)))


def logsumexp(call: Call, s: Any, wide: Any) -> Any:
    sinks = np.full(call.query_heads, -np.inf) if call.sinks is None else call.sinks
    sinks = np.asarray(sinks).astype(wide)[:, None, None]
    top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), sinks)
    top = np.where(np.isneginf(top), wide(0), top)
    total = np.exp(s - top).sum(axis=-1, keepdims=True) + np.exp(sinks - top)
    return (top + np.log(np.where(total == 0, wide(1), total))).astype(wide)


def assert_as_good(call: Call, got: Any, exact: Any, rough: Any, what: str) -> None:
    """NaN in the same places; error ≤ 2 × that of the plain formula, plus a rounding floor.

    The floor is 4 units in the last place of the exponent s − logsumexp, which a weight inherits.
    """
    assert np.array_equal(np.isnan(got), np.isnan(exact)), what
    seen = ~np.isnan(exact)
    if not seen.any():
        return
    lse = steps(call).logsumexp
    reach = max(1.0, np.abs(lse[np.isfinite(lse)]).max(initial=0.0))
    unit = np.finfo(np.asarray(got).dtype).eps * reach * np.abs(exact[seen]).max()
    for how in (np.mean, np.max):
        error, allowed = how(np.abs(got - exact)[seen]), how(np.abs(rough - exact)[seen])
        assert error <= 2 * allowed + 4 * unit, (what, how.__name__, error, allowed)


def pool_dense(cells: Any, allowed: Any, spans: Any, shape: Any, kind: str) -> Any:
    """The definition, bin by bin, of any picture of any rectangle."""
    out = np.full((*cells.shape[:2], *shape), np.nan)
    for p, q in np.ndindex(*shape):
        parts = []
        for at, bins, (start, stop) in zip((p, q), shape, spans, strict=True):
            n = stop - start
            low = at * n // bins
            parts.append(slice(start + low, start + max(low + 1, (at + 1) * n // bins)))
        for b, h in np.ndindex(*cells.shape[:2]):
            inside = cells[b, h][tuple(parts)][allowed[b, h][tuple(parts)]]
            if inside.size:
                out[b, h, p, q] = inside.max() if kind == "max" else inside.mean()
    return out


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize("kind", ["max", "mean"])
@pytest.mark.parametrize("case", CASES, **IDS)
def test_pooled_maps_equal_pooling_the_dense_weights(case: Case, kind: str, engine: str) -> None:
    for dtype in (np.float64, np.float32):
        if not usable(engine, dtype):
            continue
        call = case.call(dtype)
        cells, allowed = dense(call)
        rough = plain(call, dtype)
        everything = (0, call.queries), (0, call.keys)
        part = (call.queries // 3, call.queries), (call.keys // 5, call.keys - call.keys // 7)
        for spans, shape in ((everything, (5, 7)), (part, (3, 4))):
            got = heatmap_of(
                call, shape=shape, pool=kind, rows=spans[0], columns=spans[1], engine=engine
            )
            exact = pool_dense(cells, allowed, spans, shape, kind)
            near = pool_dense(rough, allowed, spans, shape, kind)
            assert got.values.dtype == np.float32
            assert_as_good(call, got.values, exact, near, f"{case} {engine} {kind} {shape}")


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize("case", CASES, **IDS)
def test_blocks_sums_and_strongest(case: Case, engine: str) -> None:
    for dtype in (np.float64, np.float32):
        if not usable(engine, dtype):
            continue
        call = case.call(dtype)
        cells, _ = dense(call)
        rough = plain(call, dtype)
        rng = np.random.default_rng(1)
        rows = rng.integers(-call.queries, call.queries, 5)
        columns = rng.integers(-call.keys, call.keys, 7)
        some = np.s_[:, :, rows[:, None], columns]
        assert_as_good(call, weights_of(call, engine=engine), cells, rough, f"{case} all")
        got = weights_of(call, rows=rows.tolist(), columns=columns, engine=engine)
        assert got.dtype == dtype
        assert_as_good(call, got, cells[some], rough[some], f"{case} some")
        sums = received_of(call, engine=engine)
        assert_as_good(call, sums, cells.sum(axis=2), rough.sum(axis=2), f"{case} received")
        best = top_of(call, rows=(0, call.queries), k=4, engine=engine)
        check_top(call, best, cells, rough, f"{case} top")


def check_top(call: Call, best: Any, cells: Any, rough: Any, what: str) -> None:
    """The weights of the strongest are the largest there are, and stand where they are said to."""
    count = min(best.weights.shape[-1], cells.shape[-1])
    exact, near = (-np.sort(-x, axis=-1)[..., :count] for x in (cells, rough))
    assert_as_good(call, best.weights[..., :count], exact, near, what)
    there = np.where(best.columns[..., :count] < 0, 0, best.columns[..., :count])
    at = np.where(best.columns[..., :count] < 0, 0.0, np.take_along_axis(cells, there, axis=-1))
    assert_as_good(
        call, best.weights[..., :count], at, np.take_along_axis(rough, there, axis=-1), what
    )


@pytest.mark.parametrize("engine", [name for name in HERE if name != "reference"])
def test_tiles_of_more_than_one_step(engine: str) -> None:
    """Sizes past the tiles' own, with edges that fall inside them."""
    rng = np.random.default_rng(3)
    query, key = (rng.normal(size=(n, 24)).astype(np.float32) for n in (701, 2309))
    for mask in (
        None,
        ll.Causal(),
        ll.Causal() & ll.Window(401, None),
        ll.Causal() | ll.Prefix(77),
    ):
        call = prepare(query, key, mask=mask)
        cells, allowed = dense(call)
        rough = plain(call, np.float32)
        for kind in ("max", "mean"):
            for spans in (((0, 701), (0, 2309)), ((13, 677), (997, 2111))):
                got = heatmap_of(
                    call, shape=(13, 17), pool=kind, rows=spans[0], columns=spans[1], engine=engine
                )
                exact = pool_dense(cells, allowed, spans, (13, 17), kind)
                near = pool_dense(rough, allowed, spans, (13, 17), kind)
                assert_as_good(call, got.values, exact, near, f"{mask} {kind} {spans}")
        assert_as_good(
            call, received_of(call, engine=engine), cells.sum(2), rough.sum(2), "received"
        )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_rectangle_in_any_picture(data: Any) -> None:
    nq, nk = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
    spans = []
    for n in (nq, nk):
        start = data.draw(st.integers(0, n - 1))
        spans.append((start, data.draw(st.integers(start + 1, n))))
    shape = data.draw(st.integers(1, 50)), data.draw(st.integers(1, 50))
    kind = data.draw(st.sampled_from(["max", "mean"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    mask = rng.random((nq, nk)) < data.draw(st.sampled_from([0.1, 0.6, 1.0]))
    call = prepare(rng.normal(size=(nq, 3)), rng.normal(size=(nk, 3)), mask=mask)
    got = heatmap_of(call, shape=shape, pool=kind, rows=spans[0], columns=spans[1], engine="numpy")
    exact = pool_dense(*dense(call), spans, shape, kind)
    np.testing.assert_allclose(got.values, exact, rtol=1e-6)


@pytest.mark.parametrize("engine", HERE)
def test_a_logsumexp_at_hand_is_reused(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (query, key, _), options = next(c for c in CASES if c.name == "sinks").arrays(np.float32)
    seen = ll.inspect(query, key, key, **options, engine="numpy").health.logsumexp
    whole = heatmap(query, key, shape=(5, 7), **options, engine=engine)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a second pass over the keys")

    monkeypatch.setattr(find(engine).module, "forward", never)
    again = heatmap(query, key, shape=(5, 7), logsumexp=seen, **options, engine=engine)
    np.testing.assert_allclose(again.values, whole.values, rtol=1e-5)
    assert weights(query, key, rows=[3], logsumexp=seen, **options, engine=engine).shape == (
        2, 3, 1, 53)  # fmt: skip


@pytest.mark.parametrize("engine", HERE)
def test_a_block_that_the_mask_hides_is_zeros(engine: str) -> None:
    q = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    hidden = {"rows": (0, 2), "columns": (5, 10), "mask": ll.Causal(), "engine": engine}
    assert np.array_equal(ll.weights(q, q, **hidden), np.zeros((2, 5)))
    assert np.isnan(ll.heatmap(q, q, shape=(2, 2), **hidden).values).all()


@pytest.mark.parametrize("engine", HERE)
def test_what_is_hidden_cannot_leak_and_what_is_not_stays_visible(engine: str) -> None:
    rng = np.random.default_rng(0)
    query, key = (rng.normal(size=(1, 1, 11, 4)).astype(np.float32) for _ in range(2))
    bad = key.copy()
    bad[0, 0, 7] = np.nan
    mask = ll.Causal()
    clean, spoilt = (
        heatmap(query, k, shape=(11, 11), mask=mask, engine=engine).values for k in (key, bad)
    )
    np.testing.assert_array_equal(spoilt[:, :, :7], clean[:, :, :7])
    assert np.isnan(spoilt[0, 0, 7:, :]).all()
    sums = received(query[:, :, :7], bad, mask=ll.Causal(align="top-left"), engine=engine)
    assert np.isfinite(sums).all()
    best = top(query, bad, rows=[2, 9], k=5, mask=mask, engine=engine)
    assert (best.columns[0, 0] >= 0).tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert best.columns[0, 0, 1].tolist() == [0, 1, 2, 3, 4]  # of no number all are alike
    assert np.isnan(best.weights[0, 0]).tolist() == [[False] * 5, [True] * 5]


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("engine", HERE)
def test_empty_is_what_the_mask_allows_and_not_what_is_nan(engine: str, tensors: bool) -> None:
    query, key = np.random.default_rng(0).normal(size=(2, 2, 11, 4)).astype(np.float32)
    query[1, 4:] = np.nan
    given = [pytest.importorskip("torch").from_numpy(x) if tensors else x for x in (query, key)]
    for mask in (None, ll.Causal(), ll.Lengths(6, queries=9), np.tri(11, dtype=bool)):
        cells = np.ones((11, 11), bool) if mask is None else as_mask(mask).dense(11, 11)
        for pool, shape, progress in itertools.product(
            ("max", "mean"), ((11, 11), (3, 5), (23, 12)), (None, lambda *_: None)
        ):
            seen = heatmap_of(
                prepare(*given, mask=mask),
                shape=shape,
                pool=pool,
                rows=(1, 11),
                engine=engine,
                progress=progress,
            )
            for p, q in np.ndindex(shape):
                rows, columns = seen.cells(p, q)
                part = cells[rows.start : rows.stop, columns.start : columns.stop]
                assert (seen.empty[:, :, p, q] == (not part.any())).all()
            assert np.isnan(seen.values[seen.empty]).all()
            assert np.isfinite(seen.values[0, 0][~seen.empty[0, 0]]).all()
    assert not heatmap(query * np.nan, key, shape=(1, 1), engine=engine).empty.any()
    one = heatmap(query, key, shape=(2, 2), engine=engine).head(1)
    assert (one.empty.shape, one.empty.any(), np.isnan(one.values).all()) == ((2, 2), False, True)


@pytest.mark.parametrize("engine", HERE)
def test_enormous_logits_are_one_or_nothing(engine: str) -> None:
    for size in (1e4, 1e10):
        query = np.full((3, 4), size, np.float32)
        key = np.float32([[size] * 4, [0] * 4, [-size] * 4])
        got = heatmap(query, key, shape=(3, 3), scale=1.0, engine=engine).values
        np.testing.assert_array_equal(got, [[1, 0, 0]] * 3)


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize("case", CASES, **IDS)
def test_a_picture_larger_than_the_matrix_has_every_cell(case: Case, engine: str) -> None:
    call = case.call(np.float32)
    cells, allowed = dense(call)
    shape = call.queries + 7, call.keys * 2 - 1
    at = [np.arange(bins) * n // bins for bins, n in zip(shape, cells.shape[2:], strict=True)]
    exact, near = (
        np.where(allowed, x, np.nan)[:, :, at[0][:, None], at[1]]
        for x in (cells, plain(call, np.float32))
    )
    for kind in ("max", "mean"):
        got = heatmap_of(call, shape=shape, pool=kind, engine=engine).values
        assert_as_good(call, got, exact, near, f"{case} {engine} {kind}")


def test_a_picture_larger_than_the_matrix_repeats_cells() -> None:
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(3, 5)), rng.normal(size=(2, 5))
    seen = heatmap(query, key, shape=(7, 4), engine="numpy")
    cells = weights(query, key)
    np.testing.assert_array_equal(
        seen.values, cells[np.ix_([0, 0, 0, 1, 1, 2, 2], [0, 0, 1, 1])].astype(np.float32)
    )
    assert seen.cells(3, 2) == (range(1, 2), range(1, 2))
    none = np.zeros((2, 2), bool)
    assert Heatmap(np.zeros((2, 2)), (10, 15), (0, 4), "max", none).cells(1, 0) == (range(12, 15),
                                                                             range(2))  # fmt: skip


def test_memory_is_that_of_the_picture() -> None:
    n = 3001
    rng = np.random.default_rng(0)
    query, key = (rng.normal(size=(n, 8)).astype(np.float32) for _ in range(2))
    call = prepare(query, key, mask=ll.Causal())
    logsumexp = find("numpy").module.forward(call, health=False).logsumexp
    tracemalloc.start()
    heatmap_of(call, shape=(64, 64), logsumexp=logsumexp, engine="numpy")
    received_of(call, logsumexp=logsumexp, engine="numpy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * 4 / 3  # the float32 matrix alone is 36 MB


def test_the_same_cell_has_the_same_bits_in_every_picture() -> None:
    rng = np.random.default_rng(5)
    query, key = (rng.normal(size=(n, 64)).astype(np.float32) for n in (700, 1300))
    call = prepare(query, key, mask=ll.Causal())
    logsumexp = find("numpy").module.forward(call, health=False).logsumexp

    def view(rows: tuple[int, int], columns: tuple[int, int], step: int = 1) -> Any:
        row_edges, column_edges = (np.append(np.arange(a, b, step), b) for a, b in (rows, columns))
        return pooled(call, row_edges, column_edges, "max", logsumexp=logsumexp, engine="numpy")

    whole = view((0, 700), (0, 1300))
    np.testing.assert_array_equal(view((251, 300), (901, 1200)), whole[:, :, 251:300, 901:1200])
    halves = view((0, 700), (0, 1300), 2)
    both = np.fmax(
        np.fmax(whole[..., ::2, ::2], whole[..., 1::2, ::2]),
        np.fmax(whole[..., ::2, 1::2], whole[..., 1::2, 1::2]),
    )
    np.testing.assert_array_equal(halves, both)


def test_work_in_steps_tells_of_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["limelight.looking.heatmap"], "STEP", 200)
    call = CASES[0].call(np.float32)
    told: list[tuple[int, int]] = []
    options: Any = {"shape": (9, 60), "rows": (3, 30), "engine": "numpy"}
    got = heatmap_of(call, **options, progress=lambda done, total: told.append((done, total)))
    np.testing.assert_array_equal(got.values, heatmap_of(call, **options).values)
    assert told == [(n + 1, len(told)) for n in range(len(told))]
    assert len(told) > 4


def test_counting_allowed_cells() -> None:
    for case in CASES:
        call = case.call()
        _, allowed = dense(call)
        edges = [regions.edges(0, n, min(n, 5)) for n in (call.queries, call.keys)]
        counts = np.broadcast_to(
            call.allowed.count_in(*edges, call.bias),
            (*allowed.shape[:2], *(len(e) - 1 for e in edges)),
        )
        exact = np.add.reduceat(
            np.add.reduceat(allowed, edges[0][:-1], 2, dtype=np.int64), edges[1][:-1], 3
        )
        np.testing.assert_array_equal(counts, exact, err_msg=case.name)


def test_one_head_of_a_call() -> None:
    for case in CASES:
        call = case.call()
        cells, _ = dense(call)
        last = call.batch - 1, call.query_heads - 1
        alone = call.one_head(last[1], last[0])
        np.testing.assert_allclose(dense(alone)[0][0, 0], cells[last], atol=1e-12, rtol=1e-9)
        rows = call.some_rows(call.queries // 2, call.queries)
        np.testing.assert_allclose(
            dense(rows)[0], cells[:, :, call.queries // 2 :], rtol=1e-9, atol=1e-12
        )


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_tensors_in_numpy_out() -> None:
    import torch

    (query, key, _), _ = CASES[0].arrays(np.float32)
    expected = heatmap(query, key, shape=(5, 7), mask=ll.Causal(), engine="numpy").values
    for dtype, near in ((torch.float32, 1e-5), (torch.bfloat16, 0.2), (torch.float16, 0.02)):
        tensors = [torch.as_tensor(x).to(dtype).requires_grad_() for x in (query, key)]
        got = heatmap(*tensors, shape=(5, 7), mask=ll.Causal())
        assert type(got.values) is np.ndarray
        np.testing.assert_allclose(got.values, expected, rtol=near, atol=near / 100)
        exact = [x.detach().double().numpy() for x in tensors]
        np.testing.assert_allclose(weights(*tensors), weights(*exact), rtol=1e-4, atol=1e-6)
        known = torch.as_tensor(reference.forward(prepare(*exact)).logsumexp).to(dtype)
        again = weights(*tensors, logsumexp=known)
        np.testing.assert_allclose(again, weights(*exact), rtol=near, atol=near / 100)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("case", CASES, **IDS)
def test_plain_torch_looks_as_well(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """What engines on tensors fall back on, in steps of a few rows; here on CPU tensors."""
    import torch

    from limelight.engines import _torch_pool as kernels

    monkeypatch.setattr(kernels, "CELLS", 1500)
    dtype = np.float32
    arrays, options = case.arrays(dtype)
    numbers = {k: torch.as_tensor(v) if isinstance(v, np.ndarray) else v
               for k, v in options.items()}  # fmt: skip
    call = prepare(*(torch.as_tensor(x) for x in arrays[:2]), **numbers)
    exactly = prepare(*arrays[:2], **options)
    cells, allowed = dense(exactly)
    rough = plain(exactly, dtype)
    lse = torch.as_tensor(steps(exactly).logsumexp.astype(dtype))
    spans = (call.queries // 3, call.queries), (call.keys // 5, call.keys)
    shape = tuple(
        min(stop - start, bins) for (start, stop), bins in zip(spans, (5, 7), strict=True)
    )
    edges = [regions.edges(*span, bins) for span, bins in zip(spans, shape, strict=True)]
    for kind in ("max", "mean"):
        values = kernels.pool(call, lse, *edges, kind).numpy()
        exact, near = (pool_dense(x, allowed, spans, shape, kind) for x in (cells, rough))
        assert_as_good(exactly, values, exact, near, f"{case} {kind}")
    sums = kernels.received(call, lse).numpy()
    assert_as_good(exactly, sums, cells.sum(2), rough.sum(2), f"{case} received")
    rows, columns = np.array([0, call.queries - 1]), np.array([call.keys - 1, 0])
    block = kernels.block(call, lse, rows, columns).numpy()
    some = np.s_[:, :, rows[:, None], columns]
    assert_as_good(exactly, block, cells[some], rough[some], f"{case} block")
    best = Top(*(x.numpy() for x in kernels.strongest(call, lse, np.arange(call.queries), 4)), rows)
    check_top(exactly, best, cells, rough, f"{case} top")


def test_nothing_to_look_at() -> None:
    query, key = np.zeros((2, 3, 4)), np.zeros((2, 5, 4))
    none = np.zeros((2, 0, 4))
    assert received(none, key).tolist() == [[0.0] * 5] * 2
    assert received(query, none).shape == (2, 0)
    for dtype, (few, many) in itertools.product(
        (np.float32, np.float64), ((none, key), (query, none), (none, none))
    ):
        rows, columns = few.shape[1], many.shape[1]
        given = few.astype(dtype), many.astype(dtype)
        block, best = weights(*given), top(*given, k=2)
        assert (block.shape, block.dtype) == ((2, rows, columns), dtype)
        assert received(*given).dtype == dtype
        assert (best.weights.shape, best.weights.dtype) == ((2, rows, 2), dtype)
        assert best.columns.tolist() == [[[-1, -1]] * rows] * 2
        assert best.rows.tolist() == list(range(rows))
    assert weights(query, none, rows=[2, 0]).shape == (2, 2, 0)
    assert top(np.zeros((0, 4)), np.zeros((5, 4))).columns.shape == (0, 8)
    shut = heatmap(query, key, shape=(2, 2), mask=np.zeros((3, 5), bool))
    assert shut.empty.all()
    best = top(query, key, k=7, mask=ll.Causal())
    assert best.columns[0, 0].tolist() == [0, 1, 2, -1, -1, -1, -1]
    assert best.to_dict()["weights"][0][0][3:] == [0.0] * 4


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize("tensors", [False, True])
def test_a_map_without_queries_or_keys(engine: str, tensors: bool) -> None:
    def made(*shape: int) -> Any:
        array = np.ones(shape, np.float32)
        return pytest.importorskip("torch").from_numpy(array) if tensors else array

    for queries, keys, shape in ((0, 5, (0, 8)), (3, 0, (2, 0)), (0, 0, (0, 0))):
        seen = heatmap(made(2, queries, 4), made(2, keys, 4), (2, 8), engine=engine)
        assert (seen.values.shape, seen.values.dtype) == ((2, *shape), np.float32)
        assert (seen.rows, seen.columns, seen.shape) == ((0, queries), (0, keys), shape)
        assert seen.empty.shape == seen.values.shape
        assert seen._repr_html_() is seen._repr_png_() is None
        with pytest.raises(ShapeError, match="are no heat-map: give"):
            seen.svg()
    told: list[Any] = []
    call = prepare(made(0, 4), made(5, 4))
    assert heatmap_of(call, engine=engine, progress=lambda *at: told.append(at)).shape == (0, 256)
    with pytest.raises(ArgumentError, match="pool='sum'"):
        heatmap(made(0, 4), made(5, 4), pool="sum", engine=engine)
    with pytest.raises(ArgumentError, match="rows=3:3 is an empty region: ask for at least one"):
        heatmap(made(5, 4), made(5, 4), rows=slice(3, 3), engine=engine)


QUERY, KEY = np.zeros((9, 4)), np.zeros((7, 4))
WRONG: list[tuple[str, Any, str]] = [
    (
        "rows outside",
        {"rows": (3, 10)},
        r"rows=\(3, 10\) reaches outside the 9 queries: they are numbered 0 to 8",
    ),
    ("slice outside", {"columns": slice(0, 8)}, "columns=0:8 reaches outside the 7 keys"),
    ("far negative", {"rows": (-12, 9)}, "reaches outside the 9 queries"),
    (
        "empty region",
        {"rows": (4, 4)},
        r"rows=\(4, 4\) is an empty region: ask for at least one of the 9 queries",
    ),
    ("backwards", {"rows": slice(5, 2)}, "rows=5:2 is an empty region"),
    (
        "step",
        {"rows": slice(0, 9, 2)},
        r"rows has step 2: a region is without gaps; weights\(\) takes single rows",
    ),
    ("not a region", {"rows": "abc"}, "rows='abc' is not a region: give a slice or a pair"),
    ("fraction", {"columns": (0.5, 2)}, r"columns=\(0.5, 2\) is not a region"),
    (
        "slice of fractions",
        {"rows": slice(0.5, 2)},
        "rows=0.5:2 is not a region: a slice has whole",
    ),
    ("slice of texts", {"rows": slice("a", "b")}, "rows=a:b is not a region"),
    ("no step", {"rows": slice(0, 6, 0)}, "rows=0:6:0 is not a region: .* step is not 0"),
    ("half a step", {"rows": slice(0, 6, 1.5)}, "rows=0:6:1.5 is not a region"),
    ("before all", {"rows": slice(None, -20)}, "rows=:-20 is an empty region"),
    ("range outside", {"rows": range(4, 10)}, "reaches outside the 9 queries"),
    ("range with gaps", {"rows": range(0, 9, 2)}, "rows has step 2.* or as a range"),
    ("range of none", {"rows": range(3, 3)}, "is an empty region"),
    ("far beyond", {"rows": slice(10**30, None)}, "reaches outside the 9 queries"),
    ("no pixels", {"shape": (0, 5)}, "a picture of 0 × 5: each side must be from 1 to 16,384"),
    (
        "a million pixels",
        {"shape": (256, 10**6)},
        "256 × 1,000,000: .* ask for a part with rows=… and columns=…",
    ),
    ("shape", {"shape": 256}, "shape=256: give the picture's rows and columns as a pair"),
    ("pool", {"pool": "sum"}, "pool='sum': choose 'max', a bin's largest weight, or 'mean'"),
]


@pytest.mark.parametrize(("_", "how", "text"), WRONG, ids=[row[0] for row in WRONG])
def test_errors_say_what_to_do(_: str, how: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        heatmap(QUERY, KEY, **how)


def test_a_map_has_so_many_heads() -> None:
    seen = heatmap(np.zeros((2, 3, 5, 4)), np.zeros((2, 3, 5, 4)), (2, 2))
    assert seen.head(-1).values.shape == (3, 2, 2)
    np.testing.assert_array_equal(seen.head(1, -1).values, seen.values[1, 2])
    for which, said in (((0, 3), "there is no head 3: there are 3"),
                        ((2,), "there is no batch entry 2: there are 2"),
                        ((0, 1.5), "head 1.5 is not a whole number"),
                        ((0, 0, 0), r"head\(0, 0, 0\) names 3 axes, and the map has 2")):  # fmt: skip
        with pytest.raises(ArgumentError, match=said):
            seen.head(*which)  # type: ignore[arg-type]


@pytest.mark.parametrize(("rows", "same"), [
    (range(0, 6, 2), [0, 2, 4]), (range(4, -1, -1), [4, 3, 2, 1, 0]), (range(-2, 1), [7, 8, 0]),
    (range(2, 5), [2, 3, 4]), (slice(1, 8, 3), [1, 4, 7]), (slice(4, None, -2), [4, 2, 0]),
    (slice(-3, None), [6, 7, 8]), (slice(-20, 2), [0, 1]), (slice(-20, -7), [0, 1]),
])  # fmt: skip
def test_rows_by_ranges_and_slices(rows: Any, same: list[int]) -> None:
    query, key = np.random.default_rng(4).normal(size=(2, 9, 4))
    np.testing.assert_array_equal(weights(query, key, rows=rows), weights(query, key, rows=same))
    np.testing.assert_array_equal(top(query, key, rows=rows).rows, same)
    if same == list(range(same[0], same[-1] + 1)):
        assert heatmap(query, key, rows=rows).rows == (same[0], same[-1] + 1)
        assert heatmap(query, key, rows=range(same[0] - 9, same[-1] - 8)).rows[0] == same[0]


@pytest.mark.parametrize("rows", [slice(0, 0), slice(-3, None), (0, 0), [], range(0), None])
def test_no_rows_of_none(rows: Any) -> None:
    none, some = np.zeros((0, 4)), np.zeros((3, 4))
    assert weights(none, some, rows=rows).shape == (0, 3)
    assert weights(some, none, columns=rows).shape == (3, 0)
    assert top(none, some, rows=rows).columns.shape == (0, 8)
    if rows != []:
        assert heatmap(none, some, rows=rows).rows == (0, 0)
    with pytest.raises(ArgumentError, match="there are none"):
        weights(none, some, rows=[0])
    with pytest.raises(ArgumentError, match="there are none"):
        weights(none, some, rows=(0, 1))


def test_more_errors() -> None:
    with pytest.raises(
        ArgumentError, match="rows 9 is outside the 9 queries: they are numbered 0 to 8"
    ):
        weights(QUERY, KEY, rows=[0, 9])
    with pytest.raises(
        ArgumentError, match="columns is an empty region: ask for at least one of the 7"
    ):
        weights(QUERY, KEY, columns=[])
    with pytest.raises(ArgumentError, match=r"give a slice, a pair .* or a list of whole numbers"):
        weights(QUERY, KEY, columns=[0.5])
    with pytest.raises(ShapeError, match="rows is a ragged list"):
        weights(QUERY, KEY, rows=[[1, 2], [3]])
    for rows, said in ((slice(0, 6, 0), "step is not 0"), (slice(0, 6, 1.5), "not a region"),
                       (slice(0.5, 2), "not a region"), (slice("a", "b"), "not a region"),
                       (range(0, 10**15, 3), "is outside the 9 queries"),
                       (range(-10, 3), "rows -10 is outside"), (range(3, 3), "empty region")):  # fmt: skip
        for look in (weights, top):
            with pytest.raises(ArgumentError, match=said):
                look(QUERY, KEY, rows=rows)
    for k in (0, 1.5, True, "2"):
        with pytest.raises(ArgumentError, match=f"k={k!r}: ask for a whole number of keys a row"):
            top(QUERY, KEY, k=k)
    with pytest.raises(ArgumentError, match="1 × 1 heads are 9,000,000,000 weights: ask for fewer"):
        top(QUERY, KEY, k=10**9)
    with pytest.raises(
        ShapeError, match=r"logsumexp has shape \(4,\), but one number a row is \(9,\)"
    ):
        heatmap(QUERY, KEY, logsumexp=np.zeros(4))
    for wrong, said in ((["a"] * 9, "the logsumexp has dtype <U1: attention takes float64"),
                        ([1j] * 9, "the logsumexp has dtype complex128"),
                        ([0, [0]], "the logsumexp is a ragged list")):  # fmt: skip
        for look in (weights, top, received, heatmap):
            with pytest.raises((DtypeError, ShapeError), match=said):
                look(QUERY, KEY, logsumexp=wrong)
    with pytest.raises(EngineError, match="there is no engine 'cuda'"):
        heatmap(QUERY, KEY, engine="cuda")
    big = np.broadcast_to(np.float32(0), (32_768, 4))
    with pytest.raises(ArgumentError, match=r"32,768 × 32,768 weights are 4.0 GiB: .*heatmap"):
        weights(big, big)
    call = prepare(QUERY, KEY)
    with pytest.raises(ArgumentError, match="there is no head 3: there is one, head 0"):
        call.one_head(3)
    with pytest.raises(ArgumentError, match="there is no bin 5 in the picture: there are 2"):
        heatmap(QUERY, KEY, shape=(2, 2)).cells(5, 0)


def test_what_is_looked_at_may_be_given_by_position() -> None:
    query, key = np.random.default_rng(1).normal(size=(2, 2, 9, 4))
    block = weights(query, key, rows=(2, 5), columns=[0, 3])
    np.testing.assert_array_equal(weights(query, key, (2, 5), [0, 3]), block)
    how = {"shape": (2, 3), "pool": "mean", "rows": (2, 9), "columns": (0, 7)}
    by_position = heatmap(query, key, *how.values())
    np.testing.assert_array_equal(by_position.values, heatmap(query, key, **how).values)
    assert (by_position.rows, by_position.columns, by_position.pool) == ((2, 9), (0, 7), "mean")
    best = top(query, key, rows=[4], k=2)
    np.testing.assert_array_equal(top(query, key, [4], 2).columns, best.columns)


def test_blocks_by_every_kind_of_index() -> None:
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 9, 4)), rng.normal(size=(2, 7, 4))
    whole = weights(query, key)
    for which, same in ((slice(2, 5), [2, 3, 4]), ((2, 5), [2, 3, 4]), (range(2, 5), [2, 3, 4]),
                        (slice(0, 9, 4), [0, 4, 8]), ([8, 0, 8], [8, 0, 8]), (-1, [8]),
                        (np.array([-9]), [0])):  # fmt: skip
        np.testing.assert_allclose(weights(query, key, rows=which), whole[:, same], rtol=1e-12)
    np.testing.assert_allclose(whole.sum(axis=-1), 1.0)


def test_it_shows_itself() -> None:
    seen = heatmap(np.zeros((2, 9, 4)), np.zeros((2, 7, 4)), shape=(3, 3))
    assert repr(seen) == "Heatmap(2 × 3 × 3, max of rows 0:9, columns 0:7)"
    assert replace(seen, pool="mean").head(1).values.shape == (3, 3)
