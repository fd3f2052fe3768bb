"""attention() and inspect() on tensors: values, gradients, strides, dtypes, transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.func import grad, jacrev, jvp, vmap
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.utils._pytree import tree_map

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.engines import find
from limelight.errors import ArgumentError, DtypeError, EngineError, LimelightError, ShapeError
from limelight.masks import as_mask
from limelight.torch import functional, scaled_dot_product_attention
from tests.cases import CASES, HERE, Case, assert_close, plainly

DTYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16}
BY_NAME = {case.name: case for case in CASES}
SOME = ["plain", "no-batch-axis", "two-batch-axes", "grouped", "decode", "causal-top-left", "window",
        "lengths-zero", "documents-causal", "prefix", "array-thin", "array-causal", "bias-rows",
        "bias-hides", "softcap", "sinks-masked", "large-logits", "everything"]  # fmt: skip
TRAINED = [name for name in HERE if hasattr(find(name).module, "backward")]


def tensors(case: Case, dtype: str) -> tuple[list[torch.Tensor], dict[str, Any]]:
    arrays, options = case.arrays(DTYPES[dtype])
    for name in ("bias", "sinks"):
        if name in options:
            options[name] = torch.from_numpy(options[name])
    return [torch.from_numpy(x) for x in arrays], options


def exact(case: Case, dtype: str) -> tuple[Any, Any]:
    call = case.call(DTYPES[dtype])
    return call, reference.forward(call)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SOME)
def test_same_as_the_reference(name: str, dtype: str) -> None:
    case = BY_NAME[name]
    (query, key, value), options = tensors(case, dtype)
    call, state = exact(case, dtype)
    seen = ll.inspect(query, key, value, **options)
    assert seen.output.dtype == query.dtype
    plain = plainly(call, np.float64 if dtype == "float64" else np.float32)
    assert_close(seen.output.reshape(plain.shape), state.output, plain, DTYPES[dtype], what=name)
    alone = ll.attention(query, key, value, **options)
    assert torch.equal(alone, seen.output)
    health = seen.health
    assert health.entropy.dtype == (torch.float64 if dtype == "float64" else torch.float32)
    counts = np.broadcast_to(call.allowed.count(call.bias), state.entropy.shape)
    assert np.array_equal(health.keys.reshape(counts.shape), counts)
    wide = np.float64 if dtype == "float64" else np.float32
    for figure, plain in plain_health(call, wide).items():
        got = getattr(health, figure).reshape(counts.shape)
        assert_close(got, getattr(state, figure), plain, wide, what=figure)


def plain_health(call: Any, wide: Any) -> dict[str, Any]:
    """The three measured figures by the plain formulas in one precision."""
    with np.errstate(all="ignore"):
        steps = reference.steps(call)
        sinks = np.full(call.query_heads, -np.inf) if call.sinks is None else call.sinks
        sinks = np.broadcast_to(sinks[:, None, None], (*steps.logits.shape[:3], 1))
        query, key = (x.astype(wide) for x in (call.query, np.repeat(call.key, call.group, 1)))
        s = wide(call.scale) * (query @ key.swapaxes(-1, -2))
        s = s if call.softcap is None else wide(call.softcap) * np.tanh(s / wide(call.softcap))
        s = s if call.bias is None else s + call.bias.astype(wide)
        s = np.where(steps.allowed, s, -np.inf).astype(wide)
        both = np.concatenate([s, sinks.astype(wide)], axis=-1)
        top = both.max(axis=-1, keepdims=True)
        y = both - np.where(np.isneginf(top), 0, top)
        p = np.exp(y)
        total = p.sum(axis=-1)
        mean = np.where(p == 0, 0, p * y).sum(axis=-1) / total
        entropy = np.where(total == 0, 0, np.log(total) - mean)
        return {
            "max_logit": s.max(axis=-1),
            "logsumexp": top[..., 0] + np.log(total),
            "entropy": entropy,
        }


def test_bfloat16_is_float32_rounded() -> None:
    (query, key, value), _ = tensors(BY_NAME["grouped"], "float32")
    query, key, value = (x.bfloat16() for x in (query, key, value))
    for engine in HERE:
        output = ll.attention(query, key, value, mask=ll.Causal(), engine=engine)
        wide = ll.attention(query.double(), key.double(), value.double(), mask=ll.Causal())
        assert output.dtype == torch.bfloat16
        assert (output.double() - wide).abs().max() <= 2.0**-7 * wide.abs().max()


@pytest.mark.parametrize("engine", TRAINED)
@pytest.mark.parametrize("name", ["grouped", "causal", "lengths-zero", "array-thin", "everything"])
def test_gradients_are_the_reference_s(name: str, engine: str) -> None:
    case, dtype = BY_NAME[name], "float32"
    (query, key, value), options = tensors(case, dtype)
    given = [query, key, value, *(options[n] for n in ("bias", "sinks") if n in options)]
    for tensor in given:
        tensor.requires_grad_()
    output = functional.attention(query, key, value, engine=engine, **options)
    direction = torch.from_numpy(np.random.default_rng(1).normal(size=output.shape)).float()
    output.backward(direction)
    call = case.call(np.float32)
    want = reference.gradients(call, direction.numpy())
    expected = [
        g for g in (want.query, want.key, want.value, want.bias, want.sinks) if g is not None
    ]
    assert len(expected) == len(given)
    plain = plain_gradients(call, direction)
    for tensor, right, rough in zip(given, expected, plain, strict=True):
        assert tensor.grad is not None
        shape = right.shape
        assert_close(tensor.grad.reshape(shape), right, rough.reshape(shape), np.float32, 3.0)


def plain_gradients(call: Any, direction: torch.Tensor) -> list[Any]:
    """By torch's autograd through the plain formula in float32."""
    steps = reference.steps(call)
    allowed = torch.from_numpy(steps.allowed)
    given = [torch.from_numpy(np.array(x)).requires_grad_() for x in
             (call.query, call.key, call.value, call.bias, call.sinks) if x is not None]  # fmt: skip
    query, key, value, *rest = given
    s = call.scale * (query @ key.repeat_interleave(call.group, 1).mT)
    s = s if call.softcap is None else call.softcap * torch.tanh(s / call.softcap)
    s = s if call.bias is None else s + rest[0].where(rest[0] > -torch.inf, 0)
    s = s.masked_fill(~allowed, -1e30)
    if call.sinks is not None:
        s = torch.cat([s, rest[-1][:, None, None].expand(*s.shape[:3], 1)], -1)
    weights = s.softmax(-1)[..., : call.keys].masked_fill(~allowed, 0)
    (weights @ value.repeat_interleave(call.group, 1) * direction).sum().backward()
    return [x.grad.numpy() for x in given]


