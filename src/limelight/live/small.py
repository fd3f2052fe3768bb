"""The small models that come along: trained here, a token a character, in half precision.

    gpt    Shakespeare's plays       code   Python's standard library

Each is one safetensors file in shipped/, written by examples/train_gpt.py and train_code.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.capture import tensors
from limelight.live.decoder import Block, Decoder, beside
from limelight.live.parts import Norm
from limelight.live.vocabulary import Characters

Array = NDArray[Any]
SHIPPED = Path(__file__).parent / "shipped"
SITE = "transformer.blocks.{}.attention"
PRINTABLE = "\n" + "".join(chr(i) for i in range(32, 127))  # of a checkpoint that names no alphabet
EPS = 1e-5  # torch's for LayerNorm
FACTS = {
    "gpt": {"model": "gpt, trained here on tinyshakespeare", "licence": "Apache-2.0"},
    "code": {"model": "code, trained here on the Python standard library",
             "licence": "Apache-2.0"},
}  # fmt: skip


def read(name: str) -> tuple[Decoder, Characters]:
    """One of the models that come along, in float32."""
    held, texts = tensors.read(SHIPPED / f"{name}.safetensors")
    weights = {key: np.asarray(array, np.float32) for key, array in held.items()}
    facts = json.loads(texts["facts"])
    size = facts["size"]

    def norm(key: str) -> Norm:
        return Norm(weights[f"{key}.weight"], weights[f"{key}.bias"], EPS)

    def block(at: int) -> Block:
        own = f"transformer.blocks.{at}"
        parts = [weights[f"{own}.attention.W_{part}.weight"] for part in "QKV"]
        return Block(
            before=norm(f"{own}.before"),
            qkv=beside(*parts),
            out=beside(weights[f"{own}.attention.W_O.weight"]),
            between=norm(f"{own}.between"),
            up=beside(weights[f"{own}.mlp.0.weight"]),
            down=beside(weights[f"{own}.mlp.2.weight"]),
            up_bias=weights[f"{own}.mlp.0.bias"],
            down_bias=weights[f"{own}.mlp.2.bias"],
        )

    table = beside(weights["symbol.weight"])
    decoder = Decoder(
        embedding=table,
        blocks=tuple(block(at) for at in range(size["layers"])),
        norm=norm("transformer.norm"),
        unembedding=table,
        heads=size["heads"],
        key_heads=size["heads"],
        head_size=size["width"] // size["heads"],
        length=size["length"],
        site=SITE,
        positions=weights["transformer.position"],
    )
    return decoder, Characters(facts.get("alphabet", PRINTABLE))
