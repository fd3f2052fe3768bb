"""The native engine against the float64 reference: every case, instruction set and dtype."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import limelight as ll
from limelight import reference
from limelight.call import Call, prepare
from limelight.engines import _reference_pool, choose, native
from limelight.errors import EngineError, ShapeError
from tests.cases import CASES, Case, assert_close
from tests.engines.plain import plainly

pytestmark = pytest.mark.skipif(native.missing() is not None, reason=str(native.missing()))

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ISAS = native.isas() if native.missing() is None else []
# Where blocks, panels, tiles and chunks end: sizes around the kernels' own.
EDGES = [
    Case("several-blocks", batch=(1,), heads=2, nq=211, nk=797, d=64, dv=64, mask=ll.Causal()),
    Case("several-chunks", batch=(1,), heads=2, key_heads=1, nq=13, nk=2061, d=64, dv=64),
    Case("one-panel-more", batch=(1,), heads=1, nq=97, nk=385, d=32, dv=33),
    Case("wide", batch=(1,), heads=1, nq=29, nk=67, d=256, dv=256, mask=ll.Causal()),
    Case("very-wide", batch=(1,), heads=1, nq=5, nk=9, d=1031, dv=517),
    Case("decode-grouped", batch=(1,), heads=8, key_heads=1, nq=1, nk=1500, d=128, dv=128, sinks=True),
    Case("decode-window", batch=(1,), heads=2, nq=3, nk=1300, d=64, dv=128, mask=ll.Window(100, 0)),
    Case("decode-bias", batch=(1,), heads=2, nq=2, nk=300, d=64, dv=64, bias=(2, 2, 300), hidden_bias=0.5),
    Case("decode-capped", batch=(1,), heads=8, key_heads=1, nq=1, nk=517, d=64, dv=64, softcap=3.0,
         spread=4.0, mask=ll.Window(200, 0)),
    Case("prefix-long", batch=(1,), heads=1, nq=401, nk=401, d=8, dv=8, mask=ll.Causal() | ll.Prefix(31)),
    Case("huge-logits", spread=1e20),
]  # fmt: skip


# The best set with every dtype, the others with those that take another way through them.
BOTH = [
    (isa, dtype) for isa in ISAS for dtype in DTYPES
    if isa == ISAS[0] or (isa, dtype) in {("avx512", "bfloat16"), ("avx2", "float32"), ("avx2", "bfloat16"),
                                          ("plain", "float32"), ("plain", "float16")}
]  # fmt: skip


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = native.isa()
    native.set_isa(request.param)
    yield request.param
    native.set_isa(before)


def _gradient(call: Call, dtype: Any) -> Any:
    shape = (call.batch, call.query_heads, call.queries, call.value_size)
    return np.random.default_rng(1).normal(size=shape).astype(dtype)


@pytest.mark.parametrize(("isa", "dtype"), BOTH, indirect=["isa"])
@pytest.mark.parametrize("case", CASES + EDGES, ids=str)
def test_forward_and_health(case: Case, dtype: str, isa: str) -> None:
    kind = DTYPES[dtype]
    if dtype == "float16" and case.spread > 1e3:
        pytest.skip("beyond what float16 can hold")
    call = case.call(kind)
    exact = reference.forward(call)
    plain, _ = plainly(call, _gradient(call, kind), kind)
    got = native.forward(call, health=True)
    assert got.output.dtype == kind
    assert got.logsumexp.dtype == np.float32
    for name in ("output", "logsumexp", "max_logit", "entropy"):
        triple = [getattr(state, name) for state in (got, exact, plain)]
        assert_close(*triple, kind, what=f"{name} on {isa}")
    bare = native.forward(call, health=False)
    assert bare.max_logit is None
    assert bare.entropy is None
    np.testing.assert_array_equal(bare.output, got.output)
    np.testing.assert_array_equal(bare.logsumexp, got.logsumexp)


@pytest.mark.parametrize(("isa", "dtype"), BOTH, indirect=["isa"])
@pytest.mark.parametrize("case", CASES + EDGES, ids=str)
def test_gradients(case: Case, dtype: str, isa: str) -> None:
    kind = DTYPES[dtype]
    if dtype == "float16" and case.spread > 1e3:
        pytest.skip("beyond what float16 can hold")
    call = case.call(kind)
    grad = _gradient(call, kind)
    exact = reference.gradients(call, grad)
    _, plain = plainly(call, grad, kind)
    got = native.backward(call, native.forward(call, health=False), grad)
    for name in ("query", "key", "value", "bias", "sinks"):
        triple = [getattr(grads, name) for grads in (got, exact, plain)]
        if triple[1] is None:
            assert triple[0] is None
            continue
        assert triple[0].dtype == getattr(call, name).dtype
        assert_close(*triple, kind, factor=3.0, what=f"{name} gradient on {isa}")


@pytest.mark.parametrize(
    "shape",
    [
        (2, 4, 101, 203),
        (1, 4, 101, 203),
        (2, 1, 1, 203),
        (1, 1, 101, 1),
        (2, 4, 1, 1),
        (1, 1, 1, 1),
    ],
)
def test_bias_gradient_in_every_broadcast_shape(shape: tuple[int, ...], isa: str) -> None:
    rng = np.random.default_rng(2)
    query, key, value, bias = (
        rng.normal(size=s).astype(np.float32)
        for s in ((2, 4, 101, 8), (2, 2, 203, 8), (2, 2, 203, 5), shape)
    )
    call = prepare(query, key, value, bias=bias, mask=ll.Causal(), softcap=3.0)
    grad = _gradient(call, np.float32)
    exact, (_, plain) = reference.gradients(call, grad), plainly(call, grad, np.float32)
    got = native.backward(call, native.forward(call, health=False), grad)
    assert got.bias.shape == shape
    assert_close(got.bias, exact.bias, plain.bias, np.float32, factor=3.0, what=f"bias on {isa}")


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4)])
def test_zero_sizes(shape: tuple[int, ...], isa: str) -> None:
    for empty_keys in (False, True):
        query = np.ones(shape, np.float32)
        key = np.ones((*shape[:2], 0 if empty_keys else 5, 4), np.float32)
        call = prepare(query, key, key)
        state = native.forward(call, health=True)
        assert state.output.shape == shape
        grads = native.backward(call, state, np.ones_like(query))
        assert grads.key.shape == key.shape
        assert not grads.key.any()


def test_no_keys_gives_zeros(isa: str) -> None:
    query, key = np.ones((1, 2, 3, 4), np.float32), np.ones((1, 2, 0, 4), np.float32)
    call = prepare(query, key, key, sinks=[0.5, 1.5])
    state = native.forward(call, health=True)
    assert not state.output.any()
    assert not state.entropy.any()
    np.testing.assert_array_equal(state.logsumexp[0, :, 0], np.float32([0.5, 1.5]))
    assert np.isneginf(state.max_logit).all()
    grads = native.backward(call, state, np.ones_like(query))
    assert not grads.query.any()
    assert not grads.sinks.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_give_the_same_bits_as_arrays(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    case = Case(
        "x",
        heads=4,
        key_heads=2,
        bias=(4, 37, 53),
        sinks=True,
        mask=ll.Causal() & (np.eye(37, 53) < 1),
    )
    arrays, options = case.arrays(DTYPES[dtype])

    def tensor(x: Any) -> Any:
        return torch.from_numpy(np.asarray(x, np.float32)).to(getattr(torch, dtype))

    given = {name: tensor(options[name]) for name in ("bias", "sinks")}
    of_arrays = prepare(*arrays, **options)
    of_tensors = prepare(*map(tensor, arrays), **{**options, **given})
    grad = _gradient(of_arrays, DTYPES[dtype])
    one, two = native.forward(of_arrays, health=True), native.forward(of_tensors, health=True)
    first, second = (
        native.backward(of_arrays, one, grad),
        native.backward(of_tensors, two, tensor(grad)),
    )
    assert two.output.dtype == getattr(torch, dtype)
    for a, b in [*zip(vars(one).values(), vars(two).values(), strict=True),
                 *zip(vars(first).values(), vars(second).values(), strict=True)]:  # fmt: skip
        np.testing.assert_array_equal(np.asarray(a, np.float32), b.float().numpy())


@pytest.mark.parametrize("kind", ["max", "mean"])
@pytest.mark.parametrize("case", [c for c in CASES if c.spread < 1e3], ids=str)
def test_pool_and_received(case: Case, kind: str, isa: str) -> None:
    call = case.call(np.float32)
    logsumexp = native.forward(call, health=False).logsumexp
    rng = np.random.default_rng(3)
    for bins in (1, 5, 10**6):
        rows, columns = (
            np.unique(np.append(rng.integers(0, n, bins), [0, n])) if bins < n else np.arange(n + 1)
            for n in (call.queries, call.keys)
        )
        got = native.pool(call, logsumexp, rows, columns, kind)
        exact = _reference_pool.pool(call, logsumexp, rows, columns, kind)
        np.testing.assert_allclose(got, exact, rtol=0, atol=2e-6)
    np.testing.assert_allclose(
        native.received(call, logsumexp),
        _reference_pool.received(call, logsumexp),
        rtol=3e-6,
        atol=3e-6,
    )


def test_pictures_at_different_zoom_agree_to_the_bit(isa: str) -> None:
    call = Case("x", batch=(1,), heads=1, nq=301, nk=701, mask=ll.Causal()).call(np.float32)
    logsumexp = native.forward(call, health=False).logsumexp
    every = native.pool(call, logsumexp, np.arange(302), np.arange(702), "max")[0, 0]
    rows, columns = np.array([0, 150, 301]), np.array([0, 100, 350, 701])
    coarse = native.pool(call, logsumexp, rows, columns, "max")[0, 0]
    for i, j in np.ndindex(coarse.shape):
        own = every[rows[i] : rows[i + 1], columns[j] : columns[j + 1]]
        assert coarse[i, j] == np.nanmax(own)


def test_pool_shows_nan_and_takes_empty_bins() -> None:
    call = Case("x", batch=(1,), heads=1, nq=7, nk=9, mask=ll.Causal()).call(np.float32)
    query = np.array(call.query)
    query[0, 0, 3] = np.nan
    call = replace(call, query=query)
    logsumexp = native.forward(call, health=False).logsumexp
    seen = native.pool(call, logsumexp, [0, 3, 3, 4, 7], [0, 9], "max")[0, 0, :, 0]
    assert np.isnan(seen).tolist() == [False, True, True, False]


def test_an_instruction_set_that_is_not_here() -> None:
    with pytest.raises(EngineError, match=r"no instruction set 'sse9'.*this machine runs.*plain"):
        native.set_isa("sse9")


@pytest.mark.parametrize(
    "shape",
    [(1, 12, 8, 8, 64, 64), (2, 4, 37, 53, 20, 7), (1, 6, 3, 0, 5, 5), (0, 2, 3, 4, 5, 5)],
)
def test_the_quick_way_gives_the_same_bits(shape: tuple[int, ...]) -> None:
    """attention() and inspect() hand plain float32 arrays straight to the engine."""
    batch, heads, nq, nk, d, dv = shape
    rng = np.random.default_rng(4)
    query, key, value = (
        rng.normal(size=s).astype(np.float32)
        for s in ((batch, heads, nq, d), (batch, heads // 2, nk, d), (batch, heads // 2, nk, dv))
    )
    query = query[:, :, ::-1]
    quick, named = (ll.inspect(query, key, value, engine=name) for name in ("auto", "native"))
    np.testing.assert_array_equal(quick.output, named.output)
    np.testing.assert_array_equal(ll.attention(query, key, value), named.output)
    for field in ("max_logit", "logsumexp", "entropy", "keys"):
        one, other = getattr(quick.health, field), getattr(named.health, field)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_the_quick_way_is_the_table_s_choice() -> None:
    query = np.zeros((1, 2, 3, 8), np.float32)
    assert choose(prepare(query, query, query), "auto").name == "native"


def test_the_quick_way_leaves_errors_to_the_long_one() -> None:
    query, key = np.ones((1, 2, 3, 4), np.float32), np.ones((1, 2, 5, 3), np.float32)
    with pytest.raises(ShapeError, match="no dot product with a key of size 3"):
        ll.attention(query, key, key)


def test_gradients_of_a_part_of_the_keys(isa: str) -> None:
    """Backward over some keys, from the state over all: what a ring of processes does.

    At logits beyond 1000 a logsumexp has few digits after the point, and rows are measured again:
    that must not take the part for the whole.
    """
    rng = np.random.default_rng(5)
    query, key, value, grad = (
        rng.normal(size=(1, 2, n, 16)).astype(np.float32) for n in (37, 101, 101, 37)
    )
    query[..., 0], key[..., 0] = 10.0, 800.0  # all logits near 2000
    call = prepare(query, key, value)
    exact, (_, plain) = reference.gradients(call, grad), plainly(call, grad, np.float32)
    state = native.forward(call, health=False)
    assert state.logsumexp.min() > 1000
    parts = [
        native.backward(prepare(query, key[:, :, cut], value[:, :, cut]), state, grad)
        for cut in (slice(0, 43), slice(43, 101))
    ]
    got = {
        "query": parts[0].query + parts[1].query,
        "key": np.concatenate([part.key for part in parts], axis=2),
        "value": np.concatenate([part.value for part in parts], axis=2),
    }
    for name, array in got.items():
        triple = array, getattr(exact, name), getattr(plain, name)
        assert_close(*triple, np.float32, factor=3.0, what=f"{name} gradient on {isa}")


@pytest.mark.usefixtures("isa")
def test_a_row_without_keys_beside_large_logits() -> None:
    q, k = np.full((1, 1, 2, 1), 1e5, np.float32), np.ones((1, 1, 2, 1), np.float32)
    v = np.array([[[[1.0], [3.0]]]], np.float32)
    call = prepare(q, k, v, mask=np.array([[True, True], [False, False]]))
    grads = native.backward(call, native.forward(call, health=False), np.ones_like(q))
    np.testing.assert_allclose(grads.value.ravel(), [0.5, 0.5], rtol=1e-6)
    assert np.isfinite(grads.key).all()
    assert np.isfinite(grads.query).all()


@pytest.mark.parametrize("nq", [1, 40])
def test_a_sink_that_is_not_a_number_shows(nq: int) -> None:
    q = np.ones((1, 2, nq, 16), np.float32)
    k = np.ones((1, 2, 40, 16), np.float32)
    call = prepare(q, k, k, sinks=np.array([np.nan, 0.0], np.float32))
    state = native.forward(call, health=True)
    for figure in (state.output, state.logsumexp, state.entropy):
        assert np.isnan(figure[0, 0]).all()
        assert np.isfinite(figure[0, 1]).all()