def double(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("mask", [None, ll.Causal(), ll.Window(2, 1), ll.Lengths([0, 5]), ll.Causal() | ll.Prefix(2)],
                         ids=lambda mask: "none" if mask is None else mask.expression)  # fmt: skip
def test_gradcheck(mask: Any) -> None:
    torch.manual_seed(0)
    given = double(2, 4, 3, 5), double(2, 2, 7, 5), double(2, 2, 7, 3), double(4, 3, 1), double(4)

    def run(*x: torch.Tensor) -> torch.Tensor:
        return ll.attention(*x[:3], mask=mask, bias=x[3], sinks=x[4], softcap=3.0)

    assert torch.autograd.gradcheck(run, given)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (4,), (0, 3), (1, 2, 4)], ids=str)
def test_gradients_of_any_subset(wanted: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    full = [double(1, 2, 3, 5), double(1, 2, 5, 5), double(1, 2, 5, 3), double(2, 3, 5), double(2)]
    ll.attention(*full[:3], bias=full[3], sinks=full[4]).square().sum().backward()
    part = [x.detach().clone().requires_grad_(i in wanted) for i, x in enumerate(full)]
    ll.attention(*part[:3], bias=part[3], sinks=part[4]).square().sum().backward()
    for i, (whole, one) in enumerate(zip(full, part, strict=True)):
        assert (one.grad is not None) == (i in wanted)
        if one.grad is not None:
            assert torch.equal(one.grad, whole.grad)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_odd_strides(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    base = [torch.randn(2, 3, 7, 5, dtype=dtype) for _ in range(3)]
    want = [x.clone().requires_grad_() for x in base]
    output = ll.attention(*want, mask=ll.Causal())
    direction = torch.randn(5, 7, 3, 2, dtype=dtype).permute(
        3, 2, 1, 0
    )  # a gradient with odd strides
    output.backward(direction)
    layouts = {
        "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        "inner stride 2": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2],
        "size last but one": lambda x: x.mT.contiguous().mT,
        "offset": lambda x: torch.cat([x, x], 2)[:, :, 7:],
    }
    for name, layout in layouts.items():
        given = [layout(x).requires_grad_() for x in base]
        again = ll.attention(*given, mask=ll.Causal())
        again.backward(direction)
        assert torch.allclose(again, output, rtol=0, atol=1e-6), name
        for x, y in zip(given, want, strict=True):
            assert torch.allclose(x.grad, y.grad, rtol=0, atol=1e-5), name
    shared = base[0][:1].clone().requires_grad_()  # stride 0 over the batch
    ll.attention(shared, *base[1:]).sum().backward()
    apart = base[0][:1].repeat(2, 1, 1, 1).requires_grad_()
    ll.attention(apart, *base[1:]).sum().backward()
    assert torch.allclose(shared.grad, apart.grad.sum(0, keepdim=True), atol=1e-6)


def test_masks_of_tensors_are_those_of_arrays() -> None:
    torch.manual_seed(5)
    query, key, value = double(2, 4, 3, 5), double(2, 2, 7, 5), double(2, 2, 7, 3)
    joins: list[Any] = [
        lambda m: ll.Causal() | m, lambda m: ~as_mask(m), lambda m: ~(ll.Lengths([2, 7]) & m),
        lambda m: m & ~(ll.Window(1, 0) & m), lambda m: as_mask(m) & (np.arange(7) < 5),
        lambda m: as_mask(m) | (np.arange(7) < 2),
    ]  # fmt: skip
    for shape in ((7,), (3, 7), (2, 1, 1, 7)):
        cells = torch.rand(shape) < 0.5
        for join in joins:
            seen, want = (
                ll.attention(query, key, value, mask=join(m)) for m in (cells, cells.numpy())
            )
            assert torch.equal(seen, want)
    many = torch.rand(5, 7) < 0.5
    mapped = vmap(lambda m: ll.attention(query, key, value, mask=ll.Causal() | m))(many)
    each = [ll.attention(query, key, value, mask=ll.Causal() | m) for m in many]
    assert torch.allclose(mapped, torch.stack(each))


def test_rows_without_keys_and_nan_behind_a_mask() -> None:
    query, key, value = double(1, 1, 3, 4), double(1, 1, 5, 4), double(1, 1, 5, 4)
    with torch.no_grad():
        key[:, :, 2] = torch.nan
        value[:, :, 2] = torch.inf
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[:, 2] = False
    mask[1] = False
    output = ll.attention(query, key, value, mask=mask)
    output.sum().backward()
    assert output[0, 0, 1].eq(0).all()
    assert output.isfinite().all()
    for x in (query, key, value):
        assert x.grad.isfinite().all()


@pytest.mark.parametrize("shape", [(0, 2, 3, 5), (2, 2, 0, 3), (2, 2, 3, 0)], ids=str)
def test_zero_sizes(shape: tuple[int, int, int, int]) -> None:
    batch, heads, nq, nk = shape
    query = torch.randn(batch, heads, nq, 4, requires_grad=True)
    key, value = torch.randn(batch, heads, nk, 4), torch.randn(batch, heads, nk, 6)
    seen = ll.inspect(query, key, value, mask=ll.Causal())
    assert seen.output.shape == (batch, heads, nq, 6)
    seen.output.sum().backward()
    assert query.grad.eq(0).all()
    assert seen.health.keys.shape == (batch, heads, nq)


def test_autocast() -> None:
    query, key, value = (torch.randn(1, 2, 3, 8) for _ in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = ll.attention(query, key.bfloat16(), value)
        wide = ll.attention(query.double(), key.double(), value.double())
    rounded = (x.bfloat16() for x in (query, key, value))
    assert mixed.dtype == torch.bfloat16
    assert wide.dtype == torch.float64
    assert torch.equal(mixed, ll.attention(*rounded))


def test_torch_func() -> None:
    torch.manual_seed(3)
    given = [double(2, 4, 3, 5).detach(), double(2, 2, 7, 5).detach(), double(2, 2, 7, 3).detach(),
             double(2, 1, 3, 7).detach(), double(2, 4).detach()]  # fmt: skip

    def run(q: Any, k: Any, v: Any, b: Any, s: Any) -> torch.Tensor:
        return ll.attention(q, k, v, bias=b, sinks=s, mask=ll.Causal())

    def loss(*x: Any) -> torch.Tensor:
        return run(*x).square().sum()

    one = [run(*(x[i] for x in given)) for i in range(2)]
    assert torch.allclose(vmap(run)(*given), torch.stack(one))
    every = tuple(range(5))
    grads = [grad(loss, every)(*(x[i] for x in given)) for i in range(2)]
    for mapped, apart in zip(
        vmap(grad(loss, every))(*given), zip(*grads, strict=True), strict=True
    ):
        assert torch.allclose(mapped, torch.stack(apart))
    shared = vmap(grad(loss, 3), in_dims=(0, 0, 0, None, None))(
        *given[:3], given[3][0], given[4][0]
    )
    apart = [grad(loss, 3)(*(x[i] for x in given[:3]), given[3][0], given[4][0]) for i in range(2)]
    assert torch.allclose(shared, torch.stack(apart))
    inner = vmap(lambda q, k, v: ll.inspect(q, k, v, mask=ll.Lengths(5)).health.keys)(*given[:3])
    assert inner.eq(5).all()
    jacobian = jacrev(lambda q: ll.attention(q, given[1][0], given[2][0]))(given[0][0])
    assert jacobian.shape == (4, 3, 3, 4, 3, 5)


@pytest.mark.parametrize("mask", [None, ll.Causal(), ll.Lengths([0, 5]), torch.ones(3, 7).tril(3).bool()],
                         ids=["none", "causal", "lengths", "tensor"])  # fmt: skip
def test_several_gradients_at_once(mask: Any) -> None:
    torch.manual_seed(4)
    given = double(2, 4, 3, 5), double(2, 2, 7, 5), double(2, 2, 7, 3), double(4, 3, 1), double(4)
    output = ll.attention(*given[:3], mask=mask, bias=given[3], sinks=given[4])
    directions = torch.randn(5, *output.shape, dtype=torch.float64)

    def back(direction: torch.Tensor, **how: bool) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(output, given, direction, retain_graph=True, **how)

    each = zip(*map(back, directions), strict=True)
    for together, apart in zip(back(directions, is_grads_batched=True), each, strict=True):
        assert torch.allclose(together, torch.stack(apart), rtol=1e-12, atol=1e-14)
    (first, *_) = back(directions, is_grads_batched=True, create_graph=True)
    with pytest.raises(NotImplementedError, match="only the first"):
        first.sum().backward()


def test_vectorized_jacobian() -> None:
    query, key, value = double(2, 3, 5), double(2, 7, 5), double(2, 7, 3)
    jacobian = torch.autograd.functional.jacobian

    def run(q: torch.Tensor) -> torch.Tensor:
        return ll.attention(q, key, value, mask=ll.Causal())

    assert torch.allclose(jacobian(run, query, vectorize=True), jacobian(run, query), atol=1e-14)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own, in jvp
def test_derivatives_that_do_not_exist_are_errors() -> None:
    x = double(1, 1, 3, 4)
    with pytest.raises(NotImplementedError, match="forward-mode derivative of attention"):
        jvp(lambda q: ll.attention(q, q, q), (x.detach(),), (x.detach(),))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), x.detach())
        with pytest.raises(NotImplementedError, match="forward-mode derivative of attention"):
            ll.attention(dual, dual, dual)
    (first,) = torch.autograd.grad(ll.attention(x, x, x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="only the first"):
        first.sum().backward()


def test_errors() -> None:
    query, key = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    cases: list[tuple[type[LimelightError], str, Any]] = [
        (ShapeError, "no dot product", lambda: ll.attention(query, key[..., :3], key)),
        (DtypeError, "cast them to one", lambda: ll.attention(query, key.double(), key)),
        (DtypeError, "did not", lambda: ll.attention(query, key.numpy(), key)),
        (
            ShapeError,
            "cannot share",
            lambda: ll.attention(query, key.repeat(1, 2, 1, 1), key.repeat(1, 2, 1, 1)),
        ),
        (EngineError, "no engine 'nope'", lambda: ll.attention(query, key, key, engine="nope")),
        (EngineError, "runs on cuda", lambda: ll.attention(query, key, key, engine="hopper")),
        (
            DtypeError,
            "boolean",
            lambda: ll.attention(query, key, key, bias=torch.ones(3, 5).bool()),
        ),
    ]
    for kind, message, call in cases:
        with pytest.raises(kind, match=message):
            call()


def test_tensors_are_checked_as_arrays_are() -> None:
    same: dict[str, Any] = {"bias": None, "softcap": None, "sinks": None}
    undropped = {**same, "dropout": 0.0, "seed": None}
    for mask in (None, ll.Causal(), ll.Window(2, 1, align="top-left"), ll.Lengths([3, 4])):
        query, key = torch.randn(2, 4, 3, 5), torch.randn(2, 2, 7, 5)
        for _ in range(2):  # the second finds what the mask object remembers
            call = functional._checked(query, key, key, mask=mask, scale=None, **undropped)
            full = prepare(query, key, key, mask=mask, scale=None, **same)
            assert (call.allowed.band, call.scale, call.batch_shape) == (
                full.allowed.band,
                full.scale,
                full.batch_shape,
            )
            np.testing.assert_array_equal(call.allowed.spans, full.allowed.spans)
    with pytest.raises(DtypeError, match="query did not"):
        functional._checked(query.numpy(), key, key, mask=None, scale=None, **undropped)
    with pytest.raises(ArgumentError, match="nan"):
        functional._checked(query, key, key, mask=None, scale=float("nan"), **undropped)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_is_no_dense_tensor_is_refused() -> None:
    x = torch.randn(2, 4, 7, 8)
    with pytest.raises(DtypeError, match="query is an ndarray: here go tensors"):
        functional.attention(x.numpy(), x.numpy(), x.numpy())
    with pytest.raises(DtypeError, match="key is a sparse_coo tensor: attention takes dense ones"):
        ll.attention(x, x.to_sparse(), x)
    nested = torch.nested.nested_tensor([torch.randn(4, 3, 8), torch.randn(4, 5, 8)])
    with pytest.raises(DtypeError, match=r"query is a nested tensor.*Lengths"):
        ll.attention(nested, nested, nested)


def test_mixed_with_a_mask_object_is_the_one_message() -> None:
    query, plain = torch.zeros(2, 4), [[0.0] * 4] * 2
    for mask in (ll.Lengths(2), ll.Causal()):
        with pytest.raises(DtypeError, match="tensor"):
            ll.attention(query, plain, plain, mask=mask)


def test_a_tensor_that_is_lazily_negated() -> None:
    lazy = torch.randn(1, 2, 5, 8, dtype=torch.complex64).conj().imag
    assert lazy.is_neg()
    plain = lazy.clone()
    assert torch.equal(ll.attention(lazy, lazy, lazy), ll.attention(plain, plain, plain))
    bias = lazy[..., :5]
    want = ll.attention(plain, plain, plain, bias=bias.clone())
    assert torch.equal(ll.attention(plain, plain, plain, bias=bias), want)


class Wrapper(torch.Tensor):
    """Holds a tensor and passes operators on to it; its own memory is nobody's."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        self: Wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        self.inner = inner
        return self

    def __init__(self, _: Any) -> None:
        super().__init__()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        bare = tree_map(lambda x: x.inner if isinstance(x, Wrapper) else x, (args, kwargs or {}))
        out = func(*bare[0], **bare[1])
        return tree_map(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, out)


def test_a_wrapper_gets_what_the_tensor_in_it_gets() -> None:
    torch.manual_seed(4)
    query, key, value = (double(1, 2, 5, 8).detach() for _ in range(3))
    mask, bias = torch.rand(5, 5) < 0.6, double(5, 5).detach()
    calls: list[tuple[Any, dict[str, Any]]] = [
        ((query, key, value), {}),
        ((query, key, value), {"mask": mask}),
        ((query, key, value), {"bias": bias}),
    ]
    for given, options in calls:
        want = ll.inspect(*given, **options)
        wrapped = {name: Wrapper(x) for name, x in options.items()}
        for arrays in (given, [Wrapper(x) for x in given]):
            if arrays is given and not wrapped:
                continue
            assert torch.equal(ll.attention(*arrays, **wrapped).inner, want.output)
            seen = ll.inspect(*arrays, **wrapped)
            assert torch.equal(seen.output.inner, want.output)
            assert torch.equal(seen.health.keys.inner, want.health.keys)
    leaf, plain = Wrapper(query).requires_grad_(), query.clone().requires_grad_()
    ll.attention(leaf, key, value, mask=mask).square().sum().backward()
    ll.attention(plain, key, value, mask=mask).square().sum().backward()
    assert torch.equal(leaf.grad.inner, plain.grad)


def test_a_fake_tensor_outside_its_mode() -> None:
    with FakeTensorMode():
        fake = torch.randn(1, 2, 5, 8)
    assert isinstance(ll.attention(fake, fake, fake), FakeTensor)


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_a_wrapper_that_knows_no_other_operators_is_refused() -> None:
    x, cells = torch.randn(1, 2, 5, 8), torch.ones(5, 5)
    masked = torch.masked.masked_tensor(x, torch.ones_like(x).bool())
    with pytest.raises(DtypeError, match=r"query is a MaskedTensor.*query\.get_data\(\)"):
        ll.attention(masked, masked, masked)
    mesh_of_one = DeviceMesh("cpu", [0], _init_backend=False, _rank=0)
    sharded = DTensor.from_local(x, mesh_of_one, [Replicate()], run_check=False)
    with pytest.raises(DtypeError, match=r"key is a DTensor.*key\.to_local\(\)"):
        ll.attention(x, sharded, sharded)
    for name, given in (("mask", cells.bool()), ("bias", cells)):
        given = DTensor.from_local(given, mesh_of_one, [Replicate()], run_check=False)
        with pytest.raises(DtypeError, match=f"{name} is a DTensor"):
            ll.inspect(x, x, x, **{name: given})


class Meant(torch.Tensor):
    """Gives torch's functions another meaning than its memory has."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


class Named(torch.Tensor):
    """Changes nothing."""


def test_a_subclass_whose_memory_may_not_be_its_meaning_is_refused() -> None:
    x, cells, sinks = torch.randn(1, 2, 5, 8), torch.zeros(5, 5), torch.zeros(2)
    odd, bias = x.as_subclass(Meant), cells.as_subclass(Meant)
    for call in (ll.attention, ll.inspect):
        for arrays in ((odd, odd, odd), (odd, x, x)):
            with pytest.raises(DtypeError, match=r"query is a Meant.*query\.as_subclass"):
                call(*arrays)
        for name, given in (("bias", bias), ("mask", (cells == 0).as_subclass(Meant)),
                            ("sinks", sinks.as_subclass(Meant))):  # fmt: skip
            with pytest.raises(DtypeError, match=f"{name} is a Meant"):
                call(x, x, x, **{name: given})
    with pytest.raises(DtypeError, match="bias is a Meant"):
        ll.weights(x, x, bias=bias)
    with pytest.raises(DtypeError, match="bias is a Meant"):
        ll.trace(x, x, x, bias=bias)
    plain, named = (ll.attention(x, x, x, bias=b) for b in (cells, cells.as_subclass(Named)))
    assert torch.equal(plain, named)


@pytest.mark.filterwarnings("ignore:Lower right causal bias")
@pytest.mark.parametrize("make", [causal_upper_left, causal_lower_right])
@pytest.mark.parametrize(("queries", "keys"), [(5, 9), (9, 5), (7, 7)])
def test_torchs_causal_bias_is_a_mask(make: Any, queries: int, keys: int) -> None:
    query, key = torch.randn(1, 2, queries, 8), torch.randn(1, 2, keys, 8)
    bias = make(queries, keys)
    expected = ll.attention(query, key, key, mask=bias._materialize())
    ways: list[Callable[[Any], Any]] = [
        lambda bias: ll.attention(query, key, key, mask=bias),
        lambda bias: ll.inspect(query, key, key, mask=bias).output,
        lambda bias: scaled_dot_product_attention(query, key, key, bias),
    ]
    for way in ways:
        assert torch.allclose(way(bias), expected, atol=1e-6)
        compiled = torch.compile(way, backend="eager", fullgraph=True)(bias)
        assert torch.allclose(compiled, expected, atol=1e-6)
    with pytest.raises(DtypeError, match=r"bias is a CausalBias.* as mask="):
        ll.attention(query, key, key, bias=bias)
    with pytest.raises(ShapeError, match=f"for {queries} queries and {keys + 1} keys"):
        ll.attention(query, key, key, mask=make(queries, keys + 1))


def test_a_gradient_that_is_lazily_negated() -> None:
    query, key, value = double(1, 2, 5, 8), double(1, 2, 7, 8), double(1, 2, 7, 8)
    lazy = torch.randn(1, 2, 5, 8, dtype=torch.complex128).conj().imag
    assert lazy.is_neg()
    output = ll.attention(query, key, value)
    got = torch.autograd.grad(output, (query, key, value), lazy, retain_graph=True)
    want = torch.autograd.grad(output, (query, key, value), lazy.clone())
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_jit_trace_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"torch\.jit\.trace cannot record attention"):
        torch.jit.trace(lambda x: ll.attention(x, x, x), torch.randn(1, 2, 5, 8))
