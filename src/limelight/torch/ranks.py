"""Ranks: what those of a group agree on before they sum up: which sites there are, and on what."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from limelight.errors import ArgumentError

distributed = torch.distributed
Heads = TypeVar("Heads", bound=tuple[int, ...])  # the first is how many a site has


def agreed(known: Mapping[str, Heads], group: Any) -> dict[str, Heads]:
    """The sites that any rank knows, in the same order on all; all of the group must ask."""
    told: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(told, dict(known), group=group)
    sites: dict[str, Heads] = {}
    for one in told:
        for name, heads in one.items():
            if sites.setdefault(name, heads)[0] != heads[0]:
                raise ArgumentError(
                    f"{name} has {sites[name][0]} heads on one rank and {heads[0]} on another: "
                    f"figures are taken together over ranks that hold the same model. Give those "
                    f"as group=…"
                )
    return sites


def device_for(model: nn.Module, group: Any) -> torch.device:
    """One of the kind on which all ranks can talk, whether or not anything ran on this one."""
    weight = next(model.parameters(), None)
    device = torch.device("cpu") if weight is None else weight.device
    if device.type == "cpu" and distributed.get_backend(group) == "nccl":
        return torch.device("cuda")
    return device


def let_go() -> None:
    """Gloo's threads give back what they were given, for which they want Python's lock.

    A program that ends right after a sum, its DDP model after its process group, would wait for
    such a thread with the lock held, for ever (torch 2.13).
    """
    if distributed.is_available() and distributed.is_initialized():
        time.sleep(0.01)
