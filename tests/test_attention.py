"""attention() and inspect() on NumPy arrays and lists: exact, at every edge of the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.torch import attention
from tests.cases import CASES, HERE, Case, assert_close, eps, plainly, widest

EXACT = [name for name in HERE if widest(name) == np.float64]
WORKED = ([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]])


@pytest.mark.parametrize("engine", EXACT)
def test_worked_example(engine: str) -> None:
    out = ll.attention(*WORKED, engine=engine)
    np.testing.assert_allclose(out, [[8.829123, 0.858154]], atol=5e-7)
    assert out.dtype == np.float64


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("engine", EXACT)
def test_equals_torch_in_float64(case: Case, engine: str) -> None:
    if case.softcap or case.sinks:
        pytest.skip("torch's fused attention has neither softcap nor sinks")
    arrays, options = case.arrays()
    heads = case.heads
    query, key, value = (torch.from_numpy(x) for x in arrays)
    key, value = (x.repeat_interleave(heads // x.shape[-3], dim=-3) for x in (key, value))
    added = torch.zeros(*case.batch, heads, case.nq, case.nk, dtype=torch.float64)
    if (mask := options["mask"]) is not None:
        dense = mask.dense(case.nq, case.nk) if isinstance(mask, ll.Mask) else mask
        added = added.masked_fill(~torch.from_numpy(np.array(dense)), -torch.inf)
    if "bias" in options:
        added = added + torch.from_numpy(options["bias"])
    expected = scaled_dot_product_attention(query, key, value, added, scale=case.scale).numpy()
    expected[np.isneginf(added.numpy()).all(axis=-1)] = 0.0  # torch may say NaN
    got = ll.attention(*arrays, **options, engine=engine)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_numpy_engine_against_the_reference(case: Case, dtype: type) -> None:
    call = case.call(dtype)
    exact = reference.forward(call)
    arrays, options = case.arrays(dtype)
    seen = ll.inspect(*arrays, **options, engine="numpy")
    assert seen.output.dtype == dtype
    plain = plainly(call, np.float64 if dtype == np.float64 else np.float32).astype(dtype)
    assert_close(seen.output, call.restore(exact.output), call.restore(plain), dtype)
    wide = np.float64 if dtype == np.float64 else np.float32
    for name in ("max_logit", "logsumexp", "entropy"):
        truth = call.restore(getattr(exact, name))
        # A logit of size L is itself only known to L·eps, and entropy is a difference of such.
        noise = (
            np.abs(
                np.where(
                    np.isfinite(call.restore(exact.max_logit)), call.restore(exact.max_logit), 0
                )
            ).max()
            * 8
            * np.finfo(wide).eps
        )
        assert_close(getattr(seen.health, name), truth, truth + noise, wide, what=name)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_of_the_numpy_engine(case: Case) -> None:
    from limelight.engines import numpy as engine

    call = case.call(np.float64)
    grad = np.random.default_rng(1).normal(
        size=(call.batch, call.query_heads, call.queries, case.dv)
    )
    exact = reference.gradients(call, grad)
    got = engine.backward(call, engine.forward(call, health=False), grad)
    for name in ("query", "key", "value", "bias", "sinks"):
        if (truth := getattr(exact, name)) is None:
            assert getattr(got, name) is None
        else:
            # a weight rebuilt from the logsumexp is known to that number's own rounding
            size = max(1.0, np.abs(truth).max()) * max(1.0, reference.forward(call).max_logit.max())
            np.testing.assert_allclose(getattr(got, name), truth, atol=1e-13 * size, err_msg=name)


@pytest.mark.parametrize(
    "case",
    [
        Case("plain", nq=3, nk=5, d=3, dv=2),
        Case("grouped-causal", heads=4, key_heads=2, nq=5, nk=5, d=3, dv=2, mask=ll.Causal()),
        Case("all", heads=4, key_heads=2, nq=3, nk=5, d=3, dv=2, bias=(4, 1, 5), softcap=2.0,
             sinks=True, scale=0.7, mask=ll.Causal()),
        Case("empty-rows", nq=5, nk=3, d=3, dv=2, mask=ll.Causal(), bias=(3, 5, 3), hidden_bias=0.4),
    ],
    ids=str,
)  # fmt: skip
def test_gradients_by_finite_differences(case: Case) -> None:
    arrays, options = case.arrays()
    call = prepare(*arrays, **options)
    weight = np.random.default_rng(2).normal(
        size=(call.batch, call.query_heads, call.queries, case.dv)
    )
    grads = reference.gradients(call, weight)
    inputs = dict(zip(("query", "key", "value"), arrays, strict=True))
    inputs |= {name: options[name] for name in ("bias", "sinks") if options.get(name) is not None}
    for name, array in inputs.items():
        gradient = getattr(grads, name).reshape(array.shape)
        for index in np.random.default_rng(3).permutation(array.size)[:12]:
            at = np.unravel_index(index, array.shape)
            if not np.isfinite(array[at]):
                continue
            losses = []
            for step in (1e-6, -1e-6):
                moved = {**inputs, name: array.copy()}
                moved[name][at] += step
                extra = {key: moved[key] for key in ("bias", "sinks") if key in moved}
                out = ll.attention(
                    moved["query"],
                    moved["key"],
                    moved["value"],
                    **{**options, **extra},
                    engine="reference",
                )
                losses.append((call.restore(weight) * out).sum())
            slope = (losses[0] - losses[1]) / 2e-6
            assert gradient[at] == pytest.approx(slope, rel=1e-5, abs=1e-8), (name, at)


def drawn(engine: str, *shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(widest(engine))


@pytest.mark.parametrize("engine", HERE)
class TestEdges:
    def test_rows_without_keys_give_zero(self, engine: str) -> None:
        x = drawn(engine, 2, 5, 3)
        mask = np.ones((5, 5), bool)
        mask[2] = False
        seen = ll.inspect(x, x, x, mask=mask, engine=engine)
        assert (seen.output[:, 2] == 0).all()
        assert np.isfinite(seen.output).all()
        health = seen.health
        assert (health.keys[:, 2] == 0).all()
        assert (health.max_prob[:, 2] == 0).all()
        assert (health.entropy[:, 2] == 0).all()
        assert (health.spread[:, 2] == 0).all()
        assert (health.verdict[:, 2] == "").all()
        assert np.isneginf(health.logsumexp[:, 2]).all()
        assert np.isneginf(health.max_logit[:, 2]).all()

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_what_is_masked_cannot_leak(self, engine: str, bad: float) -> None:
        query, key, value = drawn(engine, 3, 2, 7, 3)
        clean = ll.inspect(query, key, value, mask=ll.Causal(), engine=engine)
        key[:, 5], value[:, 5, 1] = bad, bad
        dirty = ll.inspect(query, key, value, mask=ll.Causal(), engine=engine)
        assert np.array_equal(dirty.output[:, :5], clean.output[:, :5])
        assert np.array_equal(dirty.health.entropy[:, :5], clean.health.entropy[:, :5])
        assert not np.isfinite(dirty.output[:, 5:, 1]).any()  # and where it is seen, it is seen

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    @pytest.mark.parametrize("n", [7, 300])
    def test_a_bad_query_reaches_no_key_that_it_does_not_see(
        self, engine: str, n: int, bad: float
    ) -> None:
        row = n // 2
        query, key, value = (torch.from_numpy(x) for x in drawn(engine, 3, 2, n, 3))
        query[:, row] = bad
        leaves = [x.requires_grad_() for x in (query, key, value)]
        out = ll.attention(*leaves, mask=ll.Causal(), engine=engine)
        _, by_key, by_value = torch.autograd.grad(out.sum(), leaves)
        look = {"mask": ll.Causal(), "engine": engine}
        pair = query.detach().numpy(), key.detach().numpy()
        by_keys = [
            by_key[0].sum(-1).numpy(), by_value[0].sum(-1).numpy(), ll.received(*pair, **look)[0],
            ll.weights(*pair, **look)[0, row], ll.heatmap(*pair, shape=(1, n), **look).values[0, 0],
            ll.heatmap(*pair, shape=(1, n), pool="mean", **look).values[0, 0],
        ]  # fmt: skip
        for found in by_keys:
            assert np.isfinite(found[row + 1 :]).all()
            assert np.isnan(found[: row + 1]).all() or np.isinf(bad)

    def test_a_visible_bad_value_spoils_only_its_column(self, engine: str) -> None:
        x = drawn(engine, 5, 3)
        value = x.copy()
        value[4, 1] = np.nan
        out = ll.attention(x, x, value, mask=ll.Causal(), engine=engine)
        assert np.isnan(out[4, 1])
        assert np.isfinite(np.delete(out.reshape(-1), 4 * 3 + 1)).all()

    @pytest.mark.parametrize("size", [1e4, 1e20, 1e150])
    def test_large_logits(self, engine: str, size: float) -> None:
        dtype = widest(engine)
        if size > float(np.finfo(dtype).max):
            pytest.skip(f"{dtype} has no such number")
        query = np.array([[size, 0.0]], dtype)
        key = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], dtype)
        value = np.array([[1.0], [3.0], [100.0]], dtype)
        seen = ll.inspect(query, key, value, engine=engine)
        np.testing.assert_allclose(seen.output, [[2.0]])
        np.testing.assert_allclose(seen.health.entropy, np.log(2))
        if size < 1e5:  # past that ln 2 is less than the rounding of a logsumexp of that size
            np.testing.assert_allclose(seen.health.max_prob, 0.5, rtol=size * eps(dtype))

    def test_float16_logits_past_its_range(self, engine: str) -> None:
        x = np.full((3, 8), 200.0, np.float16)
        out = ll.attention(x, x, np.eye(3, dtype=np.float16), engine=engine)
        assert out.dtype == np.float16
        np.testing.assert_allclose(out, np.full((3, 3), 1 / 3), rtol=1e-3)

    @pytest.mark.parametrize(
        ("q", "k", "v"),
        [
            ((0, 2, 3, 4), (0, 2, 5, 4), (0, 2, 5, 6)),
            ((2, 2, 0, 4), (2, 2, 5, 4), (2, 2, 5, 6)),
            ((2, 2, 3, 4), (2, 2, 0, 4), (2, 2, 0, 6)),
            ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 0)),
            ((2, 0, 3, 4), (2, 0, 5, 4), (2, 0, 5, 6)),
            ((0, 4), (5, 4), (5, 6)),
            ((3, 4), (0, 4), (0, 6)),
        ],
    )
    def test_zero_sizes(self, engine: str, q: tuple, k: tuple, v: tuple) -> None:
        arrays = (np.ones(shape, widest(engine)) for shape in (q, k, v))
        seen = ll.inspect(*arrays, mask=ll.Causal(), engine=engine)
        assert seen.output.shape == (*q[:-1], v[-1])
        assert (seen.output == 0).all() or k[-2] > 0
        assert seen.health.entropy.shape == q[:-1]
        assert repr(seen)

    def test_length_one_gives_the_value(self, engine: str) -> None:
        arrays = (np.array(x, widest(engine)) for x in ([[3.0]], [[2.0]], [[7.0, 8.0]]))
        assert ll.attention(*arrays, engine=engine).tolist() == [[7.0, 8.0]]

    def test_strides(self, engine: str) -> None:
        base, near = drawn(engine, 2, 3, 22, 10), 45 * eps(widest(engine))
        plain = [np.ascontiguousarray(x) for x in (base[..., ::2, ::2], base[..., ::-2, ::-2])]
        odd = base[..., ::2, ::2], base[..., ::-2, ::-2]
        expected = ll.attention(plain[0], plain[1], plain[1], engine=engine)
        assert np.allclose(ll.attention(odd[0], odd[1], odd[1], engine=engine), expected, atol=near)
        zero = np.broadcast_to(plain[0][:1, :1], plain[0].shape)
        same = np.ascontiguousarray(zero)
        np.testing.assert_allclose(
            ll.attention(zero, zero, zero, engine=engine),
            ll.attention(same, same, same, engine=engine),
            atol=near,
        )
        transposed = plain[0].swapaxes(1, 2).copy().swapaxes(1, 2)
        np.testing.assert_allclose(
            ll.attention(transposed, plain[1], plain[1], engine=engine), expected, atol=near
        )

    def test_integers_lists_and_mixed_types(self, engine: str) -> None:
        if engine not in EXACT:
            pytest.skip("integers and lists become float64")
        x = np.arange(6).reshape(3, 2)
        assert ll.attention(x, x, x, engine=engine).dtype == np.float64
        expected = ll.attention(x.astype(float), x, x, engine=engine)
        np.testing.assert_array_equal(
            ll.attention(x.tolist(), x.tolist(), x.tolist(), engine=engine), expected
        )
        single = x.astype(np.float32)
        assert ll.attention(single, single, single, engine=engine).dtype == np.float32
        assert ll.attention(single, x, single, engine=engine).dtype == np.float64

    def test_one_head_may_leave_its_axis_out(self, engine: str) -> None:
        query, key = drawn(engine, 4, 5, 3), drawn(engine, 7, 3)
        together = ll.attention(query, key, key, engine=engine)  # one key head for all
        for h in range(4):
            alone = ll.attention(query[h], key, key, engine=engine)
            np.testing.assert_allclose(together[h], alone, atol=45 * eps(widest(engine)))

    def test_sinks_take_and_give_nothing(self, engine: str) -> None:
        zero, value = np.zeros((1, 1), widest(engine)), np.full((1, 1), 6.0, widest(engine))
        seen = ll.inspect(zero, zero, value, sinks=[np.log(2.0)], engine=engine)
        np.testing.assert_allclose(seen.output, [[2.0]])  # one third of 6
        np.testing.assert_allclose(seen.health.max_prob, [1 / 3])
        np.testing.assert_allclose(seen.health.entropy, [np.log(3) - 2 / 3 * np.log(2)])
        assert seen.health.max_logit == 0
        alone = ll.inspect(zero, zero, value, sinks=[1.0], mask=[[False]], engine=engine)
        assert alone.output == 0
        assert alone.health.logsumexp == 1.0

    @pytest.mark.parametrize("way", ["__array__", "__dlpack__"])
    def test_arrays_of_other_frameworks(self, engine: str, way: str) -> None:
        x = np.linspace(-1, 1, 35, dtype=np.float32).reshape(1, 5, 7)
        ways = {"__array__": lambda self, *how, **named: x.__array__(*how, **named),
                "__dlpack__": lambda self, **named: x.__dlpack__(**named),
                "__dlpack_device__": lambda self: x.__dlpack_device__()}  # fmt: skip
        offered = {name: how for name, how in ways.items() if name.startswith(way[:-2])}
        other = type("Other", (), offered)()
        output = ll.attention(other, other, other, engine=engine)
        assert type(output) is np.ndarray
        np.testing.assert_array_equal(output, ll.attention(x, x, x, engine=engine))

    def test_bfloat16_through_ml_dtypes(self, engine: str) -> None:
        from ml_dtypes import bfloat16

        x = np.random.default_rng(0).normal(size=(2, 7, 5)).astype(bfloat16)
        out = ll.attention(x, x, x, engine=engine)
        assert out.dtype == bfloat16
        exact = ll.attention(*(x.astype(np.float64),) * 3, engine="reference")
        np.testing.assert_allclose(out.astype(np.float64), exact, atol=0.02)


def test_memory_of_the_numpy_engine_is_linear() -> None:
    import tracemalloc

    x = np.zeros((1, 1, 4096, 16), np.float32)
    tracemalloc.start()
    ll.attention(x, x, x, mask=ll.Causal(), engine="numpy")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20, f"{peak / 2**20:.0f} MiB, where n×n would be 64"


def test_subclasses_of_numpy_arrays(tmp_path: Path) -> None:
    plain = np.random.default_rng(0).normal(size=(1, 2, 5, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", plain)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    want = ll.attention(plain, plain, plain, bias=plain[..., :5])
    assert np.array_equal(ll.attention(mapped, plain, mapped, bias=mapped[..., :5]), want)
    assert type(ll.attention(mapped, mapped, mapped)) is np.ndarray
    assert np.array_equal(ll.attention(mapped, mapped, mapped), ll.attention(plain, plain, plain))

    class Rows(np.ndarray):
        """Which slices as it likes, as np.matrix does."""

        def __getitem__(self, at: Any) -> Any:
            raise IndexError

    rows = plain[0, 0]
    odd = rows.view(Rows)
    assert np.array_equal(ll.attention(odd, odd, odd), ll.attention(rows, rows, rows))
    with pytest.raises(ll.LimelightError, match="a masked array"):
        ll.attention(np.ma.array(plain), plain, plain)


def test_numbers_that_float32_has_not() -> None:
    x = np.random.default_rng(0).normal(size=(1, 1, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(
        ll.attention(x, x, x, softcap=1e39), ll.attention(x, x, x), rtol=1e-5
    )
    with pytest.raises(ll.LimelightError, match=r"numpy.*scale=1e\+40 is beyond.*can: auto, ref"):
        ll.attention(x, x, x, scale=1e40, engine="numpy")


@pytest.mark.parametrize("softcap", [1e-46, 1e-39])
def test_a_softcap_that_float32_has_not(softcap: float) -> None:
    """It leaves no logit: a cap that became 0 would be none at all."""
    x, y = (np.array(rows, np.float32) for rows in ([[3, 0]], [[1, 0], [-1, 0]]))
    value, rule = np.array([[1], [0]], np.float32), {"scale": 1.0, "softcap": softcap}
    assert ll.attention(x, y, value, **rule) == 0.5
    assert ll.inspect(x, y, value, **rule).health.max_prob == 0.5
    np.testing.assert_array_equal(ll.weights(x, y, **rule), [[0.5, 0.5]])
    np.testing.assert_array_equal(ll.heatmap(x, y, (1, 2), **rule).values, [[0.5, 0.5]])
    for engine in ("numpy", "native"):
        with pytest.raises(ll.LimelightError, match=rf"{softcap:g} is too small.*can: auto, ref"):
            ll.attention(x, y, value, **rule, engine=engine)
    wide = (array.astype(np.float64) for array in (x, y, value))
    assert ll.attention(*wide, **rule, engine="numpy") == 0.5
    assert ll.attention(x, y, value, scale=1.0, softcap=2.0**-126, engine="numpy") == 0.5


@pytest.mark.parametrize(("size", "rule"), [
    (2.0**48, {"scale": -(2.0**-50), "softcap": 1e30}),
    (1.0, {"scale": 1e20, "softcap": 1e-30}),
    (2.0**60, {"scale": 1e-20, "softcap": 1e-46}),
])  # fmt: skip
def test_a_scale_and_a_softcap_that_are_far_apart(size: float, rule: dict[str, Any]) -> None:
    x, y = (np.array(rows, np.float32) for rows in ([[3], [0]], [[1], [-1], [0]]))
    want = ll.weights(x.astype(np.float64) * size, y.astype(np.float64), **rule)
    x *= np.float32(size)
    for engine in ("auto", "reference"):
        np.testing.assert_allclose(ll.weights(x, y, **rule, engine=engine), want, rtol=1e-6)
    with pytest.raises(ll.LimelightError, match=r"(no .* its digits|too small).*can: auto, ref"):
        ll.attention(x, y, y, **rule, engine="native")
    tensors = (torch.tensor(array)[None, None] for array in (x, y, y))
    np.testing.assert_allclose(attention(*tensors, **rule)[0, 0], want @ y, atol=1e-6)


@pytest.mark.parametrize("engine", ["auto", "numpy", "reference"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i4"])
def test_numbers_of_another_byte_order(dtype: str, engine: str) -> None:
    """As files of the network and of FITS have them; and dtypes that are a copy of NumPy's."""
    drawn = (np.random.default_rng(0).normal(size=(1, 2, 5, 4)) * 3).astype(dtype)
    allowed, sinks = np.tri(5) > 0, np.array([0.5, -1.0], np.float32)
    rule: dict[str, Any] = {"bias": drawn[..., :1], "sinks": sinks, "mask": allowed}
    want = ll.attention(drawn, drawn, drawn, **rule, engine=engine)
    for order in ">=":
        kind = drawn.dtype.newbyteorder(order)
        x = drawn.astype(kind)
        turned = {
            **rule,
            "bias": x[..., :1],
            "sinks": sinks.astype(sinks.dtype.newbyteorder(order)),
            "mask": ll.Lengths(np.array(5, np.dtype(np.int32).newbyteorder(order))) & allowed,
        }
        found = ll.attention(x, x, x, **turned, engine=engine)
        np.testing.assert_array_equal(found, want)
        assert found.dtype is want.dtype
        assert ll.attention(x, drawn, drawn, engine=engine).dtype is want.dtype
        said = ll.inspect(x, x, x, engine=engine).health.logsumexp
        look = ll.weights(
            x, x, logsumexp=said.astype(said.dtype.newbyteorder(order)), engine=engine
        )
        want_look = ll.weights(drawn, drawn, logsumexp=said, engine=engine)
        np.testing.assert_array_equal(look, want_look)


def test_what_goes_beside_tensors_may_be_of_numpy_or_of_lists() -> None:
    """With all its digits, wherever its numbers lie."""
    rng = np.random.default_rng(0)
    x, bias = rng.normal(size=(2, 3, 4)), rng.normal(size=(3, 3))
    fixed = np.broadcast_to(bias, (2, 3, 3))  # nobody may write to it
    same = {"sinks": [0.1, 0.3], "engine": "reference"}
    want = ll.attention(x, x, x, bias=bias, **same)
    for given in (bias, bias.tolist(), bias[::-1].copy()[::-1], bias.astype(">f8"), fixed):
        found = ll.attention(*[torch.from_numpy(x)] * 3, bias=given, **same)
        np.testing.assert_array_equal(found, want)
    short = bias.astype(pytest.importorskip("ml_dtypes").bfloat16)
    found = ll.attention(*[torch.from_numpy(x)] * 3, bias=short, **same)
    np.testing.assert_array_equal(found, ll.attention(x, x, x, bias=short, **same))
