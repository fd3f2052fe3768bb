"""The operators under torch.library.opcheck, torch.compile and torch.export."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import limelight as ll
import limelight.torch.operators  # defines them
from limelight.errors import ArgumentError
from tests.marks import later, quick

# torch's own, while inductor starts up
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
DTYPES = [torch.float64, torch.float32, torch.bfloat16]


def given(dtype: torch.dtype = torch.float64, *, train: bool = True) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = (2, 6, 7, 5), (2, 3, 11, 5), (2, 3, 11, 4)
    return [torch.randn(shape, dtype=dtype).requires_grad_(train) for shape in shapes]


def allowed_cells() -> torch.Tensor:
    return torch.ones(1, 1, 7, 11, dtype=torch.bool).tril(4)


@pytest.mark.parametrize("health", [False, True])
@pytest.mark.parametrize("dtype", quick(DTYPES, torch.float32, torch.bfloat16), ids=str)
def test_opcheck(dtype: torch.dtype, health: bool) -> None:
    bias = torch.randn(1, 6, 7, 1, dtype=dtype, requires_grad=True)
    sinks = torch.randn(6, dtype=dtype, requires_grad=True)
    spans = torch.tensor([[3, 11], [0, 5]], dtype=torch.int32).reshape(2, 1, 1, 1, 2)
    calls = [
        ((-2, 4), None, None, None, None, 0.3, None, 0.0, None),
        (None, spans, None, bias, sinks, 0.3, 2.0, 0.0, None),
        ((-3, 11), None, allowed_cells(), None, None, 1.0, None, 0.0, None),
        (None, None, None, bias, sinks, 1.0, None, 0.3, torch.tensor([5, 7])),
    ]
    tests = (
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
        "test_aot_dispatch_dynamic",
    )
    for call in calls:
        torch.library.opcheck(
            torch.ops.limelight.attention.default, (*given(dtype), *call, "auto", health, "here"),
            test_utils=tests, rtol=2e-2 if dtype == torch.bfloat16 else None,
            atol=2e-2 if dtype == torch.bfloat16 else None,
        )  # fmt: skip
    query = given(dtype, train=False)[0]
    torch.library.opcheck(
        torch.ops.limelight.count_keys.default, (query, 11, (-2, 4), spans, None, None)
    )


def test_opcheck_of_the_backward_pass() -> None:
    query, key, value = given(train=False)
    call = (query, key, value, *(None,) * 5, 0.3, None, 0.2, torch.tensor([5, 7]), "auto")
    out, logsumexp, _, entropy = torch.ops.limelight.attention(*call, True, "")
    grads = [torch.randn_like(x) for x in (out, logsumexp, entropy)]
    for needs, given_grads in (
        ([True, True, True, False, False], (grads[0], None, None)),
        ([False, True, False, False, False], (None, grads[1], None)),
        ([True, True, False, False, False], grads),
    ):
        torch.library.opcheck(
            torch.ops.limelight.attention_backward.default,
            (*call, out, logsumexp, entropy, *given_grads, needs),
        )


MASKS: dict[str, Any] = {
    "none": lambda n: None,
    "causal": lambda n: ll.Causal(),
    "window": lambda n: ll.Causal() & ll.Window(2, None),
    "lengths": lambda n: ll.Lengths([5, 9]),
    "causal lengths": lambda n: ll.Causal() & ll.Lengths([0, 9]),
    "prefix": lambda n: ll.Prefix(2) | ll.Causal(),
    "documents": lambda n: ll.Documents([0] * 5 + [1] * 6),
    "not causal": lambda n: ~ll.Causal(),
    "tensor": lambda n: allowed_cells()[:, :, :n],
    "all kinds": lambda n: ll.Window(6, 1) & ll.Lengths([9]) & allowed_cells()[:, :, :n],
}


@pytest.mark.parametrize("backend", ["aot_eager", later("inductor")])
@pytest.mark.parametrize("name", MASKS)
def test_compile_without_a_break(name: str, backend: str) -> None:
    torch.compiler.reset()

    def run(q: Any, k: Any, v: Any, mask: Any) -> torch.Tensor:
        return ll.attention(q * 1.0, k, v, mask=mask)

    compiled = torch.compile(run, fullgraph=True, backend=backend)
    for n in (7, 5, 3):  # the second size makes torch.compile go over to symbols
        query, key, value = given()
        query = query.detach()[:, :, :n].requires_grad_()
        mask = MASKS[name](n)
        want = run(query, key, value, mask)
        want.square().sum().backward()
        grads = [x.grad.clone() for x in (query, key, value)]
        for x in (query, key, value):
            x.grad = None
        got = compiled(query, key, value, mask)
        got.square().sum().backward()
        assert torch.equal(got, want)
        for x, right in zip((query, key, value), grads, strict=True):
            assert torch.equal(x.grad, right)


JOINED: dict[str, Any] = {
    "causal & tensor": lambda m: ll.Causal() & m,
    "tensor & causal": lambda m: m & ll.Causal(align="top-left"),
    "window & tensor": lambda m: ll.Window(3, 1) & m,
    "window | tensor": lambda m: ll.Window(1, 0) | m,
    "tensor | both": lambda m: m | (ll.Causal() & ll.Window(1, None)),
}


@pytest.mark.parametrize(("name", "dynamic"), [
    ("tensor | both", True), ("window | tensor", None),
    *(later(name, True) for name in JOINED if name != "tensor | both"),
    *(later(name, None) for name in JOINED if name != "window | tensor"),
])  # fmt: skip
def test_a_mask_joins_a_tensor_in_a_compiled_function(name: str, dynamic: bool | None) -> None:
    torch.compiler.reset()

    def run(q: Any, k: Any, v: Any, m: Any) -> torch.Tensor:
        return ll.attention(q, k, v, mask=JOINED[name](m))

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for n in (7, 5):
        query, key, value = given(train=False)
        given_now = query[:, :, :n], key, value, torch.rand(n, 11) < 0.5
        assert torch.equal(compiled(*given_now), run(*given_now))


@pytest.mark.parametrize(
    "name",
    quick(
        ["lengths", "causal lengths", "prefix", "documents", "not causal"],
        "causal lengths",
        "documents",
    ),
)
def test_masks_with_numbers_of_their_own_where_sizes_are_symbols(name: str) -> None:
    torch.compiler.reset()
    mask, other = MASKS[name](7), ll.Lengths([4, 11])

    def run(q: Any, k: Any, v: Any) -> torch.Tensor:
        return ll.attention(q, k, v, mask=mask) + ll.attention(q, k, v, mask=other)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (7, 5):
        query, key, value = given(train=False)
        assert torch.equal(compiled(query[:, :, :n], key, value), run(query[:, :, :n], key, value))


def test_what_a_tensor_in_a_mask_holds_is_no_constant() -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda *x: ll.attention(*x[:3], mask=x[3]), fullgraph=True, backend="aot_eager"
    )
    query, key, value = given(train=False)
    cells = allowed_cells()
    for mask in (~ll.masks.as_mask(cells), ll.Prefix(2) | cells):
        for _ in range(2):
            assert torch.equal(
                compiled(query, key, value, mask), ll.attention(query, key, value, mask=mask)
            )
            cells.logical_not_()


def test_another_mask_is_not_mistaken_for_the_last() -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda *x: ll.attention(*x[:3], mask=x[3]), fullgraph=True, backend="aot_eager"
    )
    query, key, value = given(train=False)
    for mask in (
        ll.Lengths([5, 9]),
        ll.Lengths([5, 8]),
        ll.Window(1, 1),
        ll.Window(2, 1),
        ll.Lengths([5, 9]),
    ):
        assert torch.equal(
            compiled(query, key, value, mask), ll.attention(query, key, value, mask=mask)
        )


def test_compiled_inspect_returns_health() -> None:
    torch.compiler.reset()
    query, key, value = given()

    def run(q: Any, k: Any, v: Any) -> ll.Inspection:
        return ll.inspect(q, k, v, mask=ll.Causal())

    seen, want = (
        torch.compile(run, fullgraph=True, backend="aot_eager")(query, key, value),
        run(query, key, value),
    )
    assert torch.equal(seen.output, want.output)
    for figure in ("max_logit", "logsumexp", "entropy", "keys"):
        assert torch.equal(getattr(seen.health, figure), getattr(want.health, figure))
        trains = figure in ("logsumexp", "entropy")
        assert getattr(seen.health, figure).requires_grad == trains, figure


@pytest.mark.slow
def test_inductor_with_a_model_around_it() -> None:
    torch.compiler.reset()
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 16), ll.torch.SelfAttention(16, heads=4, key_heads=2)
    )
    x = torch.randn(2, 7, 16)
    compiled = torch.compile(model, fullgraph=True)
    assert torch.allclose(compiled(x), model(x), atol=1e-6)
    compiled(x).sum().backward()


class Model(torch.nn.Module):
    def forward(self, q: Any, k: Any, v: Any) -> tuple[torch.Tensor, torch.Tensor]:
        seen = ll.inspect(q, k, v, mask=ll.Causal() & ll.Window(4, 0), softcap=5.0)
        return seen.output, seen.health.keys


@pytest.mark.parametrize("strict", [False, True])
def test_export_with_a_free_length(strict: bool) -> None:
    arguments = tuple(given(train=False))
    keys = torch.export.Dim("keys", min=2, max=4096)
    queries = torch.export.Dim("queries", min=2, max=4096)
    shapes = ({2: queries}, {2: keys}, {2: keys})
    program = torch.export.export(Model(), arguments, strict=strict, dynamic_shapes=shapes)
    assert "limelight.attention.default" in program.graph_module.code
    query, key, value = arguments
    for nq, nk in ((7, 11), (2, 5), (6, 3)):
        part = query[:, :, :nq], key[:, :, :nk], value[:, :, :nk]
        got, want = program.module()(*part), Model()(*part)
        assert torch.equal(got[0], want[0])
        assert torch.equal(got[1], want[1])


def test_errors_while_tracing() -> None:
    torch.compiler.reset()
    query, key, value = given(train=False)

    def compiled(run: Any) -> Any:
        return torch.compile(run, fullgraph=True, backend="aot_eager")

    with pytest.raises(Exception, match="do not fit together"):
        compiled(lambda q, k, v: ll.attention(q, k[..., :3], v))(query, key, value)
    with pytest.raises(Exception, match="cast them to one"):
        compiled(lambda q, k, v: ll.attention(q, k.float(), v))(query, key, value)
    with pytest.raises(Exception, match="make it outside and pass it in"):
        compiled(lambda q, k, v: ll.attention(q, k, v, mask=ll.Window(0, 0) | ll.Window(1, 0)))(
            query, key, value
        )
    with pytest.raises(Exception, match="must be boolean"):
        compiled(lambda q, k, v: ll.attention(q, k, v, mask=torch.zeros(7, 11)))(query, key, value)
    learnt = torch.nn.Parameter(torch.tensor(0.5))
    for name in ("scale", "softcap"):
        with pytest.raises(Exception, match=f"{name} is a tensor that needs gradients"):
            compiled(lambda *x, name=name: ll.attention(*x, **{name: learnt}))(query, key, value)


@pytest.mark.parametrize(("name", "number", "message"), [
    ("softcap", 0.0, "must be a positive number"), later("softcap", -1.0, "must be a positive number"),
    ("scale", float("nan"), "not finite"), later("scale", float("inf"), "not finite"),
])  # fmt: skip
def test_numbers_are_checked_in_a_compiled_call(name: str, number: float, message: str) -> None:
    torch.compiler.reset()
    compiled = torch.compile(
        lambda *x, **rest: ll.attention(*x, **rest), fullgraph=True, backend="aot_eager"
    )
    query, key, value = given(train=False)
    for fine in (0.5, 0.75, 3.0):  # the second number makes torch.compile go over to symbols
        want = ll.attention(query, key, value, **{name: fine})
        assert torch.equal(compiled(query, key, value, **{name: fine}), want)
    with pytest.raises(ArgumentError, match=message):
        compiled(query, key, value, **{name: number})


def test_what_follows_from_health_can_be_compiled() -> None:
    def follow(x: torch.Tensor) -> tuple[Any, ...]:
        health = ll.inspect(x, x, x).health
        return health.max_prob, health.gradient, health.spread, health.saturated

    torch.compiler.reset()
    x = torch.randn(1, 2, 5, 8)
    compiled = torch.compile(follow, fullgraph=True, backend="aot_eager")
    for one, other in zip(compiled(x), follow(x), strict=True):
        assert torch.equal(one, other)


def test_rows_that_are_alike_are_counted_once() -> None:
    q, hidden = torch.randn(1, 2, 50, 4), torch.zeros(50)
    hidden[:7] = -torch.inf
    keys = ll.inspect(q, q, q, bias=hidden).health.keys
    assert (keys == 43).all()
    assert keys.stride(-1) == 0
