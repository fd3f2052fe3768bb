"""What the contract promises on a GPU beyond the numbers of the table."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import limelight as ll
from limelight import reference
from limelight.call import prepare
from limelight.engines import find

if find("triton").missing() is None:
    from limelight.engines.gpu import launch, portable

ENGINES = ["triton", "hopper"]


def tensors(*shape: int, count: int = 3, dtype: torch.dtype = torch.bfloat16) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(shape, device="cuda", dtype=dtype) for _ in range(count)]


def oracle(q: Any, k: Any, v: Any, **options: Any) -> reference.State:
    return reference.forward(prepare(*(x.double().cpu().numpy() for x in (q, k, v)), **options))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("mask", [None, ll.Causal()], ids=["full", "causal"])
def test_same_bits_200_times(engine: str, size: int, mask: ll.Mask | None) -> None:
    q, k, v = tensors(2, 4, 1031, size)
    call = prepare(q, k, v, mask=mask)
    module = find(engine).module
    first = module.forward(call, health=True)
    noise = torch.randn(2048, 2048, device="cuda")
    side = torch.cuda.Stream()
    for _ in range(200):
        with torch.cuda.stream(side):
            noise @ noise  # other work beside it
        again = module.forward(call, health=True)
        assert torch.equal(first.output, again.output)
        assert torch.equal(first.entropy, again.entropy)
        assert torch.equal(first.logsumexp, again.logsumexp)


@pytest.mark.parametrize("engine", ENGINES)
def test_masked_values_do_not_leak(engine: str) -> None:
    q, k, v = tensors(1, 2, 389, 64)
    module = find(engine).module
    clean = module.forward(prepare(q, k, v, mask=ll.Causal()), health=True)
    k[:, :, 300], v[:, :, 301] = float("nan"), float("inf")
    call = prepare(q, k, v, mask=ll.Causal())
    got = module.forward(call, health=True)
    assert torch.allclose(got.output[:, :, :300], clean.output[:, :, :300], atol=0.01)
    assert torch.allclose(got.entropy[:, :, :300], clean.entropy[:, :, :300], atol=1e-4)
    assert got.output[:, :, 300:].isnan().all()
    assert got.logsumexp[:, :, 300:].isnan().all()
    grads = module.backward(call, got, torch.randn_like(got.output))
    assert grads.query[:, :, :300].isfinite().all()


@pytest.mark.parametrize("engine", ENGINES)
def test_lengths_hide_garbage(engine: str) -> None:
    q, k, v = tensors(2, 2, 517, 64)
    k[1, :, 200:], v[1, :, 200:] = float("nan"), float("nan")
    call = prepare(q, k, v, mask=ll.Lengths([517, 200]))
    state = find(engine).module.forward(call, health=True)
    assert state.output.isfinite().all()
    grads = find(engine).module.backward(call, state, torch.randn_like(state.output))
    assert grads.query.isfinite().all()
    assert grads.key.isfinite().all()
    assert grads.value.isfinite().all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("spread", [1e4, 1e20])
def test_large_logits(engine: str, spread: float) -> None:
    q, k, v = tensors(1, 2, 200, 64)
    q = q * spread
    truth = oracle(q, k, v)
    state = find(engine).module.forward(prepare(q, k, v), health=True)
    assert state.output.isfinite().all()
    error = (state.output.double().cpu() - torch.tensor(truth.output)).abs().max()
    assert error < 0.02
    relative = (state.logsumexp.double().cpu() / torch.tensor(truth.logsumexp) - 1).abs().max()
    assert relative < 1e-6


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(0, 2, 5, 7), (2, 2, 0, 7), (2, 2, 5, 0), (2, 0, 5, 7)])
def test_nothing(engine: str, shape: tuple[int, ...]) -> None:
    b, h, nq, nk = shape
    q, k, v = (torch.randn(b, h, n, 64, device="cuda").bfloat16() for n in (nq, nk, nk))
    module = find(engine).module
    call = prepare(q, k, v)
    state = module.forward(call, health=True)
    assert state.output.shape == (b, h, nq, 64)
    assert (state.output == 0).all()
    assert (state.logsumexp == float("-inf")).all()
    grads = module.backward(call, state, torch.ones_like(state.output))
    assert grads.key.shape == k.shape


@pytest.mark.parametrize("engine", ENGINES)
def test_strides(engine: str) -> None:
    base = torch.randn(2, 300, 3, 4, 64, device="cuda").bfloat16()
    q, k, v = (
        base[:, :, i].transpose(1, 2) for i in range(3)
    )  # [B, H, N, D] views of [B, N, H, D]
    module = find(engine).module
    state = module.forward(prepare(q, k, v), health=True)
    same = module.forward(prepare(*(x.contiguous() for x in (q, k, v))), health=True)
    assert torch.equal(state.output, same.output)
    assert state.output.stride() != same.output.stride()  # it lies as the query does
    odd = torch.randn(1, 2, 301, 65, device="cuda").bfloat16()[..., 1:]
    slices = odd.flip(2), odd[:, :1].expand(1, 2, 301, 64), odd[..., :]
    state = module.forward(prepare(*slices), health=True)
    same = module.forward(prepare(*(x.contiguous() for x in slices)), health=True)
    assert torch.equal(state.output, same.output)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("keys", [384, 378])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bias_and_mask_in_any_layout(engine: str, keys: int, dtype: torch.dtype) -> None:
    q, k, v = tensors(2, 2, keys, 64)
    base = torch.randn(2, 2, 388, 389, device="cuda").to(dtype)
    even = torch.randn(2, 2, keys, keys, device="cuda").to(dtype)
    whole = base[..., :keys, :keys]
    layouts = [
        even, whole, base[..., 1 : keys + 1, 1 : keys + 1], whole.transpose(-1, -2), even[:1, :, :1],
        even[:, :1, :, :1], whole.flip(-1), even[0, 0],
    ]  # fmt: skip
    module = find(engine).module
    for bias in layouts:
        for options in ({"bias": bias}, {"mask": bias > -1}, {"bias": bias, "mask": bias > -1}):
            host = {name: array.cpu() for name, array in options.items()}
            host = {n: a.double().numpy() if n == "bias" else a.numpy() for n, a in host.items()}
            state = module.forward(prepare(q, k, v, **options), health=True)
            right = oracle(q, k, v, **host)
            assert abs(state.output.double().cpu().numpy() - right.output).max() < 0.03
            assert np.allclose(state.logsumexp.cpu().numpy(), right.logsumexp, rtol=0, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [64, 128])
def test_a_bias_hides(engine: str, size: int) -> None:
    """Keys and values that -inf hides may hold anything, whichever way the bias comes."""
    module = find(engine).module
    q, k, v = tensors(1, 2, 640, size)
    for keys in (640, 636):
        bias = torch.randn(keys, keys, device="cuda").bfloat16()
        bias[:, 100:130] = float("-inf")
        seen = [i for i in range(keys) if not 100 <= i < 130]
        here = [x[:, :, :keys].clone() for x in (q, k, v)]
        right = module.forward(
            prepare(here[0], here[1][:, :, seen], here[2][:, :, seen], bias=bias[:, seen]),
            health=True,
        )
        here[1][:, :, 100:110], here[1][:, :, 110:120] = float("nan"), float("inf")
        here[2][:, :, 105:125] = float("nan")
        found = module.forward(prepare(*here, bias=bias), health=True)
        assert (found.output - right.output).abs().max() < 0.02
        for name in ("logsumexp", "max_logit", "entropy"):
            assert (getattr(found, name) - getattr(right, name)).abs().max() < 1e-4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("n", [300, 512])
def test_small_calls_in_one_launch(
    engine: str, size: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portable, "TINY_KEYS", 512)
    monkeypatch.setattr(launch, "_plans", {})
    q, k, v = tensors(1, 8, n, size)
    call = prepare(q, k, v, mask=ll.Causal())
    assert portable.tiny(call)
    state, right = find(engine).module.forward(call, health=True), oracle(q, k, v, mask=ll.Causal())
    assert abs(state.output.double().cpu().numpy() - right.output).max() < 0.02
    for name in ("logsumexp", "max_logit", "entropy"):
        assert abs(getattr(state, name).cpu().numpy() - getattr(right, name)).max() < 1e-4


@pytest.mark.parametrize("engine", ENGINES)
def test_calls_alike_but_for_their_numbers(engine: str) -> None:
    """What is kept for a layout, TMA's descriptors by address among it, must not mix calls up."""
    module = find(engine).module
    shelf = torch.randn(8, 1, 2, 300, 64, device="cuda").bfloat16()
    for turn in range(3):
        for i in range(8):
            chosen = [shelf[(i + step * (turn + 1)) % 8] for step in range(3)]
            state = module.forward(prepare(*chosen, mask=ll.Causal()), health=True)
            right = oracle(*chosen, mask=ll.Causal())
            assert abs(state.output.double().cpu().numpy() - right.output).max() < 0.02
            assert abs(state.logsumexp.cpu().numpy() - right.logsumexp).max() < 1e-4
        shelf.normal_()  # the same addresses, other numbers


