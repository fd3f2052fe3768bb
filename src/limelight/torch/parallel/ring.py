"""The computation behind context_parallel: rectangles of the matrix, forward and backward.

A rank's queries and the keys that pass by are a few chunks of neighbouring positions each, so the
part of the matrix between them is a few rectangles. Each rectangle is one call of an engine, with
the mask cropped to it; empty ones are skipped. States of the same rows merge, and a sink joins at
the end as a key of its own without a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from limelight.call import Call
from limelight.masks.allowed import Allowed
from limelight.reference import State, merge, reduce_to
from limelight.torch import bridge, operators
from limelight.torch.parallel import exchange
from limelight.torch.parallel.exchange import Ring
from limelight.torch.parallel.sharding import Layout


@dataclass(frozen=True, eq=False)
class Work:
    """What is to be done, the same on every rank but for its place in the ring."""

    ring: Ring
    layout: Layout
    allowed: Allowed  # of the whole matrix
    scale: float
    softcap: float | None
    engine: str
    health: bool
    gathers: bool
    site: str

    @cached_property
    def rows(self) -> list[tuple[slice, slice]]:
        """This rank's chunks of queries: where they are in the sequence, and where here."""
        return _placed(self.layout.chunks(self.allowed.nq, self.ring.rank))

    def columns(self, rank: int) -> list[tuple[slice, slice]]:
        """A rank's chunks of keys: where they are in the sequence, and where in its shard."""
        return _placed(self.layout.chunks(self.allowed.nk, rank))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many keys each rank holds."""
        return self.layout.sizes(self.allowed.nk)

    @cached_property
    def hops(self) -> int:
        """How far keys must travel until nobody further on looks at them; the same on all ranks."""
        layout = self.layout
        edges = layout.edges(self.allowed.nq), layout.edges(self.allowed.nk)
        reach = np.array(
            [self.allowed.reach(a, b) for a, b in zip(edges[0], edges[0][1:], strict=False)]
        )
        left, right = np.array(edges[1][:-1]), np.array(edges[1][1:])
        meets = np.maximum(reach[:, :1], left) < np.minimum(reach[:, 1:], right)  # chunk × chunk
        owner = np.array([layout.owner(piece) for piece in range(layout.pieces)])
        distance = (owner[:, None] - owner) % layout.ranks
        return int(distance[meets].max(initial=0))

    def rectangle(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None,
        rows: tuple[slice, slice], columns: slice,
    ) -> Call | None:  # fmt: skip
        """The call for some rows of this rank against neighbouring keys; None where it is empty."""
        allowed = self.allowed.crop(rows[0], columns)
        if allowed.nq == 0 or allowed.nk == 0 or allowed.reach(0, allowed.nq) == (0, 0):
            return None
        if bias is not None:
            bias = _bias_part(bias, rows[1], columns)
            # A column for each key: how a row's gradient is shared out over the parts is theirs.
            bias = bias.expand(*bias.shape[:3], allowed.nk)
        query = query[:, :, rows[1]]
        batch = (query.shape[0],)
        return Call(query, key, value, allowed, bias, self.scale, self.softcap, None, batch, False)

    def row_calls(self, query: Tensor, bias: Tensor | None) -> Iterator[Call]:
        """Each chunk of rows against all keys, without the keys: enough to count them."""
        for rows in self.rows:
            part = query[:, :, rows[1]]
            allowed = self.allowed.crop(rows[0], slice(None))
            nothing = part[:, :, :0]
            own_bias = None if bias is None else _bias_part(bias, rows[1], slice(None))
            yield Call(part, nothing, nothing, allowed, own_bias, self.scale, self.softcap, None,
                       (part.shape[0],), False)  # fmt: skip


class Parallel(torch.autograd.Function):
    """work, query, key, value, bias, sinks to output, logsumexp, max_logit, entropy of own rows."""

    @staticmethod
    def forward(
        ctx: Any, work: Work, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None,
        sinks: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        watched = bridge.watched()
        health = work.health or watched
        states: list[State | None] = [None] * len(work.rows)

        def attend(columns: slice, keys: Tensor, values: Tensor) -> None:
            for i, rows in enumerate(work.rows):
                call = work.rectangle(query, keys, values, bias, rows, columns)
                if call is not None:
                    part = _widened(bridge.compute(call, work.engine, health=health))
                    known = states[i]
                    states[i] = part if known is None else merge(known, part)

        _pass_by(work, key, value, attend)
        done = [
            _finished(state, query[:, :, rows[1]], value.shape[3], sinks, health)
            for state, rows in zip(states, work.rows, strict=True)
        ]
        if watched:
            bridge.report(work.site, list(zip(work.row_calls(query, bias), done, strict=True)))
        output = torch.cat([state.output for state in done], 2).to(query.dtype)
        logsumexp = torch.cat([state.logsumexp for state in done], 2)
        ctx.work = work
        ctx.set_materialize_grads(False)
        max_logit = entropy = logsumexp.new_empty(0)
        if work.health:
            max_logit = torch.cat([state.max_logit for state in done], 2)
            entropy = torch.cat([state.entropy for state in done], 2)
        ctx.save_for_backward(query, key, value, bias, sinks, output, logsumexp, entropy)
        ctx.mark_non_differentiable(max_logit, *(() if work.health else (logsumexp, entropy)))
        return output, logsumexp, max_logit, entropy

    @staticmethod
    def backward(
        ctx: Any, by_output: Tensor | None, by_logsumexp: Tensor | None, _: Any,
        by_entropy: Tensor | None,
    ) -> tuple[Any, ...]:  # fmt: skip
        given = by_output, by_logsumexp, by_entropy
        grads = Derivative.apply(ctx.work, ctx.needs_input_grad, *ctx.saved_tensors, *given)
        return None, *grads


class Derivative(torch.autograd.Function):
    """The first derivative, in a form that says so when a second one is asked for."""

    @staticmethod
    def forward(
        ctx: Any, work: Work, needs: Sequence[bool], query: Tensor, key: Tensor, value: Tensor,
        bias: Tensor | None, sinks: Tensor | None, output: Tensor, logsumexp: Tensor,
        entropy: Tensor, by_output: Tensor | None, by_logsumexp: Tensor | None,
        by_entropy: Tensor | None,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        if by_output is None:
            by_output = torch.zeros_like(output)  # the other ranks count on this one
        given = by_output, by_logsumexp, by_entropy
        grads_of = [None if x is None else x.resolve_neg() for x in given]  # memory as it is
        wide = _wide(query.dtype)
        state = State(output, logsumexp, None, None if by_entropy is None else entropy)
        sums = _Sums(work, query, bias, wide, state, grads_of)
        collect = _gathered_gradients if work.gathers else _ring_gradients
        grad_key, grad_value = collect(work, key, value, sums)
        grad_sinks = None
        if sinks is not None and needs[5]:
            slope = -(by_output.to(wide) * output.to(wide)).sum(-1)  # [B, Hq, nq]
            log_share = sinks.to(wide)[:, None] - logsumexp
            share = torch.where(logsumexp == -math.inf, 0.0, log_share.exp())
            if by_logsumexp is not None:
                slope = slope + by_logsumexp
            if by_entropy is not None:
                slope = slope - by_entropy * (torch.where(share == 0, 0.0, log_share) + entropy)
            grad_sinks = (share * slope).sum((0, 2)).to(sinks.dtype)
        grad_bias = None
        if bias is not None and sums.bias is not None and needs[4]:
            grad_bias = sums.bias.to(bias.dtype)
        return (
            sums.query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype),
            grad_bias, grad_sinks,
        )  # fmt: skip

    backward = staticmethod(operators.no_second_derivative)


class _Sums:
    """The gradients of a rank's own tensors, summed over the rectangles as they come."""

    def __init__(
        self, work: Work, query: Tensor, bias: Tensor | None, wide: torch.dtype, state: State,
        grads_of: Sequence[Tensor | None],
    ) -> None:  # fmt: skip
        self.work, self.given, self.given_bias, self.wide = work, query, bias, wide
        self.state, self.grads_of = state, grads_of
        self.query = torch.zeros(query.shape, dtype=wide, device=query.device)
        self.bias = (
            None if bias is None else torch.zeros(bias.shape, dtype=wide, device=bias.device)
        )

    def add(
        self, columns: slice, key: Tensor, value: Tensor, grad_key: Tensor, grad_value: Tensor
    ) -> None:
        """One block of keys against all rows of this rank; adds to the block's gradients too."""
        for rows in self.work.rows:
            here = rows[1]
            call = self.work.rectangle(self.given, key, value, self.given_bias, rows, columns)
            if call is None:
                continue
            known = (self.state.output, self.state.logsumexp, None, self.state.entropy)
            state = State(*(None if x is None else x[:, :, here] for x in known))
            output, logsumexp, entropy = (
                None if x is None else x[:, :, here] for x in self.grads_of
            )
            grads = bridge.backward(call, self.work.engine, state, output, logsumexp, entropy)
            self.query[:, :, here] += grads.query
            grad_key += grads.key
            grad_value += grads.value
            if self.bias is not None:
                part = _bias_part(self.bias, here, columns)
                part += reduce_to(grads.bias, part.shape)
            del grads  # before the next rectangle makes its own


