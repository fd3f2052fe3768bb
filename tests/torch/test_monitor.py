"""Monitor: what it records, and that nothing about training changes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.utils.checkpoint import checkpoint

import limelight as ll
from limelight.errors import ArgumentError
from limelight.journal.reading import EndLine, RecordLine, Tail
from limelight.torch import Alarm, Monitor, QKClip, bridge
from limelight.torch.monitor import monitor as monitor_module
from limelight.torch.monitor.monitor import MonitorWarning
from tests.torch.models import Language, batch


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def records(path: Path) -> list[dict[str, Any]]:
    return [line for line in lines(path) if line["kind"] == "record"]


def train(model: Any, monitor: Monitor, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        loss = model.loss(batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.step(loss=loss.item())


def test_records_are_the_health_of_every_head(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Language().double()
    seen = {}
    for name, block in (
        ("blocks.0.attention", model.blocks[0]),
        ("blocks.1.attention", model.blocks[1]),
    ):
        block.attention.register_forward_pre_hook(
            lambda m, x, name=name: seen.__setitem__(name, x[0].detach())
        )
    with Monitor(model, tmp_path / "run.jsonl", every=3) as monitor:
        loss = model.loss(batch(0))
        monitor.step(loss=loss.item())
    (found,) = records(tmp_path / "run.jsonl")
    assert found["step"] == 0
    assert found["loss"] == pytest.approx(loss.item())
    assert [site["name"] for site in found["sites"]] == list(seen)
    for site in found["sites"]:
        layer = model.get_submodule(site["name"])
        summary = layer.inspect(seen[site["name"]]).health.summary()
        assert site["heads"] == 4
        assert site["rows"] == 4 * 22
        for figure in (
            "judged",
            "not_a_number",
            "max_logit",
            "max_prob",
            "entropy",
            "spread",
            "peaked",
            "saturated",
        ):
            assert site[figure] == pytest.approx(getattr(summary, figure).tolist(), rel=1e-5), (
                figure
            )


def test_every_k_steps_and_nothing_in_between(tmp_path: Path) -> None:
    model = Language()
    with Monitor(model, tmp_path / "run.jsonl", every=4) as monitor:
        for step in range(10):
            assert monitor.recording == (step % 4 == 0)
            assert bool(bridge.observers) == (step % 4 == 0)
            model.loss(batch(step))
            monitor.step()
    assert [record["step"] for record in records(tmp_path / "run.jsonl")] == [0, 4, 8]
    first, *_, last = lines(tmp_path / "run.jsonl")
    assert (first["kind"], first["format"], first["model"]) == (
        "run",
        "limelight.monitor",
        "Language",
    )
    assert (last["kind"], last["reason"], last["step"]) == ("end", "closed", 10)
    assert not bridge.observers
    assert not any("limelight_site" in module.__dict__ for module in model.modules())


def test_beside_a_file_memory_does_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitor_module, "MOST_KEPT", 3 * 8)  # two layers of four heads
    for path, kept in ((tmp_path / "run.jsonl", [2, 3, 4]), (None, [0, 1, 2, 3, 4])):
        with Monitor(Language(), path, every=1) as monitor:
            train(monitor.model, monitor, 5)
        assert [record["step"] for record in monitor.records] == kept
    assert len(records(tmp_path / "run.jsonl")) == 5


def test_training_is_not_changed() -> None:
    def weights(watched: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = Language()
        monitor = Monitor(model, every=2 if watched else 10**9)
        train(model, monitor, 5)
        monitor.close()
        return list(model.parameters())

    for a, b in zip(weights(True), weights(False), strict=True):
        assert torch.equal(a, b)


def test_micro_batches_count_together_and_evaluation_does_not() -> None:
    model = Language()
    with Monitor(model, every=1) as monitor:
        for part in batch(0).split(1):
            model.loss(part)
        model.eval()
        model.loss(batch(1))
        model.train()
        with monitor.paused():
            model.loss(batch(2))
        record = monitor.step()
    assert record is not None
    assert record["sites"][0]["rows"] == 4 * 22


def test_a_step_or_an_end_amid_a_pause() -> None:
    model = Language()
    with Monitor(model, every=1) as monitor:
        with monitor.paused():
            with monitor.paused():
                pass
            model.loss(batch(2))
            with pytest.warns(MonitorWarning):
                monitor.step()
            model.loss(batch(2))
        model.loss(batch(2))
        record = monitor.step()
        assert record is not None
        assert record["sites"][0]["rows"] == 4 * 22
        with monitor.paused():
            monitor.close()
        assert monitor not in bridge.observers


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_block_counts_once(reentrant: bool) -> None:
    model = Language()

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        x = model.embed(tokens)
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=reentrant)
        return model.head(x).square().mean()

    with Monitor(model, every=1) as monitor:
        loss(batch(0)).backward()
        record = monitor.step()
    assert record is not None
    assert [site["rows"] for site in record["sites"]] == [4 * 23, 4 * 23]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_compiled_model(when: str) -> None:
    torch.compiler.reset()
    torch.manual_seed(2)
    model = Language().double()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    if when == "after":
        compiled(batch(0)).sum().backward()
    want = None
    for runs in (model, compiled):
        with Monitor(runs, every=2) as monitor:
            for step in range(3):
                runs(batch(step)).sum().backward()
                monitor.step()
        figures = [record["sites"] for record in monitor.records]
        assert [record["step"] for record in monitor.records] == [0, 2]
        assert [site["name"] for site in figures[0]] == ["blocks.0.attention", "blocks.1.attention"]
        want = want or figures
        for a, b in zip(figures[1], want[1], strict=True):
            assert a["entropy"] == pytest.approx(b["entropy"])
            assert a["rows"] == b["rows"]


@pytest.mark.parametrize("compiled", [False, True])
def test_torch_s_own_function(compiled: bool) -> None:
    torch.compiler.reset()
    torch.manual_seed(3)
    model = Language(torch_attention=True).double()
    before = nn.functional.scaled_dot_product_attention
    runs = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    with Monitor(runs, every=1, sdpa=True) as monitor:
        runs(batch(0)).sum().backward()
        record = monitor.step()
    assert nn.functional.scaled_dot_product_attention is before
    assert record is not None
    assert [site["name"] for site in record["sites"]] == ["blocks.0", "blocks.1"]
    assert not any(module._forward_hooks for module in model.modules())


def test_torch_s_transformer_layer() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, dropout=0.0, batch_first=True)
    with Monitor(layer, every=1, sdpa=True) as monitor:
        layer(torch.randn(2, 5, 16)).sum().backward()
        record = monitor.step()
    assert record is not None
    assert [(site["name"], site["rows"]) for site in record["sites"]] == [("self_attn", 10)]


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_every_path_of_torch_s_multi_head_attention(dropout: float, need_weights: bool) -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 2, dropout=dropout, batch_first=True)
    model = nn.ModuleDict({"attention": layer})
    x = torch.randn(3, 5, 16)
    hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 5])
    same = {"need_weights": need_weights, "key_padding_mask": hidden}
    torch.manual_seed(1)
    if need_weights:  # torch's own function, drawing what it would have drawn
        want = layer(x, x, x, **same)
    torch.manual_seed(1)
    with Monitor(model, every=1, sdpa=True) as monitor:
        output, weights = layer(x, x, x, **same)
        record = monitor.step()
    assert record is not None
    assert [(site["name"], site["rows"]) for site in record["sites"]] == [("attention", 13)]
    if need_weights:
        torch.testing.assert_close((output, weights), want)
    with torch.no_grad():
        query, key = layer.in_proj_weight.chunk(3)[:2]
        scores = [
            (y @ w.T).unflatten(-1, (2, 8)).transpose(1, 2) for y, w in ((x, query), (x, key))
        ]
        logits = scores[0] @ scores[1].mT / 8**0.5
        padding = hidden[:, None, None] | hidden[:, None, :, None]
        top = logits.masked_fill(padding, -torch.inf).amax((0, 2, 3))
    torch.testing.assert_close(torch.tensor(record["sites"][0]["max_logit"]), top)


def test_a_whole_encoder_with_torch_s_own_dropout() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, batch_first=True)  # dropout 0.1
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    with Monitor(model, every=1, sdpa=True) as monitor:
        model(torch.randn(2, 5, 16), is_causal=True,
              mask=nn.Transformer.generate_square_subsequent_mask(5)).sum().backward()  # fmt: skip
        record = monitor.step()
    assert record is not None
    assert [site["name"] for site in record["sites"]] == [f"layers.{i}.self_attn" for i in range(3)]


def test_a_transformers_model() -> None:
    transformers = pytest.importorskip("transformers")
    from limelight.hf import register

    register()
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attn_implementation="limelight",
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="limelight")
    model.train()
    with Monitor(model, every=1) as monitor:
        tokens = torch.randint(64, (2, 9))
        model(input_ids=tokens, labels=tokens).loss.backward()
        record = monitor.step()
    assert record is not None
    names = [site["name"] for site in record["sites"]]
    assert names == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    assert [site["rows"] for site in record["sites"]] == [18, 18]


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_no_row(side: str) -> None:
    """A padded batch gives the figures of its two texts, each run alone."""
    transformers = pytest.importorskip("transformers")
    from limelight.hf import register

    register()
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
    )  # fmt: skip
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="limelight")
    model.train()
    long, short = torch.randint(64, (9,)), torch.randint(64, (4,))
    gap = torch.zeros(5, dtype=torch.long)
    padded = torch.cat([gap, short] if side == "left" else [short, gap])
    real = torch.ones(2, 9, dtype=torch.long)
    real[1, slice(0, 5) if side == "left" else slice(4, 9)] = 0
    with Monitor(model, every=1) as monitor:
        model(torch.stack([long, padded]), real, position_ids=(real.cumsum(1) - 1).clamp(0))
        together = monitor.step()
        model(long[None])
        model(short[None])
        apart = monitor.step()
    assert together is not None
    assert apart is not None
    for name in ("rows", "judged", "max_logit", "entropy", "max_prob", "peaked", "saturated"):
        got, want = (record["sites"][0][name] for record in (together, apart))
        np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=name)
    assert together["sites"][0]["rows"] == 13
    assert not model._forward_pre_hooks


def test_packed_sequences_of_a_transformers_model() -> None:
    """As flash attention is given them: one row, whose positions begin anew with every sequence."""
    transformers = pytest.importorskip("transformers")
    from limelight.hf import register

    register()
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="limelight")
    lengths = (4, 3, 5)
    tokens = torch.randint(64, (1, sum(lengths)))
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    edges = torch.tensor([0, 4, 7, 12], dtype=torch.int32)
    flash = {"cu_seq_lens_q": edges, "cu_seq_lens_k": edges, "max_length_q": 5, "max_length_k": 5}
    model.train()
    with Monitor(model, every=1) as monitor:
        model(input_ids=tokens, position_ids=positions, use_cache=False, **flash)
        packed = monitor.step()
        for part in tokens.split(lengths, 1):
            model(input_ids=part, use_cache=False)
        apart = monitor.step()
    assert packed is not None
    assert apart is not None
    for name in ("rows", "judged"):
        assert packed["sites"][0][name] == apart["sites"][0][name]
    for name in ("max_logit", "entropy", "max_prob"):
        assert packed["sites"][0][name] == pytest.approx(apart["sites"][0][name], rel=1e-4), name


def test_alarms_reach_the_file_and_the_caller(tmp_path: Path) -> None:
    model, heard = Language(), []
    rule = Alarm("logit", "max_logit", raise_at=30.0, clear_at=20.0)
    with Monitor(
        model, tmp_path / "run.jsonl", every=1, alarms=[rule], on_alarm=heard.append
    ) as monitor:
        for factor in (1.0, 1e3, 1.0, 1e-3):
            with torch.no_grad():
                model.blocks[1].attention.W_Q.weight.mul_(factor)
            model.loss(batch(0))
            monitor.step()
    written = [line for line in lines(tmp_path / "run.jsonl") if line["kind"] == "alarm"]
    assert written == heard
    assert {line["event"] for line in heard if line["step"] == 1} == {"raised"}
    assert {line["event"] for line in heard if line["step"] == 3} == {"cleared"}
    assert not [line for line in heard if line["step"] == 2]
    assert {line["site"] for line in heard} == {"blocks.1.attention"}


def test_nan_is_recorded_as_such(tmp_path: Path) -> None:
    model = Language()
    with torch.no_grad():
        model.blocks[0].attention.W_Q.weight[0, 0] = torch.nan
    with Monitor(model, tmp_path / "run.jsonl", every=1) as monitor:
        model.loss(batch(0))
        monitor.step(loss=float("nan"))
    (record,) = records(tmp_path / "run.jsonl")
    site = record["sites"][0]
    assert record["loss"] is None
    assert site["not_a_number"][0] == 4 * 22
    assert site["entropy"][0] is None
    assert site["not_a_number"][1] == 0
    assert {line["alarm"] for line in lines(tmp_path / "run.jsonl") if line["kind"] == "alarm"} == {
        "not_a_number"
    }


def test_an_exception_in_training_ends_the_file_and_frees_the_model(tmp_path: Path) -> None:
    model = Language()
    monitor = Monitor(model, tmp_path / "run.jsonl", every=1, sdpa=True)

    def training() -> None:
        with monitor:
            model.loss(batch(0))
            raise ZeroDivisionError("out of luck")

    with pytest.raises(ZeroDivisionError):
        training()
    assert lines(tmp_path / "run.jsonl")[-1]["reason"] == "ZeroDivisionError: out of luck"
    assert not bridge.observers
    assert not any(module._forward_hooks for module in model.modules())


def test_an_exception_inside_a_forward_pass_is_survived() -> None:
    model = Language(torch_attention=True)
    with Monitor(model, every=1, sdpa=True) as monitor:
        with pytest.raises(IndexError):
            model.loss(batch(0) + 100)
        with pytest.raises(RuntimeError):
            model.blocks[0](torch.randn(2, 3, 7))
        model.loss(batch(0))
        record = monitor.step()
    assert record is not None
    assert [site["name"] for site in record["sites"]] == ["blocks.0", "blocks.1"]


def test_a_fault_in_the_monitor_does_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Language()
    monitor = Monitor(model, tmp_path / "run.jsonl", every=1)

    def full(line: Any) -> None:
        raise OSError("No space left on device")

    assert monitor._journal is not None
    monkeypatch.setattr(monitor._journal, "write", full)
    with pytest.warns(MonitorWarning, match="No space left"):
        train(model, monitor, 2)
    assert not bridge.observers
    train(model, monitor, 2)
    monitor.close()


class Gone:
    """A writer whose disk, or whose network, is gone."""

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        raise ConnectionError("no route to host")

    def flush(self) -> None:
        raise ConnectionError("no route to host")


def test_a_dashboard_that_fails_does_not_end_the_monitor(tmp_path: Path) -> None:
    model = Language()
    with (
        pytest.warns(MonitorWarning, match=r"TensorBoard is told no more .*no route") as told,
        Monitor(model, tmp_path / "run.jsonl", every=1, tensorboard=Gone()) as monitor,
    ):
        train(model, monitor, 3)
    assert len(told) == 1
    assert len(records(tmp_path / "run.jsonl")) == 3
    monitor = Monitor(model, tmp_path / "run.jsonl", every=1, tensorboard=Gone())
    with pytest.warns(MonitorWarning, match="TensorBoard is told no more"):
        monitor.close()
    assert lines(tmp_path / "run.jsonl")[-1]["reason"] == "closed"


class Direct(nn.Module):
    """Calls limelight's function itself, and names nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ll.attention(x, x, x, mask=ll.Causal())


