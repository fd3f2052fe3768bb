"""limelight for PyTorch: operators with autograd, modules, a training monitor, context parallel.

    attention, inspect                 the operation on tensors, as limelight.attention and .inspect
    scaled_dot_product_attention       the same with the arguments of torch's function of that name
    paged_attention, paged_inspect     the same over keys and values in pages, as servers keep them
    SelfAttention                      a module with learned projections and a cache
    capture                            a context: what a model's heads look at, as a Capture
    losses                             z_loss and entropy_floor, over differentiable health
    QKClip                             scales heads back whose logits grow too large
    Monitor                            records the health of every head while a model trains
    context_parallel, shard, unshard   one sequence over the ranks of a process group

Names load when first used: `import limelight.torch` alone imports no torch.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "attention": "functional",
    "inspect": "functional",
    "scaled_dot_product_attention": "sdpa",
    "paged_attention": "paged",
    "paged_inspect": "paged",
    "SelfAttention": "modules",
    "Cache": "modules",
    "capture": "capturing",
    "QKClip": "clip",
    "Monitor": "monitor.monitor",
    "Alarm": "monitor.alarms",
    "context_parallel": "parallel.attention",
    "ContextParallel": "parallel.attention",
    "RankError": "parallel.exchange",
    "gather_health": "parallel.gathering",
    "gather_capture": "parallel.gathering",
    "shard": "parallel.sharding",
    "unshard": "parallel.sharding",
    "positions": "parallel.sharding",
}

__all__ = [*_HOMES, "losses"]


def __getattr__(name: str) -> Any:
    if name == "losses":
        return importlib.import_module(f"{__name__}.losses")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found  # from now on it is looked up at once
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
