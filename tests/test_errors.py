"""Each wrong call has an error of its own that names what came and what to try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import limelight as ll
from limelight.errors import ArgumentError, DtypeError, EngineError, ShapeError

X = np.ones((2, 4, 5, 3))


def call(q: Any = X, k: Any = X, v: Any = X, **same: Any) -> Any:
    return ll.attention(q, k, v, **same)


def tensors(**same: Any) -> Any:
    return call(*[torch.ones(2, 4, 5, 3)] * 3, **same)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (lambda: call(np.ones(3)), ShapeError, r"query has shape \(3,\).*at least two axes"),
        (lambda: call(X, X[..., :2]), ShapeError, "query of size 3 .* key of size 2"),
        (lambda: call(X, X, X[:, :, :4]), ShapeError, "5 keys but 4 values"),
        (lambda: call(X, X[:, :3], X[:, :3]), ShapeError, "4 query heads cannot share 3 key heads"),
        (lambda: call(X, X[:, :0], X[:, :0]), ShapeError, "4 query heads cannot share 0 key heads"),
        (lambda: call(X, X, X[:, :2]), ShapeError, "4 key heads but 2 value heads"),
        (lambda: call(np.ones((3, 4, 5, 3))), ShapeError, "batch axes do not fit"),
        (lambda: call(X[..., :0], X[..., :0]), ShapeError, "size 0"),
        (lambda: call([[1, 2], [3]]), ShapeError, "query is a ragged list"),
        (lambda: call(None), ArgumentError, "query is None"),
        (lambda: call(X, X, None), ArgumentError, "value is None: attention mixes values"),
        (lambda: ll.inspect(X, X, None), ArgumentError, "value is None"),
        (lambda: call(*torch.ones(2, 5, 3), None), ArgumentError, "value is None"),
        (lambda: ll.inspect(*torch.ones(2, 5, 3), None), ArgumentError, "value is None"),
        (lambda: ll.trace(X, None, X), ArgumentError, "key is None"),
        (lambda: ll.weights(None, X), ArgumentError, "query is None"),
        (lambda: ll.trace(X, X, X).cell("a", 0), ArgumentError, "query 'a' is not a whole number"),
        (lambda: ll.trace(X, X, X).cell(0, 0.5), ArgumentError, "key 0.5 is not a whole number"),
        (lambda: ll.trace(X, X, X).cell(0, 5), ArgumentError, "no key 5: there are 5, numbered"),
        (lambda: call(X.astype(complex)), DtypeError, "query has dtype complex128"),
        (lambda: call(X > 0), DtypeError, "query has dtype bool"),
        (lambda: call([["a"]], [["b"]], [["c"]]), DtypeError, "query has dtype <U1"),
        (lambda: call(X.astype(np.longdouble)), DtypeError, "query has dtype (float128|longdouble)"),
        (lambda: call(torch.ones(5, 3), X), DtypeError, "query came as torch tensors but key, value"),
        (lambda: call(X, torch.ones(5, 3)), DtypeError, "key came as torch tensors but query, value"),
        (lambda: call(mask=np.ones((5, 4), bool)), ShapeError, r"mask has shape \(5, 4\).*5 keys"),
        (lambda: call(mask=np.ones((3, 5, 5), bool)), ShapeError, "mask is made for .* 3 heads.*4 query heads"),
        (lambda: call(mask=np.ones((3, 1, 5, 5), bool)), ShapeError, r"mask .* batch \(2,\)"),
        (lambda: call(mask=np.ones((5, 5))), DtypeError, "mask is boolean .* float64"),
        (lambda: call(mask=ll.Lengths([1, 2, 3])), ShapeError, r"mask .*batch \(2,\)"),
        (lambda: call(mask=torch.ones(5, 5) > 0), DtypeError, "mask is a torch tensor"),
        (lambda: call(bias=np.ones((5, 4))), ShapeError, r"bias has shape \(5, 4\)"),
        (lambda: call(bias=np.ones((3, 5, 5))), ShapeError, "bias is made for .* 3 heads.*4 query heads"),
        (lambda: call(bias=np.ones((5, 5), bool)), DtypeError, "bias is boolean.*mask="),
        (lambda: call(sinks=[1.0]), ShapeError, r"sinks has shape \(1,\).*each query head, shape \(4,\)"),
        (lambda: call(softcap=-1.0), ArgumentError, "softcap=-1.0: .* positive number"),
        (lambda: call(softcap=0), ArgumentError, "softcap=0: .* positive number"),
        (lambda: call(softcap=float("nan")), ArgumentError, "softcap=nan is not finite"),
        (lambda: call(softcap="big"), ArgumentError, "softcap='big' is not a number"),
        (lambda: call(scale=float("inf")), ArgumentError, "scale=inf is not finite"),
        (lambda: call(scale="x"), ArgumentError, "scale='x' is not a number"),
        (lambda: call(scale="2"), ArgumentError, "scale='2' is not a number"),
        (lambda: call(scale=b"2"), ArgumentError, "scale=b'2' is not a number"),
        (lambda: call(scale=10**400), ArgumentError, "scale is a whole number beyond float64: it mult"),
        (lambda: call(softcap=10**400), ArgumentError, "softcap is a whole number beyond float64"),
        (lambda: call(scale=torch.tensor(1j)), ArgumentError, "scale=tensor.* is not a number"),
        (lambda: call(scale=torch.ones((), device="meta")), ArgumentError, "scale=.* is not a number"),
        (lambda: call(scale=torch.nn.Parameter(torch.tensor(1.0))), ArgumentError, "scale is a tensor that needs gradients.*scale \\* query"),
        (lambda: tensors(bias="a"), DtypeError, "bias has dtype <U1"),
        (lambda: tensors(bias=[[None]]), DtypeError, "bias has dtype object"),
        (lambda: tensors(bias=[[1], [1, 2]]), ShapeError, "bias is a ragged list"),
        (lambda: tensors(bias=ll.Causal()), DtypeError, "bias has dtype object"),
        (lambda: tensors(sinks={}), DtypeError, "sinks has dtype object"),
        (lambda: tensors(sinks=[True] * 4), DtypeError, "sinks has dtype bool"),
        (lambda: call(engine="cuda"), EngineError, "no engine 'cuda': choose auto, reference, numpy"),
        (lambda: call(engine="native"), EngineError, "'native' cannot .* float64.* These can: auto, ref"),
        (lambda: call(engine="triton"), EngineError, "'triton' cannot do this call: it runs on cuda"),
        (lambda: ll.trace(X, X, X, tokens=["a"]), ShapeError, "1 token for 5 keys"),
        (lambda: ll.trace(X, X, X).cell(5, 0), ArgumentError, "no query 5: there are 5"),
        (lambda: ll.trace(X, X, X).cell(0, 0, head=4), ArgumentError, "no head 4: there are 4"),
    ],
)  # fmt: skip
def test_each_has_its_own(wrong: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        wrong()
    assert isinstance(caught.value, ll.LimelightError)
    assert isinstance(caught.value, (ValueError, TypeError))


def test_a_trace_too_large_to_read() -> None:
    x = np.zeros((8192, 1))
    with pytest.raises(ArgumentError, match=r"67,108,864 cells are too many.*heatmap\(\)"):
        ll.trace(x, x, x)
