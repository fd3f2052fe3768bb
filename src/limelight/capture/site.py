"""Site: one place in a model where attention happens, with the queries and keys that met there.

Everything about its weights can be had from them at the cost of what is looked at: a cell is one
dot product, a row is n of them, and the n×n matrix is never held.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import as_array, as_numpy, index, is_integer, pick
from limelight.call import Call, as_float, prepare
from limelight.capture.brought import lengths
from limelight.engines import choose
from limelight.errors import ArgumentError, LimelightError, ShapeError
from limelight.health import Health
from limelight.masks import Mask, as_mask, spans
from limelight.masks.measured import Entry, Intervals
from limelight.offers import offered
from limelight.reference import State
from limelight.worked.cell import Cell, cell
from limelight.writing.numbers import counted
from limelight.writing.pieces import readable

if TYPE_CHECKING:
    from limelight.capture.tensors import Watch
    from limelight.looking.heatmap import Heatmap
    from limelight.looking.weights import Top
    from limelight.worked.trace import Trace

Array = NDArray[Any]
Labels = tuple[tuple[str, ...], ...]  # one tuple of texts for each batch entry
Which = int | list[int] | tuple[int, ...] | range | NDArray[Any] | None  # one, some, or all
Seen = TypeVar("Seen", Array, "Heatmap", "Top")
KINDS = ("self", "cross")
ROUNDED = 1e-2  # what a row of weights in a half type may lack to 1
LEAST_SHARE = 1e-30  # of the longest value: a value of nothing is seen, and dark
VANISHED = -800.0  # a logit of which e to it is 0, in float64 too, and that hides nothing
SUMMED = 1 << 18  # keys up to which a cell's row is summed anew: a tenth of a second or so


@dataclass(frozen=True, eq=False)
class Rows:
    """What the model's own pass said about every row: each [B, Hq, Nq]."""

    logsumexp: Array
    max_logit: Array
    entropy: Array

    def where(self, real: NDArray[np.bool_]) -> Rows:
        """The same with rows that see nothing where a query [B, Nq] is not real."""
        empty = zip(vars(self).values(), (-np.inf, -np.inf, 0.0), strict=True)
        return Rows(*(np.where(real[:, None], array, array.dtype.type(x)) for array, x in empty))


