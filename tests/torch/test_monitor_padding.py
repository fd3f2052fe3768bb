"""Padding: whose rows a mask is about, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.utils.checkpoint import checkpoint

from limelight.hf import register
from limelight.torch import Monitor, QKClip, SelfAttention
from limelight.torch.monitor import padding

X = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(0))
MASK = torch.ones(2, 9, dtype=torch.long)
MASK[:, 3:] = 0
IDS = torch.randint(3, 31, (2, 9), generator=torch.Generator().manual_seed(0))


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