def _pass_by(
    work: Work, key: Tensor, value: Tensor, visit: Callable[[slice, Tensor, Tensor], None]
) -> None:
    """Show `visit` every block of keys this rank must see: its place in the sequence, keys, values.

    Two messages are held at a time: the one that is being read, and the one that is coming.
    """
    if work.gathers:
        visit(slice(None), *_whole(work, key, value))
        return
    current = _pack(key, value)
    for hop in range(work.hops + 1):
        origin, pending = work.ring.origin(hop), None
        if hop < work.hops:
            pending = work.ring.start(current, _room(work, current, key, value, hop + 1))
        for columns, here in work.columns(origin):
            visit(
                columns, *(x[:, :, here] for x in _unpack(current, work.sizes[origin], key, value))
            )
        if pending is not None:
            current = pending.wait()


def _ring_gradients(work: Work, key: Tensor, value: Tensor, sums: _Sums) -> tuple[Tensor, Tensor]:
    """Keys and values go around once more, and the sums of their gradients follow them."""
    current, ring = _pack(key, value), work.ring
    travelling = None
    for hop in range(work.hops + 1):
        origin, pending = ring.origin(hop), None
        if hop < work.hops:
            pending = ring.start(current, _room(work, current, key, value, hop + 1))
        grads = torch.zeros(current.shape, dtype=sums.wide, device=key.device)
        for columns, here in work.columns(origin):
            blocks = (*_unpack(current, work.sizes[origin], key, value),
                      *_unpack(grads, work.sizes[origin], key, value))  # fmt: skip
            sums.add(columns, *(x[:, :, here] for x in blocks))
            del blocks
        if travelling is not None:
            grads += travelling.wait()
        travelling = None
        if hop < work.hops:
            travelling = ring.start(grads, _room(work, grads, key, value, hop + 1))
        elif hop:  # home, in one go
            grads = ring.start(grads, _room(work, grads, key, value, 0), hops=-hop).wait()
        if pending is not None:
            current = pending.wait()
    return _unpack(grads, work.sizes[ring.rank], key, value)


