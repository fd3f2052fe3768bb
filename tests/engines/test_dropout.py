"""Dropout: one definition, and the same cells on every engine, in any tile, forward and backward."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import reference
from limelight.call import Call, prepare
from limelight.dropout import TURNS, Dropout, check_dropout, kept, philox
from limelight.engines import find, native
from limelight.errors import ArgumentError
from tests.cases import CASES, HERE, Case, assert_close, widest

SEED = np.array([-3, 11])
KNOWN = [  # the test vectors of the paper's authors: counter, key, words
    ((0, 0, 0, 0), 0, (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48)),
    (
        (0xFFFFFFFF,) * 4,
        (1 << 64) - 1,
        (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0A4093822,
        (0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A),
    ),
]


def cell(dropout: Dropout, head: int, query: int, key: int) -> bool:
    """The definition, for one cell, bit by bit."""
    seed, offset = dropout.numbers
    words = philox((4 * (key // 128) + key % 8 // 2, query, head, offset), seed)
    a, b, c, d = (int(word) for word in words)
    at = 16 * (key % 2) + key % 128 // 8
    e, f, g, h, k = ((w << t | w >> (32 - t)) % 2**32
                     for w, t in ((a, 5), (b, 10), (c, 15), (d, 20), (a, 25)))  # fmt: skip
    number = 0
    for word in (a, b, c, d, e ^ f, f ^ g, g ^ h, h ^ k):
        number = 2 * number + (word >> at) % 2
    return 256 * number + (a * 0x9E3779B1 % 2**32 >> 24) >= round(dropout.p * 65536)


def rank(forms: list[int]) -> int:
    """Of linear forms of bits, each the set of those it adds."""
    base: list[int] = []
    for form in forms:
        for other in base:
            form = min(form, form ^ other)
        if form:
            base.append(form)
    return len(base)


def test_any_two_cells_of_a_draw_are_independent() -> None:
    def bit(word: int, at: int) -> int:
        return 1 << 32 * word + at % 32

    def forms(at: int) -> list[int]:
        # a word turned left has at a place what was so far below it
        turned = [bit(word, at - turn) for word, turn in zip((0, 1, 2, 3, 0), TURNS, strict=True)]
        return [bit(word, at) for word in range(4)] + [x ^ y for x, y in pairwise(turned)]

    for other in range(1, 32):
        assert rank(forms(0) + forms(other)) == 16


@pytest.mark.parametrize(("counter", "seed", "words"), KNOWN)
def test_the_generator(counter: Any, seed: int, words: Any) -> None:
    assert tuple(int(word) for word in philox(counter, seed)) == words


def test_the_definition_cell_by_cell() -> None:
    dropout = Dropout(0.3, SEED)
    rows, columns = np.arange(5, 9), np.arange(50, 260)
    found = kept(dropout, np.array([[0, 7]]), rows, columns)
    assert found.shape == (1, 2, 4, 210)
    for h, head in enumerate((0, 7)):
        for i, row in enumerate(rows):
            want = [cell(dropout, head, int(row), int(key)) for key in columns]
            np.testing.assert_array_equal(found[0, h, i], want)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.937, 1.0])
def test_the_kept_share(p: float) -> None:
    cells = kept(Dropout(p, SEED), np.arange(8), np.arange(300), np.arange(500))
    share, spread = cells.mean(), np.sqrt(p * (1 - p) / cells.size)
    assert abs(share - (1 - p)) <= 4 * spread + 2.0**-17
    # neither rows, columns nor heads stand out
    for axes in ((0, 1), (0, 2), (1, 2)):
        part = cells.mean(axis=axes)
        assert (
            np.abs(part - (1 - p)).max() <= 5 * np.sqrt(p * (1 - p) * part.size / cells.size) + 1e-5
        )


def test_neighbours_are_independent() -> None:
    p = 0.1
    fallen = ~kept(Dropout(p, SEED), np.arange(16), np.arange(500), np.arange(512)) - p
    for lag in (1, 2, 7, 8, 16, 40, 64, 80, 128):
        for pairs in (fallen[..., lag:] * fallen[..., :-lag], fallen[:, lag:] * fallen[:, :-lag]):
            noise = (p * (1 - p)) / pairs.size**0.5
            assert abs(pairs.mean()) < 4 * noise + 4e-6, lag


def test_seeds_and_offsets_draw_anew() -> None:
    seen = [
        kept(Dropout(0.5, np.array(seed)), 0, np.arange(50), np.arange(50))
        for seed in ([1, 0], [2, 0], [1, 1], [1 + (1 << 32), 0])
    ]
    for i, one in enumerate(seen):
        for other in seen[:i]:
            assert 0.4 < (one == other).mean() < 0.6


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan"), "much"])
def test_a_share_that_is_none(p: Any) -> None:
    with pytest.raises(ArgumentError, match="from 0 to 1"):
        check_dropout(p)


def _dropping(case: Case, dtype: Any, p: float = 0.3) -> Call:
    return replace(case.call(dtype), dropout=Dropout(p, SEED))


def _cells(engine: str, call: Call) -> Any:
    """Which cells a pass mixed: with values that are the unit vectors, the output is the weights."""
    units = np.broadcast_to(np.eye(call.keys, dtype=call.query.dtype),
                            (call.batch, call.key_heads, call.keys, call.keys))  # fmt: skip
    whole = replace(call, value=units)
    return np.asarray(find(engine).module.forward(whole, health=False).output, np.float64) != 0


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize(
    ("nq", "nk", "group"), [(3, 70, 1), (1, 1100, 4), (70, 203, 2), (131, 401, 1)]
)
def test_the_same_cells_on_every_engine(engine: str, nq: int, nk: int, group: int) -> None:
    rng = np.random.default_rng(0)
    dtype = widest(engine)
    shapes = (2, 2 * group, nq, 16), (2, 2, nk, 16), (2, 2, nk, 1)
    call = prepare(*(rng.normal(size=shape).astype(dtype) for shape in shapes),
                   dropout=Dropout(0.3, SEED))  # fmt: skip
    heads = np.arange(4 * group).reshape(2, -1)
    np.testing.assert_array_equal(
        _cells(engine, call), kept(call.dropout, heads, np.arange(nq), np.arange(nk))
    )


@pytest.mark.skipif("native" not in HERE, reason="native is not built here")
@pytest.mark.parametrize("isa", native.isas() if "native" in HERE else [])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_same_cells_on_every_instruction_set(isa: str, dtype: str) -> None:
    import ml_dtypes

    kind = np.dtype(np.float32 if dtype == "float32" else ml_dtypes.bfloat16)
    before = native.isa()
    native.set_isa(isa)
    try:
        for nq, nk in ((2, 77), (40, 1031)):
            shape = (1, 2, nk, 16)
            rng = np.random.default_rng(0)
            q, k = rng.normal(size=(1, 2, nq, 16)).astype(kind), rng.normal(size=shape).astype(kind)
            call = prepare(q, k, k, mask=ll.Causal(), dropout=Dropout(0.3, SEED))
            want = kept(call.dropout, np.arange(2)[None], np.arange(nq), np.arange(nk))
            want &= reference.steps(call).allowed
            np.testing.assert_array_equal(_cells("native", call), want)
            grad = rng.normal(size=(1, 2, nq, 16)).astype(kind)
            got = native.backward(call, native.forward(call, health=False), grad)
            exact = reference.gradients(call, grad)
            for name in ("query", "key", "value"):
                truth = getattr(exact, name)
                size = np.abs(truth).max() * (1e-5 if dtype == "float32" else 2e-2)
                np.testing.assert_allclose(
                    np.asarray(getattr(got, name), np.float64), truth, atol=size, err_msg=name
                )
    finally:
        native.set_isa(before)


@pytest.mark.parametrize("engine", [name for name in HERE if name != "reference"])
@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_every_engine_does_as_the_reference(case: Case, engine: str) -> None:
    dtype = widest(engine)
    call, module = _dropping(case, dtype), find(engine).module
    state, exact = module.forward(call, health=True), reference.forward(call)
    plain = reference.forward(replace(call, dropout=None))
    large = max(1.0, np.nan_to_num(exact.max_logit, neginf=0.0).max())
    noise = 8 * np.finfo(dtype).eps * large
    size = np.abs(exact.output).max(initial=1.0)
    np.testing.assert_allclose(state.output, exact.output, atol=size * noise)
    for name in ("logsumexp", "max_logit", "entropy"):  # of the weights before dropout
        np.testing.assert_allclose(getattr(state, name), getattr(plain, name), atol=8 * noise)
    grad = np.random.default_rng(1).normal(size=exact.output.shape).astype(dtype)
    got, want = module.backward(call, state, grad), reference.gradients(call, grad)
    for name in ("query", "key", "value", "bias", "sinks"):
        if (truth := getattr(want, name)) is not None:
            bound = 16 * noise * np.abs(truth).max(initial=1.0)
            np.testing.assert_allclose(getattr(got, name), truth, atol=bound, err_msg=name)


def test_gradients_by_finite_differences() -> None:
    case = Case("all", heads=4, key_heads=2, nq=3, nk=5, d=3, dv=2, bias=(4, 1, 5), softcap=2.0,
                sinks=True, mask=ll.Causal())  # fmt: skip
    arrays, options = case.arrays()
    drop = Dropout(0.4, SEED)
    call = prepare(*arrays, **options, dropout=drop)
    weight = np.random.default_rng(2).normal(size=(2, 4, 3, 2))
    grads = reference.gradients(call, weight)
    inputs = dict(zip(("query", "key", "value"), arrays, strict=True))
    inputs |= {name: options[name] for name in ("bias", "sinks")}
    for name, array in inputs.items():
        gradient = getattr(grads, name).reshape(array.shape)
        for index in np.random.default_rng(3).permutation(array.size)[:12]:
            at, losses = np.unravel_index(index, array.shape), []
            for step in (1e-6, -1e-6):
                moved = array.copy()
                moved[at] += step
                state = reference.forward(
                    prepare(**{**options, **inputs, name: moved}, dropout=drop)
                )
                losses.append((weight * state.output).sum())
            slope = (losses[0] - losses[1]) / 2e-6
            assert gradient[at] == pytest.approx(slope, rel=1e-5, abs=1e-8), (name, at)


@pytest.mark.parametrize("engine", HERE)
def test_none_and_all(engine: str) -> None:
    module, plain = find(engine).module, CASES[0].call(widest(engine))
    want = module.forward(plain, health=False).output
    none = module.forward(replace(plain, dropout=Dropout(0.0, SEED)), health=False).output
    np.testing.assert_array_equal(none, want)
    everything = replace(plain, dropout=Dropout(1.0, SEED))
    state = module.forward(everything, health=False)
    assert not np.any(state.output)
    grads = module.backward(everything, state, np.ones_like(state.output))
    for gradient in (grads.query, grads.key, grads.value):
        assert not np.any(gradient)


def test_precision_is_that_of_the_plain_formula() -> None:
    if "native" not in HERE:
        pytest.skip("native is not built here")
    call = _dropping(Case("long", nq=67, nk=401, d=64, dv=64), np.float32)
    exact = reference.steps(call)
    scale = np.float32(call.dropout.scale)
    stay = kept(call.dropout, np.arange(6).reshape(2, 3), np.arange(67), np.arange(401))
    weights = exact.weights.astype(np.float32) * np.where(stay, scale, np.float32(0))
    got = native.forward(call, health=False).output
    assert_close(got, exact.output, weights @ call.value, np.float32)
