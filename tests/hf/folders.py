"""Small models as folders on disk, with a tokenizer that knows a few words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.hf import systems

WORDS = ("<pad>", "<s>", "</s>", "<unk>", "the", "curious", "cat", "watched", "bird", "(", ")", ".")


def tokenizer() -> Any:
    known = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    known.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=known, unk_token="<unk>", pad_token="<pad>", eos_token="</s>"
    )


def text_model(folder: Path, name: str = "llama") -> Path:
    systems.build(name, torch.float32).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def vision_model(folder: Path) -> Path:
    systems.build("vit", torch.float32).save_pretrained(folder)
    return folder


def picture(path: Path) -> Path:
    from PIL import Image

    image = Image.new("RGB", (50, 40), (200, 30, 30))
    image.paste((20, 220, 20), (0, 0, 25, 20))
    image.save(path)
    return path