@dataclass(frozen=True, eq=False)
class Site:
    """The queries and keys of one attention, after position encoding, and the rule they meet by.

    query [B, Hq, Nq, D], key [B, Hk, Nk, D], value [B, Hk, Nk, Dv] or None; NumPy arrays. scale,
    softcap, bias, sinks and mask as in limelight.attention. `kind` is "self" or "cross". `tokens`
    names the keys and `query_tokens` the queries, one tuple for each batch entry; ids become their
    digits, and either may be empty. `rows` holds the statistics of the pass that the model made,
    where it was recorded. `out` [Hq, Dv, E] is W_O by heads, where it is at hand; it stays out of
    files, which keep the lengths `written` [B, Hq, Nk] of v·W_O instead. `real_keys` [B, Nk] and
    `real_queries` [B, Nq] are False at padding, None where there is none: a query that is padding
    is no row, and is shown as one that sees nothing. `watch` refuses arrays that are mapped from a
    file which has changed.

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
    written: Array | None = None
    out: Array | None = field(default=None, repr=False)
    real_keys: NDArray[np.bool_] | None = None
    real_queries: NDArray[np.bool_] | None = None
    watch: Watch | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ArgumentError(f"a site's name is a text, and {self.name!r} is none")
        if self.query is None or self.key is None:
            raise ArgumentError(f"site {self.name}: a site is of queries and keys; of weights "
                                f"Site.from_weights makes one")  # fmt: skip
        for name in ("query", "key", "value", "bias", "sinks", "written", "out"):
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
        if self.real_queries is None and self.kind == "self" and self.queries <= self.keys:
            real = self.real_keys
            tail = None if real is None else real[:, self.keys - self.queries :]
            object.__setattr__(self, "real_queries", tail)
        for name, length in (("real_keys", self.keys), ("real_queries", self.queries)):
            object.__setattr__(self, name, self._flags(name, length))
        self._check_fits()
        self._check_out()
        if self.rows is not None:
            shape = (self.batch, self.heads, self.queries)
            for name, array in vars(self.rows).items():
                if array.shape != shape:
                    raise ShapeError(f"site {self.name}: {name} has shape {array.shape}, and the "
                                     f"rows are {shape}")  # fmt: skip

    def _check_fits(self) -> None:
        """Queries, keys and values are of one batch and share heads; the rest fits them."""
        if self.value is not None and self.value.shape[:3] != self.key.shape[:3]:
            fits = ", ".join(map(str, self.key.shape[:3]))
            raise ShapeError(f"site {self.name}: value has shape {self.value.shape}, and each key "
                             f"goes with one value: it takes [{fits}, size]")  # fmt: skip
        try:
            made = prepare(self.query, self.key, **{**self._rule, "mask": None})
        except LimelightError as error:
            raise type(error)(f"site {self.name}: {error}") from None
        if made.batch != self.batch:
            raise ShapeError(f"site {self.name}: keys for a batch of {made.batch} and queries for "
                             f"one of {self.batch}: give one entry of each")  # fmt: skip

    def _check_out(self) -> None:
        """What is written fits the heads and keys, and W_O the heads and values."""
        said = (self.batch, self.heads, self.keys)
        if self.written is not None and self.written.shape != said:
            raise ShapeError(f"site {self.name}: written has shape {self.written.shape}, and takes "
                             f"[batch, heads, keys], {said}")  # fmt: skip
        if self.out is None:
            return
        if self.value is None:
            raise ArgumentError(f"site {self.name}: out comes without values for it to "
                                f"write: give value=… too")  # fmt: skip
        if self.out.ndim != 3 or self.out.shape[:2] != (self.heads, self.value.shape[3]):
            raise ShapeError(f"site {self.name}: out has shape {self.out.shape}, and W_O by heads "
                             f"is [{self.heads}, {self.value.shape[3]}, width]")  # fmt: skip

    @classmethod
    def from_weights(
        cls,
        name: str,
        layer: int,
        weights: Any,
        *,
        tokens: Any = (),
        query_tokens: Any = (),
        value: Any = None,
        kind: str = "self",
    ) -> Site:
        """A site of weights that are already there, [B, H, Nq, Nk], from any framework.

        Its logits are the logarithms of the weights, so that everything that looks, judges, draws
        and saves takes it as it takes any other; a cell shows its weight and no arithmetic. A key
        that gets 0 in every head is one that the row may not see; where another head gives it
        something, it is seen, and too little to be told from 0, as in a saturated row. Tokens may
        come as a tokenizer spells them; `value` is [B, H, Nk, Dv], or of fewer heads that the
        weights' heads share.

        >>> site = Site.from_weights("mine", 0, [[[[1.0, 0.0], [0.25, 0.75]]]])
        >>> site.weights()
        array([[[1.  , 0.  ],
                [0.25, 0.75]]])
        """
        given = as_float(as_array(weights, "weights"), "weights")
        if given.ndim != 4:
            raise ShapeError(f"weights have shape {given.shape}, and a site takes [batch, heads, "
                             f"queries, keys]")  # fmt: skip
        given = given if given.dtype == np.float64 else given.astype(np.float32)
        total = given.sum(axis=-1, dtype=np.float64)
        if (given < 0).any():
            raise ArgumentError("a weight is below 0: give weights as they leave the softmax")
        off = (np.abs(total - 1) > ROUNDED) & (total != 0)
        if off.any():
            raise ArgumentError(
                f"a row of weights sums to {float(total[off][0]):.4g}: give them as they leave the "
                f"softmax, before dropout; what a sink takes is a key of its own"
            )
        batch, heads, queries, keys = given.shape
        value = None if value is None else as_float(as_array(value, "value"), "value")
        shared = 0 if value is None or value.ndim != 4 else value.shape[1]
        key_heads = shared if shared and heads % shared == 0 else heads
        with np.errstate(divide="ignore"):
            bias = np.log(given)
        none = given == 0
        seen = ~none.all(axis=1, keepdims=True) & (total != 0)[..., None]
        bias[none & seen] = VANISHED
        return cls(
            name, layer, np.zeros((batch, heads, queries, 1), given.dtype),
            np.zeros((batch, key_heads, keys, 1), given.dtype), value=value, scale=1.0, bias=bias,
            kind=kind, tokens=as_texts(tokens, "tokens"),
            query_tokens=as_texts(query_tokens, "query_tokens"),
        )  # fmt: skip

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

    @property
    def call(self) -> Call:
        """The whole site as one checked call, without values."""
        self._look()
        return self._call

    @cached_property
    def _call(self) -> Call:
        return prepare(self.query, self.key, **self._rule)

    def _flags(self, name: str, length: int) -> NDArray[np.bool_] | None:
        """Which positions are real; None where all are."""
        given = getattr(self, name)
        if given is None:
            return None
        flags = np.asarray(given)
        if flags.shape != (self.batch, length) or flags.dtype != np.bool_:
            raise ShapeError(f"site {self.name}: {name} is {flags.dtype} of shape {flags.shape}, "
                             f"and flags are boolean, {self.batch} × {length}")  # fmt: skip
        return None if flags.all() else flags

    @cached_property
    def shown(self) -> Mask | None:
        """The mask with nothing to see for queries that are padding."""
        if self.real_queries is None:
            return self.mask
        stop = np.where(self.real_queries, self.keys, 0)
        rows = Intervals(spans.make(0, stop, self.keys)[:, None], self.keys)
        return rows if self.mask is None else self.mask & rows

    def _look(self) -> None:
        """Before the numbers are looked at: those of a mapped file may have changed."""
        if self.watch is not None:
            self.watch.check()

    @property
    def _rule(self) -> dict[str, Any]:
        return {"mask": self.shown, "bias": self.bias, "scale": self.scale,
                "softcap": self.softcap, "sinks": self.sinks}  # fmt: skip

    @cached_property
    def statistics(self) -> Rows:
        """logsumexp, max logit and entropy of every row: recorded, or one pass over the keys."""
        if self.rows is not None:
            return self.rows if self.real_queries is None else self.rows.where(self.real_queries)
        state = choose(self.call).module.forward(self.call, health=True)
        return Rows(state.logsumexp, state.max_logit, state.entropy)

    @cached_property
    def only_weights(self) -> bool:
        """Whether it was made of weights, as from_weights does: their arithmetic is not known."""
        bare = self.bias is not None and self.query.shape[3] == self.key.shape[3] == 1
        return bare and not self.query.any() and not self.key.any()

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
            written=pick(self.written, batch, head),
            out=self.out if head is None or self.out is None else self.out[head : head + 1],
            sinks=self.sinks if head is None or self.sinks is None else self.sinks[head : head + 1],
            mask=None if self.mask is None else _entry(self.mask, batch, head, self),
            bias=pick(self.bias, batch, head),
            tokens=self.tokens[batch : batch + 1],
            query_tokens=self.query_tokens[batch : batch + 1],
            real_keys=pick(self.real_keys, batch),
            real_queries=pick(self.real_queries, batch),
            rows=None if said is None else Rows(*(pick(array, batch, head) for array in said)),
        )

    @property
    def writes(self) -> bool:
        """Whether it is known what W_O makes of the values."""
        return self.written is not None or self.out is not None

    @cached_property
    def brought(self) -> Array:
        """The length of what each key brings to each head, [B, Hq, Nk].

        ‖v·W_O‖, what is written into the residual stream, where that is known (`writes`); ‖v‖ else.
        """
        if self.written is not None:
            return self.written
        if self.value is None:
            raise ArgumentError(f"site {self.name} holds no values: capture with values=True")
        self._look()
        return lengths(self.value, self.heads, self.out)

    def by_value(self, head: int = 0, batch: int = 0) -> Site:
        """One head whose cells are what each look brings: w · ‖v·W_O‖, or w · ‖v‖ (`brought`).

        A site to look at, with weights(), heatmap(), top() and received() as any other; a cell is
        a share of the head's longest: w · b_j / max b. A sink that writes next to nothing goes
        dark. Its rows do not sum to 1, so it has no health.

        >>> import numpy as np
        >>> value = np.array([[[[3.0, 4.0], [0.0, 0.5]]]])  # of length 5 and 0.5
        >>> site = Site.from_weights("mine", 0, [[[[0.5, 0.5]]]], value=value)
        >>> site.by_value().weights(head=0)
        array([[0.5 , 0.05]])
        >>> out = np.array([[[0.0], [2.0]]])  # W_O leaves the first number out: 8 and 1 are written
        >>> replace(site, out=out).by_value().weights(head=0)
        array([[0.5   , 0.0625]])
        """
        one = self.one(head, batch)
        length = one.brought[0, 0].astype(np.float64)
        most = np.nanmax(length, initial=0.0)
        with np.errstate(invalid="ignore"):  # of an infinite length nothing is a share
            share = np.maximum(length / (most or 1.0), LEAST_SHARE)
        # A factor is a summand in the exponent; the rows' sums stay those of the weights.
        bias = np.log(share).astype(np.promote_types(one.query.dtype, np.float32))
        bias = bias[None, None, None] if one.bias is None else one.bias + bias
        return replace(one, bias=bias, rows=one.statistics)

    def trace(self, *, head: int = 0, batch: int = 0) -> Trace:
        """Every step of one head, for lengths that a person reads."""
        from limelight.worked.trace import trace

        one = self.one(head, batch)
        value = one.key[0, 0, :, :0] if one.value is None else one.value[0, 0]
        tokens = (one.labels("query"), one.labels("key"))
        return trace(one.query[0, 0], one.key[0, 0], value, **one._headless, tokens=tokens)

    def cell(self, row: int, column: int, *, head: int = 0, batch: int = 0) -> Cell:
        """One weight with all that goes into it, at any length.

        Its row is summed anew in float64, as who checks it by hand would; only one of more than
        262,144 keys takes the statistics at hand, of a pass in the precision of the arrays.
        """
        head = self._index("head", head, self.heads)
        batch = self._index("batch entry", batch, self.batch)
        row = self._index("row", row, self.queries)
        column = self._index("column", column, self.keys)
        known = self.statistics if self.measured and self.keys > SUMMED else None
        at = (batch, head, row)
        return cell(
            self._valued, row, column, head=head, batch=batch,
            max_logit=None if known is None else float(known.max_logit[at]),
            logsumexp=None if known is None else float(known.logsumexp[at]),
            query_token=self.query_tokens[batch][row] if self.query_tokens else str(row),
            key_token=self.tokens[batch][column] if self.tokens else str(column),
        )  # fmt: skip

    def weights(
        self, rows: Any = None, columns: Any = None, *, head: Which = None, batch: int = 0
    ) -> Array:
        """An exact block of the weights: [heads, rows, columns], of one head [rows, columns].

        `head` is None for all heads, a number for one, or a list of some; so with every look.
        """
        from limelight.looking.weights import weights_of

        def look(site: Site) -> Array:
            found = weights_of(site.call, rows=rows, columns=columns, logsumexp=site._logsumexp)
            return np.asarray(found[0])

        return self._by_head(look, head, batch)

    def heatmap(
        self, shape: tuple[int, int] = (256, 256), pool: str = "max", rows: Any = None,
        columns: Any = None, *, head: Which = None, batch: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> Heatmap:  # fmt: skip
        """The weights pooled to pictures of the given shape, at any length.

        With `progress` a head is done in steps, and progress(done, all) is told of each.
        """
        from limelight.looking.heatmap import heatmap_of

        def look(site: Site) -> Heatmap:
            found = heatmap_of(site.call, shape=shape, pool=pool, rows=rows, columns=columns,
                               logsumexp=site._logsumexp, progress=progress)  # fmt: skip
            return found.head(0)

        return self._by_head(look, head, batch)

    def received(self, *, head: Which = None, batch: int = 0) -> Array:
        """The attention each key gets, summed over the queries: [heads, keys]; of one [keys]."""
        from limelight.looking.weights import received_of

        def look(site: Site) -> Array:
            return np.asarray(received_of(site.call, logsumexp=site._logsumexp)[0])

        return self._by_head(look, head, batch)

    def top(self, rows: Any = None, k: int = 8, *, head: Which = None, batch: int = 0) -> Top:
        """The k keys with the most weight for each row: [heads, rows, k]; of one [rows, k]."""
        from limelight.looking.weights import top_of

        def look(site: Site) -> Top:
            found = top_of(site.call, rows=rows, k=k, logsumexp=site._logsumexp)
            return replace(found, columns=found.columns[0], weights=found.weights[0])

        return self._by_head(look, head, batch)

    def _by_head(self, look: Callable[[Site], Seen], head: Which, batch: int) -> Seen:
        """What a look at a site gives, its heads first, for all heads, one, or some."""
        if head is None:
            return look(self.entry(batch))
        if isinstance(head, (list, tuple, range, np.ndarray)):
            if not len(head):
                raise ArgumentError(f"no head of {self.name} is named: give some, or None for all")
            parts = [look(self.one(one, batch)) for one in head]
            joined: Seen = _each(lambda *arrays: np.concatenate(arrays), *parts)
            return joined
        single: Seen = _each(lambda array: array[0], look(self.one(head, batch)))
        return single

    def labels(self, side: str = "key", batch: int = 0) -> tuple[str, ...]:
        """The texts of one side, or the positions as texts where there are none."""
        texts, length = {
            "key": (self.tokens, self.keys),
            "query": (self.query_tokens, self.queries),
        }[side]
        return texts[batch] if texts else tuple(str(i) for i in range(length))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        made: dict[str, Any] = offered("notebook").mimebundle(self)
        return made

    def __repr__(self) -> str:
        shape = f"{self.queries:,} × {self.keys:,}"
        share = f" on {counted(self.key_heads, 'key head')}"
        heads = counted(self.heads, "head") + (share if self.heads != self.key_heads else "")
        extra = [f"softcap {self.softcap:g}"] if self.softcap is not None else []
        extra += ["sinks"] if self.sinks is not None else []
        extra += ["bias"] if self.bias is not None and not self.only_weights else []
        mask = "everything" if self.mask is None else self.mask.expression
        if self.real_queries is not None:
            extra.append(counted(int((~self.real_queries).sum()), "query") + " of padding")
        held = "weights only" if self.only_weights else f"size {self.query.shape[3]}, {mask}"
        return (f"Site({self.name!r}, layer {self.layer}, {self.kind}, batch {self.batch}, "
                f"{heads}, {shape}, {held}{''.join(', ' + word for word in extra)})")  # fmt: skip

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
        return self.statistics.logsumexp if self.measured else None

    def _index(self, name: str, given: int, length: int) -> int:
        self._look()
        return index(given, length, name, f" at {self.name}")


def _each(change: Callable[..., Array], *parts: Any) -> Any:
    """Arrays changed to one; of maps and of the strongest keys, those that have a head's axis."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        return change(*parts)
    names = [name for name in ("values", "empty", "columns", "weights")
             if isinstance(getattr(first, name, None), np.ndarray)]  # fmt: skip
    return replace(first, **{n: change(*(getattr(part, n) for part in parts)) for n in names})


def as_labels(entries: Any, name: str) -> Labels:
    """A tuple of texts for each batch entry, none for None; ids become their digits."""

    def texts(entry: Any) -> tuple[str, ...]:
        done = type(entry) is tuple and all(type(text) is str for text in entry)
        return entry if done else tuple(str(text) for text in entry)

    try:
        return () if entries is None else tuple(texts(entry) for entry in as_numpy(entries))
    except TypeError:
        raise ShapeError(f"{name} are not lists of texts, one for each batch entry") from None


def as_texts(entries: Any, name: str) -> Labels:
    """The same, as people read them: what a tokenizer writes for spaces and bytes is undone."""
    return tuple(readable(entry) for entry in as_labels(entries, name))


def _entry(mask: Mask, batch: int, head: int | None, site: Site) -> Mask:
    """The mask as one entry sees it; itself where all entries see the same."""
    allowed = mask.allowed(site.queries, site.keys)
    parts = [part for part in (allowed.spans, allowed.dense) if part is not None]
    same = all(pick(part, batch, head).shape == part.shape for part in parts)
    return mask if same else Entry(mask, batch, head)
