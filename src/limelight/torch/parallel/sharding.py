"""How one sequence lies over the ranks of a group: layouts, positions, shard and unshard.

A layout cuts N positions into equal chunks (as equal as N allows) and deals them out:

    contiguous   W chunks; rank r has chunk r
    zigzag       2·W chunks; rank r has chunks r and 2·W−1−r, one early and one late

Under a causal mask a late position has more keys to look at than an early one; with zigzag every
rank has as much to do as any other.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from limelight.arrays import a_type
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.torch.parallel import exchange

LAYOUTS = ("zigzag", "contiguous")
NOT_HERE = dist.GroupMember.NON_GROUP_MEMBER  # what new_group gives to ranks outside of the group


@dataclass(frozen=True)
class Layout:
    """A way to deal positions out over `ranks` ranks.

    >>> Layout(2).chunks(9, 0), Layout(2).chunks(9, 1)
    (((0, 2), (6, 9)), ((2, 4), (4, 6)))
    >>> Layout(2).positions(9, 0)
    tensor([0, 1, 6, 7, 8])
    >>> Layout(2, "contiguous").sizes(9)
    (4, 5)
    """

    ranks: int
    name: str = "zigzag"

    def __post_init__(self) -> None:
        if self.name not in LAYOUTS:
            raise ArgumentError(f"there is no layout {self.name!r}: choose {' or '.join(LAYOUTS)}")

    @property
    def pieces(self) -> int:
        """Chunks in all."""
        return self.ranks * (2 if self.name == "zigzag" else 1)

    def owner(self, piece: int) -> int:
        """The rank that holds a chunk."""
        return min(piece, self.pieces - 1 - piece) if self.name == "zigzag" else piece

    def edges(self, length: int) -> list[int]:
        """Where the chunks begin, and the end of the last."""
        return [piece * length // self.pieces for piece in range(self.pieces + 1)]

    def chunks(self, length: int, rank: int) -> tuple[tuple[int, int], ...]:
        """A rank's ranges of positions, in the order in which it holds them."""
        edges = self.edges(length)
        mine = (rank,) if self.name == "contiguous" else (rank, self.pieces - 1 - rank)
        return tuple((edges[piece], edges[piece + 1]) for piece in mine)

    def sizes(self, length: int) -> tuple[int, ...]:
        """How many positions each rank holds."""
        return tuple(
            sum(stop - start for start, stop in self.chunks(length, rank))
            for rank in range(self.ranks)
        )

    def positions(self, length: int, rank: int, device: Any = None) -> Tensor:
        """The positions that a rank holds, in its order: int64 [n]."""
        parts = [torch.arange(*chunk, device=device) for chunk in self.chunks(length, rank)]
        return torch.cat(parts)


def resolve(group: Any, mesh: Any) -> Any:
    """The process group that was meant."""
    if group is not None and mesh is not None:
        raise ArgumentError("both group= and mesh= were given: a mesh has its own group, give one")
    if not (dist.is_available() and dist.is_initialized()):
        raise ArgumentError(
            "there is no process group: start the program with torchrun and call "
            "torch.distributed.init_process_group() first"
        )
    if group is not None and group != NOT_HERE and not isinstance(group, dist.ProcessGroup):
        raise ArgumentError(
            f"group={group!r}: give a process group, as torch.distributed.new_group makes it, or "
            f"mesh=… with one dimension of a DeviceMesh"
        )
    if mesh is not None:
        if not hasattr(mesh, "get_group"):
            raise ArgumentError(f"mesh={mesh!r}: give one dimension of a DeviceMesh")
        if mesh.ndim != 1:
            names = ", ".join(repr(name) for name in mesh.mesh_dim_names or ())
            raise ArgumentError(
                f"the mesh has {mesh.ndim} dimensions ({names or 'without names'}): pass the one "
                f"along which the sequence is cut, as in mesh['context']"
            )
        group = mesh.get_group()
    group = dist.group.WORLD if group is None else group
    if dist.get_rank(group) < 0:
        raise ArgumentError(
            f"rank {dist.get_rank()} is not one of this group's: call on the ranks that were given "
            f"to new_group, and on no others"
        )
    return group


