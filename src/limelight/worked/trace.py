"""Trace: every step of an attention, for sizes that a person reads.

    raw scores → scaled → capped → biased → masked logits → weights → output

All in float64 by the definition. `print(trace)` draws the flow of the calculation, `trace.cell`
opens one weight, `trace.to_dict()` gives every number under its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from limelight import reference
from limelight.arrays import as_array, as_numpy, index, is_integer, jsonable
from limelight.call import Call, prepare
from limelight.engines import choose
from limelight.errors import ArgumentError, ShapeError
from limelight.health import Health
from limelight.offers import offered
from limelight.reference import State, Steps
from limelight.worked import flow
from limelight.worked.cell import Cell, cell
from limelight.writing.numbers import counted

MOST_CELLS = 1 << 24  # about a dozen tables of 128 MiB
Tokens = tuple[tuple[str, ...], tuple[str, ...]]


def trace(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    engine: str = "auto",
    tokens: Sequence[str] | tuple[Sequence[str], Sequence[str]] | None = None,
) -> Trace:
    """Attention with every step kept, by the definition in float64.

    A named `engine` computes the call too: the trace's output and health are then what that engine
    makes of it, beside the steps as they should be.

    `tokens` names the keys, by texts or ids, and the queries too (the last ones, where there are
    fewer); where they differ, give the pair (query tokens, key tokens).

    >>> t = trace([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]])
    >>> t
    query 0 = [2, 1]
              compare    scale by 1/√2  softmax   mix
              query·key  → logit        → weight  weight × value
    ├─ key 0   5              3.535534  0.881645  [8.816454, 0]
    ├─ key 1   2              1.414214  0.105686  [0, 0.845486]
    ├─ key 2  −1             −0.707107  0.012669  [0.012669, 0.012669]
    ╰─▶ output = [8.829123, 0.858154]   peaked: key 0 has 88 % of the weight
    """
    call = prepare(
        query, key, value, mask=mask, bias=bias, scale=scale, softcap=softcap, sinks=sinks
    )
    cells = call.batch * call.query_heads * call.queries * call.keys
    if cells > MOST_CELLS:
        raise ArgumentError(
            f"a trace keeps every step of every cell, and {cells:,} cells are too many to read: "
            f"trace fewer tokens or one head, or use weights(), heatmap() and cell() at this size"
        )
    names = _check_tokens(tokens, call)
    return Trace(call.numpy(), names, None if engine == "auto" else _computed(call, engine))


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """Every table of one attention, in the caller's shapes: [..., Hq, Nq, Nk]."""

    call: Call
    tokens: Tokens | None = None
    computed: State | None = None  # by an engine that was named

    @cached_property
    def steps(self) -> Steps:
        """The tables in canonical form, [B, Hq, Nq, Nk]."""
        return reference.steps(self.call)

    @property
    def query(self) -> Any:
        return self.call.restore(np.asarray(self.call.query, np.float64))

    @property
    def key(self) -> Any:
        return self._restore_keys(self.call.key)

    @property
    def value(self) -> Any:
        return self._restore_keys(self.call.value)

    @property
    def raw(self) -> Any:
        """Q·Kᵀ."""
        return self.call.restore(self.steps.raw)

    @property
    def scaled(self) -> Any:
        """The raw scores times the scale."""
        return self.call.restore(self.steps.scaled)

    @property
    def capped(self) -> Any:
        """After the softcap; the same as scaled where there is none."""
        return self.call.restore(self.steps.capped)

    @property
    def biased(self) -> Any:
        """After the bias; the same as capped where there is none."""
        return self.call.restore(self.steps.biased)

    @property
    def allowed(self) -> Any:
        """Where the query may look at the key."""
        return self.call.restore(self.steps.allowed)

    @property
    def logits(self) -> Any:
        """What goes into the softmax; −inf where hidden."""
        return self.call.restore(self.steps.logits)

    @property
    def weights(self) -> Any:
        return self.call.restore(self.steps.weights)

    @property
    def output(self) -> Any:
        return self.call.restore(self._state.output)

    @property
    def health(self) -> Health:
        return Health.of(self.call, self._state)

    @property
    def _state(self) -> State:
        done = self.steps
        return self.computed or State(done.output, done.logsumexp, done.max_logit, done.entropy)

    def cell(self, row: int, column: int, *, head: int = 0, batch: int = 0) -> Cell:
        """One weight with all that goes into it."""
        row = index(row, self.call.queries, "query")
        column = index(column, self.call.keys, "key")
        names = ("", "")
        if self.tokens is not None:
            names = self.tokens[0][row], self.tokens[1][column]
        return cell(self.call, row, column, head=head, batch=batch,
                    query_token=names[0], key_token=names[1])  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Every step under its name, JSON-safe: what is not finite becomes None."""
        names = ("query", "key", "value", "raw", "scaled", "capped", "biased", "allowed", "logits",
                 "weights", "output")  # fmt: skip
        tokens, sink = None, None
        if self.tokens is not None:
            tokens = {"queries": list(self.tokens[0]), "keys": list(self.tokens[1])}
        if self.call.sinks is not None:
            sink = jsonable(self.call.restore(self.steps.sink))
        return {
            "tokens": tokens, "scale": self.call.scale, "softcap": self.call.softcap,
            **{name: jsonable(getattr(self, name)) for name in names},
            "sink": sink,
            "health": self.health.to_dict(),
        }  # fmt: skip

    def text(
        self, *, head: int = 0, batch: int = 0, rows: int = 8, columns: int = 12,
        width: int | None = None,
    ) -> str:  # fmt: skip
        """The flow of the calculation, row by row, as text.

        Where a line would be longer than `width`, what each key gives stands below it.
        """
        most = {"rows": rows, "columns": columns, "width": 0 if width is None else width}
        for name, number in most.items():
            if not is_integer(number) or number < 0:
                raise ArgumentError(f"{name}={number!r}: give a whole number, from 0 on")
        return flow.text(self, head, batch, rows, columns, width)

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return flow.html(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        if not (self.call.batch and self.call.query_heads):
            return {}
        made: dict[str, Any] = offered("notebook").mimebundle(self)
        return made

    def _restore_keys(self, array: Any) -> Any:
        array = np.asarray(array, np.float64)
        lead = self.call.batch_shape
        if self.call.headless:
            return array.reshape((*lead, *array.shape[2:]))
        return array.reshape((*lead, *array.shape[1:]))


def _computed(call: Call, engine: str) -> State:
    """What an engine makes of the call, as NumPy arrays."""
    chosen = choose(call, engine)
    with np.errstate(all="ignore"):
        done = chosen.module.forward(call if chosen.takes_tensors else call.numpy(), health=True)
    return State(*(as_array(part) for part in vars(done).values()))


def _check_tokens(tokens: Any, call: Call) -> Tokens | None:
    if tokens is None:
        return None
    try:
        given = list(as_numpy(tokens))
        pair = len(given) == 2 and not any(np.ndim(part) == 0 for part in given)  # a text has none
        queries, keys = (tuple(map(str, part)) for part in (given if pair else (given, given)))
    except (TypeError, ValueError):
        raise ShapeError("tokens are not a list of texts, one for each key, nor the pair "
                         "(query tokens, key tokens)") from None  # fmt: skip
    if not pair and call.queries < call.keys:
        queries = keys[len(keys) - call.queries :]
    if len(queries) != call.queries or len(keys) != call.keys:
        raise ShapeError(
            f"{counted(len(keys), 'token')} for {counted(call.keys, 'key')} and {len(queries):,} "
            f"for {counted(call.queries, 'query')}: give one for each key, or the pair "
            f"(query tokens, key tokens)"
        )
    return queries, keys
