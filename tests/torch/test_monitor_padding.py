"""Padding: whose rows a mask is about, and for how long."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.utils.checkpoint import checkpoint

from limelight.hf import register
from limelight.torch import Monitor, QKClip, SelfAttention, attention, bridge
from limelight.torch.monitor import padding
from limelight.torch.monitor.padding import Padding

X = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0))
MASK = torch.ones(2, 9, dtype=torch.long)
MASK[:, 3:] = 0
IDS = torch.randint(3, 31, (2, 9), generator=torch.Generator().manual_seed(0))
SMALL = {
    "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    torch.compiler.reset()
    register()
    yield
    torch.compiler.reset()
    assert not padding._told


def rows(monitor: Monitor) -> dict[str, int]:
    record = monitor.step()
    assert record is not None
    return {site["name"]: site["rows"] for site in record["sites"]}


class Text(nn.Module):
    """Attends, told of padding or not; fails, or calls itself, where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(SelfAttention(16, 2))

    def forward(
        self, x: torch.Tensor, attention_mask: Any = None, fails: bool = False, again: Any = None
    ) -> torch.Tensor:
        if again is not None:
            self(x, again)
        x = self.part(x)
        if fails:
            raise ValueError("failed")
        return x


class Interrupted(Text):
    def forward(self, *given: Any, **named: Any) -> torch.Tensor:
        raise KeyboardInterrupt  # after which no hook runs


def test_a_mask_ends_with_the_pass_that_was_told_it() -> None:
    model = Text()
    compiled = torch.compile(model, backend="eager")
    compiled(X)
    with Monitor(model, every=1) as monitor:
        compiled(X, attention_mask=MASK)  # not heard
        assert rows(monitor) == {"part.0": 18}
        for _ in range(2):
            model(X, attention_mask=MASK)
            assert rows(monitor) == {"part.0": 6}
            assert not padding._told
            compiled(X)
            assert rows(monitor) == {"part.0": 18}
        model(X, attention_mask=MASK)
        rows(monitor)
        model.part(X)
        assert rows(monitor) == {"part.0": 18}
        model(X)
        assert rows(monitor) == {"part.0": 18}


def test_a_mask_ends_with_a_pass_that_failed() -> None:
    model = Text()
    with Monitor(model, every=1) as monitor:
        with pytest.raises(ValueError, match="failed"):
            model(X, MASK, fails=True)
        assert rows(monitor) == {"part.0": 6}
        model.part(X)
        assert rows(monitor) == {"part.0": 18}


def test_a_pass_inside_a_pass_has_its_own_mask() -> None:
    model = Text()
    with Monitor(model, every=1) as monitor, QKClip(model):
        model(X, MASK, again=torch.ones(2, 9))
        assert rows(monitor) == {"part.0": 6 + 18}
        model(X, again=MASK)
        assert rows(monitor) == {"part.0": 18 + 6}


def test_a_checkpointed_model() -> None:
    model = Text()
    with Monitor(model, every=1) as monitor:
        checkpoint(model, X, MASK, use_reentrant=False).sum().backward()
        assert not padding._told
        assert rows(monitor) == {"part.0": 6}


def test_a_monitor_that_ends_amid_a_pass_keeps_nothing() -> None:
    model = Text()
    monitor = Monitor(model, every=1)
    model.part.register_forward_hook(lambda *_: monitor.close())
    model(X, MASK)
    assert not padding._told


def test_a_compiled_model_that_was_given_is_heard() -> None:
    model = torch.compile(Text(), backend="eager")
    with Monitor(model, every=1) as monitor:
        model(X, attention_mask=MASK)
        assert rows(monitor) == {"part.0": 6}
        model(X)
        assert rows(monitor) == {"part.0": 18}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_text_s_padding_is_none_of_the_image_s(compiled: bool) -> None:
    """Of CLIP with as many patches as tokens."""
    config = transformers.CLIPConfig(
        text_config={**SMALL, "vocab_size": 31, "max_position_embeddings": 16, "bos_token_id": 1,
                     "eos_token_id": 2, "pad_token_id": 0},
        vision_config={**SMALL, "image_size": 12, "patch_size": 4}, projection_dim=8,
    )  # fmt: skip
    made: Any = transformers.CLIPModel._from_config(config, attn_implementation="limelight")
    ids, pixels = torch.randint(3, 31, (2, 10)), torch.randn(2, 3, 12, 12)
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[:, 3:] = 0
    model = torch.compile(made.train(), backend="eager") if compiled else made.train()
    with Monitor(model, every=1) as monitor:
        model(input_ids=ids, pixel_values=pixels, attention_mask=mask)
        assert sorted((name[:4], n) for name, n in rows(monitor).items()) == [
            ("text", 6), ("visi", 20)
        ]  # fmt: skip


