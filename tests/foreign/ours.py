"""A pytest plugin: while others' tests run, limelight stands where they expect torch's attention."""

from __future__ import annotations

import os

import torch

from limelight.torch import scaled_dot_product_attention

WHOSE = os.environ.get("LIMELIGHT_FOREIGN")  # nobody's where it is merely imported
if WHOSE == "torch":
    torch.nn.functional.scaled_dot_product_attention = scaled_dot_product_attention
elif WHOSE == "transformers":
    from transformers import AttentionInterface, AttentionMaskInterface

    from limelight.hf.attention import attention
    from limelight.hf.masks import mask

    AttentionInterface.register("sdpa", attention)
    AttentionMaskInterface.register("sdpa", mask)
