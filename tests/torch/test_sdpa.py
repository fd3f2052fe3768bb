"""limelight.torch.scaled_dot_product_attention in the place of torch's, argument for argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as theirs

from limelight.errors import ArgumentError, DtypeError, LimelightError, ShapeError
from limelight.masks import Causal, Window
from limelight.torch import attention, quick
from limelight.torch import scaled_dot_product_attention as ours
from tests.cases import assert_close


def boolean(*shape: int) -> torch.Tensor:
    mask = torch.rand(shape) < 0.6
    mask[..., 0] = True  # torch gives NaN for a row without keys
    return mask


# name, shapes of query, key and value, and the other arguments
TABLE: list[tuple[str, tuple[Any, Any, Any], Any]] = [
    ("plain", ((2, 3, 7, 8), (2, 3, 7, 8), (2, 3, 7, 8)), dict),
    ("other lengths", ((2, 3, 5, 8), (2, 3, 11, 8), (2, 3, 11, 6)), dict),
    ("three axes", ((3, 5, 8), (3, 11, 8), (3, 11, 8)), dict),
    ("two axes", ((5, 8), (11, 8), (11, 8)), dict),
    ("five axes", ((2, 1, 3, 5, 8), (2, 1, 3, 7, 8), (2, 1, 3, 7, 8)), dict),
    ("causal", ((2, 3, 7, 8), (2, 3, 7, 8), (2, 3, 7, 8)), lambda: {"is_causal": True}),
    ("causal, more keys", ((2, 3, 5, 8), (2, 3, 11, 8), (2, 3, 11, 8)), lambda: {"is_causal": True}),
    ("causal, more queries", ((2, 3, 11, 8), (2, 3, 5, 8), (2, 3, 5, 8)), lambda: {"is_causal": True}),
    ("causal, three axes", ((3, 5, 8), (3, 5, 8), (3, 5, 8)), lambda: {"is_causal": True}),
    ("boolean", ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), lambda: {"attn_mask": boolean(5, 7)}),
    ("boolean a head", ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), lambda: {"attn_mask": boolean(2, 3, 5, 7)}),
    ("boolean keys", ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), lambda: {"attn_mask": boolean(2, 1, 1, 7)}),
    ("boolean, three axes", ((3, 5, 8), (3, 7, 8), (3, 7, 8)), lambda: {"attn_mask": boolean(3, 5, 7)}),
    ("additive", ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), lambda: {"attn_mask": torch.randn(5, 7)}),
    ("additive with −inf", ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)),
     lambda: {"attn_mask": torch.zeros(2, 1, 5, 7).masked_fill(~boolean(2, 1, 5, 7), -torch.inf)}),
    ("scale", ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), lambda: {"scale": 0.7}),
    ("one query head for all", ((2, 1, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), dict),
    ("one query without heads for all", ((5, 8), (2, 3, 7, 8), (2, 3, 7, 8)), dict),
    ("one query without heads for a batch", ((5, 8), (3, 7, 8), (3, 7, 8)), dict),
    ("one query without heads for a batch of one", ((5, 8), (1, 7, 8), (1, 7, 8)), dict),
    ("one query without heads for one head", ((5, 8), (2, 1, 7, 8), (2, 1, 7, 8)), dict),
    ("one query for all", ((1, 5, 8), (3, 7, 8), (3, 7, 8)), dict),
    ("one key head for all", ((2, 3, 5, 8), (2, 1, 7, 8), (2, 1, 7, 8)), dict),
    ("grouped", ((2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)), lambda: {"enable_gqa": True}),
    ("grouped, three axes", ((6, 5, 8), (2, 7, 8), (2, 7, 8)), lambda: {"enable_gqa": True}),
    ("grouped causal", ((2, 6, 7, 8), (2, 3, 7, 8), (2, 3, 7, 8)), lambda: {"enable_gqa": True, "is_causal": True}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("shapes", "options"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_interchangeable(shapes: Any, options: Any) -> None:
    """In float32, with torch's own function in float64 as the judge."""
    torch.manual_seed(0)
    dtype, kind = torch.float32, np.float32
    given = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    keywords = options()
    if "attn_mask" in keywords and keywords["attn_mask"].dtype != torch.bool:
        keywords["attn_mask"] = keywords["attn_mask"].to(dtype)
    exact_given = [x.detach().double().requires_grad_() for x in given]
    exact_keywords = {
        k: v.double() if torch.is_tensor(v) and v.is_floating_point() else v
        for k, v in keywords.items()
    }
    exact = theirs(*exact_given, **exact_keywords)
    direction = torch.randn_like(exact)
    exact.backward(direction)
    plain = theirs(*given, **keywords)
    plain.backward(direction.to(dtype))
    plain_grads = [x.grad for x in given]
    for x in given:
        x.grad = None
    got = ours(*given, **keywords)
    got.backward(direction.to(dtype))
    assert got.dtype == plain.dtype
    assert_close(got.detach(), exact.detach(), plain.detach(), kind, what="output")
    for x, right, rough in zip(given, exact_given, plain_grads, strict=True):
        assert_close(x.grad, right.grad, rough, kind, factor=3.0, what="gradient")


