"""Before anything is sent, the ranks compare what they were asked: so all raise where one would.

Each rank puts its shapes, dtype and options into a row of integers, and every rank reads all rows.
A rank that would refuse on its own says so first and raises its own error, and the others one that
names it: nobody waits.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from limelight.arrays import a_type
from limelight.call import Call, prepare
from limelight.engines import find
from limelight.errors import ArgumentError, DtypeError, ShapeError
from limelight.masks import as_mask
from limelight.torch.parallel import exchange
from limelight.torch.parallel.exchange import RankError, Ring
from limelight.torch.parallel.sharding import LAYOUTS, Layout, check_sizes

EXCHANGES = ("auto", "ring", "gather")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
QUERIES, KEYS = 2, 6
OWN = (QUERIES, KEYS, 9, 16)  # lengths of query, key, value and bias differ from rank to rank
COUNT = 20


@dataclass(frozen=True, eq=False)
class Asked:
    """One rank's side of an attention: its own tensors, and the options that all ranks share."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Any
    bias: Any
    scale: float | None
    softcap: float | None
    sinks: Any
    engine: str
    exchange: str

    def check(self) -> Call:
        """The rank's own part as a call without mask and bias, or the error it would raise."""
        for name, tensor in (("query", self.query), ("key", self.key), ("value", self.value)):
            if not isinstance(tensor, Tensor):
                raise DtypeError(
                    f"{name} is {a_type(tensor)}: context_parallel takes torch tensors, "
                    f"as torch.from_numpy makes of arrays"
                )
            if tensor.ndim != 4:
                raise ShapeError(
                    f"{name} has shape {tuple(tensor.shape)}: context_parallel takes four axes, "
                    f"[batch, heads, positions of this rank, size]"
                )
            if tensor.dtype not in DTYPES or tensor.dtype != self.query.dtype:
                raise DtypeError(
                    f"{name} has dtype {tensor.dtype} and query {self.query.dtype}: all three need "
                    f"one float type"
                )
        if self.engine != "auto":
            find(self.engine)
        if self.mask is not None:
            as_mask(self.mask)
        if self.bias is not None and not (
            isinstance(self.bias, Tensor) and self.bias.is_floating_point() and self.bias.ndim <= 4
        ):
            raise DtypeError(
                "the bias must be a float tensor of up to four axes: numbers that are added to the "
                "logits. What may be attended to goes in mask=…"
            )
        return prepare(
            self.query, self.key, self.value, scale=self.scale, softcap=self.softcap,
            sinks=self.sinks,
        )  # fmt: skip

    def row(self, layout: Layout) -> list[int]:
        """What the ranks compare. Masks go by how they read, arrays among them by their shape."""
        bias = () if self.bias is None else tuple(self.bias.shape)
        return [
            *self.query.shape, *self.key.shape, *self.value.shape[1:],
            DTYPES.index(self.query.dtype), LAYOUTS.index(layout.name),
            int(self.bias is not None), *(1,) * (4 - len(bias)), *bias,
            EXCHANGES.index(self.exchange), zlib.crc32(self.rule.encode()),
        ]  # fmt: skip

    @property
    def rule(self) -> str:
        """The options as a person reads them."""
        mask = None if self.mask is None else as_mask(self.mask).expression
        sinks = "no sinks" if self.sinks is None else "sinks"
        return f"mask={mask}, scale={self.scale}, softcap={self.softcap}, {sinks}"


def agree(place: Ring, layout: Layout, asked: Asked) -> tuple[Call, int, int]:
    """The rank's call, and how many queries and keys there are in all; an error on all ranks where
    their parts do not make one attention.
    """
    wrong: Exception | None = None
    row = [-1] * COUNT
    try:
        call = asked.check()
        row = asked.row(layout)
    except Exception as error:
        wrong = error  # raised when the others know
    device = asked.query.device if isinstance(asked.query, Tensor) else "cpu"
    mine = torch.tensor(row, device=device)
    table = exchange.gather(place, mine, [COUNT] * place.ranks, "compare shapes")
    if wrong is not None:
        raise wrong
    rows = [found.tolist() for found in table]
    _compare(rows, asked)
    for what, column in (("queries", QUERIES), ("keys", KEYS)):
        check_sizes(tuple(row[column] for row in rows), layout, what)
    queries, keys = (sum(row[column] for row in rows) for column in (QUERIES, KEYS))
    _check_biases(rows, keys)
    return call, queries, keys


def _compare(rows: list[list[int]], asked: Asked) -> None:
    refused = [str(rank) for rank, row in enumerate(rows) if row[0] < 0]
    if refused:
        raise RankError(f"rank {', '.join(refused)} could not start: its own error says why")
    first = rows[0]
    for rank, row in enumerate(rows):
        if any(row[at] != first[at] for at in range(COUNT - 1) if at not in OWN):
            raise ShapeError(
                f"the shards do not fit together: rank 0 has {_describe(first)}, and rank {rank} "
                f"has {_describe(row)}; all but the lengths must be equal"
            )
        if row[-1] != first[-1]:
            raise ArgumentError(
                f"rank 0 and rank {rank} were given different options, and every rank needs the "
                f"same mask, scale, softcap and sinks; this one has {asked.rule}"
            )


def _check_biases(rows: list[list[int]], keys: int) -> None:
    """A rank gives the rows of its own queries against all keys."""
    for rank, row in enumerate(rows):
        shape, sizes = row[14:18], (row[0], row[1], row[QUERIES], keys)
        if any(n not in (1, size) for n, size in zip(shape, sizes, strict=True)):
            raise ShapeError(
                f"the bias of rank {rank} has shape {tuple(shape)}: a rank gives "
                f"the rows of its own {sizes[2]} queries against all {keys} keys, [{sizes[0]}|1, "
                f"{sizes[1]}|1, {sizes[2]}|1, {keys}|1]"
            )


def _describe(row: list[int]) -> str:
    bias = tuple(row[14:18]) if row[13] else None
    return (
        f"query {tuple(row[:4])}, key {tuple(row[4:8])}, values of size {row[10]}, "
        f"{str(DTYPES[row[11]]).removeprefix('torch.')}, {LAYOUTS[row[12]]} layout, "
        f"exchange {EXCHANGES[row[18]]}, {f'a bias {bias}' if bias else 'no bias'}"
    )
