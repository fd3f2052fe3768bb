"""Site: one place in a model where attention happens, with the queries and keys that met there.

Everything about its weights can be had from them at the cost of what is looked at: a cell is one
dot product, a row is n of them, and the n×n matrix is never held.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import as_numpy, index, is_integer, pick
from limelight.call import Call, as_float, prepare
from limelight.capture.intervals import Entry
from limelight.cell import Cell, cell
from limelight.engines import choose
from limelight.errors import ArgumentError, ShapeError
from limelight.health import Health
from limelight.masks import Mask, as_mask
from limelight.numbers import counted
from limelight.reference import State

if TYPE_CHECKING:
    from limelight.heatmap import Heatmap, Top
    from limelight.trace import Trace

Array = NDArray[Any]
Labels = tuple[tuple[str, ...], ...]  # one tuple of texts for each batch entry
KINDS = ("self", "cross")
SHORT = 4096  # keys that are summed in about a millisecond


@dataclass(frozen=True, eq=False)
class Rows:
    """What the model's own pass said about every row: each [B, Hq, Nq]."""

    logsumexp: Array
    max_logit: Array
    entropy: Array


@dataclass(frozen=True, eq=False)
class Site:
    """The queries and keys of one attention, after position encoding, and the rule they meet by.

    query [B, Hq, Nq, D], key [B, Hk, Nk, D], value [B, Hk, Nk, Dv] or None; NumPy arrays. scale,
    softcap, bias, sinks and mask as in limelight.attention. `kind` is "self" or "cross". `tokens`
    names the keys and `query_tokens` the queries, one tuple for each batch entry; ids become their
    digits, and either may be empty. `rows` holds the statistics of the pass that the model made,
    where it was recorded.

    >>> import numpy as np
    >>> query, key = np.array([[[[2.0, 1]]]]), np.array([[[[2.0, 1], [1, 0], [0, -1]]]])
    >>> site = Site("worked", 0, query, key)
    >>> round(site.cell(0, 0).weight, 6)
    0.881645
    """

    name: str
    layer: int
    query: Array
    key: Array
    value: Array | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: Array | None = None
    mask: Mask | None = None
    bias: Array | None = None
    kind: str = "self"
    tokens: Labels = ()
    query_tokens: Labels = ()
    rows: Rows | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ArgumentError(f"a site's name is a text, and {self.name!r} is none")
        for name in ("query", "key", "value", "bias", "sinks"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_float(getattr(self, name), name))
        if self.mask is not None:
            object.__setattr__(self, "mask", as_mask(self.mask))
        if self.bias is not None and self.bias.ndim < 4:
            axes = (1,) * (4 - self.bias.ndim)
            object.__setattr__(self, "bias", self.bias.reshape(axes + self.bias.shape))
        for name in ("query", "key", "value"):
            array = getattr(self, name)
            if array is not None and array.ndim != 4:
                raise ShapeError(f"site {self.name}: {name} has shape {array.shape}, and a site "
                                 f"takes [batch, heads, length, size]")  # fmt: skip
        if self.kind not in KINDS:
            raise ArgumentError(f"site {self.name}: kind={self.kind!r} is not self or cross")
        if not is_integer(self.layer) or self.layer < 0:
            raise ArgumentError(f"site {self.name}: layer={self.layer!r} is not a whole number ≥ 0")
        object.__setattr__(self, "layer", int(self.layer))
        if self.scale is None:
            object.__setattr__(self, "scale", 1.0 / math.sqrt(max(1, self.query.shape[3])))
        for name in ("scale", "softcap"):
            if isinstance(getattr(self, name), np.number):
                object.__setattr__(self, name, float(getattr(self, name)))
        for name in ("tokens", "query_tokens"):
            object.__setattr__(self, name, as_labels(getattr(self, name), name))
        if not self.query_tokens and self.kind == "self" and self.queries == self.keys:
            object.__setattr__(self, "query_tokens", self.tokens)
        for name, length in (("tokens", self.keys), ("query_tokens", self.queries)):
            labels = getattr(self, name)
            if labels and [len(entry) for entry in labels] != [length] * self.batch:
                raise ShapeError(f"site {self.name}: {name} names {[len(e) for e in labels]} "
                                 f"positions, and there are {self.batch} × {length}")  # fmt: skip
        if self.rows is not None:
            shape = (self.batch, self.heads, self.queries)
            for name, array in vars(self.rows).items():
                if array.shape != shape:
                    raise ShapeError(f"site {self.name}: {name} has shape {array.shape}, and the "
                                     f"rows are {shape}")  # fmt: skip

    @property
    def batch(self) -> int:
        return int(self.query.shape[0])

    @property
    def heads(self) -> int:
        return int(self.query.shape[1])

    @property
    def key_heads(self) -> int:
        return int(self.key.shape[1])

    @property
    def queries(self) -> int:
        return int(self.query.shape[2])

    @property
    def keys(self) -> int:
        return int(self.key.shape[2])

    @cached_property
    def call(self) -> Call:
        """The whole site as one checked call, without values."""
        return prepare(self.query, self.key, **self._rule)

    @property
    def _rule(self) -> dict[str, Any]:
        return {"mask": self.mask, "bias": self.bias, "scale": self.scale,
                "softcap": self.softcap, "sinks": self.sinks}  # fmt: skip

    @cached_property
    def statistics(self) -> Rows:
        """logsumexp, max logit and entropy of every row: recorded, or one pass over the keys."""
        if self.rows is not None:
            return self.rows
        state = choose(self.call).module.forward(self.call, health=True)
        return Rows(state.logsumexp, state.max_logit, state.entropy)

    @property
    def measured(self) -> bool:
        """Whether `statistics` are at hand, and no pass is needed."""
        return self.rows is not None or "statistics" in vars(self)

    def health(self) -> Health:
        """What every row of every head says: fields [B, Hq, Nq]."""
        seen = self.statistics
        return Health.of(self.call, State(None, seen.logsumexp, seen.max_logit, seen.entropy))

    def one(self, head: int = 0, batch: int = 0) -> Site:
        """One head of one batch entry as a site of its own, without copying."""
        head = self._index("head", head, self.heads)
        return self._part(self._index("batch entry", batch, self.batch), head)

    def entry(self, batch: int = 0) -> Site:
        """All heads of one batch entry as a site of its own, without copying."""
        batch = self._index("batch entry", batch, self.batch)
        return self if self.batch == 1 else self._part(batch)

    def _part(self, batch: int, head: int | None = None) -> Site:
        key_head = None if head is None else head // self._group
        said = vars(self.statistics).values() if self.measured else None
        return replace(
            self,
            query=pick(self.query, batch, head),
            key=pick(self.key, batch, key_head),
            value=pick(self.value, batch, key_head),
            sinks=self.sinks if head is None or self.sinks is None else self.sinks[head : head + 1],
            mask=None if self.mask is None else _entry(self.mask, batch, head, self),
            bias=pick(self.bias, batch, head),
            tokens=self.tokens[batch : batch + 1],
            query_tokens=self.query_tokens[batch : batch + 1],
            rows=None if said is None else Rows(*(pick(array, batch, head) for array in said)),
        )

    def trace(self, *, head: int = 0, batch: int = 0) -> Trace:
        """Every step of one head, for lengths that a person reads."""
        from limelight.trace import trace

        one = self.one(head, batch)
        value = one.key[0, 0, :, :0] if one.value is None else one.value[0, 0]
        tokens = (one.labels("query"), one.labels("key"))
        return trace(one.query[0, 0], one.key[0, 0], value, **one._headless, tokens=tokens)

    def cell(self, row: int, column: int, *, head: int = 0, batch: int = 0) -> Cell:
        """One weight with all that goes into it, at any length.

        A short row is summed anew in float64; a long one takes the row's statistics where they
        are at hand, which are those of a pass in the precision of the arrays.
        """
        head = self._index("head", head, self.heads)
        batch = self._index("batch entry", batch, self.batch)
        row = self._index("row", row, self.queries)
        column = self._index("column", column, self.keys)
        known = self.statistics if self.measured and self.keys > SHORT else None
        at = (batch, head, row)
        return cell(
            self._valued, row, column, head=head, batch=batch,
            max_logit=None if known is None else float(known.max_logit[at]),
            logsumexp=None if known is None else float(known.logsumexp[at]),
            query_token=self.query_tokens[batch][row] if self.query_tokens else str(row),
            key_token=self.tokens[batch][column] if self.tokens else str(column),
        )  # fmt: skip

    def weights(
        self, rows: Any = None, columns: Any = None, *, head: int = 0, batch: int = 0
    ) -> Array:
        """An exact block of one head's weights: [rows, columns]."""
        from limelight.heatmap import weights_of

        one = self.one(head, batch)
        found = weights_of(one.call, rows=rows, columns=columns, logsumexp=one._logsumexp)
        return np.asarray(found[0, 0])

    def heatmap(
        self, shape: tuple[int, int] = (256, 256), pool: str = "max", rows: Any = None,
        columns: Any = None, *, head: int = 0, batch: int = 0,
    ) -> Heatmap:  # fmt: skip
        """One head's weights pooled to a picture of the given shape, at any length."""
        from limelight.heatmap import heatmap_of

        one = self.one(head, batch)
        found = heatmap_of(one.call, shape=shape, pool=pool, rows=rows, columns=columns,
                           logsumexp=one._logsumexp)  # fmt: skip
        return found.head(0, 0)

    def received(self, *, head: int = 0, batch: int = 0) -> Array:
        """The attention each key gets from one head, summed over its queries: [keys]."""
        from limelight.heatmap import received_of

        one = self.one(head, batch)
        found = received_of(one.call, logsumexp=one._logsumexp)
        return np.asarray(found[0, 0])

    def top(self, rows: Any = None, k: int = 8, *, head: int = 0, batch: int = 0) -> Top:
        """The k keys with the most weight for each of the rows: columns and weights [rows, k]."""
        from limelight.heatmap import top_of

        one = self.one(head, batch)
        found = top_of(one.call, rows=rows, k=k, logsumexp=one._logsumexp)
        return replace(found, columns=found.columns[0, 0], weights=found.weights[0, 0])

    def labels(self, side: str = "key", batch: int = 0) -> tuple[str, ...]:
        """The texts of one side, or the positions as texts where there are none."""
        texts, length = {
            "key": (self.tokens, self.keys),
            "query": (self.query_tokens, self.queries),
        }[side]
        return texts[batch] if texts else tuple(str(i) for i in range(length))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from limelight.notebook import mimebundle

        return mimebundle(self)

    def __repr__(self) -> str:
        shape = f"{self.queries:,} × {self.keys:,}"
        share = f" on {counted(self.key_heads, 'key head')}"
        heads = counted(self.heads, "head") + (share if self.heads != self.key_heads else "")
        extra = [f"softcap {self.softcap:g}"] if self.softcap is not None else []
        extra += ["sinks"] if self.sinks is not None else []
        extra += ["bias"] if self.bias is not None else []
        mask = "everything" if self.mask is None else self.mask.expression
        return (f"Site({self.name!r}, layer {self.layer}, {self.kind}, batch {self.batch}, "
                f"{heads}, {shape}, size {self.query.shape[3]}, {mask}"
                f"{''.join(', ' + word for word in extra)})")  # fmt: skip

    @property
    def _group(self) -> int:
        return self.heads // max(1, self.key_heads)

    @cached_property
    def _valued(self) -> Call:
        return prepare(self.query, self.key, self.value, **self._rule)

    @property
    def _headless(self) -> dict[str, Any]:
        bias = None if self.bias is None else self.bias[0, 0]
        return {**self._rule, "bias": bias}

    @property
    def _logsumexp(self) -> Array | None:
        return None if self.rows is None else self.rows.logsumexp

    def _index(self, name: str, given: int, length: int) -> int:
        return index(given, length, name, f" at {self.name}")


def as_labels(entries: Any, name: str) -> Labels:
    """A tuple of texts for each batch entry; ids become their digits."""

    def texts(entry: Any) -> tuple[str, ...]:
        done = type(entry) is tuple and all(type(text) is str for text in entry)
        return entry if done else tuple(str(text) for text in entry)

    try:
        return tuple(texts(entry) for entry in as_numpy(entries))
    except TypeError:
        raise ShapeError(f"{name} are not lists of texts, one for each batch entry") from None


def _entry(mask: Mask, batch: int, head: int | None, site: Site) -> Mask:
    """The mask as one entry sees it; itself where all entries see the same."""
    allowed = mask.allowed(site.queries, site.keys)
    parts = [part for part in (allowed.spans, allowed.dense) if part is not None]
    same = all(pick(part, batch, head).shape == part.shape for part in parts)
    return mask if same else Entry(mask, batch, head)