@pytest.mark.parametrize("engine", ENGINES)
def test_graph_capture(engine: str) -> None:
    q, k, v = tensors(2, 4, 517, 128)
    call = prepare(q, k, v, mask=ll.Causal())
    module = find(engine).module
    want = module.forward(call, health=True)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        module.forward(call, health=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state = module.forward(call, health=True)
    for _ in range(3):
        state.output.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(state.output, want.output)


@pytest.mark.parametrize("engine", ENGINES)
def test_memory_is_linear(engine: str) -> None:
    n = 131_072
    q, k, v = tensors(1, 1, n, 64)
    call = prepare(q, k, v, mask=ll.Causal())
    module = find(engine).module
    module.forward(prepare(q[:, :, :512], k[:, :, :512], v[:, :, :512]), health=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    state = module.forward(call, health=True)
    torch.cuda.synchronize()
    extra = torch.cuda.max_memory_allocated() - before
    result = state.output.nbytes + 3 * state.logsumexp.nbytes
    assert extra <= result + 64 * n, f"{extra} bytes beside {result} of results"
    rows = torch.tensor([0, 1, 70_001, n - 1], device="cuda")
    s = (q[0, 0, rows].float() @ k[0, 0].float().T) / 8
    s = s.masked_fill(torch.arange(n, device="cuda") > rows[:, None], float("-inf"))
    assert torch.allclose(state.logsumexp[0, 0, rows], s.logsumexp(-1), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_more_than_two_to_the_31_elements(engine: str) -> None:
    q = torch.randn(2, 1, 64, 64, device="cuda").bfloat16()
    base = torch.empty(2, 17_000_000, 64, device="cuda", dtype=torch.bfloat16).normal_()
    k = base[:, None]
    module = find(engine).module
    state = module.forward(prepare(q, k, k), health=True)
    s = (q[1, 0, :2].float() @ k[1, 0].float().T) / 8
    assert torch.allclose(state.logsumexp[1, 0, :2], s.logsumexp(-1), atol=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(65_539, 1, 1), (65_539, 1, 64), (4_099, 17, 64)])
@pytest.mark.parametrize("hidden", [False, True], ids=["full", "bias and mask"])
def test_more_heads_than_a_grid_is_high(engine: str, shape: Any, hidden: bool) -> None:
    batch, heads, rows = shape
    keys = 200
    module = find(engine).module
    q, grad = tensors(batch, heads, rows, 64, count=2)
    k, v = tensors(batch, heads, keys, 64, count=2)
    mask = torch.rand(batch, heads, 1, keys, device="cuda") < 0.8
    bias = torch.randn(batch, heads, 1, keys, device="cuda")

    def run(part: slice) -> list[torch.Tensor]:
        options = {"mask": mask[part], "bias": bias[part]} if hidden else {}
        call = prepare(q[part], k[part], v[part], **options)
        state = module.forward(call, health=True)
        grads = module.backward(call, state, grad[part])
        looking = find("triton").looking
        found = [
            state.output, state.entropy, grads.query, grads.key, grads.value, grads.bias,
            looking.pool(call, state.logsumexp, [0, rows], [0, 150, keys], "mean"),
            looking.received(call, state.logsumexp),
        ]  # fmt: skip
        return [x[-3:].float() for x in found if x is not None]

    for mine, alone in zip(run(slice(None)), run(slice(-3, None)), strict=True):
        assert torch.allclose(mine, alone, atol=0.02)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_synchronisation(engine: str) -> None:
    q, k, v = tensors(1, 2, 300, 64)
    call = prepare(q, k, v, mask=ll.Causal())
    module = find(engine).module
    state = module.forward(call, health=True)
    module.backward(call, state, torch.randn_like(state.output))  # the first calls compile
    try:
        with warnings.catch_warnings(action="ignore"):  # torch says that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        module.forward(call, health=True)
        module.backward(call, state, torch.randn_like(state.output))
    finally:
        with warnings.catch_warnings(action="ignore"):
            torch.cuda.set_sync_debug_mode("default")
