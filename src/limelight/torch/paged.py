"""Attention over keys and values in pages: many sequences in one memory, as servers keep them.

A server gives each sequence pages of a fixed number of keys, wherever one is free, and a table says
which page comes when. The kernels of the engines native and triton read that table: no sequence's
keys are brought together first. Where these do not go (float64; on a GPU head sizes below 64 or no
multiple of 16) they are. The new tokens of all sequences come one after the other; each sees its
own sequence up to itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from limelight.arrays import dtype_name
from limelight.attention import Inspection
from limelight.call import check_scale, check_softcap
from limelight.engines import paged_path
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.health import Health, count_outcomes
from limelight.reference import State
from limelight.torch.functional import attention, inspect


def paged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    lengths: Any,
    *,
    queries: Any = None,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of the newest tokens of several sequences, whose keys and values lie in pages.

    query    [tokens, Hq, D], the new tokens of the first sequence, then those of the next
    key      [pages, page, Hk, D], and value [pages, page, Hk, Dv]: all pages there are
    table    [sequences, n], whole numbers: the pages of each sequence, in order
    lengths  [sequences] how many keys each has, those of its new tokens included
    queries  [sequences] how many of the tokens are its; None for one each
    window   a token sees itself and so many keys before it; None for all

    Returns [tokens, Hq, Dv], without gradients.

    >>> pages = torch.arange(12.0).reshape(3, 2, 1, 2)  # three pages of two keys
    >>> paged_attention(torch.zeros(1, 1, 2), pages, pages, torch.tensor([[2, 0]]), [3])
    tensor([[[6., 7.]]])
    """
    same = {"queries": queries, "window": window, "scale": scale, "softcap": softcap}
    return _run(query, key, value, table, lengths, sinks=sinks, health=False, **same).output