@pytest.mark.parametrize("compiled", [False, True])
def test_direct_calls_are_named_by_their_module(compiled: bool) -> None:
    torch._dynamo.reset()
    model = nn.ModuleDict({"first": nn.Sequential(Direct(), Direct())})
    inner: Any = model["first"]
    with Monitor(model, every=1) as monitor:
        run = torch.compile(inner, backend="eager") if compiled else inner
        run(torch.randn(1, 2, 5, 8))
        record = monitor.step()
    assert record is not None
    assert [site["name"] for site in record["sites"]] == ["first.0", "first.1"]


class Whatever(nn.Module):
    def __init__(self, attend: Any) -> None:
        super().__init__()
        self.attend = attend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attend(x, x, x)


def test_why_nothing_was_seen() -> None:
    x = torch.randn(1, 2, 5, 8)
    by_hand = Whatever(lambda q, k, v: (q @ k.mT).softmax(-1) @ v)
    theirs = Whatever(lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v))
    rows: list[tuple[nn.Module, bool, bool, str]] = [
        (by_hand, True, False, "called no attention of limelight: .* pass sdpa=True"),
        (theirs, True, False, "pass sdpa=True"),
        (by_hand, True, True, "written out by hand cannot be seen"),
        (theirs, False, True, "the forward of Whatever did not run"),
    ]
    for model, runs, sdpa, why in rows:
        with Monitor(model.train(), every=1, sdpa=sdpa) as monitor:
            if runs:
                model(x)
            with pytest.warns(MonitorWarning, match=f"no attention was seen in step 0: .*{why}"):
                monitor.step()
    with Monitor(theirs, every=1, sdpa=True) as monitor:
        theirs.eval()(x)
        with pytest.warns(
            MonitorWarning, match=r"a pass was made in evaluation mode.*model\.train"
        ):
            monitor.step()
    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, attn_implementation="sdpa",
    )  # fmt: skip
    llama: Any = transformers.LlamaForCausalLM(config).train()
    ways: list[tuple[str, bool, str]] = [
        ("sdpa", False, r"set_attn_implementation\('limelight'\), or sdpa=True where"),
        ("eager", True, r"set_attn_implementation\('limelight'\)$"),
    ]
    for way, sdpa, what in ways:
        llama.set_attn_implementation(way)
        with Monitor(llama, every=1, sdpa=sdpa) as monitor:
            llama(torch.ones(1, 3, dtype=torch.int64))
            told = f"runs on attn_implementation='{way}': .*{what}"
            with pytest.warns(MonitorWarning, match=told):
                monitor.step()