def test_the_signature_is_torch_s() -> None:
    positional = ["query", "key", "value", "attn_mask", "dropout_p", "is_causal"]
    import inspect

    assert list(inspect.signature(ours).parameters)[:6] == positional
    query = torch.randn(1, 2, 3, 4)
    assert torch.allclose(
        ours(query, query, query, None, 0.0, True),
        theirs(query, query, query, None, 0.0, True),
        atol=1e-6,
    )


def test_where_torch_gives_nan_this_gives_zero() -> None:
    query = torch.randn(1, 1, 2, 4)
    nothing = torch.zeros(2, 2, dtype=torch.bool)
    assert ours(query, query, query, nothing).eq(0).all()
    value = query.clone()
    value[:, :, 1] = torch.nan
    assert ours(query, query, value, torch.tensor([[True, False]])).isfinite().all()


def test_what_it_refuses() -> None:
    query, key = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 3, 8)
    with pytest.raises(ArgumentError, match=r"dropout_p=1\.5: .* from 0 to 1"):
        ours(query, query, query, dropout_p=1.5)
    with pytest.raises(ArgumentError, match="Explicit attn_mask should not be set"):
        ours(query, query, query, attn_mask=torch.ones(3, 3).bool(), is_causal=True)
    with pytest.raises(ArgumentError, match="enable_gqa=True"):
        ours(query, key, key)
    with pytest.raises(ShapeError, match="cannot share"):
        ours(query[0, :3], key[0], key[0], enable_gqa=True)
    with pytest.raises(ShapeError, match=r"query has shape \(8,\): it needs at least two axes"):
        ours(query[0, 0, 0], key, key)
    for mask in ([[True] * 3] * 3, np.ones((3, 3), np.bool_)):
        with pytest.raises(DtypeError, match=r"attn_mask is (a list|an ndarray): it must be"):
            ours(query, query, query, attn_mask=mask)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match=r"attn_mask has dtype torch\.int64"):
        ours(query, query, query, attn_mask=torch.ones(3, 3).long())


def test_errors_are_of_the_class_that_torch_raises() -> None:
    query = torch.randn(1, 2, 3, 4)
    for wrong in (
        lambda f: f(query, query.half(), query.half()),
        lambda f: f(query[0, 0, 0], query, query),
        lambda f: f(query, query[:, :, :2], query),
        lambda f: f(query, query, query, attn_mask=torch.ones(3, 3).long()),
        lambda f: f(query, query, query, dropout_p=-0.1),
    ):
        with pytest.raises(RuntimeError) as raised:
            wrong(ours)
        assert isinstance(raised.value, LimelightError)
    with pytest.raises(ArgumentError, match=r"dropout_p=-0\.1"):
        ours(query, query, query, dropout_p=-0.1)


@pytest.mark.parametrize("shape", [(2, 3, 5, 0), (0, 3, 5, 4), (2, 3, 0, 4), (0, 0, 0, 0)])
def test_nothing_to_multiply(shape: tuple[int, ...]) -> None:
    query, key = (torch.zeros(shape, requires_grad=True) for _ in range(2))
    value = torch.randn(*shape[:3], 6, requires_grad=True)
    output = ours(query, key, value)
    assert output.shape == value.shape
    if shape[2]:  # all logits are 0: the mean
        assert torch.allclose(output, value.mean(2, keepdim=True).expand(value.shape), atol=1e-6)
    output.sum().backward()
    assert all(x.grad is not None and x.grad.shape == x.shape for x in (query, key, value))