def paged_inspect(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    lengths: Any,
    *,
    queries: Any = None,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Inspection:
    """The same, with the health of every row beside the output: its figures are [Hq, tokens]."""
    same = {"queries": queries, "window": window, "scale": scale, "softcap": softcap}
    return _run(query, key, value, table, lengths, sinks=sinks, health=True, **same)


@dataclass(frozen=True, eq=False)
class Group:
    """Sequences with equally many new tokens: they go through the kernels together."""

    tokens: Tensor  # [S, count], which of the tokens are whose
    table: Tensor  # int32 [S, pages]
    spans: Tensor  # int32 [S, 1, count, 1, 2], the keys that each token sees


@dataclass(frozen=True, eq=False)
class Plan:
    """Which keys the new tokens of a step see: the same for all layers of a model."""

    groups: tuple[Group, ...]
    page: int

    @classmethod
    def of(
        cls, table: Tensor, lengths: Any, queries: Any, page: int, tokens: int, window: int | None
    ) -> Plan:
        if page & (page - 1):  # the kernels shift: a table of single rows says the same
            table = (table[:, :, None] * page + torch.arange(page, device=table.device)).flatten(1)
            page = 1
        table = table.to(torch.int32)
        lengths, counts = _counts(table, lengths, queries, page, tokens)
        starts = counts.cumsum(0) - counts
        groups = []
        for count in counts.unique().tolist():
            if not count:
                continue
            which = (counts == count).nonzero().flatten()
            at = torch.arange(count, device=table.device)
            ends = lengths[which, None] - count + 1 + at
            begins = torch.zeros_like(ends) if window is None else (ends - 1 - window).clamp_min(0)
            spans = torch.stack((begins, ends), -1).to(torch.int32)[:, None, :, None]
            most = -(-int(lengths[which].max()) // page)
            pages = table[which, :most].contiguous()
            groups.append(Group(starts[which, None] + at, pages, spans.contiguous()))
        return cls(tuple(groups), page)

    def run(
        self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None,
        softcap: float | None, sinks: Tensor | None, health: bool,
    ) -> Inspection:  # fmt: skip
        """query [tokens, Hq, D], key and value [rows, Hk, D]: all rows that pages are made of."""
        tokens, heads, size = query.shape
        scale = 1.0 / math.sqrt(size) if scale is None else check_scale(scale)
        softcap = None if softcap is None else check_softcap(softcap)
        output = query.new_empty((tokens, heads, value.shape[2]))
        wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        figures = query.new_empty((3, heads, tokens), dtype=wide)
        seen = query.new_empty(tokens, dtype=torch.int64)
        rows = key.transpose(0, 1), value.transpose(0, 1)
        in_place = paged_path(query.device.type, dtype_name(query))
        for group in self.groups:
            own = query[group.tokens].transpose(1, 2)  # [S, Hq, count, D]
            asked = (own, *rows, group.table, self.page, group.spans, sinks, scale, softcap, health)
            state = None if in_place is None else in_place(*asked)
            if state is None:
                state = _together(*asked)
            output[group.tokens] = state.output.transpose(1, 2)
            if health:
                found = torch.stack((state.max_logit, state.logsumexp, state.entropy))
                figures[:, :, group.tokens] = found.transpose(1, 2)
                seen[group.tokens] = group.spans.diff(dim=-1)[:, 0, :, 0, 0].long()
        keys = seen.expand(heads, -1)
        outcomes = None if sinks is None else count_outcomes(keys, sinks)
        max_logit, logsumexp, entropy = figures
        return Inspection(output, Health(max_logit, logsumexp, entropy, keys, outcomes))


def _together(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor, page: int, spans: Tensor,
    sinks: Tensor | None, scale: float, softcap: float | None, health: bool,
) -> State:  # fmt: skip
    """What the kernels do, with each sequence's keys brought together first."""
    at = (table.long()[:, :, None] * page + torch.arange(page, device=table.device)).flatten(1)
    keys, values = (rows[:, at].transpose(0, 1) for rows in (key, value))  # [S, Hk, keys, D]
    column = torch.arange(at.shape[1], device=table.device)
    mask = (column >= spans[:, :, :, 0, :1]) & (column < spans[:, :, :, 0, 1:])
    same: dict[str, Any] = {"mask": mask, "scale": scale, "softcap": softcap, "sinks": sinks}
    if not health:
        return State(attention(query, keys, values, **same), None)
    seen = inspect(query, keys, values, **same)
    return State(seen.output, seen.health.logsumexp, seen.health.max_logit, seen.health.entropy)


def _run(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor, lengths: Any, *, queries: Any,
    window: int | None, **rest: Any,
) -> Inspection:  # fmt: skip
    _check(query, key, value)
    page = key.shape[1]
    if query.is_meta:  # shapes alone: no token has keys that could be looked up
        plan = Plan((), page)
    else:
        plan = Plan.of(table, lengths, queries, page, len(query), window)
    return plan.run(query, key.flatten(0, 1), value.flatten(0, 1), **rest)


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    tensors = {"query": query, "key": key, "value": value}
    for name, given in tensors.items():
        axes = 3 if name == "query" else 4
        if not isinstance(given, Tensor) or given.ndim != axes:
            form = "[tokens, heads, size]" if axes == 3 else "[pages, page, heads, size]"
            raise ShapeError(f"{name} must be a tensor {form}")
        if given.device != query.device or given.dtype != query.dtype:
            raise DtypeError(
                f"{name} is {given.dtype} on {given.device}, and the query {query.dtype} on "
                f"{query.device}: bring them to one"
            )
        if torch.is_grad_enabled() and given.requires_grad:
            raise ArgumentError(
                f"{name} needs gradients: attention over pages has none; use "
                f"limelight.torch.attention, or torch.no_grad()"
            )
    fits = (
        key.shape[:3] == value.shape[:3]
        and query.shape[2] == key.shape[3] > 0
        and key.shape[2] > 0 == query.shape[1] % key.shape[2]
        and key.shape[1] > 0
    )
    if not fits:
        raise ShapeError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} do "
            f"not fit together: key and value share pages and heads, query and key their last "
            f"size, and the query heads are a multiple of the key heads"
        )


def _counts(
    table: Tensor, lengths: Any, queries: Any, page: int, tokens: int
) -> tuple[Tensor, Tensor]:
    """Keys and new tokens of each sequence, int64 [S], which fit the table and the tokens."""
    place: dict[str, Any] = {"dtype": torch.int64, "device": table.device}
    found = torch.as_tensor(lengths, **place).flatten()
    counts = torch.as_tensor(1 if queries is None else queries, **place)
    counts = counts.expand(found.shape) if counts.ndim == 0 else counts.flatten()
    if len(found) != len(table) or len(counts) != len(found):
        raise ShapeError(
            f"{len(table)} rows of pages, {len(found)} lengths and {len(counts)} counts of new "
            f"tokens: each sequence has one of each"
        )
    if int(counts.sum()) != tokens or bool((counts < 0).any()):
        raise ShapeError(
            f"there are {tokens} tokens, and the sequences have {int(counts.sum())}: pass how many "
            f"each has as queries=…"
        )
    if bool((found < counts).any()) or bool((found > table.shape[1] * page).any()):
        raise ShapeError(
            f"lengths {found.tolist()[:8]}: a sequence has at least its new tokens, and at most "
            f"the keys of its {table.shape[1]} pages of {page}"
        )
    return found, counts
