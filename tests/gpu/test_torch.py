"""limelight.torch and limelight.hf on a GPU: graphs, autocast, compile, models, cache, monitor."""

from __future__ import annotations

import copy
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import limelight as ll
from limelight.call import prepare
from limelight.errors import EngineError
from limelight.torch import Cache, Monitor, SelfAttention, operators

DEVICE = torch.device("cuda")
HALF = (torch.bfloat16, torch.float16)
FIGURES = ("max_logit", "logsumexp", "entropy", "keys")


def drawn(*shape: int, count: int = 3, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape, device=DEVICE).to(dtype) for _ in range(count)]


def recorded(run: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """A graph of the run, after it has run thrice beside the default stream, as torch asks for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    return graph, found


@contextmanager
def nothing_waits() -> Iterator[None]:
    """Inside, whatever makes the host wait for the GPU is an error."""
    with warnings.catch_warnings(action="ignore"):  # torch says that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        with warnings.catch_warnings(action="ignore"):
            torch.cuda.set_sync_debug_mode("default")


def close(found: Any, right: Any, dtype: torch.dtype, what: str, roundings: float = 8) -> None:
    """Equal to a few roundings of the largest number."""
    error = float((found.detach().double() - right.detach().double()).abs().max())
    limit = roundings * torch.finfo(dtype).eps * float(right.detach().double().abs().max())
    assert error <= limit, f"{what}: error {error:.3g}, allowed {limit:.3g}"


MASKS = {
    "none": None,
    "causal": ll.Causal(),
    "window": ll.Causal() & ll.Window(100, None),
    "lengths": ll.Lengths([517, 129]) & ll.Causal(),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_a_graph_replays_inspect_on_new_numbers(name: str, dtype: torch.dtype) -> None:
    mask = MASKS[name]
    given = drawn(2, 4, 517, 64, dtype=dtype)
    graph, seen = recorded(lambda: ll.inspect(*given, mask=mask))
    for tensor, fresh in zip(given, drawn(2, 4, 517, 64, count=6, dtype=dtype)[3:], strict=True):
        tensor.copy_(fresh)
    graph.replay()
    want = ll.inspect(*given, mask=mask)
    assert torch.equal(seen.output, want.output), (
        f"output differs by {(seen.output - want.output).abs().max()}"
    )
    for figure in FIGURES:
        assert torch.equal(getattr(seen.health, figure), getattr(want.health, figure)), figure


class Model(nn.Module):
    """Two layers of attention with something between them."""

    def __init__(self, size: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.first, self.second = (
            SelfAttention(size, heads),
            SelfAttention(size, heads, key_heads=2),
        )
        self.norm = nn.LayerNorm(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.first(x)
        return x + self.second(self.norm(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_training_step_in_a_graph(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model = Model().to(DEVICE, dtype)
    start = copy.deepcopy(model.state_dict())
    batches = [torch.randn(2, 131, 256, device=DEVICE, dtype=dtype) for _ in range(4)]
    x = batches[0].clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - x).float().square().sum(-1).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    graph, loss = recorded(step)
    losses: dict[str, list[float]] = {"graph": [], "eager": []}
    learned = {}
    for how in losses:
        model.load_state_dict(start)
        for batch in batches:
            x.copy_(batch)
            if how == "graph":
                graph.replay()
            losses[how].append(float(loss if how == "graph" else step()))
        learned[how] = copy.deepcopy(model.state_dict())
    eps = torch.finfo(dtype).eps
    assert losses["graph"] == pytest.approx(losses["eager"], rel=16 * eps), losses
    for name, weight in learned["eager"].items():
        assert not torch.equal(weight, start[name]), f"{name} learned nothing"
        close(learned["graph"][name], weight, dtype, name, 16)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_autocast_as_torch_does(dtype: torch.dtype) -> None:
    given = [x.requires_grad_() for x in drawn(2, 4, 131, 64, dtype=torch.float32)]
    direction = torch.randn(2, 4, 131, 64, device=DEVICE)
    results = {}
    for name, run in (("torch", lambda: scaled_dot_product_attention(*given, is_causal=True)),
                      ("limelight", lambda: ll.attention(*given, mask=ll.Causal()))):  # fmt: skip
        with torch.autocast("cuda", dtype=dtype):
            output = run()
        assert output.dtype == dtype, name
        results[name] = output, *torch.autograd.grad(output, given, direction.to(dtype))
    for what, found, right in zip(
        ("output", "query", "key", "value"), results["limelight"], results["torch"], strict=True
    ):
        assert found.dtype == right.dtype
        close(found, right, dtype, what)
    with torch.autocast("cuda", dtype=dtype):  # a module: its projections and its attention
        assert (
            SelfAttention(64, heads=2).to(DEVICE)(torch.randn(1, 5, 64, device=DEVICE)).dtype
            == dtype
        )


@pytest.mark.filterwarnings("ignore")  # inductor has much to say: TF32, its own deprecations
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile_in_one_graph(mode: str) -> None:
    torch.compiler.reset()
    torch.manual_seed(2)
    model = Model().to(DEVICE, torch.bfloat16)
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    for length in (131, 97) if mode == "default" else (131,):  # the second makes sizes symbols
        x = torch.randn(2, length, 256, device=DEVICE, dtype=torch.bfloat16)
        grads = {}
        for name, run in (("eager", model), ("compiled", compiled)):
            for _ in range(3):  # reduce-overhead warms up, records, replays
                model.zero_grad()
                output = run(x)
                output.float().square().mean().backward()
            grads[name] = output.clone(), *(p.grad.clone() for p in model.parameters())
        for found, right in zip(grads["compiled"], grads["eager"], strict=True):
            close(found, right, torch.bfloat16, f"length {length}, shape {tuple(right.shape)}", 16)


@pytest.mark.filterwarnings("ignore")
def test_opcheck() -> None:
    query, key, value = drawn(2, 4, 37, 64, dtype=torch.float32)
    call = prepare(query.requires_grad_(), key, value, mask=ll.Causal())
    torch.library.opcheck(operators.attention, (*operators.split(call), "auto", True, ""))


def test_transforms() -> None:
    query, key, value = drawn(3, 2, 4, 37, 64, dtype=torch.float32)
    mapped = torch.func.vmap(lambda q, k, v: ll.attention(q, k, v, mask=ll.Causal()))(
        query, key, value
    )
    close(mapped, ll.attention(query, key, value, mask=ll.Causal()), torch.float32, "vmap")
    grad = torch.func.grad(lambda q: ll.attention(q, key[0], value[0]).square().sum())(query[0])
    leaf = query[0].clone().requires_grad_()
    ll.attention(leaf, key[0], value[0]).square().sum().backward()
    close(grad, leaf.grad, torch.float32, "grad")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_token_by_token_with_a_cache(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    layer = SelfAttention(256, heads=4, key_heads=2, sinks=True).to(DEVICE, dtype)
    x = torch.randn(2, 150, 256, device=DEVICE, dtype=dtype)
    cache = Cache()
    with torch.no_grad():
        whole = layer(x)
        parts = [
            layer(x[:, :131], cache=cache),
            *(layer(x[:, i : i + 1], cache=cache) for i in range(131, 150)),
        ]
    assert cache.length == 150
    close(torch.cat(parts, 1), whole, dtype, "token by token")
    trace = layer.trace(x[0, :5])  # every step, in float64 on the host
    with torch.no_grad():
        mixed = ll.attention(*layer.project(x[:1, :5]), mask=ll.Causal(), sinks=layer.sinks)
    close(mixed.cpu()[0], torch.as_tensor(trace.output), dtype, "trace")


def test_a_monitor_lets_the_gpu_run_ahead() -> None:
    torch.manual_seed(4)
    model = Model().to(DEVICE, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.randn(2, 131, 256, device=DEVICE, dtype=torch.bfloat16) for _ in range(4)]

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).float().square().mean().backward()
        optimizer.step()

    step(batches[0])  # kernels are compiled
    with Monitor(model, every=1) as monitor:  # and those that count
        step(batches[0])
        monitor.step()
    with Monitor(model, every=2) as monitor:
        for number, x in enumerate(batches):
            with nothing_waits():  # neither in the passes of a recorded step nor between records
                step(x)
                record = None if monitor.recording else monitor.step()
            if number % 2 == 0:
                record = monitor.step()
            assert (record is not None) == (number % 2 == 0)
    assert [record["step"] for record in monitor.records] == [0, 2]
    assert [site["name"] for site in monitor.records[0]["sites"]] == ["first", "second"]


def test_monitored_figures_are_those_of_inspect() -> None:
    torch.manual_seed(5)
    layer = SelfAttention(256, heads=4).to(DEVICE, torch.bfloat16)
    x = torch.randn(2, 131, 256, device=DEVICE, dtype=torch.bfloat16)
    with torch.no_grad():
        want = layer.inspect(x).health.summary()
        with Monitor(layer, every=1) as monitor:
            layer(x)
            record = monitor.step()
    assert record is not None
    for figure in ("judged", "max_logit", "max_prob", "entropy", "spread", "peaked", "saturated"):
        assert record["sites"][0][figure] == pytest.approx(
            getattr(want, figure).tolist(), rel=1e-4
        ), figure


def test_a_dtype_without_an_engine_says_so() -> None:
    with pytest.raises(
        EngineError,
        match=r"no engine can do this call\. .*triton: it takes float32, bfloat16, float16, and the arrays are float64",
    ):
        ll.attention(*drawn(1, 1, 5, 8, dtype=torch.float64))
    with pytest.raises(
        EngineError,
        match=r"'numpy' cannot do this call: it runs on cpu, and the arrays are on cuda\. These can: auto, triton",
    ):
        ll.attention(*drawn(1, 1, 5, 8, dtype=torch.float32), engine="numpy")


# Transformers


def transformers() -> Any:
    """tests.hf.systems, where a Transformers is installed that limelight.hf takes."""
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed here")
    from limelight import hf

    try:
        hf.register()
    except EngineError as reason:
        pytest.skip(str(reason))
    from tests.hf import systems

    return systems


def moved(given: dict[str, Any]) -> dict[str, Any]:
    return {name: tensor.to(DEVICE) for name, tensor in given.items()}


@pytest.mark.parametrize(("name", "dtype"), [
    ("llama", torch.float32), ("llama", torch.bfloat16), ("gemma2", torch.float32), ("gemma2", torch.bfloat16),
    ("gpt-oss", torch.float32),  # its choice of experts turns over on a rounding in less
])  # fmt: skip
def test_models_against_eager(name: str, dtype: torch.dtype) -> None:
    """At most twice eager's own distance from float64, in logits and in every gradient."""
    systems = transformers()
    model = systems.build(name, dtype).to(DEVICE)
    given = moved(systems.inputs(name, "left", dtype))
    wide = copy.deepcopy(model).double()
    real = systems.padding("left").bool().to(DEVICE)

    def passes(which: Any, implementation: str) -> dict[str, torch.Tensor]:
        which.zero_grad()
        logits = systems.run(which, implementation, given)[real]
        weight = torch.linspace(-1, 1, logits.numel(), device=DEVICE, dtype=torch.float64).view_as(
            logits
        )
        (logits * weight.to(logits.dtype)).sum().backward()
        return {"logits": logits.detach()} | {
            n: p.grad.clone() for n, p in which.named_parameters() if p.grad is not None
        }

    truth, eager, found = passes(wide, "eager"), passes(model, "eager"), passes(model, "limelight")
    assert found.keys() == truth.keys()
    largest = max(float(g.abs().max()) for n, g in truth.items() if n != "logits")
    for part, right in truth.items():
        scale = float(right.abs().max()) if part == "logits" else largest
        mine, theirs = (
            float((x[part].double() - right).abs().max()) / scale for x in (found, eager)
        )
        assert mine <= 2 * theirs + 8 * torch.finfo(dtype).eps, (
            f"{part}: {mine:.3g}, eager {theirs:.3g}"
        )


@pytest.mark.filterwarnings("ignore")  # a static cache is compiled by Transformers
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generated_tokens(cache: str) -> None:
    systems = transformers()
    torch.compiler.reset()
    model = systems.build("llama", torch.float32).to(DEVICE)
    given = moved(systems.inputs("llama", "left", torch.float32))
    options = {} if cache == "dynamic" else {"cache_implementation": "static"}
    texts = {}
    for implementation, extra in (("eager", {}), ("limelight", options)):
        model.set_attn_implementation(implementation)
        texts[implementation] = model.generate(
            **given, do_sample=False, max_new_tokens=11, eos_token_id=None, pad_token_id=0, **extra
        )
    assert texts["limelight"].tolist() == texts["eager"].tolist()


@pytest.mark.parametrize("name", ["llama", "gpt-oss"])
def test_captures_are_those_of_the_cpu(name: str) -> None:
    systems = transformers()
    from limelight import hf

    model, given = systems.build(name, torch.float32), systems.inputs(name, "left", torch.float32)
    captures = []
    for device in ("cpu", DEVICE):
        with torch.no_grad(), hf.capture(model.to(device), values=True) as cap:
            model(**{key: tensor.to(device) for key, tensor in given.items()})
        captures.append(cap)
    for here, there in zip(*captures, strict=True):
        assert here.mask == there.mask
        assert here.tokens == there.tokens
        ours, theirs = (torch.as_tensor(site.weights()) for site in (there, here))
        close(ours, theirs, torch.float32, f"weights of {here.name}", 256)
    tables = [cap.health() for cap in captures]
    assert torch.allclose(*(torch.as_tensor(table["entropy"]) for table in tables), atol=1e-4)
