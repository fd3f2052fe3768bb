"""SelfAttention: from X through learned projections to the output."""

import json

import numpy as np
import pytest

import limelight as ll
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.learn.projections import SelfAttention

RNG = np.random.default_rng(7)


def by_definition(layer, x, mask=None):
    """One head after the other, in plain loops over heads."""
    group = layer.heads // layer.key_heads
    d, dv = layer.head_size, layer.value_size
    outputs = []
    for h in range(layer.heads):
        g = h // group
        q = x @ layer.w_q[:, h * d : (h + 1) * d]
        k = x @ layer.w_k[:, g * d : (g + 1) * d]
        v = x @ layer.w_v[:, g * dv : (g + 1) * dv]
        s = q @ np.swapaxes(k, -1, -2) / np.sqrt(d)
        s = s if mask is None else np.where(mask, s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        outputs.append(p / p.sum(-1, keepdims=True) @ v)
    joined = np.concatenate(outputs, axis=-1)
    return joined if layer.w_o is None else joined @ layer.w_o


@pytest.mark.parametrize(
    "sizes",
    [
        {"model_size": 5},
        {"model_size": 6, "heads": 3},
        {"model_size": 7, "heads": 6, "key_heads": 2, "head_size": 3, "value_size": 5},
        {"model_size": 7, "heads": 3, "key_heads": 1, "head_size": 2, "output": False},
    ],
)
@pytest.mark.parametrize("shape", [(11,), (2, 3, 5), (1,)])
@pytest.mark.parametrize("causal", [False, True])
def test_equals_the_definition(sizes, shape, causal):
    layer = SelfAttention.from_seed(**sizes, seed=3)
    x = RNG.normal(size=(*shape, layer.model_size))
    mask = np.tri(shape[-1], dtype=bool) if causal else None
    found = layer(x, mask=ll.Causal() if causal else None)
    np.testing.assert_allclose(found, by_definition(layer, x, mask), rtol=1e-11, atol=1e-13)


def test_equals_torch_multi_head_attention():
    torch = pytest.importorskip("torch")
    layer = SelfAttention.from_seed(12, heads=3, seed=1)
    module = torch.nn.MultiheadAttention(12, 3, bias=False, batch_first=True).double()
    with torch.no_grad():
        stacked = np.concatenate([layer.w_q, layer.w_k, layer.w_v], axis=1).T
        module.in_proj_weight.copy_(torch.from_numpy(stacked))
        module.out_proj.weight.copy_(torch.from_numpy(layer.w_o.T.copy()))
        x = RNG.normal(size=(2, 7, 12))
        tensor = torch.from_numpy(x)
        expected, _ = module(tensor, tensor, tensor, need_weights=False)
    np.testing.assert_allclose(layer(x), expected.numpy(), rtol=1e-10, atol=1e-12)


def test_output_has_the_width_of_the_values_without_w_o():
    layer = SelfAttention.from_seed(5, heads=2, head_size=3, value_size=4, output=False)
    assert layer(np.zeros((7, 5))).shape == (7, 8)


def test_the_seed_decides():
    first, again, other = (SelfAttention.from_seed(4, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.w_q, again.w_q)
    assert (first.w_q != other.w_q).any()


def test_from_seed_keeps_the_variance():
    layer = SelfAttention.from_seed(256, heads=4, seed=0)
    for projected in layer.project(RNG.normal(size=(301, 256))):
        assert projected.std() == pytest.approx(1.0, rel=0.05)


def test_x_decides_the_precision():
    layer = SelfAttention.from_seed(6, heads=2)
    x = RNG.normal(size=(5, 6))
    assert layer(x.astype(np.float32)).dtype == np.float32
    assert layer(x).dtype == np.float64
    assert layer([[1, 0, 0, 0, 0, 2]]).dtype == np.float64


def test_no_tokens():
    assert SelfAttention.from_seed(4)(np.zeros((0, 4))).shape == (0, 4)
    assert SelfAttention.from_seed(4)(np.zeros((0, 3, 4))).shape == (0, 3, 4)


def test_inspect_gives_output_and_health_of_every_head():
    layer = SelfAttention.from_seed(6, heads=3, key_heads=1)
    x = RNG.normal(size=(2, 7, 6))
    seen = layer.inspect(x, mask=ll.Causal())
    np.testing.assert_allclose(seen.output, layer(x, mask=ll.Causal()), rtol=1e-12)
    assert seen.health.max_prob.shape == (2, 3, 7)
    assert (seen.health.keys == np.arange(1, 8)).all()


def test_trace_keeps_every_step():
    layer = SelfAttention.from_seed(6, heads=2, seed=5)
    words = ("The", "curious", "cat", "slept")
    x = RNG.normal(size=(4, 6))
    found = layer.trace(x, tokens=words, mask=ll.Causal(), engine="auto")
    np.testing.assert_array_equal(found.x, x)
    query, key, value = layer.project(x)
    for name, array in (("query", query), ("key", key), ("value", value)):
        np.testing.assert_array_equal(getattr(found, name), array)
    np.testing.assert_allclose(found.weights.sum(-1), 1)
    np.testing.assert_allclose(found.output, layer(x, mask=ll.Causal()), rtol=1e-12)
    np.testing.assert_allclose(found.mixed @ layer.w_o, found.output)
    cell = found.cell(2, 1, head=1)
    assert (cell.query_token, cell.key_token) == ("cat", "curious")
    assert cell.weight == pytest.approx(found.weights[1, 2, 1])
    assert found.tokens == words


def test_trace_as_json_and_as_text():
    layer = SelfAttention.from_seed(4, heads=2, seed=5)
    found = layer.trace(RNG.normal(size=(3, 4)), tokens=["a", "b", "c"], mask=ll.Causal())
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert {"x", "w_q", "w_o", "query", "raw", "weights", "mixed", "output", "tokens"} <= set(data)
    np.testing.assert_allclose(data["output"], found.output)
    text = repr(found)
    steps = ["X\n", "Q = X·W_Q (head 0)", "K = X·W_K", "V = X·W_V", "compare", "output = heads"]
    places = [text.index(step) for step in steps]
    assert places == sorted(places)
    assert "<table" in found._repr_html_()


def test_trace_without_w_o_and_with_a_batch():
    layer = SelfAttention.from_seed(4, output=False)
    found = layer.trace(RNG.normal(size=(2, 3, 4)))
    np.testing.assert_array_equal(found.output, found.mixed)
    assert found.to_dict()["w_o"] is None
    assert "on X (2, 3, 4)" in repr(found)


def test_long_traces_print_shortened():
    assert "… and 3 more" in repr(SelfAttention.from_seed(2).trace(RNG.normal(size=(11, 2))))


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({}, "SelfAttention(model size 6, 1 head of size 6, with W_O)"),
        (
            {"heads": 4, "key_heads": 2, "head_size": 3, "value_size": 5, "output": False},
            "SelfAttention(model size 6, 4 heads of size 3 on 2 key heads, values of size 5, "
            "without W_O)",
        ),
    ],
)
def test_repr(sizes, text):
    assert repr(SelfAttention.from_seed(6, **sizes)) == text


