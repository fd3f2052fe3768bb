"""Whose calls count: those inside the model that is watched, under its own names, and no other's."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import limelight as ll
from limelight.torch import Monitor, QKClip, SelfAttention, attention, bridge, capture
from limelight.torch.monitor.monitor import MonitorWarning
from tests.torch.models import Language, batch

X = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(0))
JIT = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.func's own
COMPILED = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])


@pytest.fixture(autouse=True)
def _no_graphs() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def runs(model: nn.Module, compiled: bool) -> Callable[..., Any]:
    return torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model


def seen(record: dict[str, Any] | None) -> list[tuple[str, int]]:
    """Names and rows of a record."""
    assert record is not None
    return [(site["name"], site["rows"]) for site in record["sites"]]


class Direct(nn.Module):
    """Calls limelight's function itself, under a name of its own if it has one."""

    def __init__(self, **named: str) -> None:
        super().__init__()
        self.named = named

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[:, None]
        return attention(x, x, x, mask=ll.Causal(), **self.named)[:, 0]


@COMPILED
@pytest.mark.parametrize("kind", ["limelight", "direct", "torch"])
def test_two_models_have_a_record_each(kind: str, compiled: bool) -> None:
    made = {
        "limelight": lambda: SelfAttention(16, 2),
        "direct": Direct,
        "torch": lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
    }[kind]
    name = "0.self_attn" if kind == "torch" else "0"
    a, b = nn.Sequential(made()), nn.Sequential(made())
    same = {"every": 1, "sdpa": kind == "torch"}
    with Monitor(a, **same) as of_a, Monitor(b, **same) as of_b:
        run_a, run_b = runs(a, compiled), runs(b, compiled)
        for _ in range(2):
            run_a(X)
            run_b(X)
            run_b(X)
            assert seen(of_a.step()) == [(name, 21)]
            assert seen(of_b.step()) == [(name, 42)]


@COMPILED
def test_a_part_and_the_whole_have_their_own_names(compiled: bool) -> None:
    part = nn.Sequential(SelfAttention(16, 2), Direct())
    whole = nn.ModuleDict({"first": SelfAttention(16, 2), "rest": part})
    with Monitor(part, every=1) as of_part, Monitor(whole, every=1) as of_whole:
        runs(part, compiled)(X)
        assert seen(of_whole.step()) == [("rest.0", 21), ("rest.1", 21)]
        assert seen(of_part.step()) == [("0", 21), ("1", 21)]
    with QKClip(part, limit=1e-6) as clip, Monitor(whole, every=1) as of_whole:
        part[0](X)
        assert {one.site for one in clip.step()} == {"0"}
        assert seen(of_whole.step()) == [("rest.0", 21)]


@COMPILED
@pytest.mark.parametrize("kind", ["limelight", "direct", "torch"])
def test_copies_are_models_of_their_own(kind: str, compiled: bool) -> None:
    """An exponential mean of the weights, a frozen reference: copied or loaded while watched."""
    part: nn.Module = nn.MultiheadAttention(16, 2, batch_first=True) if kind == "torch" else (
        SelfAttention(16, 2) if kind == "limelight" else Direct()
    )  # fmt: skip
    model = nn.ModuleDict({"attention": part})
    given = (X, X, X) if kind == "torch" else (X,)

    def run(of: Any, *given: torch.Tensor) -> Any:
        return of["attention"](*given)

    run = torch.compile(run, backend="aot_eager", fullgraph=True) if compiled else run
    with Monitor(model, every=1, sdpa=kind == "torch") as monitor:
        run(model, *given)
        assert seen(monitor.step()) == [("attention", 21)]
        teacher = copy.deepcopy(model)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        for other in (teacher, loaded, copy.deepcopy(teacher)):
            run(other.eval(), *given)
            run(other.train(), *given)
        run(model, *given)
        assert seen(monitor.step()) == [("attention", 21)]
        with Monitor(teacher, every=1, sdpa=kind == "torch") as of_teacher:
            run(teacher, *given)
            assert seen(of_teacher.step()) == [("attention", 21)]
    assert not any("limelight_site" in module.__dict__ for module in teacher.modules())
    assert not bridge.running


