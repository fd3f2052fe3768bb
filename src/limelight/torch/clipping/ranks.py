"""What ranks agree on: which sites there are, and the largest figures of each over all of them.

Ranks may run different layers (LayerDrop, experts, a batch without an image), or none. So all take
part in every step, over one list of sites in one order, and a rank says where the list lacks one
of its own: then all tell what they have, once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from limelight.torch.clipping.weights import Heads
from limelight.torch.ranks import agreed, device_for

distributed = torch.distributed
ROWS = 3  # of figures, for each head


class Ranks:
    """The sites that all ranks of a group know."""

    def __init__(self, model: nn.Module, group: Any) -> None:
        self.group, self._model = group, model
        self.sites: dict[str, Heads] = {}

    def largest(
        self, figures: Mapping[str, Tensor], known: Mapping[str, Heads]
    ) -> dict[str, list[list[float]]]:
        """Figures [3, heads] by site, the largest over the ranks, on the host: one wait a step.

        `known` is what this rank has seen since it began. A site that ran nowhere is left out.
        """
        together = self._together()
        if not together:
            self.sites = {name: known[name] for name in figures}
            if not figures:
                return {}
        found = self._reduce(figures, known, together)
        if found[0] > 0:
            self.sites = agreed(known, self.group)
            found = self._reduce(figures, known, together)
        sizes = [ROWS * heads.queries for heads in self.sites.values()]
        parts = dict(zip(self.sites, found[1:].split(sizes), strict=True))
        rows = {name: part.view(ROWS, -1).tolist() for name, part in parts.items()}
        return {name: part for name, part in rows.items() if max(part[2]) > -math.inf}

    def _together(self) -> bool:
        running = distributed.is_available() and distributed.is_initialized()
        return running and distributed.get_world_size(self.group) > 1

    def _reduce(
        self, figures: Mapping[str, Tensor], known: Mapping[str, Heads], together: bool
    ) -> Tensor:
        """[1 + all figures]: whether a rank has more sites than these, and then theirs."""
        device = (
            device_for(self._model, self.group) if together else next(iter(figures.values())).device
        )
        more = any(name not in self.sites for name in known) if together else False
        parts = [torch.full((1,), float(more), device=device)]
        for name, heads in self.sites.items():
            own = figures.get(name)
            if own is None:
                own = torch.full((ROWS, heads.queries), -math.inf)
            parts.append(own.to(device).flatten())
        flat = torch.cat(parts)
        if together:
            distributed.all_reduce(flat, distributed.ReduceOp.MAX, group=self.group)
        return flat.cpu()
