"""Logits far beyond 1000, whose logsumexp has too few digits after the point to tell weights by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.capture import Site
from limelight.engines import find
from limelight.heads.kinds import scores
from limelight.looking.pyramid import Pyramid
from limelight.reference import State

ENGINES = ["auto", "numpy", *(["native"] if find("native").missing() is None else [])]
TIES = np.array([[1, 0]] * 7 + [[0.5, 0]] * 3)


def _tied(size: float, dtype: Any) -> tuple[Any, Any]:
    return np.array([[size, 0]], dtype), TIES.astype(dtype)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e4, 1e6, 1e8, 1e17, 1e30])
def test_ties_share_a_row(size: float, dtype: Any, engine: str) -> None:
    if engine == "native" and dtype == np.float64:
        pytest.skip("no float64 there")
    query, key = _tied(size, dtype)
    same: dict[str, Any] = {"scale": 1.0, "engine": engine}
    want = np.array([1 / 7] * 7 + [0] * 3)
    near = {"rtol": 1e-6, "atol": 0.0}
    found = ll.weights(query, key, **same)
    assert found.dtype == dtype
    np.testing.assert_allclose(found[0], want, **near)
    np.testing.assert_allclose(ll.weights(query, key, columns=[1, 8], **same)[0], want[[1, 8]])
    np.testing.assert_allclose(ll.received(query, key, **same), want, **near)
    np.testing.assert_allclose(ll.top(query, key, k=8, **same).weights[0], want[:8], **near)
    for pool in ("max", "mean"):
        seen = ll.heatmap(query, key, shape=(1, 10), pool=pool, **same)
        np.testing.assert_allclose(seen.values[0], want, **near)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", [
    {}, {"mask": ll.Causal()}, {"sinks": [1900.0, -1e4, 2.5e4]}, {"softcap": 3000.0},
    {"bias": np.float32(-2e4)}, {"mask": ll.Window(5, 2), "sinks": [0.0, 1e5, -np.inf]},
], ids=["plain", "causal", "sinks", "softcap", "bias", "window"])  # fmt: skip
def test_as_the_definition(options: dict[str, Any], engine: str) -> None:
    """In float64, where a row is looked at in float32 too: what a dot product rounds is not lost."""
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 3, 37, 8)).astype(np.float32)
    query *= 3000
    given = {
        name: np.asarray(part, np.float32).reshape((1,) * 2 if name == "bias" else -1)
        if name in ("bias", "sinks") else part
        for name, part in options.items()
    }  # fmt: skip
    want = reference.steps(prepare(query, key, **given)).weights[0]
    found = ll.weights(query, key, engine=engine, **given)
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-30)
    some = ll.weights(query, key, rows=(5, 9), columns=(3, 30), engine=engine, **given)
    np.testing.assert_array_equal(some, found[:, 5:9, 3:30])


def test_what_is_known_of_a_site_does_not_mislead() -> None:
    query, key = _tied(1e8, np.float32)
    site = Site("a", 0, query[None, None], key[None, None], scale=1.0)
    assert site.statistics.logsumexp[0, 0, 0] == np.float32(1e8)
    np.testing.assert_allclose(site.weights(head=0)[0], [1 / 7] * 7 + [0] * 3, rtol=1e-6)
    assert site.cell(0, 3).weight == pytest.approx(1 / 7, rel=1e-6)
    tile = Pyramid(site, head=0).tile(0, 0, 0)
    np.testing.assert_allclose(tile[0], [1 / 7] * 7 + [0] * 3, rtol=1e-6)


def test_kinds_of_large_logits() -> None:
    """An even head is even, and no head looks wholly at the token before."""
    query = np.zeros((1, 1, 9, 2), np.float32)
    query[..., 0] = 1e8
    key = np.ones((1, 1, 9, 2), np.float32)
    site = Site("a", 0, query, key, scale=1.0, mask=ll.Causal(), tokens=(tuple("abcabcabc"),))
    (found,) = scores(site)
    assert found["uniform"].score == pytest.approx(1.0)
    for name in ("previous", "diagonal", "sink"):
        assert found[name].score == pytest.approx(found[name].chance), name


@pytest.mark.parametrize("engine", ["reference", *ENGINES])
def test_gradients(engine: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = torch.float32 if engine == "native" else torch.float64
    query = torch.full((1, 1, 2, 1), 1e8 if engine == "native" else 1e17, dtype=dtype)
    key, value = torch.ones((1, 1, 5, 1), dtype=dtype), torch.arange(5.0, dtype=dtype)[:, None]
    leaves = [x.clone().requires_grad_() for x in (query, key, value[None, None])]
    seen = ll.inspect(*leaves, scale=1.0, engine=engine, sinks=query[0, 0, :1, 0])
    (seen.output.sum() + seen.health.logsumexp.sum() + seen.health.entropy.sum()).backward()
    by_query, by_key, by_value = (x.grad.flatten() for x in leaves)
    torch.testing.assert_close(by_value, torch.full((5,), 2 / 6, dtype=dtype))
    torch.testing.assert_close(by_query, torch.full((2,), 10 / 36 + 5 / 6, dtype=dtype))
    sizes = torch.arange(5.0, dtype=dtype) - 10 / 6  # dP − D; and 1, of the logsumexp
    torch.testing.assert_close(by_key, 2 / 6 * (sizes + 1) * query[0, 0, 0, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shares_of_merged_states_add_up(dtype: Any) -> None:
    size = 1e8 if dtype == np.float32 else 1e17
    query, value = np.array([[size, 0]], dtype), np.ones((6, 1), dtype)
    key = np.array([[1, 0]] * 6, dtype)

    def state(part: slice) -> State:
        seen = ll.inspect(query, key[part], value[part], scale=1.0)
        health = seen.health
        return State(seen.output, health.logsumexp, health.max_logit, health.entropy)

    merged = ll.merge(state(slice(3)), state(slice(3, 6)))
    np.testing.assert_allclose(merged.output, 1.0, rtol=1e-6)
    np.testing.assert_allclose(merged.entropy, np.log(6), rtol=1e-6)
