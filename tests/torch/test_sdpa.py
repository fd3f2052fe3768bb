"""limelight.torch.scaled_dot_product_attention in the place of torch's, argument for argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as theirs

from limelight.errors import ArgumentError, DtypeError, ShapeError
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
    with pytest.raises(ArgumentError, match="one or the other"):
        ours(query, query, query, attn_mask=torch.ones(3, 3).bool(), is_causal=True)
    with pytest.raises(ArgumentError, match="enable_gqa=True"):
        ours(query, key, key)
    with pytest.raises(ShapeError, match="cannot share"):
        ours(query[0, :3], key[0], key[0], enable_gqa=True)
    for mask in ([[True] * 3] * 3, np.ones((3, 3), np.bool_)):
        with pytest.raises(DtypeError, match=r"attn_mask is a (list|ndarray): it must be a tensor"):
            ours(query, query, query, attn_mask=mask)  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match=r"attn_mask has dtype torch\.int64"):
        ours(query, query, query, attn_mask=torch.ones(3, 3).long())
