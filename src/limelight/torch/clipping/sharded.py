"""Models whose weights are spread over ranks: what FSDP2 needs before a step, and FSDP1 refused."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from limelight.errors import ArgumentError

FSDP = "torch.distributed.fsdp"  # who has not imported it has wrapped no model in it


def to_shards(model: nn.Module) -> None:
    """Each rank back to its own part of the weights.

    FSDP2 leaves those of the outermost module gathered when a forward pass has ended. What is done
    to such a copy is lost.
    """
    for _, module in _of_kind("FSDPModule", model):
        module.reshard()


def refuse_flattened(model: nn.Module) -> None:
    for name, _ in _of_kind("FullyShardedDataParallel", model):
        raise ArgumentError(
            f"{name or 'the model'} is a FullyShardedDataParallel, which lays weights end to end "
            f"and cuts them anywhere: QKClip cannot tell which rank has which head. Use "
            f"torch.distributed.fsdp.fully_shard (FSDP2)"
        )


def _of_kind(kind: str, model: nn.Module) -> list[tuple[str, Any]]:
    fsdp: Any = sys.modules.get(FSDP)
    if fsdp is None:
        return []
    return [found for found in model.named_modules() if isinstance(found[1], getattr(fsdp, kind))]