def test_one_module_that_attends_with_other_heads_too() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return ll.attention(q, k, v) + ll.attention(*(x.repeat(2, 1, 1) for x in (q, k, v)))[:2]

    with Monitor(Whatever(attend), every=1) as monitor:
        for _ in range(2):
            monitor.model(torch.randn(2, 5, 8))
        record = monitor.step()
    assert record is not None
    sites = [(site["name"], site["heads"], site["rows"]) for site in record["sites"]]
    assert sites == [("Whatever", 2, 10), ("Whatever (4 heads)", 4, 10)]


def test_resuming_appends(tmp_path: Path) -> None:
    path, model = tmp_path / "run.jsonl", Language()
    with Monitor(model, path, every=2) as monitor:
        train(model, monitor, 3)
    with path.open("a") as file:
        file.write('{"kind": "record", "st')  # the run was killed in mid-line
    with Monitor(model, path, every=2, start=3) as monitor:
        train(model, monitor, 3)
    read = [line for line, _ in Tail(path).lines()]
    assert [line.step for line in read if isinstance(line, RecordLine)] == [0, 2, 4]
    assert read[-1] == EndLine("closed")


@pytest.mark.parametrize("opened", [False, True], ids=["a directory", "an open writer"])
def test_tensorboard(opened: bool, tmp_path: Path) -> None:
    """What TensorBoard reads back is what the monitor recorded."""
    pytest.importorskip(
        "tensorboard", reason="TensorBoard is not installed: pip install tensorboard"
    )
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path)) if opened else None
    model = Language()
    with Monitor(model, every=2, tensorboard=writer or tmp_path) as monitor:
        for step in range(4):
            model.loss(batch(step))
            monitor.step()
    if writer is not None:
        writer.add_scalar("loss", 1.0, 0)  # it is the caller's, and still open
        writer.close()
    board = EventAccumulator(str(tmp_path)).Reload()
    for tag, figure, site, pick in (
        ("limelight/max_logit/max/blocks.1.attention", "max_logit", 1, max),
        ("limelight/entropy/min/blocks.0.attention", "entropy", 0, min),
    ):
        seen = [(event.step, event.value) for event in board.Scalars(tag)]
        want = [(record["step"], pick(record["sites"][site][figure])) for record in monitor.records]
        assert [step for step, _ in seen] == [0, 2]
        assert seen == [(step, pytest.approx(value, rel=1e-6)) for step, value in want]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_ends_the_monitor_and_not_the_run() -> None:
    model = Language()
    with pytest.warns(MonitorWarning, match="stopped at step 0 .*No space left"):
        monitor = Monitor(model, "/dev/full", every=1)
    with monitor, QKClip(model, 1e-3, monitor=monitor) as clip:  # which would be warnings: no more
        model.loss(batch(0)).backward()
        assert clip.step()
        assert monitor.step() is None
    assert not monitor.records
    assert not bridge.listening


