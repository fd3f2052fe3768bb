"""Infinity, NaN and overflow on every engine of the CPU, on each instruction set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.engines import find, native
from tests.cases import HERE
from tests.nonfinite import FIGURES, SIZES, TABLE, Odd, judge

TYPES = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)


@pytest.fixture(scope="module", params=HERE)
def engine(request: pytest.FixtureRequest) -> Any:
    return find(request.param)


def places(engine: Any) -> Iterator[str]:
    """The instruction sets that an engine has here, each in use; one for the others."""
    if engine.name != "native":
        yield engine.name
        return
    before = native.isa()
    try:
        for isa in native.isas():
            native.set_isa(isa)
            yield isa
    finally:
        native.set_isa(before)


@pytest.mark.parametrize("odd", TABLE, ids=str)
def test_every_case(odd: Odd, engine: Any) -> None:
    # The reference sums in float64 whatever comes, and rounds at the end: its own type is enough.
    types = TYPES[:1] if engine.name == "reference" else TYPES
    for place in places(engine):
        for dtype in types:
            if np.dtype(dtype).name not in engine.dtypes:
                continue
            for size, rows in SIZES.items():
                call = odd.call(rows, dtype)
                state = engine.module.forward(call, health=True)
                wide = np.float64 if dtype is np.float64 else np.float32
                try:
                    judge(odd, call, state, wide)
                except AssertionError as error:
                    pytest.fail(f"{place}, {np.dtype(dtype).name}, {size}: {error}")
                bare = engine.module.forward(call, health=False)
                for name in ("output", "logsumexp"):
                    one, other = (np.asarray(getattr(x, name), np.float64) for x in (bare, state))
                    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rows", [1, 5, 45])
@pytest.mark.parametrize("number", [np.inf, np.nan])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_weight_of_nothing_far_away(rows: int, number: float, hidden: bool, engine: Any) -> None:
    """0 times what is no number shows however many keys lie between, unless the mask hides it."""
    rng = np.random.default_rng(2)
    query, key, value = (rng.normal(size=(1, 1, n, 16)).astype("f") for n in (rows, 3001, 3001))
    query[...], key[..., :1700, :] = np.abs(query) + 1, -np.inf
    value[..., 99, 3] = number
    mask = np.arange(3001) != 99 if hidden else None
    call = prepare(query, key, value, mask=mask)
    want = reference.forward(call).output
    assert np.isfinite(want[..., 3]).all() == hidden
    for place in places(engine):
        got = engine.module.forward(call, health=False).output
        np.testing.assert_allclose(got, want, atol=1e-5, err_msg=place)


@pytest.mark.parametrize("rows", [1, 3, 45])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16])
def test_sums_that_pass_the_range_on_their_way(dtype: Any, rows: int, engine: Any) -> None:
    """Their parts are infinite with either sign, and their sign decides under a softcap."""
    if np.dtype(dtype).name not in engine.dtypes:
        pytest.skip(f"{engine.name} has no such type")
    rng = np.random.default_rng(0)
    size = 1e154 if dtype == np.float64 else 1.5e19
    wide = [rng.normal(size=(1, 2, n, 64)) for n in (rows, 37)]
    query, key = ((x * size).astype(dtype) for x in wide)
    value = rng.normal(size=(1, 2, 37, 5)).astype(dtype)
    exact = [x.astype(np.float64) / size for x in (query, key)]  # size² is the scale of these
    call = prepare(query, key, value, softcap=5.0, mask=ll.Causal())
    logits = exact[0] @ exact[1].swapaxes(-1, -2) / 8
    assert (np.abs(logits) > 1e-30).all()  # times size², a tanh of ±1
    capped = 5.0 * np.sign(logits)
    same: Any = {"mask": ll.Causal(), "bias": capped}
    want = ll.attention(0 * exact[0], 0 * exact[1], value.astype(np.float64), **same)
    for place in places(engine):
        state = engine.module.forward(call, health=True)
        got = np.asarray(state.output, np.float64)
        near = 2e-2 if dtype == ml_dtypes.bfloat16 else 1e-5
        np.testing.assert_allclose(got, want, atol=near, err_msg=place)
        plain = prepare(query, key, value, mask=ll.Causal())
        with np.errstate(all="ignore"):
            bare = np.asarray(engine.module.forward(plain, health=False).output, np.float64)
        best = np.where(call.allowed.tile(np.arange(rows), np.arange(37)), logits, -np.inf)
        first = np.take_along_axis(value.astype(np.float64), best.argmax(-1)[..., None], 2)
        # One logit beyond all others: its value, or not a number.
        found = np.isfinite(bare) & (best.max(-1) > -np.inf)[..., None]
        np.testing.assert_allclose(bare[found], first[found], rtol=near, err_msg=place)


@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize("rows", [1, 3, 45])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16])
def test_one_sum_that_passes_the_range_and_comes_back(
    dtype: Any, rows: int, turn: int, engine: Any
) -> None:
    """Of either sign, with nothing masked, capped or added, not even at the end of the keys."""
    if np.dtype(dtype).name not in engine.dtypes:
        pytest.skip(f"{engine.name} has no such type")
    rng = np.random.default_rng(3)
    query, key, value = (rng.normal(size=(1, 2, n, 96)) for n in (rows, 48, 48))
    at = np.arange(0, 96, 16)  # numbers that are summed in order, however many lanes there are
    query[..., at], key[..., at] = 2.0 ** (511 if dtype == np.float64 else 63), 0.0
    there = 2.0 ** (512 if dtype == np.float64 else 64)
    key[..., 7, at] = turn * there * np.array([1.5, 1.5, -1.5, -1.5, -1.25, 0])
    arrays = [x.astype(dtype) for x in (query, key, value)]
    grad = rng.normal(size=(1, 2, rows, 96)).astype(dtype)
    call, exact = (prepare(*(x.astype(kind) for x in arrays)) for kind in (dtype, np.float64))
    want = reference.forward(exact)
    by_value = reference.gradients(exact, grad.astype(np.float64)).value
    received = ll.received(exact.query, exact.key, engine="reference")
    near = 2e-2 if dtype == ml_dtypes.bfloat16 else 1e-5
    for place in places(engine):
        state = engine.module.forward(call, health=True)
        for name in FIGURES:
            got, truth = (np.asarray(getattr(x, name), np.float64) for x in (state, want))
            np.testing.assert_allclose(got, truth, near, near, err_msg=f"{place}, {name}")
        found = np.asarray(engine.module.backward(call, state, grad).value, np.float64)
        np.testing.assert_allclose(found, by_value, near, 4 * near, err_msg=place)
        seen = ll.received(call.query, call.key, engine=engine.name)
        np.testing.assert_allclose(seen, received, 1e-4, 1e-4, err_msg=place)


@pytest.mark.parametrize("name", HERE)
def test_as_people_write_it(name: str) -> None:
    """A row whose logits are all −inf, without a mask that says so, is not a number."""
    dtype = np.dtype(find(name).dtypes[0])
    query, ones = np.array([[-np.inf, 1]], dtype), np.ones((3, 2), dtype)
    seen = ll.inspect(query, ones, ones, engine=name)
    assert np.isnan(seen.output).all()
    assert seen.health.summary().not_a_number.tolist() == [1]
    hidden = ll.inspect(query, ones, ones, mask=np.zeros((1, 3), np.bool_), engine=name)
    assert (hidden.output == 0).all()
    assert hidden.health.summary().not_a_number.tolist() == [0]


def test_the_reference_with_a_sink_far_above_its_logits() -> None:
    """By hand: the sink has it all, and no power overflows on the way."""
    query = np.zeros((1, 1, 1, 2))
    found = reference.forward(prepare(query, query, query + 3, sinks=[1e4]))
    assert found.logsumexp.item() == 1e4
    assert (found.output == 0).all()
    assert found.entropy.item() == 0.0
    assert found.max_logit.item() == 0.0
    below = reference.forward(prepare(query, query, query + 3, sinks=[-1e4]))
    assert (below.output == 3).all()
    assert below.logsumexp.item() == 0.0


def test_states_without_health_merge_without_it() -> None:
    one = TABLE[0].call(1, np.float64)
    whole = reference.forward(one)
    bare = reference.State(whole.output, whole.logsumexp)
    for pair in ((whole, bare), (bare, whole), (bare, bare)):
        assert reference.merge(*pair).entropy is None


def test_the_reference_is_the_rule() -> None:
    far = reference.forward(TABLE[-1].call(3, np.float64))
    assert np.isnan(far.logsumexp[:, 0]).all()
    assert (far.logsumexp[:, 1] == 0.0).all()
