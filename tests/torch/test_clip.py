"""QKClip: heads scaled back, exactly, wherever their projections stand, on one rank and on two."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from limelight.errors import ArgumentError
from limelight.torch import Monitor, QKClip, SelfAttention, attention
from tests.torch.models import Language, batch
from tests.torch.ranks import MOST, on


def largest(layer: SelfAttention, x: torch.Tensor) -> torch.Tensor:
    return layer.inspect(x).health.max_logit.amax((0, 2)).detach()


def grown(heads: int = 4, key_heads: int | None = None, **options: Any) -> SelfAttention:
    """A layer some of whose heads have large logits."""
    torch.manual_seed(0)
    layer = SelfAttention(16, heads, key_heads=key_heads, **options)
    with torch.no_grad():
        layer.W_Q.weight.mul_(torch.linspace(1, 12, 16)[:, None])
        layer.W_K.weight.mul_(8)
    return layer


def test_what_passed_the_limit_comes_back_to_it() -> None:
    layer, x = grown(bias=True), torch.randn(2, 9, 16)
    before = largest(layer, x)
    limit = float(before.sort().values[1:3].mean())  # two heads above it
    over = before > limit
    with QKClip(layer, limit) as clip:
        layer(x)
        done = clip.step()
        assert [one.head for one in done] == over.nonzero().flatten().tolist()
        assert clip.step() == []  # nothing ran since
        layer(x)
        assert clip.step() == []
    after = largest(layer, x)
    torch.testing.assert_close(after[over], torch.full_like(after[over], limit))
    torch.testing.assert_close(after[~over], before[~over])
    for one in done:
        assert one.max_logit == pytest.approx(float(before[one.head]))
        assert one.factor == pytest.approx(limit / one.max_logit)


def test_shared_key_heads_follow_the_largest_of_their_group() -> None:
    layer, x = grown(heads=4, key_heads=2), torch.randn(2, 9, 16)
    before, limit = largest(layer, x), 5.0
    weights = layer.W_Q.weight.detach().clone(), layer.W_K.weight.detach().clone()
    with QKClip(layer, limit) as clip:
        layer(x)
        clip.step()
    assert (largest(layer, x) <= limit * (1 + 1e-5)).all()
    size = layer.head_size
    for g in range(2):
        root = min(1.0, math.sqrt(limit / float(before[2 * g : 2 * g + 2].max())))
        rows = slice(g * size, (g + 1) * size)
        torch.testing.assert_close(layer.W_K.weight[rows], root * weights[1][rows])
    for h in range(4):
        root = min(1.0, math.sqrt(limit / float(before[h])))
        rows = slice(h * size, (h + 1) * size)
        torch.testing.assert_close(layer.W_Q.weight[rows], root * weights[0][rows])


def test_micro_batches_count_together_and_evaluation_does_not() -> None:
    layer, small, large = grown(), torch.randn(1, 5, 16) / 100, torch.randn(1, 5, 16)
    with QKClip(layer, limit=3.0) as clip:
        layer(large)
        layer(small)
        assert clip.step()
        layer.eval()(100 * large)
        assert clip.step() == []


def _transformers(kind: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    from limelight.hf import register

    register()
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 31}
    configs: dict[str, Any] = {
        "llama": lambda: transformers.LlamaConfig(
            **sizes, intermediate_size=32, num_key_value_heads=2
        ),
        "bert": lambda: transformers.BertConfig(
            **sizes,
            intermediate_size=32,
            max_position_embeddings=32,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        "gpt2": lambda: transformers.GPT2Config(
            n_embd=24,
            n_layer=2,
            n_head=4,
            vocab_size=31,
            n_positions=32,
            resid_pdrop=0.0,
            attn_pdrop=0.0,
            embd_pdrop=0.0,
        ),
        "qwen3": lambda: transformers.Qwen3Config(
            **sizes, intermediate_size=32, num_key_value_heads=2, head_dim=6
        ),
    }
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(configs[kind](), attn_implementation="limelight")
    return model.train()


@pytest.mark.parametrize("kind", ["llama", "bert", "gpt2"])
def test_transformers_by_the_names_of_their_projections(kind: str) -> None:
    model = _transformers(kind)
    tokens = torch.randint(31, (2, 9))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if any(part in name for part in ("q_proj", "k_proj", "query", "key", "c_attn")):
                weight.mul_(40)
    limit = 2.0
    with QKClip(model, limit) as clip, torch.no_grad():
        model(tokens)
        first = clip.step()
        assert {one.site for one in first}
        for _ in range(3):  # scaling one layer moves what the next one sees
            model(tokens)
            again = clip.step()
    assert max(one.max_logit for one in first) > 3 * limit
    assert all(one.max_logit < 1.1 * limit for one in again)


def test_normalised_queries_are_refused_with_the_reason() -> None:
    model = _transformers("qwen3")
    with (
        QKClip(model),
        pytest.raises(ArgumentError, match=r"normalises its queries .*q_norm.*z_loss"),
    ):
        model(torch.randint(31, (1, 5)))


def test_torch_s_own_layer() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, batch_first=True)
    with torch.no_grad():
        layer.self_attn.in_proj_weight.mul_(9)
    values = layer.self_attn.in_proj_weight[32:].detach().clone()
    x = torch.randn(2, 5, 16)
    with QKClip(layer, limit=1.5, sdpa=True) as clip:
        layer(x)
        assert clip.step()
        layer(x)
        assert not clip.step()
    assert torch.equal(layer.self_attn.in_proj_weight[32:], values)


def test_what_it_refuses() -> None:
    with pytest.raises(ArgumentError, match="got list"):
        QKClip([])  # type: ignore[arg-type]
    for limit in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ArgumentError, match="above 0"):
            QKClip(nn.Linear(2, 2), limit)

    class Odd(SelfAttention):
        def project(self, x: torch.Tensor, cache: Any = None) -> Any:
            return (x[:, None],) * 3

    layer = Odd(4, heads=1)
    del layer.W_Q
    with QKClip(layer), pytest.raises(ArgumentError, match=r"no projections .* W_K.*z_loss"):
        layer(torch.randn(1, 3, 4))


def test_a_part_of_a_model_of_which_another_is_refused() -> None:
    class Normalised(SelfAttention):
        def __init__(self) -> None:
            super().__init__(16, 4)
            self.q_norm = nn.LayerNorm(16)

    model, x = nn.Sequential(Normalised(), nn.Sequential(grown())), torch.randn(2, 9, 16)
    with (
        QKClip(model, 1e-3),
        pytest.raises(ArgumentError, match=r"; or give QKClip the part .* scale, without 0$"),
    ):
        model(x)
    with QKClip(model[1], 1e-3) as clip:
        model(x)
        assert {one.site for one in clip.step()} == {"0"}


def test_a_monitor_is_a_monitor() -> None:
    with pytest.raises(ArgumentError, match=r"monitor='run.jsonl': .* of a Monitor.*give one, as"):
        QKClip(grown(), monitor="run.jsonl")


def test_a_call_may_name_itself() -> None:
    class Named(SelfAttention):
        def forward(self, x: torch.Tensor, **_: Any) -> torch.Tensor:
            return self._join(attention(*self.project(x), site="mine"))

    torch.manual_seed(0)
    layer = Named(16, 4)
    with QKClip(nn.Sequential(layer), 1e-3) as clip:
        clip.model(torch.randn(2, 9, 16))
        assert {one.site for one in clip.step()} == {"0"}


def test_one_at_a_time() -> None:
    layer = grown()
    with QKClip(layer):
        with pytest.raises(ArgumentError, match=r"SelfAttention is open, .* twice: close\(\)"):
            QKClip(layer)
        with QKClip(grown()):
            pass
    with QKClip(layer):
        pass


def test_passes_in_evaluation_mode_alone_are_said_once() -> None:
    layer, x = grown().eval(), torch.randn(2, 9, 16)
    with QKClip(layer, 5.0) as clip:
        layer(x)
        layer(x)
        with pytest.warns(UserWarning, match=r"clips nothing: 2 passes .*evaluation.*model.train"):
            clip.step()
        layer(x)
        assert clip.step() == []
        layer.train()(x)
        assert clip.step()


def test_what_passes_said_under_another_limit_is_forgotten() -> None:
    layer, x = grown(), torch.randn(2, 9, 16)
    with QKClip(layer, 100.0) as clip:
        layer(10 * x)
        clip.load_state_dict({"limit": 1.0, "count": 3})
        assert clip.step() == []
        layer(x)
        done = clip.step()
        assert [one.max_logit * one.factor for one in done] == pytest.approx([1.0] * 4)
        with pytest.raises(ArgumentError, match="limit=-5: give the largest logit"):
            clip.limit = -5


def test_modules_that_came_later_are_asked_for() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = SelfAttention(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            attended: torch.Tensor = self.attention(x)
            return attended

    model, x = nn.Sequential(Block()), torch.randn(2, 9, 16)
    with QKClip(model, 1e-3) as clip:
        model[0].attention = SelfAttention(16, 4)
        with pytest.raises(ArgumentError, match=r"0 has modules .* not there .*\(attention\)"):
            model(x)
        clip.close()
    with QKClip(model, 1e-3) as clip:
        model(x)
        assert {one.site for one in clip.step()} == {"0.attention"}


def test_state_dict() -> None:
    layer, other = grown(), grown()
    with QKClip(layer, limit=7.0) as clip, QKClip(other) as resumed:
        layer(torch.randn(1, 5, 16))
        clip.step()
        resumed.load_state_dict(clip.state_dict())
        assert (resumed.limit, resumed.count) == (7.0, 1)


def test_names_stay_while_someone_needs_them() -> None:
    """A monitor that closes first leaves the clip its names, and the other way round."""
    model = Language()
    monitor = Monitor(model, every=1)
    clip = QKClip(model, limit=1e-3)
    monitor.close()
    model.loss(batch(0))
    assert {one.site for one in clip.step()} == {"blocks.0.attention", "blocks.1.attention"}
    clip.close()
    assert not any("limelight_site" in module.__dict__ for module in model.modules())


def test_what_it_did_is_in_the_monitor_s_file(tmp_path: Path) -> None:
    from rich.console import Console

    from limelight.cli.watch import state, view
    from limelight.journal.run import Run

    model, path = Language(), tmp_path / "run.jsonl"
    with Monitor(model, path, every=1) as monitor, QKClip(model, 0.5, monitor=monitor) as clip:
        for step in range(3):
            model.loss(batch(step)).backward()
            done = clip.step()
            monitor.step(loss=1.0)
    run = Run.open(path)
    assert [line.step for line in run.clips] == list(range(len(run.clips)))
    assert run.clips
    if done:
        assert [head.head for head in run.clips[-1].heads] == [one.head for one in done]
    assert state(run)["clips"][0]["limit"] == 0.5
    console = Console(width=80, file=io.StringIO())
    console.print(view(run))
    text = console.file.getvalue()
    assert "QKClip at 0.5" in text
    assert "→ 0.5" in text


def _train(seed: int, limit: float, steps: int = 150) -> tuple[float, float]:
    """The mean loss of the last steps at a learning rate that is far too large, and the top logit."""
    torch.manual_seed(seed)
    model = Language(words=11, size=32, heads=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.2)
    losses, tops = [], []
    with QKClip(model, limit) as clip:
        for step in range(steps):
            loss = model.loss(batch(step, words=11, size=8, length=13))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tops += [float(top.max()) for top in clip._largest.values()]
            clip.step()
            losses.append(loss.item())
    return sum(losses[-20:]) / 20, max(tops)


@pytest.mark.slow
def test_a_run_that_dies_without_it_trains_with_it() -> None:
    lost, kept = ([_train(seed, limit) for seed in range(3)] for limit in (1e9, 20.0))
    assert all(top > 1000 for _, top in lost)
    assert all(top < 150 for _, top in kept)
    assert max(loss for loss, _ in kept) < 1.8  # a guess is ln 11 = 2.4
    assert max(loss for loss, _ in lost) > 2.4
    assert sum(loss for loss, _ in lost) > 2 * sum(loss for loss, _ in kept)


def _steps(group: Any, wrapper: str = "") -> dict[str, torch.Tensor]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, ranks = (dist.get_rank(group), dist.get_world_size(group)) if wrapper else (0, 1)
    torch.manual_seed(0)
    model: Any = Language(words=11, size=16, heads=4).double()
    inner = model
    if wrapper == "FSDP2":
        mesh = init_device_mesh("cpu", (ranks,))
        for block in inner.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif wrapper:
        model = nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.5)
    with QKClip(model, limit=0.3, group=group) as clip:
        for step in range(4):
            tokens = batch(step, words=11, size=4, length=9)[rank::ranks]
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert clip.step()
    weights = {name: weight.detach() for name, weight in inner.named_parameters()}
    if wrapper == "FSDP2":
        return {name: weight.full_tensor() for name, weight in weights.items()}  # type: ignore[operator]
    return weights


@pytest.mark.parametrize("wrapper", ["DDP", "FSDP2"])
def test_several_processes_give_the_weights_of_one(wrapper: str) -> None:
    one, ranks = _steps(None), 2 if wrapper == "DDP" else MOST
    for found in on(ranks, _steps, wrapper):
        for name, weight in found.items():
            torch.testing.assert_close(weight, one[name], msg=name)
