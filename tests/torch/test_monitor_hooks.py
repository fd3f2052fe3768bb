"""What a monitor puts on a model: it comes and goes, and leaves no trace on copies or on graphs."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.utils.checkpoint import checkpoint

import limelight as ll
from limelight.torch import Monitor, QKClip, SelfAttention, bridge
from limelight.torch.monitor import patch
from limelight.torch.monitor.monitor import MonitorWarning
from limelight.torch.monitor.padding import Padding
from limelight.torch.monitor.patch import Patch

X = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(0))
COMPILED = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])


@pytest.fixture(autouse=True)
def _no_graphs() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()
    assert not bridge.running


def names(record: dict[str, Any] | None) -> list[str]:
    assert record is not None
    return [site["name"] for site in record["sites"]]


class Direct(nn.Module):
    """Calls limelight's function itself: which module that is, the list of running ones tells."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ll.attention(x[:, None], x[:, None], x[:, None])[:, 0]


class Fails(nn.Module):
    """Fails where the input says so, with a module of its own under way."""

    def __init__(self, attends: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = nn.Sequential(Breaks(), attends or Direct())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Breaks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.within = nn.ModuleList([nn.Linear(1, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] == 5:
            raise ValueError("five")
        return x


class Catches(nn.Module):
    """Goes on with attention of its own after a part has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.tried, self.other = Fails(), Direct()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            self.tried(x[:, :5])
        except ValueError:
            x = x + 1
        x = ll.attention(x[:, None], x[:, None], x[:, None])[:, 0]
        return self.other(x)


class Counts:
    """A backend that counts its graphs, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        self.graphs += 1
        return graph.forward


@pytest.mark.parametrize("given", ["the model", "the compiled one"])
@pytest.mark.parametrize("kind", [Monitor, QKClip])
def test_opening_and_closing_makes_no_further_graphs(kind: Any, given: str) -> None:
    model, backend = nn.Sequential(SelfAttention(16, 2), Fails(SelfAttention(16, 2))), Counts()
    compiled = torch.compile(model, backend=backend)
    watched = model if given == "the model" else compiled
    compiled(X)
    for time in range(12):
        with kind(watched) as first, Monitor(watched, every=1) as monitor:
            compiled(X)
            assert names(monitor.step()) == ["0", "1.inner.1"], time
            if time % 3 == 0:  # one of two: the hooks stay
                first.close()
            if time % 5 == 0:
                with pytest.raises(ValueError, match="five"):
                    model(X[:, :5])
                monitor.step()
            compiled(X)
            assert names(monitor.step()) == ["0", "1.inner.1"], time
        compiled(X)
    assert backend.graphs == 2


@COMPILED
def test_what_runs_after_a_part_that_failed_has_its_own_name(compiled: bool) -> None:
    model = nn.Sequential(Catches())
    runs = torch.compile(model, backend="eager") if compiled else model
    with Monitor(model, every=1) as monitor:
        for _ in range(3):
            runs(X)
            assert not bridge.running
            seen = names(monitor.step())
            assert seen[1:] == ["0.other"]
            assert compiled or seen[0] == "0"  # in a graph no hook runs when a forward raised


def test_a_hook_that_fails_before_ours_drops_no_other_module() -> None:
    model = nn.Sequential(Direct())

    def refuse(*_: Any) -> None:
        raise ValueError("refused")

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with pytest.raises(ValueError, match="refused"):
                self.part(x)
            return ll.attention(x[:, None], x[:, None], x[:, None])

    around = Around()
    model.register_forward_pre_hook(refuse)
    with Monitor(around, every=1) as monitor:
        around(X)
        assert names(monitor.step()) == ["Around"]


def test_checkpoints_leave_nothing_running() -> None:
    """Their second run ends by an exception as soon as it has what it needs."""
    model = nn.Sequential(Fails(), Fails())
    with Monitor(model, every=1) as monitor:
        x = X.clone().requires_grad_()
        for part in model:
            x = checkpoint(part, x, use_reentrant=False).sin()
        x.sum().backward()
        assert not bridge.running
        assert names(monitor.step()) == ["0.inner.1", "1.inner.1"]


def test_an_interrupted_pass_is_over_when_the_next_step_begins() -> None:
    class Interrupted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.direct = Direct()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyboardInterrupt

    model = Interrupted()
    with Monitor(model, every=1) as monitor:
        with pytest.raises(KeyboardInterrupt):
            model(X)
        with pytest.warns(MonitorWarning, match="no attention was seen"):
            monitor.step()
        Direct()(X)  # of no module that is watched
        model.direct(X)
        assert names(monitor.step()) == ["direct"]


class Picky(pickle.Unpickler):
    """As in a process where limelight is not installed."""

    def find_class(self, module: str, name: str) -> Any:
        assert not module.startswith("limelight"), f"{module}.{name}"
        return super().find_class(module, name)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.layer(x, src_key_padding_mask=attention_mask == 0)


def saved(model: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS: dict[str, Callable[[nn.Module], Any]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: Picky(io.BytesIO(pickle.dumps(model))).load(),
    "torch.save": saved,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [Monitor, QKClip])
def test_copies_are_clean(kind: Any, way: str) -> None:
    """An exponential mean of the weights, a checkpoint of the whole model."""
    model, mask = Masked(), torch.ones(3, 7)
    with kind(model, sdpa=True):
        want = model(X, attention_mask=mask)
        other = WAYS[way](model)
        # QKClip puts limelight's function in the place of torch's, in its own model alone.
        torch.testing.assert_close(other(X, attention_mask=mask), want)
        assert kind is QKClip or torch.equal(other(X, attention_mask=mask), want)
    torch.testing.assert_close(other(X, attention_mask=mask), want)
    for module in other.modules():
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values()):
            assert not hook.__module__.startswith("limelight")
    for module in model.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
        assert not module._forward_hooks_always_called
        assert not module._forward_pre_hooks_with_kwargs


def scripted(part: nn.Module) -> nn.Module:
    return torch.jit.trace(part, X)  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_parts_in_torchscript_are_left_out() -> None:
    model = nn.Sequential(SelfAttention(16, 2), scripted(nn.Linear(16, 16)), Direct())
    with Monitor(model, every=1) as monitor, QKClip(model[:2], limit=1e-6) as clip:
        model(X)
        assert names(monitor.step()) == ["0", "2"]
        model[:2](X)
        assert {one.site for one in clip.step()} == {"0"}
    script = scripted(nn.Sequential(nn.Linear(16, 16)))
    with Monitor(script, every=1) as monitor:
        script(X)
        with pytest.warns(MonitorWarning, match="TorchScript, which hides its attention"):
            monitor.step()


class Refuses(nn.Linear):
    """Takes no attributes and no hooks of others."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("_forward_hooks", "_forward_pre_hooks", "register_forward_hook") and Refuses.on:
            raise RuntimeError("not on me")
        return super().__getattribute__(name)

    on = True

    def children(self) -> Iterator[nn.Module]:  # no leaf, which would need no hooks
        yield nn.Linear(1, 1)


@pytest.mark.parametrize("what", [Monitor, QKClip, Patch, Padding])
def test_what_could_not_be_opened_leaves_nothing(what: Any, monkeypatch: Any) -> None:
    model = nn.Sequential(SelfAttention(16, 2), Refuses(16, 16))
    if what is Padding:  # which looks at parts that see alone
        model = nn.ModuleDict({"audio": Direct(), "visual": Refuses(16, 16)})
    before = nn.functional.scaled_dot_product_attention
    options = {} if what is Padding else {"sdpa": True}
    with pytest.raises(RuntimeError, match="not on me"):
        what(model, **options)
    monkeypatch.setattr(Refuses, "on", False)
    for module in model.modules():
        assert bridge.SITE not in vars(module)
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._forward_hooks_always_called
    assert nn.functional.scaled_dot_product_attention is before
    assert not bridge.listening
    assert not bridge.observers
    assert torch._dynamo.config.skip_nnmodule_hook_guards


@pytest.mark.parametrize("where", ["clip", "monitor.monitor"])
def test_what_fails_last_undoes_what_was_done(where: str, monkeypatch: Any) -> None:
    def fails(model: nn.Module) -> None:
        raise RuntimeError("not on me")

    monkeypatch.setattr(f"limelight.torch.{where}.Padding", fails)
    model = nn.Sequential(SelfAttention(16, 2))
    with pytest.raises(RuntimeError, match="not on me"):
        (QKClip if where == "clip" else Monitor)(model, sdpa=True)
    assert not any(module._forward_hooks for module in model.modules())
    assert not bridge.listening
    assert nn.functional.scaled_dot_product_attention is patch.torch_attention


def test_a_module_that_nobody_watches_is_not_searched() -> None:
    class Searched(SelfAttention):
        def __getattr__(self, name: str) -> Any:
            assert name != bridge.SITE
            return super().__getattr__(name)

    Searched(16, 2)(X)


def test_evaluation_of_the_model_inside_its_wrapper() -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(nn.Sequential(SelfAttention(16, 2)))
        with Monitor(wrapped, every=1) as monitor:
            wrapped.module.eval()
            wrapped.module(X)
            wrapped(X)
            with pytest.warns(MonitorWarning, match="2 passes were made in evaluation mode"):
                monitor.step()
            wrapped.module.train()
            wrapped(X)
            assert names(monitor.step()) == ["0"]
    finally:
        distributed.destroy_process_group()
