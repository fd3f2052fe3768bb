"""register(): one line that makes `attn_implementation="limelight"` work."""

from __future__ import annotations

from typing import Any

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.utils import logging

from limelight.hf.attention import attention
from limelight.hf.masks import mask

NAME = "limelight"


def register() -> str:
    """Make limelight one of Transformers' attention implementations; returns its name.

    Attention and mask function are registered together: with the first alone, Transformers would
    make no mask at all, and a padded batch would silently attend to its padding. Calling it again
    changes nothing.

        limelight.hf.register()
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="limelight")
        model.set_attn_implementation("limelight")      # or later, and back with "sdpa"
    """
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    return NAME


def quiet() -> None:
    """Keep Transformers from drawing progress bars and from logging what is no error."""
    theirs: Any = logging  # not typed
    theirs.disable_progress_bar()
    theirs.set_verbosity_error()
