"""BERT, GPT-2 and ViT train with their default configs, dropout included, as they do on sdpa."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

from limelight.hf import register  # noqa: E402

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 64}  # fmt: skip


def build(kind: str, implementation: str, seed: int = 0) -> Any:
    """Smaller, and else as their configs come: attention dropout is 0.1 for BERT and GPT-2."""
    register()
    configs = {
        "bert": lambda: transformers.BertConfig(
            vocab_size=8, max_position_embeddings=32, **SMALL
        ),
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=31, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=0,
            eos_token_id=0,
        ),
        "vit": lambda: transformers.ViTConfig(
            image_size=16, patch_size=4, num_labels=4, attention_probs_dropout_prob=0.1, **SMALL
        ),
    }  # fmt: skip
    heads = {
        "bert": transformers.BertForMaskedLM,
        "gpt2": transformers.GPT2LMHeadModel,
        "vit": transformers.ViTForImageClassification,
    }
    torch.manual_seed(seed)
    model = heads[kind]._from_config(configs[kind](), attn_implementation=implementation)
    return model.train()


def given(kind: str, step: int) -> dict[str, torch.Tensor]:
    """Something that can be learnt: counting, a word that repeats itself, where it is bright."""
    rng = torch.Generator().manual_seed(step)
    if kind == "vit":
        labels = torch.randint(4, (16,), generator=rng)
        images = 0.5 * torch.randn(16, 3, 16, 16, generator=rng)
        for image, label in zip(images, labels, strict=True):
            row, column = 8 * (label // 2), 8 * (label % 2)
            image[:, row : row + 8, column : column + 8] += 1.0
        return {"pixel_values": images, "labels": labels}
    tokens = (torch.randint(29, (16, 1), generator=rng) + torch.arange(15)) % 29 + 1
    if kind == "gpt2":
        return {"input_ids": tokens, "labels": tokens}
    tokens = (tokens[:, :1] % 7 + 1).expand(-1, 15)
    hidden = torch.rand(tokens.shape, generator=rng) < 0.2
    lengths = torch.randint(10, 16, (16, 1), generator=rng)
    mask = torch.arange(15) < lengths
    return {
        "input_ids": tokens.masked_fill(hidden, 0), "attention_mask": mask.long(),
        "labels": tokens.masked_fill(~(hidden & mask), -100),
    }  # fmt: skip


def curve(kind: str, implementation: str, seed: int, steps: int) -> np.ndarray:
    model = build(kind, implementation, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    torch.manual_seed(1000 + seed)
    losses = []
    for step in range(steps):
        loss = model(**given(kind, 100 * seed + step)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "vit"])
def test_it_learns(kind: str) -> None:
    losses = curve(kind, "limelight", 0, 40)
    assert np.isfinite(losses).all()
    assert losses[-5:].mean() < 0.75 * losses[:3].mean()


@pytest.mark.slow
def test_curves_of_bert_with_dropout_are_those_of_sdpa() -> None:
    """Over five seeds the mean curves lie within the spread that other seeds make of one of them."""
    ours, theirs = (
        np.stack([curve("bert", name, seed, 80) for seed in range(5)])
        for name in ("limelight", "sdpa")
    )
    # the same start, the same data; other cells fall: stretches of 20 steps are compared
    a, b = (x.reshape(5, 4, 20).mean(-1) for x in (ours, theirs))
    paired = a - b
    error = paired.std(0, ddof=1) / np.sqrt(5)
    assert (np.abs(paired.mean(0)) < 4.6 * error + 1e-3).all()  # t of 4 degrees, 1 % two-sided
    assert np.abs(paired.mean(0)).max() < 0.05 * theirs.mean(0)[0]
    assert a[:, -1].mean() < 0.6 * a[:, 0].mean()