def _full() -> None:
    raise OSError(28, "No space left on device")


def test_a_disk_that_becomes_full_does_not_hide_what_the_loop_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, files = Language(), []

    def run() -> None:
        with Monitor(model, tmp_path / "run.jsonl", every=2) as monitor:
            model.loss(batch(0))
            monitor.step()
            assert monitor._journal is not None
            files.append(monitor._journal._file)
            for what in ("flush", "close"):
                monkeypatch.setattr(files[0], what, _full)
            raise ValueError("mine")

    with (
        pytest.warns(MonitorWarning, match="No space left"),
        pytest.raises(ValueError, match="mine"),
    ):
        run()
    monkeypatch.undo()
    files[0].close()


def test_numbers_that_a_record_has_by_itself() -> None:
    with Monitor(Language(), every=1) as monitor:
        for name in ("kind", "step", "time", "ranks", "sites"):
            with pytest.raises(ArgumentError, match=rf"step\({name}=….*the record has a {name}"):
                monitor.step(**{name: 1.0})
        assert monitor.count == 0


def test_a_number_that_a_step_does_not_have() -> None:
    model = Language()
    with Monitor(model, every=1) as monitor:
        model.loss(batch(0))
        record = monitor.step(loss=2.5, norm=None, scale=float("inf"))
    assert record is not None
    assert (record["loss"], record["norm"], record["scale"]) == (2.5, None, None)


