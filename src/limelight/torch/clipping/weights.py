"""The weights that make queries and keys, and how to scale them by heads, each once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Heads(NamedTuple):
    """How many a site has, and the size of each."""

    queries: int
    keys: int
    size: int


class Slice(NamedTuple):
    """Some of a parameter's outputs.

    It is looked up when it is scaled: under FSDP2 a pass sees another than a step.
    """

    owner: nn.Module
    name: str
    axis: int  # that of the outputs
    start: int

    @property
    def weight(self) -> Tensor:
        found: Tensor = getattr(self.owner, self.name)
        return found


@dataclass(frozen=True, eq=False)
class Side:
    """What makes the queries, or the keys, of one attention: a weight, and its bias if any."""

    slices: tuple[Slice, ...]
    heads: int
    size: int  # of a head

    @property
    def trains(self) -> bool:
        return all(part.weight.requires_grad for part in self.slices)

    def norms(self) -> Tensor:
        """Of each head's weights, on the host."""
        squares = torch.zeros(self.heads, self.size)
        for part in self.slices:
            others = [axis for axis in range(part.weight.ndim) if axis != part.axis]
            outputs = part.weight.detach().float().square()
            outputs = outputs.sum(others) if others else outputs
            if hasattr(outputs, "full_tensor"):  # FSDP2: each rank has some of them
                outputs = outputs.full_tensor()
            squares += outputs.cpu()[part.start :][: squares.numel()].view(squares.shape)
        return squares.sum(1).sqrt()


@dataclass(frozen=True, eq=False)
class Projections:
    """What makes the queries and keys of one attention."""

    site: str
    queries: Side
    keys: Side

    def sides(self) -> list[Side]:
        """Those that may be scaled: frozen weights are left as they are."""
        return [side for side in (self.queries, self.keys) if side.trains]

    def least(self) -> float:
        """The factor nearest to 1 of which all weights take notice: those of 16 bits round."""
        kinds = {part.weight.dtype for side in self.sides() for part in side.slices}
        return 1 - 2 * max((torch.finfo(kind).eps for kind in kinds), default=0.0)

    def sizes(self) -> list[float]:
        """How large each query head's weights are, those of its queries times those of its keys."""
        queries, keys = self.queries.norms(), self.keys.norms()
        found: list[float] = (queries.view(len(keys), -1) * keys[:, None]).flatten().tolist()
        return found

    def shares(self, factors: Sequence[float]) -> list[tuple[Side, Tensor]]:
        """What each side's outputs are multiplied with for logits that become `factors` times.

        The root on either side, or the whole on the one that trains. A key head takes the smallest
        factor of the query heads that share it.
        """
        sides = self.sides()
        each = torch.tensor(factors).pow(1 / len(sides))
        return [
            (side, each.unflatten(0, (side.heads, -1)).amin(1).repeat_interleave(side.size))
            for side in sides
        ]


def scale(asked: Iterable[tuple[Projections, Sequence[float]]]) -> None:
    """Multiply the logits of each site's query heads with its factors.

    A weight that several sites share, or one site's queries and keys, is scaled once, by the
    smallest of what they ask.
    """
    shares = [share for projections, factors in asked if min(factors) < 1
              for share in projections.shares(factors)]  # fmt: skip
    least: dict[int, tuple[Slice, Tensor]] = {}
    lower = True
    while lower:  # a bias follows a weight that another site holds lower, and what shares that bias
        lower = False
        for side, share in shares:
            spans = []
            for part in side.slices:
                whole = torch.ones(part.weight.shape[part.axis])
                _, whole = least.setdefault(id(part.weight), (part, whole))
                spans.append(whole[part.start : part.start + len(share)])
            smallest = torch.stack([share, *spans]).amin(0)
            for span in spans:
                lower |= not torch.equal(span, smallest)
                span.copy_(smallest)
    for part, factor in least.values():
        _multiply(part.weight, part.axis, factor)


def _multiply(weight: Tensor, axis: int, factor: Tensor) -> None:
    """Each output with its own factor, in place; a sharded weight too.

    The factor stays float32 beside a weight of 16 bits, and the product is rounded once.
    """
    shape = [1] * weight.ndim
    shape[axis] = -1
    factor = factor.reshape(shape).to(weight.device)
    if hasattr(weight, "device_mesh"):  # FSDP2: all ranks know all factors
        from torch.distributed.tensor import distribute_tensor

        where = weight.device_mesh, getattr(weight, "placements", None)
        full = factor.expand(weight.shape).contiguous()
        factor = distribute_tensor(full, *where, src_data_rank=None)
    weight.mul_(factor)