@pytest.mark.parametrize(("keys", "values"), [(2, 3), (6, 2), (1, 6), (3, 1)])
def test_key_heads_unlike_value_heads(keys: int, values: int) -> None:
    query, key, value = (
        torch.randn(2, 6, 5, 8),
        torch.randn(2, keys, 7, 8),
        torch.randn(2, values, 7, 8),
    )
    got = ours(query, key, value, enable_gqa=True)
    assert torch.allclose(got, theirs(query, key, value, enable_gqa=True), atol=1e-6)


def test_one_value_head_for_all() -> None:
    query, value = torch.randn(2, 3, 5, 8), torch.randn(2, 1, 5, 8)
    assert torch.allclose(ours(query, query, value), theirs(query, query, value), atol=1e-6)


class Block(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return ours(x, x, x, attn_mask=mask, scale=0.5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_that_calls_it_goes_into_torchscript(tmp_path: Any) -> None:
    scripted = torch.jit.script(Block())
    torch.jit.save(scripted, tmp_path / "block.pt")
    again = torch.jit.load(tmp_path / "block.pt")
    x, mask = torch.randn(1, 2, 5, 8), boolean(5, 5)
    for given in ((x,), (x, mask)):
        assert torch.equal(again(*given), Block()(*given))
    x.requires_grad_()
    again(x).sum().backward()
    assert x.grad is not None


def laid(kind: str) -> torch.Tensor:
    if kind == "heads inside":
        return torch.randn(2, 5, 3, 8).transpose(1, 2)
    if kind == "of one product":
        return torch.randn(2, 5, 3, 24)[..., :8].transpose(1, 2)
    if kind == "columns":
        return torch.randn(2, 3, 8, 5).transpose(2, 3)
    return torch.randn(2, 3, 5, 8)


@pytest.mark.parametrize("kind", ["heads outside", "heads inside", "of one product", "columns"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_output_lies_as_torch_s(kind: str, dtype: torch.dtype) -> None:
    x = laid(kind).to(dtype)
    grad = x.detach().requires_grad_()
    mask = boolean(5, 5)
    for way in (
        lambda: ours(x, x, x),
        lambda: ours(x, x, x, is_causal=True),
        lambda: ours(x, x, x, attn_mask=mask),
        lambda: ours(grad, x, x),
    ):
        output = way()
        if kind in ("heads inside", "of one product"):
            output.transpose(1, 2).view(2, 5, 24)
        else:
            assert output.is_contiguous()
        if dtype == torch.float32 and kind != "columns":
            assert output.stride() == theirs(x, x, x).stride()
    plain = [y.contiguous() for y in (x, x, x)]
    again = ours(*plain, is_causal=True)
    assert torch.allclose(ours(x, x, x, is_causal=True), again, atol=1e-6)


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_output_lies_so_in_a_compiled_graph(dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for kind in ("heads inside", "heads outside"):
        x = laid(kind).requires_grad_()
        output = compiled(x, x, x)
        assert output.stride() == ours(x, x, x).stride() == x.stride()
        output.sum().backward()


def test_small_calls_go_the_short_way_and_others_do_not() -> None:
    """The short way knows what it can do; what it gives is what the long way gives."""
    x, grouped = torch.randn(1, 4, 5, 8), torch.randn(1, 2, 7, 8)
    for given in (
        (x, x, x, None, None, None),
        (x, grouped, grouped, Causal(), 0.3, None),
        (x, grouped, grouped, Window(2, 1), None, 5.0),
        (x.half(), x.half(), x.half(), None, None, None),
    ):
        mask, scale, softcap = given[3:]
        long = attention(*given[:3], mask=mask, scale=scale, softcap=softcap, engine="native")
        assert torch.equal(quick.run(*given), long)
    assert quick.run(x, grouped, grouped, None, None, None, False) is None
    for other in (
        (x[0], x[0], x[0]),
        (x.double(), x.double(), x.double()),
        (x, x.half(), x),
        (x, x, x[..., :4]),
        (x[..., :0], x[..., :0], x),
        (x, x[:, :, :3], x),
        (x.to_sparse(), x, x),
        (x.detach().requires_grad_(), x, x),
        (torch._neg_view(x), x, x),
    ):
        assert quick.run(*other, None, None, None) is None
    for mask, scale, softcap in (
        (boolean(5, 5), None, None),
        (None, float("nan"), None),
        (None, 1e39, None),
        (None, None, -1.0),
    ):
        assert quick.run(x, x, x, mask, scale, softcap) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert quick.run(x, x, x, None, None, None) is None