@COMPILED
def test_a_clip_leaves_the_student_alone_when_its_teacher_runs(compiled: bool) -> None:
    student = nn.Sequential(SelfAttention(16, 2))
    with QKClip(student, limit=50.0) as clip:
        teacher = copy.deepcopy(student).eval()
        with torch.no_grad():
            teacher[0].W_Q.weight.mul_(1e4)
            runs(teacher, compiled)(X)
        runs(student, compiled)(X)
        assert clip.step() == []


def test_a_reference_of_transformers_beside_the_one_that_trains() -> None:
    transformers = pytest.importorskip("transformers")
    from limelight.hf import register

    register()
    config = transformers.LlamaConfig(
        vocab_size=31, hidden_size=24, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=4,
    )  # fmt: skip
    made = transformers.AutoModel.from_config
    model, reference = (made(config, attn_implementation="limelight") for _ in range(2))
    ids = torch.randint(31, (2, 9))
    with QKClip(model.train(), limit=1e-6) as clip, Monitor(model, every=1) as monitor:
        reference.eval()(ids)
        reference.train()(ids)
        with pytest.warns(MonitorWarning, match="the forward of LlamaModel did not run"):
            assert seen(monitor.step()) == []
        assert clip.step() == []
        model(ids)
        assert seen(monitor.step()) == [("layers.0.self_attn", 18)]
        assert {one.site for one in clip.step()} == {"layers.0.self_attn"}


@pytest.mark.parametrize("kind", ["limelight", "direct", "named"])
def test_a_model_that_was_compiled_before(kind: str) -> None:
    """And one of the same classes that nobody watches, compiled first."""
    made = {"limelight": lambda: SelfAttention(16, 2), "named": lambda: Direct(site="mine")}
    model, other = (nn.Sequential(made.get(kind, Direct)()) for _ in range(2))
    name = "0.mine" if kind == "named" else "0"
    compiled = runs(model, True)
    compiled(X)
    for run in (compiled, runs(model, True)):
        with Monitor(model, every=1) as monitor:
            runs(other, True)(X)
            run(X)
            assert seen(monitor.step()) == [(name, 21)]
        torch.compiler.reset()
    assert torch._dynamo.config.skip_nnmodule_hook_guards


def test_calls_outside_of_the_model_do_not_count() -> None:
    model = nn.Sequential(SelfAttention(16, 2))
    with Monitor(model, every=1) as monitor:
        ll.attention(X, X, X)
        SelfAttention(16, 2)(X)
        model(X)
        assert seen(monitor.step()) == [("0", 21)]
        model[0].inspect(X)  # not by its forward, and its own
        assert seen(monitor.step()) == [("0", 21)]


@COMPILED
def test_names_that_calls_give_themselves(compiled: bool) -> None:
    model, other = nn.Sequential(Direct(site="mine")), nn.Sequential(Direct(site="mine"))
    with Monitor(model, every=1) as monitor:
        runs(other, compiled)(X)
        runs(model, compiled)(X)
        assert seen(monitor.step()) == [("0.mine", 21)]