def positions(
    length: int, *, group: Any = None, mesh: Any = None, layout: str = "zigzag", device: Any = None
) -> Tensor:
    """The positions of a sequence of this length that this rank holds, for position encodings."""
    if not isinstance(length, (int, np.integer)) or length < 0:
        raise ArgumentError(f"length={length!r}: give the whole sequence's number of positions")
    group = resolve(group, mesh)
    chosen = Layout(dist.get_world_size(group), layout)
    return chosen.positions(int(length), dist.get_rank(group), device)


def shard(
    tensor: Tensor, dim: int, *, group: Any = None, mesh: Any = None, layout: str = "zigzag"
) -> Tensor:
    """This rank's part of a tensor that every rank has in full, along `dim`. Differentiable."""
    group = resolve(group, mesh)
    chosen, dim = Layout(dist.get_world_size(group), layout), _axis(tensor, dim)
    parts = [tensor.narrow(dim, start, stop - start)
             for start, stop in chosen.chunks(tensor.shape[dim], dist.get_rank(group))]  # fmt: skip
    return torch.cat(parts, dim)


@torch.no_grad()
def unshard(
    tensor: Tensor, dim: int, *, group: Any = None, mesh: Any = None, layout: str = "zigzag"
) -> Tensor:
    """The whole tensor in the order of positions, on every rank, from each rank's part.

    For looking at results; gradients do not flow through it (compute the loss on each rank's own
    positions and sum that).
    """
    place = exchange.Ring.of(resolve(group, mesh))
    chosen, dim = Layout(place.ranks, layout), _axis(tensor, dim)
    part = tensor.movedim(dim, 0).contiguous()
    shape = f"positions of shape {tuple(part.shape[1:])}, {tensor.dtype}, along axis {dim}"
    own = torch.tensor([len(part), zlib.crc32(shape.encode())], device=tensor.device)
    pairs = exchange.gather(place, own, [2] * place.ranks, "compare shapes")
    sizes, shapes = zip(*(pair.tolist() for pair in pairs), strict=True)
    if len(set(shapes)) > 1:
        raise ShapeError(
            f"the ranks' parts do not fit together: this one has {shape}, and another one has not; "
            f"all but the length must be equal"
        )
    check_sizes(sizes, chosen, "positions")
    rest = part.shape[1:]
    flat = exchange.gather(place, part.view(-1), [n * rest.numel() for n in sizes], "gather parts")
    whole = part.new_empty((sum(sizes), *rest))
    for rank, found in enumerate(flat):
        at = chosen.positions(len(whole), rank, tensor.device)
        whole[at] = found.view(sizes[rank], *rest)
    return whole.movedim(0, dim)


def _axis(tensor: Tensor, dim: int) -> int:
    if not isinstance(tensor, Tensor):
        raise DtypeError(f"only torch tensors are cut over ranks, and this is {a_type(tensor)}")
    if not -tensor.ndim <= dim < tensor.ndim:
        raise ShapeError(
            f"dim={dim}: a tensor of shape {tuple(tensor.shape)} has {tensor.ndim} axes, numbered "
            f"from 0; give the one along which positions lie"
        )
    return dim % tensor.ndim


def check_sizes(sizes: tuple[int, ...], layout: Layout, what: str) -> None:
    """The ranks' shares must be those that the layout deals out."""
    right = layout.sizes(sum(sizes))
    if sizes != right:
        raise ShapeError(
            f"the ranks hold {', '.join(map(str, sizes))} {what}, but a {layout.name} layout of "
            f"{sum(sizes)} over {layout.ranks} ranks has {', '.join(map(str, right))}: cut with "
            f"limelight.torch.shard(tensor, dim, layout={layout.name!r})"
        )