def test_a_number_may_come_in_a_tensor_or_an_array() -> None:
    model = Language()
    with Monitor(model, every=1) as monitor:
        loss = model.loss(batch(0))
        record = monitor.step(
            loss=loss, one=torch.ones(1), norm=np.float32(2.0), lr=np.ones((1, 1))
        )
    assert record is not None
    assert record["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert (record["one"], record["norm"], record["lr"]) == (1.0, 2.0, 1.0)


@pytest.mark.parametrize("number", [[0.1], "0.1", torch.ones(2), np.ones(2), 1j], ids=repr)
def test_what_is_no_number_ends_no_monitor(number: Any) -> None:
    with Monitor(Language(), every=2, start=1) as monitor:
        with pytest.raises(ArgumentError, match=r"step\(lr=…\) got an? .*one number a name"):
            monitor.step(lr=number)
        assert monitor.count == 1
        monitor.step(lr=0.1)
        assert monitor.count == 2


def test_bad_arguments(tmp_path: Path) -> None:
    for every in (0, 1.5, True, "1"):
        with pytest.raises(ArgumentError, match="at least 1"):
            Monitor(Language(), every=every)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="watches a torch module, and got str"):
        Monitor("model")  # type: ignore[arg-type]
    for start in (-1, 1.5, "1"):
        with pytest.raises(ArgumentError, match="the number of the first step"):
            Monitor(Language(), start=start)  # type: ignore[arg-type]
    for alarms in ("logit", None, Alarm("logit", "max_logit", raise_at=9.0, clear_at=8.0)):
        with pytest.raises(ArgumentError, match=r"give a list of limelight\.torch\.Alarm"):
            Monitor(Language(), alarms=alarms)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="give a function of one argument"):
        Monitor(Language(), on_alarm="print")  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(ll.LimelightError, match="cannot write"):
        Monitor(Language(), tmp_path / "file" / "run.jsonl")
    with pytest.raises(ArgumentError, match="named by a text or a Path, and 3 is neither"):
        Monitor(Language(), 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("held", ["import torch\n", "a log without an end"])
def test_a_file_of_something_else_is_left_as_it_is(held: str, tmp_path: Path) -> None:
    path, model = tmp_path / "train.py", Language()
    path.write_text(held)
    with pytest.raises(ll.LimelightError, match=r"train\.py holds something else than a monitor"):
        Monitor(model, path)
    assert path.read_text() == held
    assert not bridge.listening


def test_a_number_of_numpy_s_is_as_good_as_one_of_python_s(tmp_path: Path) -> None:
    every: Any = np.int64(2)
    with Monitor(Language(), tmp_path / "run.jsonl", every=every) as monitor:
        assert monitor.recording
    assert lines(tmp_path / "run.jsonl")[0]["every"] == 2


def test_weights_and_biases(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb", reason="W&B is not installed: pip install wandb")
    model = Language()
    with wandb.init(mode="offline", dir=tmp_path, project="limelight") as run:
        with Monitor(model, every=1, wandb=True) as monitor:
            model.loss(batch(0)).backward()
            record = monitor.step()
        logged = dict(run.summary)
    assert record is not None
    assert logged["limelight/max_logit/max/blocks.0.attention"] == pytest.approx(
        max(record["sites"][0]["max_logit"])
    )
    assert logged["limelight/step"] == 0
    assert list(tmp_path.glob("wandb/offline-run-*"))
    with pytest.raises(ArgumentError, match=r"wandb\.init\(\) first"):
        Monitor(model, wandb=True)


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # runs in a folder, without a database
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install mlflow")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    model = Language()
    with pytest.raises(ArgumentError, match=r"mlflow\.start_run\(\) first"):
        Monitor(model, mlflow=True)
    with mlflow.start_run() as run, Monitor(model, every=1, mlflow=True) as monitor:
        for step in range(2):
            model.loss(batch(step)).backward()
            monitor.step()
    name = "limelight/entropy/min/blocks.1.attention"
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, name)
    want = [min(record["sites"][1]["entropy"]) for record in monitor.records]
    assert [(point.step, point.value) for point in history] == list(enumerate(want))


@pytest.mark.parametrize("package", ["wandb", "mlflow"])
def test_boards_that_are_not_installed(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ArgumentError, match=f"not installed: pip install {package}"):
        Monitor(Language(), **{package: True})


@pytest.mark.parametrize("board", ["tensorboard", "wandb", "mlflow"])
def test_boards_that_are_none(board: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(log_metrics=print))
    given = True if board == "tensorboard" else 3  # no folder of the name True
    with pytest.raises(ArgumentError, match=f"{board}={given}: give "):
        Monitor(Language(), **{board: given})
    assert not list(tmp_path.iterdir())
    assert not bridge.listening


def test_without_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ArgumentError, match="not installed: pip install tensorboard"):
        Monitor(Language(), tensorboard=str(tmp_path))


def test_overhead(tmp_path: Path) -> None:
    """What a recorded step costs more, divided over the 50 steps it stands for, is under 2 %."""
    torch.manual_seed(4)
    model = Language(words=31, size=64, heads=4, layers=4)
    tokens = torch.randint(31, (4, 129))

    def step() -> float:
        start = time.perf_counter()
        model.loss(tokens).backward()
        return time.perf_counter() - start

    step()
    plain, recorded = [], []
    with Monitor(model, tmp_path / "run.jsonl", every=1) as monitor:
        for _ in range(12):  # in turns, so that a busy machine slows both
            with monitor.paused():
                plain.append(step())
            start = time.perf_counter()
            step()
            monitor.step()
            recorded.append(time.perf_counter() - start)
    extra = min(recorded) - min(plain)  # the rounds that others disturbed least
    assert extra / (50 * min(plain)) < 0.02
