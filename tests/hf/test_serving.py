"""Continuous batching and packed sequences: the tokens and logits of each sequence alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from limelight import hf
from limelight.errors import ArgumentError, ShapeError
from limelight.hf import continuous


def llama(**more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=48, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, initializer_range=0.3, **more,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def test_packed_sequences_see_themselves_alone() -> None:
    model = llama()
    hf.register()
    model.set_attn_implementation("limelight")
    ids, starts = torch.randint(0, 64, (1, 12)), torch.tensor([0, 5, 12], dtype=torch.int32)
    same: dict[str, Any] = {"use_cache": False, "position_ids": torch.arange(12)[None] % 5 % 7}
    packed = {
        "cu_seq_lens_q": starts,
        "cu_seq_lens_k": starts,
        "max_length_q": 7,
        "max_length_k": 7,
    }
    places = torch.cat((torch.arange(5), torch.arange(7)))[None]
    with torch.no_grad():
        whole = model(ids, **{**same, "position_ids": places}, **packed).logits
        parts = [model(part, use_cache=False).logits for part in ids.split([5, 7], 1)]
        assert torch.allclose(whole, torch.cat(parts, 1), atol=1e-4)
        two = torch.cat((ids, ids))
        with pytest.raises(ShapeError, match="stand in one row"):
            model(two, **same, **packed)
        with pytest.raises(ArgumentError, match=r"cu_seq_lens_k is \[0, 5\]: .* ends at 12"):
            model(ids, **same, **{**packed, "cu_seq_lens_k": starts[:2]})


def test_serving_takes_what_load_gives_and_nothing_else() -> None:
    model = llama()
    with hf.serving(hf.Loaded(model)) as served:
        assert served is model
        assert model.config._attn_implementation == "limelight_flash"
    assert model.config._attn_implementation == "sdpa"
    for given in (None, torch.nn.Linear(1, 1), "smollm2"):
        with pytest.raises(ArgumentError, match="takes a Transformers model"), hf.serving(given):
            raise AssertionError


@pytest.mark.parametrize("name", continuous.BEYOND)
def test_what_serving_would_pass_over_is_refused(name: str) -> None:
    part, x = torch.ones(1, 1), torch.ones(1, 1, 2, 4)
    with pytest.raises(ArgumentError, match=rf"Linear gives its attention {name}=…"):
        continuous.attention(torch.nn.Linear(1, 1), x, x, x, None, cache=object(), **{name: part})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_continuous_batching_writes_what_sdpa_writes() -> None:
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(3, 40, (32,), generator=draw).tolist()
    prompts = [torch.randint(1, 64, (n,), generator=draw).tolist() for n in lengths]
    greedy = transformers.GenerationConfig(
        max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0
    )
    small = {"num_blocks": 64, "max_batch_tokens": 128}

    def written(model: Any) -> list[Any]:
        found = model.generate_batch(
            prompts, generation_config=greedy, progress_bar=False,
            continuous_batching_config=transformers.ContinuousBatchingConfig(**small),
        )  # fmt: skip
        return sorted((answer.prompt_ids, answer.generated_tokens) for answer in found.values())

    model = llama()
    with hf.serving(model):
        ours = written(model)
        with pytest.raises(ArgumentError, match="is for continuous batching"):
            model(torch.ones(1, 3, dtype=torch.int64))
    assert model.config._attn_implementation == "sdpa"
    assert len(ours) == 32
    assert ours == written(llama(attn_implementation="sdpa"))
