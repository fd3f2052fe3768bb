"""What the studio's pictures show where a picture needs more than comes along: a long text as a
model read it, and a training run, both made here, from a plain text such as tinyshakespeare.txt.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from limelight import Capture

EXAMPLES = Path(__file__).parents[2] / "examples"
LAYERS = [11, 17]  # of SmolLM2: one that looks a word back, and one with induction heads


def long_capture(text: Path) -> Capture:
    """SmolLM2 on the beginning of a text, as many tokens as it was made to read."""
    import torch

    from limelight import hf

    loaded = hf.load("smollm2")
    most = loaded.model.config.max_position_embeddings
    words = text.read_text(encoding="utf-8")[: 8 * most]
    tokens = loaded.tokenizer(words, return_tensors="pt")["input_ids"][:, :most]
    source = {"text": f"{text.name}, its first {tokens.shape[1]:,} tokens"}
    with torch.no_grad(), hf.capture(loaded, LAYERS, dtype="float16", source=source) as capture:
        loaded.model(input_ids=tokens, use_cache=False, logits_to_keep=1)
    return capture


def training_run(text: Path, journal: Path, steps: int = 600) -> None:
    """A small decoder that learns the text with its scores not divided by √d_k, under the monitor:
    its heads saturate as it learns."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    import torch
    from text import Text, shakespeare
    from torch.nn.functional import cross_entropy
    from training import train
    from transformer import Decoder

    torch.manual_seed(0)
    learned = Text.of(shakespeare(text))
    length = 64
    model = Decoder(len(learned.alphabet), 96, 4, 4, length, head_size=64, scale=1.0)

    def loss_of(generator: torch.Generator) -> torch.Tensor:
        given, wanted = learned.batch(16, length, generator, "cpu")
        return cross_entropy(model(given).flatten(0, 1), wanted.flatten())

    options = argparse.Namespace(steps=steps, seed=0, journal=journal)
    train(model, loss_of, options, rate=3e-3, every=5)
