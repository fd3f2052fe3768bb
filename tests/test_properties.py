"""Laws that hold for any attention, on every engine that runs on this machine's CPU."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.errors import ArgumentError, DtypeError, ShapeError
from tests.cases import HERE


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


seeds = st.integers(0, 2**31)
lengths = st.integers(1, 40)


@pytest.mark.parametrize("engine", HERE)
@given(seed=seeds, nq=lengths, nk=lengths)
def test_the_order_of_the_keys_does_not_matter(engine: str, seed: int, nq: int, nk: int) -> None:
    query, key, value = draw(seed, nq, 5), draw(seed + 1, nk, 5), draw(seed + 2, nk, 3)
    order = np.random.default_rng(seed).permutation(nk)
    straight = ll.inspect(query, key, value, engine=engine)
    permuted = ll.inspect(query, key[order], value[order], engine=engine)
    np.testing.assert_allclose(permuted.output, straight.output, atol=2e-6)
    np.testing.assert_allclose(permuted.health.entropy, straight.health.entropy, atol=5e-6)


@pytest.mark.parametrize("engine", HERE)
@given(seed=seeds, shift=st.floats(-100, 100), nk=lengths)
def test_a_shift_of_all_logits_changes_no_weight(
    engine: str, seed: int, shift: float, nk: int
) -> None:
    query, key, value = draw(seed, 7, 5), draw(seed + 1, nk, 5), draw(seed + 2, nk, 3)
    plain = ll.inspect(query, key, value, engine=engine)
    shifted = ll.inspect(query, key, value, bias=np.full((1, 1), shift, np.float32), engine=engine)
    np.testing.assert_allclose(shifted.output, plain.output, atol=2e-4)
    np.testing.assert_allclose(
        shifted.health.logsumexp - np.float32(shift), plain.health.logsumexp, atol=2e-4
    )
    np.testing.assert_allclose(shifted.health.entropy, plain.health.entropy, atol=2e-4)


@pytest.mark.parametrize("engine", HERE)
@given(seed=seeds, heads=st.integers(1, 4), batch=st.integers(1, 3))
def test_heads_and_batch_entries_do_not_mix(engine: str, seed: int, heads: int, batch: int) -> None:
    query, key, value = (draw(seed + i, batch, heads, 9, 5) for i in range(3))
    together = ll.attention(query, key, value, mask=ll.Causal(), engine=engine)
    for b in range(batch):
        for h in range(heads):
            alone = ll.attention(
                query[b, h], key[b, h], value[b, h], mask=ll.Causal(), engine=engine
            )
            np.testing.assert_allclose(together[b, h], alone, atol=1e-6)


@pytest.mark.parametrize("engine", HERE)
@given(seed=seeds, n=lengths, factor=st.floats(-1e6, 1e6))
def test_masked_values_are_irrelevant(engine: str, seed: int, n: int, factor: float) -> None:
    query, key, value = (draw(seed + i, n, 5) for i in range(3))
    mask = np.random.default_rng(seed).random(n) < 0.5
    before = ll.attention(query, key, value, mask=mask, engine=engine)
    key[~mask], value[~mask] = factor, np.nan
    np.testing.assert_array_equal(ll.attention(query, key, value, mask=mask, engine=engine), before)


def states(seed: int, parts: list[int], masked: float, sinks: bool) -> tuple[list[Any], Any]:
    """The states over consecutive parts of the keys, and the state over all of them."""
    rng = np.random.default_rng(seed)
    nk = sum(parts)
    query, key, value = (
        rng.normal(size=(2, 5, 3)) * 5,
        rng.normal(size=(2, nk, 3)),
        rng.normal(size=(2, nk, 4)),
    )
    mask = rng.random((5, nk)) >= masked
    sink = rng.normal(size=2) if sinks else None
    edges = np.cumsum([0, *parts])
    made = [
        reference.forward(prepare(query, key[:, a:b], value[:, a:b], mask=mask[:, a:b],
                                  sinks=sink if i == 0 else None))
        for i, (a, b) in enumerate(pairwise(edges))
    ]  # fmt: skip
    return made, reference.forward(prepare(query, key, value, mask=mask, sinks=sink))


@settings(deadline=None)
@given(
    seed=seeds,
    parts=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    masked=st.sampled_from([0.0, 0.5, 0.95]),
    sinks=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_split_and_merge_in_any_order(
    seed: int, parts: list[int], masked: float, sinks: bool, order: Any
) -> None:
    made, whole = states(seed, parts, masked, sinks)
    while len(made) > 1:
        order.shuffle(made)
        made.append(ll.merge(made.pop(), made.pop()))
    for name in ("output", "logsumexp", "max_logit", "entropy"):
        np.testing.assert_allclose(
            getattr(made[0], name), getattr(whole, name), atol=1e-12, err_msg=name
        )


def test_merge_with_nothing_is_nothing_new() -> None:
    made, whole = states(0, [9], 0.0, False)
    empty = reference.forward(prepare(np.ones((2, 5, 3)), np.ones((2, 0, 3)), np.ones((2, 0, 4))))
    for merged in (ll.merge(made[0], empty), ll.merge(empty, made[0])):
        np.testing.assert_array_equal(merged.output, whole.output)
        np.testing.assert_array_equal(merged.entropy, whole.entropy)
    assert (ll.merge(empty, empty).output == 0).all()
    assert np.isneginf(ll.merge(empty, empty).logsumexp).all()


def test_what_does_not_merge() -> None:
    made, _ = states(0, [4, 5], 0.0, False)
    one, more = made
    part = ll.State(one.output[:, :, :3], one.logsumexp[:, :, :3])
    mixed = ll.State(one.output, part.logsumexp)
    lists = ll.State(one.output.tolist(), one.logsumexp.tolist())
    tensors = ll.State(torch.from_numpy(one.output), torch.from_numpy(one.logsumexp))
    for other, error, words in (
        (ll.inspect([[1]], [[1]], [[1]]), ArgumentError, "takes two states.*, and got Inspection$"),
        (None, ArgumentError, "and got NoneType$"),
        (lists, ArgumentError, "and got State of list$"),
        (tensors, DtypeError, "one state is of tensors"),
        (part, ShapeError, r"outputs of shape \(.*\) and \(.*\) do not merge"),
        (mixed, ShapeError, r"logsumexps of shape \(.*\) and \(.*\) do not merge"),
    ):
        for pair in ((other, more), (more, other)):
            with pytest.raises(error, match=words):
                ll.merge(*pair)
