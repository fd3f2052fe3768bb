"""The tests of this folder must notice the mistakes they are there for: each is made once here.

A mutation changes what reaches limelight's attention; the same check that passes in test_systems
must then fail, in every system that the mistake concerns.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from limelight import hf
from limelight.hf import attention as ours
from limelight.torch import functional
from tests.hf.test_systems import test_forward_and_backward_in_float64 as check

GROUPED = ("starcoder2", "qwen2", "llama", "gemma2", "gemma3", "gpt-oss")
CAUSAL = ("gpt2", *GROUPED)
ALL = (*CAUSAL, "bert", "vit", "t5", "whisper")
attention = functional.attention


def wrong_scale(query: Any, key: Any, value: Any, **rule: Any) -> Any:
    scale = rule["scale"] if rule["scale"] is not None else query.shape[-1] ** -0.5
    return attention(query, key, value, **{**rule, "scale": 1.05 * scale})


def tiled_heads(query: Any, key: Any, value: Any, **rule: Any) -> Any:
    group = query.shape[1] // key.shape[1]
    return attention(query, key.repeat(1, group, 1, 1), value.repeat(1, group, 1, 1), **rule)


def dropped_mask(query: Any, key: Any, value: Any, **rule: Any) -> Any:
    return attention(query, key, value, **{**rule, "mask": None})


def dropped_softcap(query: Any, key: Any, value: Any, **rule: Any) -> Any:
    return attention(query, key, value, **{**rule, "softcap": None})


def dropped_sinks(query: Any, key: Any, value: Any, **rule: Any) -> Any:
    return attention(query, key, value, **{**rule, "sinks": None})


def dropped_bias(query: Any, key: Any, value: Any, **rule: Any) -> Any:
    return attention(query, key, value, **{**rule, "bias": None})


CASES = [
    *((wrong_scale, name, "none") for name in ALL),
    *((tiled_heads, name, "none") for name in GROUPED),
    *((dropped_mask, name, "none") for name in CAUSAL),
    *((dropped_mask, name, side) for name in ("bert", "t5") for side in ("left", "right")),
    (dropped_softcap, "gemma2", "none"),
    (dropped_sinks, "gpt-oss", "none"),
    (dropped_bias, "t5", "none"),
]


@pytest.mark.parametrize(("mutation", "name", "side"), CASES)
def test_the_mistake_is_noticed(
    mutation: Any, name: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf.register()
    monkeypatch.setattr(ours.functional, "attention", mutation)
    with pytest.raises(AssertionError):
        check(name, side)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_padding_alone_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens when only the attention is registered: the padding mask is silently lost."""
    from transformers import masking_utils

    hf.register()
    kept = dict(masking_utils.AttentionMaskInterface._global_mapping)
    del kept["limelight"]
    monkeypatch.setattr(masking_utils.AttentionMaskInterface, "_global_mapping", kept)
    with pytest.raises(AssertionError):
        check(name, "left")


def test_a_mutation_that_changes_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    hf.register()

    def same(query: torch.Tensor, *args: Any, **rule: Any) -> Any:
        return attention(query, *args, **rule)

    monkeypatch.setattr(ours.functional, "attention", same)
    check("llama", "left")