ONES = np.ones((4, 4))


@pytest.mark.parametrize(
    ("attempt", "error", "message"),
    [
        (lambda: SelfAttention.from_seed(5, heads=2), ArgumentError,
         r"model size of 5 does not divide into 2 heads"),
        (lambda: SelfAttention.from_seed(0), ArgumentError, r"model_size=0: give a whole"),
        (lambda: SelfAttention.from_seed(4, head_size=0), ArgumentError, r"head_size=0"),
        (lambda: SelfAttention(ONES, ONES, ONES, heads=0), ArgumentError, r"heads=0: give a whole"),
        (lambda: SelfAttention(ONES, ONES[:, :2], ONES[:, :2], heads=3, key_heads=2), ShapeError,
         r"3 heads cannot share 2 key heads"),
        (lambda: SelfAttention(ONES, ONES[:3], ONES), ShapeError,
         r"W_Q, W_K and W_V read the same X.*w_k \(3, 4\)"),
        (lambda: SelfAttention(ONES, ONES, ONES, heads=3), ShapeError,
         r"the 4 columns of w_q do not divide into 3 heads"),
        (lambda: SelfAttention(ONES, ONES[:, :2], ONES), ShapeError,
         r"queries of size 4 have no dot product with keys of size 2"),
        (lambda: SelfAttention(ONES, ONES, ONES, ONES[:3]), ShapeError,
         r"W_O has 3 rows, but 1 head of value size 4"),
        (lambda: SelfAttention(ONES[0], ONES, ONES), ShapeError, r"w_q has shape \(4,\): a proj"),
        (lambda: SelfAttention(ONES, ONES, ONES)(ONES[0]), ShapeError,
         r"X has shape \(4,\): this layer takes \[\.\.\., tokens, 4\]"),
        (lambda: SelfAttention(ONES, ONES, ONES)(ONES[:, :3]), ShapeError, r"X has shape \(4, 3\)"),
        (lambda: SelfAttention([["a"]], ONES, ONES), DtypeError, r"w_q has dtype"),
        (lambda: SelfAttention(ONES, ONES, ONES).trace(ONES, tokens=["a"]), ShapeError,
         r"1 token for"),
    ],
)  # fmt: skip
def test_errors_say_what_came(attempt, error, message):
    with pytest.raises(error, match=message):
        attempt()


def test_torch_tensors_are_pointed_elsewhere():
    torch = pytest.importorskip("torch")
    with pytest.raises(DtypeError, match=r"X is a torch tensor \(float32\).*limelight\.torch"):
        SelfAttention.from_seed(4)(torch.zeros(2, 4))