def test_a_part_that_hears_sound_has_a_mask_of_its_own() -> None:
    """And a model that is that part reads its own, under whatever name."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.audio_tower, self.language_model = Text(), Text()

        def forward(self, sound: Any, x: Any, attention_mask: Any, sound_mask: Any) -> Any:
            return self.language_model(self.audio_tower(sound, sound_mask) + x, attention_mask)

    model, other = Both(), torch.ones(2, 9)
    other[0, 7:] = 0
    with Monitor(model, every=1) as monitor:
        model(X, X, MASK, other)
        assert rows(monitor) == {"audio_tower.part.0": 16, "language_model.part.0": 6}
        model(X, X, MASK, None)
        assert rows(monitor) == {"audio_tower.part.0": 18, "language_model.part.0": 6}
        model.audio_tower(X, other)
        assert rows(monitor) == {"audio_tower.part.0": 16}
    with Monitor(model.audio_tower, every=1) as monitor:
        model(X, X, MASK, other)
        assert rows(monitor) == {"part.0": 16}


def test_both_sides_of_an_encoder_and_decoder() -> None:
    config = transformers.BartConfig(
        d_model=24, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, vocab_size=31,
        dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    model: Any = transformers.AutoModel.from_config(config, attn_implementation="limelight")
    other = torch.ones(2, 9, dtype=torch.long)
    other[:, 7:] = 0
    with Monitor(model.train(), every=1) as monitor:
        model(IDS, attention_mask=MASK, decoder_input_ids=IDS, decoder_attention_mask=other)
        assert rows(monitor) == {
            "encoder.layers.0.self_attn": 6,
            "decoder.layers.0.self_attn": 14,
            "decoder.layers.0.encoder_attn": 14,
        }


@pytest.mark.parametrize("watch", [Monitor, QKClip])
def test_what_an_interrupted_pass_was_told_is_forgotten(watch: Any) -> None:
    model = Interrupted()
    with watch(model, **({"every": 1} if watch is Monitor else {})) as watcher:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                model(X, MASK)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that nothing was seen
            watcher.step()
        assert not padding._told
        assert not bridge.running
        model.part(X)
        if watch is Monitor:
            assert rows(watcher) == {"part.0": 18}


def test_a_call_that_names_itself_has_its_module_s_padding() -> None:
    class Named(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x[:, None]
            return attention(x, x, x, site="own")[:, 0]

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.visual, self.text = Named(), Named()

        def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.text(self.visual(x))

    model = Both()
    with Monitor(model, every=1) as monitor:
        model(X, MASK)
        assert rows(monitor) == {"visual.own": 18, "text.own": 6}


def test_a_mask_of_another_device() -> None:
    """As of a model whose layers are spread over devices; here, those that hold no numbers."""
    call = SimpleNamespace(batch=2, queries=9, query=X.to("meta"))
    model = Text()
    told = Padding(model)
    model.part.register_forward_hook(lambda *_: found.append(told.rows("part.0", call)))  # type: ignore[arg-type]
    found: list[Any] = []
    model(X, MASK)
    told.remove()
    assert [one.device.type for one in found] == ["meta"]


TEXT = MASK.bool()
ADDED = torch.zeros(2, 9).masked_fill(~TEXT, -torch.inf)


@pytest.mark.parametrize("padding", [~TEXT, ADDED], ids=["bool", "float"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_torch_s_own_attention_says_which_of_its_rows_are_text(
    padding: torch.Tensor, need_weights: bool
) -> None:
    layer = nn.MultiheadAttention(16, 2, batch_first=True)
    apart = X.clone()
    calls = {"itself": (X, X, X), "itself, with positions": (X, X, X + 1), "another": (X, apart, X)}
    found = {}
    for name, given in calls.items():
        with Monitor(layer, every=1, sdpa=True) as monitor:
            layer(*given, key_padding_mask=padding, need_weights=need_weights)
            found[name] = rows(monitor)["MultiheadAttention"]
    assert found == {"itself": 6, "itself, with positions": 6, "another": 18}
    with Monitor(layer, every=1, sdpa=True) as monitor:
        layer(X[0], X[0], X[0], key_padding_mask=padding[0], need_weights=need_weights)
        layer(X, X, X)  # the mask of a call ends with it
        assert rows(monitor) == {"MultiheadAttention": 3 + 18}


def test_padding_of_torch_s_own_encoder_and_decoder() -> None:
    model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    masks = {"src_key_padding_mask": ~TEXT, "tgt_key_padding_mask": ~TEXT[:, 2:]}
    with Monitor(model, every=1, sdpa=True) as monitor:
        model(X, X[:, 2:], **masks, memory_key_padding_mask=~TEXT)
        assert rows(monitor) == {
            "encoder.layers.0.self_attn": 6,
            "decoder.layers.0.self_attn": 2,
            "decoder.layers.0.multihead_attn": 14,
        }


def test_logits_of_torch_s_padding_scale_nothing_back() -> None:
    layer = nn.MultiheadAttention(16, 2, batch_first=True)
    x = torch.where(TEXT[..., None], X, 1000 * X)
    with QKClip(layer, 20.0, sdpa=True) as clip:
        layer(x, x, x, key_padding_mask=~TEXT)
        assert not clip.step()
        layer(x, x, x)
        assert clip.step()


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own, of its function
def test_padding_under_vmap_is_left_to_torch() -> None:
    layer, x = nn.MultiheadAttention(16, 2, batch_first=True), X[:, None]

    def run(x: torch.Tensor, hidden: torch.Tensor) -> Any:
        return layer(x, x, x, key_padding_mask=hidden, need_weights=False)[0]

    want = torch.func.vmap(run)(x, ~TEXT[:, None])
    with Monitor(layer, every=1, sdpa=True):
        assert torch.equal(torch.func.vmap(run)(x, ~TEXT[:, None]), want)