def test_the_same_name_in_several_modules() -> None:
    model = nn.Sequential(Direct(site="mine"), Direct(site="mine"))
    with Monitor(model, every=1) as monitor:
        model(X)
        assert seen(monitor.step()) == [("0.mine", 21), ("1.mine", 21)]
    alone = Direct(site="mine")
    with Monitor(alone, every=1) as monitor:
        alone(X)
        assert seen(monitor.step()) == [("mine", 21)]


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("root", ["mine", "torch's"])
def test_torch_s_layers_in_a_compiled_model(root: str, need_weights: bool) -> None:
    """By their paths, though torch.compile runs torch's function whole; once, and drawn the same."""

    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixes = nn.MultiheadAttention(16, 2, dropout=0.3, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.zeros(3, 7, dtype=torch.bool)
            found = self.mixes(x, x, x, key_padding_mask=hidden, need_weights=need_weights)
            return found[0]

    model = Attends() if root == "mine" else nn.Sequential(Attends(), Attends())
    names = ["mixes"] if root == "mine" else ["0.mixes", "1.mixes"]
    compiled = runs(model, True)
    for given in (model, compiled):
        with Monitor(given, every=2, sdpa=True) as monitor:
            outputs = []
            for _ in range(3):
                torch.manual_seed(5)
                outputs.append(compiled(X))
                outputs[-1].sum().backward()
                record = monitor.step()
                if record is not None:
                    assert seen(record) == [(name, 21) for name in names]
        assert [record["step"] for record in monitor.records] == [0, 2]
        assert torch.equal(outputs[0], outputs[2])
        if need_weights:  # torch's own numbers, with limelight beside or without
            torch.testing.assert_close(outputs[0], outputs[1])
    with torch.no_grad(), Monitor(model, every=1, sdpa=True) as monitor:
        compiled(X)
        assert seen(monitor.step()) == [(name, 21) for name in names]


def test_an_encoder_compiled_before_or_after_is_clipped() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    compiled, weights = runs(model, True), copy.deepcopy(model.state_dict())
    names = {"layers.0.self_attn", "layers.1.self_attn"}
    for given in (model, compiled):
        model.load_state_dict(weights)
        with QKClip(given, limit=1e-6, sdpa=True) as clip:
            compiled(X)
            assert {one.site for one in clip.step()} == names


def test_where_no_module_is_known_calls_are_numbered() -> None:
    """Inside a function that torch.compile runs whole, when the hooks are over."""

    @torch.compiler.allow_in_graph
    def whole(x: torch.Tensor) -> torch.Tensor:
        return ll.attention(x[:, None], x[:, None], x[:, None])[:, 0]

    class Opaque(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return whole(whole(x))

    model, other = (torch.compile(nn.Sequential(Opaque()), backend="aot_eager") for _ in range(2))
    with Monitor(model, every=1) as monitor:
        other(X)
        model(X)
        assert seen(monitor.step()) == [("call 0", 21), ("call 1", 21)]


def test_a_mode_that_hands_torch_s_function_on_counts_once() -> None:
    layer = nn.MultiheadAttention(16, 2, batch_first=True)
    with Monitor(layer, every=1, sdpa=True) as monitor, torch.device("cpu"):
        layer(X, X, X)
        assert seen(monitor.step()) == [("MultiheadAttention", 21)]


def test_frozen_layers_in_evaluation_inside_a_model_that_trains() -> None:
    """Torch would run them on its fast path, which calls no attention that can be seen."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2)
    model = nn.Sequential(encoder, nn.MultiheadAttention(16, 2, batch_first=True))
    model.train()
    for part in model:
        part.eval().requires_grad_(False)
    padding = torch.zeros(3, 7, dtype=torch.bool)
    padding[:, 5:] = True
    want = encoder(X)
    with Monitor(model, every=1, sdpa=True) as monitor:
        torch.testing.assert_close(encoder(X), want)
        model[1](X, X, X)
        names = [("0.layers.0.self_attn", 21), ("0.layers.1.self_attn", 21), ("1", 21)]
        assert seen(monitor.step()) == names
        encoder(X, src_key_padding_mask=padding)
        assert seen(monitor.step()) == [(name, 15) for name, _ in names[:2]]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("first", [0, 1])
def test_torch_s_fast_path_is_left_as_it_was(before: bool, first: int) -> None:
    fast = torch.backends.mha
    fast.set_fastpath_enabled(before)
    try:
        patched = [Monitor(nn.Linear(2, 2), sdpa=True), QKClip(nn.Linear(2, 2), sdpa=True)]
        third = Monitor(nn.Linear(2, 2))
        assert not fast.get_fastpath_enabled()
        patched.pop(first).close()
        assert not fast.get_fastpath_enabled()
        patched.pop().close()
        assert fast.get_fastpath_enabled() is before
        third.close()
        assert fast.get_fastpath_enabled() is before
    finally:
        fast.set_fastpath_enabled(True)


def test_an_exported_program_is_a_model_of_its_own() -> None:
    model = SelfAttention(16, 2)
    with Monitor(model, every=1) as monitor:
        program = torch.export.export(model, (X,)).module()
        program(X)
        model(X)
        assert seen(monitor.step()) == [("SelfAttention", 21)]
        with Monitor(program, every=1) as of_program:
            program(X)
            assert [rows for _, rows in seen(of_program.step())] == [21]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_places_stay_while_someone_needs_them(order: tuple[int, int]) -> None:
    model = Language()
    part, whole = model.blocks[1], model
    monitors = [Monitor(part, every=1), Monitor(whole, every=1)]
    last = monitors[order[1]]
    monitors[order[0]].close()
    model.loss(batch(0))
    names = ["attention"] if last is monitors[0] else ["blocks.0.attention", "blocks.1.attention"]
    assert [name for name, _ in seen(last.step())] == names
    last.close()
    assert not any("limelight_site" in module.__dict__ for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_capture_inside_of_a_monitor_keeps_both_names() -> None:
    part = nn.Sequential(SelfAttention(16, 2))
    whole = nn.ModuleDict({"rest": part})
    with Monitor(whole, every=1) as monitor:
        with capture(part) as cap:
            copy.deepcopy(part)(X)
            part(X)
        assert [site.name for site in cap] == ["0"]
        assert seen(monitor.step()) == [("rest.0", 21)]


def test_each_says_for_itself_why_it_saw_nothing() -> None:
    class ByHand(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ x.mT).softmax(-1) @ x

    model = ByHand()
    for given in (ByHand(), runs(model, True)):
        with Monitor(given, every=1, sdpa=True) as monitor, QKClip(given, sdpa=True) as clip:
            with pytest.warns(MonitorWarning, match="the forward of ByHand did not run"):
                monitor.step()
            clip.step()  # nothing ran: nothing to say
            given.eval()(X)
            clip.step()  # nor in evaluation
            given.train()(X)
            with pytest.warns(UserWarning, match=r"^QKClip has seen no attention.*by hand") as said:
                clip.step()
            assert said[0].filename == __file__
            with pytest.warns(MonitorWarning, match="written out by hand"):
                monitor.step()
            given(X)
            clip.step()  # once
    with QKClip(model) as clip:
        model(X)
        with pytest.warns(UserWarning, match=r"called no attention of limelight.*pass sdpa=True"):
            clip.step()


class Torchs(nn.Module):
    """Calls torch's function itself."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.project(x)[:, None]
        return nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3)[:, 0]


def _trained(model: nn.Module, watched: bool) -> list[torch.Tensor]:
    """Outputs, weights and the generator's state after some steps."""
    torch.manual_seed(3)
    optimizer, outputs = torch.optim.SGD(model.parameters(), 0.1), []
    monitor = Monitor(model, every=2, sdpa=True) if watched else None
    for _ in range(4):
        outputs.append(model(X))
        optimizer.zero_grad()
        outputs[-1].square().sum().backward()
        optimizer.step()
        if monitor is not None:
            monitor.step()
    if monitor is not None:
        assert len(monitor.records) == 2
        assert all(record["sites"] for record in monitor.records)
        monitor.close()
    return [*outputs, *model.parameters(), torch.get_rng_state()]


@pytest.mark.parametrize("make", [
    Torchs, lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True),
], ids=["direct", "encoder"])  # fmt: skip
def test_a_run_is_the_same_to_the_bit_whether_torch_s_attention_is_watched(make: Any) -> None:
    torch.manual_seed(0)
    model = make()
    for found, want in zip(
        _trained(copy.deepcopy(model), True), _trained(copy.deepcopy(model), False), strict=True
    ):
        assert torch.equal(found, want)


@JIT
@pytest.mark.parametrize("watch", [Monitor, QKClip])
def test_what_is_not_watched_runs_torch_s_own(watch: Any) -> None:
    """Second derivatives, forward mode and a choice of backend are as torch has them."""
    other, x = nn.Linear(2, 2), torch.randn(2, 5, 4, requires_grad=True)

    def attend(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x).sum()

    with watch(other, sdpa=True), sdpa_kernel(SDPBackend.MATH):
        (first,) = torch.autograd.grad(attend(x), x, create_graph=True)
        first.square().sum().backward()
        torch.func.jvp(attend, (x.detach(),), (x.detach(),))
    assert x.grad is not None


@JIT
def test_what_limelight_cannot_do_beside_torch_s_own_is_said() -> None:
    class Square(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    model, x = Square(), torch.randn(2, 5, 4)
    seen = pytest.warns(UserWarning, match="an attention is not seen: a forward-mode")
    with Monitor(model, every=1, sdpa=True), sdpa_kernel(SDPBackend.MATH), seen:
        torch.func.jvp(model, (x,), (x,))
