"""Tally: the health of a site's heads summed up on the device, over passes and over ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from limelight.call import Call
from limelight.health import Health, count_outcomes
from limelight.reference import State
from limelight.torch.ranks import agreed, device_for

SUMS = ("rows", "judged", "not_a_number", "max_prob", "entropy", "spread", "peaked", "saturated")
MEANS = SUMS[3:]


class Tally:
    """Sums over rows, [Hq, len(SUMS)], and the largest logit, [Hq]; nothing waits on the device."""

    def __init__(self, heads: int, device: torch.device) -> None:
        self.sums = torch.zeros(heads, len(SUMS), dtype=torch.float64, device=device)
        self.largest = torch.full((heads,), -math.inf, dtype=torch.float64, device=device)

    def add(self, call: Call, state: State, text: Tensor | None = None) -> None:
        """Count one pass: all rows, or those that are text, bool [batch, queries]."""
        keys = call.row_keys()
        outcomes = None if call.sinks is None else count_outcomes(keys, call.sinks)
        health = Health(state.max_logit, state.logsumexp, state.entropy, keys, outcomes)
        max_prob, judged, largest = health.max_prob, health.judged, health.max_logit
        seen, lost = health.keys > 0, max_prob.isnan()
        if text is not None:
            seen, judged, lost = (x & text[:, None] for x in (seen, judged, lost))
            largest = torch.where(text[:, None], largest, -math.inf)
        sums = (
            seen, judged, lost, max_prob, health.entropy, health.spread, health.peaked,
            health.saturated,
        )  # fmt: skip
        for column, figure in enumerate(sums):
            if SUMS[column] in MEANS:
                figure = torch.where(judged, figure, 0)
            self.sums[:, column] += figure.sum((0, 2), dtype=torch.float64)
        if largest.numel():
            largest = largest.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
            self.largest = torch.maximum(self.largest, largest.amax((0, 2)).double())


def gather(
    tallies: Mapping[str, Tally], model: nn.Module, group: Any
) -> dict[str, tuple[Tensor, Tensor]]:
    """All sites' sums and maxima on the host, over the ranks of a group if one is given.

    Ranks may have run different sites, or none, in any order.
    """
    sites = {name: (len(tally.largest),) for name, tally in tallies.items()}
    device = torch.device("cpu")
    if group is not None:
        sites, device = agreed(sites, group), device_for(model, group)
    elif tallies:
        device = next(iter(tallies.values())).largest.device
    if not sites:
        return {}
    sizes = [heads for (heads,) in sites.values()]
    found = [
        tallies.get(name) or Tally(heads, device) for name, heads in zip(sites, sizes, strict=True)
    ]
    sums = torch.cat([tally.sums.to(device) for tally in found])
    largest = torch.cat([tally.largest.to(device) for tally in found])
    if group is not None:
        torch.distributed.all_reduce(sums, torch.distributed.ReduceOp.SUM, group=group)
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX, group=group)
    parts = zip(sums.cpu().split(sizes), largest.cpu().split(sizes), strict=True)
    return dict(zip(sites, parts, strict=True))


def figures(sums: Tensor, largest: Tensor) -> dict[str, Any]:
    """One site's figures as plain lists, a head each; what no row gives is None."""
    column = dict(zip(SUMS, sums.unbind(1), strict=True))
    found: dict[str, Any] = {
        "heads": len(largest),
        "rows": int(column["rows"].max()) if len(largest) else 0,
        "judged": [int(n) for n in column["judged"]],
        "not_a_number": [int(n) for n in column["not_a_number"]],
        "max_logit": [finite(x) for x in largest.tolist()],
    }
    for name in MEANS:
        found[name] = [finite(x) for x in (column[name] / column["judged"]).tolist()]
    return found


def is_number(value: Any) -> bool:
    """Whether a record can keep it: one number, in a tensor or an array too, or None.

    What it is is not asked: that of a tensor on a GPU would be waited for.
    """
    size = value.numel() if isinstance(value, Tensor) else getattr(value, "size", 1)
    return value is None or (hasattr(value, "__float__") and size == 1)


def finite(value: Any) -> float | None:
    """A number as JSON has it, six digits long; None where there is none that is finite."""
    if value is None:
        return None
    value = float(value.item() if hasattr(value, "item") else value)
    return float(f"{value:.6g}") if math.isfinite(value) else None
