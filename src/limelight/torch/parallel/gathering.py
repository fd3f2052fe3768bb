"""What the ranks of a context-parallel run have seen, put together: health, and captures."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from limelight.capture import Capture, Rows, Site
from limelight.errors import ArgumentError
from limelight.health import Health
from limelight.masks import Mask
from limelight.torch.parallel.sharding import Layout, check_sizes, resolve, unshard


def gather_health(
    health: Health, *, group: Any = None, mesh: Any = None, layout: str = "zigzag"
) -> Health:
    """The health of all rows in the order of the sequence, on every rank."""
    same = {"group": resolve(group, mesh), "layout": layout}
    parts = (getattr(health, field.name) for field in fields(health))
    return Health(*(
        None if part is None else unshard(torch.as_tensor(part), -1, **same) for part in parts
    ))  # fmt: skip


def gather_capture(
    capture: Capture, *, group: Any = None, mesh: Any = None, layout: str = "zigzag",
    mask: Mask | None = None,
) -> Capture | None:  # fmt: skip
    """One capture of the whole sequence, on the group's first rank; None on the others.

    Each rank gives a capture of its own positions, with the same sites. `mask` is the rule of the
    whole sequence, which takes the place of the sites' own.
    """
    group = resolve(group, mesh)
    first = dist.get_rank(group) == 0
    seen: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(seen, [site.name for site in capture.sites], group=group)
    for rank, names in enumerate(seen):
        if names != seen[0]:
            raise ArgumentError(
                f"the ranks captured different sites: rank 0 has {_short(seen[0])}, and rank "
                f"{rank} has {_short(names)}. Each rank gives a capture of the same layers"
            )
    sites = []
    for site in capture.sites:
        whole = _site(site, group, layout, mask)
        if first:
            sites.append(whole)
    tokens = _tokens(capture.tokens, group, layout)
    if not first:
        return None
    return replace(capture, sites=tuple(replace(s, tokens=tokens, query_tokens=()) for s in sites),
                   tokens=tokens, query_tokens=())  # fmt: skip


def _short(names: list[str]) -> str:
    return f"{len(names)} ({', '.join(names[:4])}{', …' if len(names) > 4 else ''})"


def _site(site: Site, group: Any, layout: str, mask: Mask | None) -> Site:
    def whole(array: NDArray[Any] | None, axis: int = 2) -> Any:
        if array is None:
            return None
        part = torch.from_numpy(np.ascontiguousarray(array))
        return unshard(part, axis, group=group, layout=layout).numpy()

    rows = site.rows
    if rows is not None:
        rows = Rows(*(whole(getattr(rows, field.name)) for field in fields(rows)))
    return replace(
        site, query=whole(site.query), key=whole(site.key), value=whole(site.value), rows=rows,
        written=whole(site.written),
        mask=site.mask if mask is None else mask, tokens=(), query_tokens=(),
        real_keys=whole(site.real_keys, 1), real_queries=whole(site.real_queries, 1),
    )  # fmt: skip


def _tokens(labels: Any, group: Any, layout: str) -> Any:
    """The texts of all positions in order, one tuple for each batch entry."""
    ranks = dist.get_world_size(group)
    parts: list[Any] = [None] * ranks
    dist.all_gather_object(parts, labels, group=group)
    if not all(parts):
        return ()
    chosen, whole = Layout(ranks, layout), []
    for entry in zip(*parts, strict=True):
        sizes = tuple(len(part) for part in entry)
        check_sizes(sizes, chosen, "tokens")
        texts = [""] * sum(sizes)
        for rank, part in enumerate(entry):
            for position, text in zip(
                chosen.positions(sum(sizes), rank).tolist(), part, strict=True
            ):
                texts[position] = text
        whole.append(tuple(texts))
    return tuple(whole)