def _gathered_gradients(
    work: Work, key: Tensor, value: Tensor, sums: _Sums
) -> tuple[Tensor, Tensor]:
    """All keys at once, then each rank gets the sum of what all ranks have for its own."""
    keys, values = _whole(work, key, value)
    grads = [torch.zeros(x.shape, dtype=sums.wide, device=x.device) for x in (keys, values)]
    sums.add(slice(None), keys, values, *grads)
    del keys, values
    each = key.shape[0] * key.shape[1] * (key.shape[3] + value.shape[3])
    rows = grads[0].new_zeros((work.ring.ranks, each * max(work.sizes)))  # a row for each rank
    for rank, n in enumerate(work.sizes):
        parts = _unpack(rows[rank, : each * n], n, key, value)
        for columns, here in work.columns(rank):
            for part, whole in zip(parts, grads, strict=True):
                part[:, :, here] = whole[:, :, columns]
    del grads
    n = work.sizes[work.ring.rank]
    return _unpack(exchange.reduce(work.ring, rows)[: each * n], n, key, value)


def _whole(work: Work, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """All keys and values in the order of the sequence."""
    each = key.shape[0] * key.shape[1] * (key.shape[3] + value.shape[3])
    flat = exchange.gather(work.ring, _pack(key, value), [each * n for n in work.sizes])
    lead = (*key.shape[:2], work.allowed.nk)
    keys, values = key.new_empty((*lead, key.shape[3])), value.new_empty((*lead, value.shape[3]))
    for rank, part in enumerate(flat):
        some_keys, some_values = _unpack(part, work.sizes[rank], key, value)
        for columns, here in work.columns(rank):
            keys[:, :, columns], values[:, :, columns] = (
                some_keys[:, :, here],
                some_values[:, :, here],
            )
    return keys, values


def _pack(key: Tensor, value: Tensor) -> Tensor:
    """Keys and values as one flat message."""
    return torch.cat([key.reshape(-1), value.reshape(-1)])


def _unpack(flat: Tensor, length: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Views of a message for `length` positions, in the shapes of this rank's key and value."""
    lead = (*key.shape[:2], length)
    cut = math.prod(lead) * key.shape[3]
    return flat[:cut].view(*lead, key.shape[3]), flat[cut:].view(*lead, value.shape[3])


def _room(work: Work, like: Tensor, key: Tensor, value: Tensor, hop: int) -> Tensor:
    """An empty message for the keys that are here after so many hops."""
    each = key.shape[0] * key.shape[1] * (key.shape[3] + value.shape[3])
    return like.new_empty(each * work.sizes[work.ring.origin(hop)])


def _finished(
    state: State | None, query: Tensor, value_size: int, sinks: Tensor | None, health: bool
) -> State:
    """A chunk's state with the sink in it; rows that met no key are empty."""
    wide = _wide(query.dtype)
    rows = query.shape[:3]
    if state is None:
        state = _nothing(query.new_zeros((*rows, value_size), dtype=wide), health)
    if sinks is None:
        return state
    sink = _nothing(torch.zeros_like(state.output), health)
    return merge(
        state,
        State(sink.output, sinks.to(wide)[:, None].expand(rows), sink.max_logit, sink.entropy),
    )


def _nothing(output: Tensor, health: bool) -> State:
    empty = output.new_full(output.shape[:3], -math.inf)
    return State(output, empty, *((empty, torch.zeros_like(empty)) if health else ()))


def _widened(state: State) -> State:
    return State(
        state.output.to(state.logsumexp.dtype), state.logsumexp, state.max_logit, state.entropy
    )


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _bias_part(bias: Tensor, rows: slice, columns: slice) -> Tensor:
    bias = bias if bias.shape[2] == 1 else bias[:, :, rows]
    return bias if bias.shape[3] == 1 else bias[..., columns]


def _placed(chunks: tuple[tuple[int, int], ...]) -> list[tuple[slice, slice]]:
    """Chunks with their place in the shard, where they lie one after the other."""
    placed, at = [], 0
    for start, stop in chunks:
        placed.append((slice(start, stop), slice(at, at + stop - start)))
        at += stop - start
    return placed
