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
from tests.nonfinite import SIZES, TABLE, Odd, judge

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
