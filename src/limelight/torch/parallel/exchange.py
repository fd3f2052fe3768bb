"""Keys and values on their way between ranks: point to point around a ring, or gathered.

Each rank sends to the next and receives from the one before, while it computes with what it has.
A wait that fails names the rank that was waited for. Messages lie where the group can take them:
Gloo reads host memory alone and gets a GPU's tensors through it, NCCL the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from limelight.errors import LimelightError


class RankError(LimelightError, RuntimeError):
    """Another rank died, lags, or disagrees about what is being computed."""


@dataclass(frozen=True)
class Ring:
    """This rank's place among the ranks of a group."""

    group: Any
    rank: int
    ranks: int

    @classmethod
    def of(cls, group: Any) -> Ring:
        return cls(group, dist.get_rank(group), dist.get_world_size(group))

    def carrier(self, device: torch.device) -> torch.device:
        """Where a message from this device must lie for the group to take it."""
        config = dist.get_backend_config(self.group)  # such as cpu:gloo,cuda:nccl
        backends = dict(pair.split(":") for pair in config.split(","))
        kind = device.type if device.type in backends else next(iter(backends))
        if backends[kind] == "gloo":
            return torch.device("cpu")
        return device if kind == device.type else _current(kind)

    def origin(self, hop: int) -> int:
        """Whose keys are here after so many hops."""
        return (self.rank - hop) % self.ranks

    def start(self, sent: Tensor, received: Tensor, hops: int = 1) -> Pending:
        """Send to the rank `hops` further on and receive from the one as far back."""
        to, source = (self.rank + hops) % self.ranks, (self.rank - hops) % self.ranks
        carrier = self.carrier(sent.device)
        sent = sent.to(carrier)
        buffer = received if carrier == received.device else received.new_empty(
            received.shape, device=carrier)  # fmt: skip
        ops = []
        if sent.numel():
            ops.append(dist.P2POp(dist.isend, sent, group=self.group, group_peer=to))
        if received.numel():
            ops.append(dist.P2POp(dist.irecv, buffer, group=self.group, group_peer=source))
        with _named(f"could not reach rank {to} or rank {source}", self):
            works = dist.batch_isend_irecv(ops) if ops else []
        return Pending(self, works, sent, buffer, received.device, source)


@dataclass(frozen=True)
class Pending:
    """An exchange under way. It keeps what is being sent alive."""

    ring: Ring
    works: Sequence[Any]
    sent: Tensor
    received: Tensor
    device: torch.device
    source: int

    def wait(self) -> Tensor:
        """What was received, when it is there."""
        with _named(f"got nothing from rank {self.source}", self.ring):
            for work in self.works:
                work.wait()
        return self.received.to(self.device)


def gather(
    ring: Ring, local: Tensor, sizes: Sequence[int], what: str = "gather keys and values"
) -> list[Tensor]:
    """Every rank's flat tensor, of the given sizes."""
    most, carrier = max(sizes), ring.carrier(local.device)
    sent = local.to(carrier)
    if sent.numel() < most:
        sent = torch.cat([sent, sent.new_zeros(most - sent.numel())])
    whole = [sent.new_empty(most) for _ in sizes]
    with _named(f"could not {what} with all ranks", ring):
        dist.all_gather(whole, sent, group=ring.group)
    return [part[:size].to(local.device) for part, size in zip(whole, sizes, strict=True)]


def reduce(ring: Ring, rows: Tensor) -> Tensor:
    """The sum over ranks of this rank's row: row r of every rank goes to rank r."""
    sent = rows.to(ring.carrier(rows.device))
    own = sent.new_empty(rows.shape[1])
    with _named("could not sum the gradients of all ranks", ring):
        _reduce_scatter(own, sent.view(-1), group=ring.group)
    return own.to(rows.device)


# Renamed in torch 2.13
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def _current(kind: str) -> torch.device:
    return torch.device(kind, torch.get_device_module(kind).current_device())


class _named:
    """Turns a failure of communication into an error that says who waited for whom."""

    def __init__(self, what: str, ring: Ring) -> None:
        self.what, self.ring = what, ring

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, where: Any) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, RankError):
            raise RankError(
                f"rank {self.ring.rank} of {self.ring.ranks} {self.what} within the group's "
                f"timeout: that rank has died, lags, or took another path through the program. "
                f"Restart the group (torchrun does with --max-restarts); a longer timeout goes to "
                f"init_process_group(timeout=…). torch says: {str(error).splitlines()[0]}"
            ) from error
