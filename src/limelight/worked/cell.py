"""Cell: one weight of an attention matrix, with every number that goes into it.

One query, one key, their products, the score, the scaling, the exponential, the row's sum, the
weight, and what that weight takes from the value. A cell of a matrix of any size costs one row of
scores, or a single dot product where the row's statistics are at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight import reference
from limelight.arrays import index, jsonable
from limelight.call import Call
from limelight.masks.allowed import Allowed
from limelight.writing.numbers import number, operand, scale_name, vector

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cell:
    """How query `row` came to give key `column` its weight, in float64.

    exponential = e^(logit − row_max) and row_sum = Σ of them over the row (its sink included);
    subtracting the row's maximum changes no weight and keeps every number in range.
    """

    row: int
    column: int
    head: int
    batch: int
    query_token: str
    key_token: str
    query: Vector
    key: Vector
    products: Vector
    raw: float
    scale: float
    scaled: float
    softcap: float | None
    capped: float
    bias: float | None
    biased: float
    allowed: bool
    logit: float
    row_max: float
    exponential: float
    row_sum: float
    weight: float
    value: Vector | None
    contribution: Vector | None
    heads: int = 1  # how many there are, of which `head` is one
    entries: int = 1  # of the batch

    def to_dict(self) -> dict[str, Any]:
        """Every number under its name; JSON-safe (what is not finite becomes None)."""
        return {
            name: jsonable(item) if isinstance(item, (float, np.ndarray)) else item
            for name, item in vars(self).items()
            if name not in ("heads", "entries")  # the call's, not the cell's
        }

    def __repr__(self) -> str:
        return "\n".join([self.title, *(f"  {name:<10} {text}" for name, text in self.lines())])

    @property
    def title(self) -> str:
        where = f"batch {self.batch} of {self.entries}, " if self.entries > 1 else ""
        where += f"head {self.head} of {self.heads}, " if self.heads > 1 else ""
        names = (
            _named("query", self.row, self.query_token),
            _named("key", self.column, self.key_token),
        )
        return f"{where}{names[0]} looks at {names[1]}"

    @property
    def only_weight(self) -> bool:
        """Whether the weight is all that is known: nothing is compared, the bias says it all."""
        return self.bias is not None and not self.query.any() and not self.key.any()

    def lines(self) -> list[tuple[str, str]]:
        """The calculation as (step, arithmetic) pairs, in order."""
        if self.only_weight:
            given = "as it was given: no queries and keys were kept with the weights"
            return [("weight", f"{number(self.weight)}, {given}"), *self._mix()]
        terms = " + ".join(
            f"{operand(q)}·{operand(k)}" for q, k in zip(self.query[:6], self.key[:6], strict=True)
        )
        more = f" + … {len(self.query) - 6} more" if len(self.query) > 6 else ""
        lines = [
            ("query", vector(self.query)),
            ("key", vector(self.key)),
            ("products", vector(self.products)),
            ("compare", f"{terms}{more} = {number(self.raw)}"),
            ("scale", f"{number(self.raw)} × {scale_name(self.scale, len(self.key))} = "
                      f"{number(self.scaled)}"),
        ]  # fmt: skip
        if self.softcap is not None:
            cap = number(self.softcap)
            lines.append(
                ("cap", f"{cap} · tanh({number(self.scaled)} / {cap}) = {number(self.capped)}")
            )
        if self.bias is not None:
            lines.append(
                ("bias", f"{number(self.capped)} + {operand(self.bias)} = {number(self.biased)}")
            )
        if not self.allowed:
            lines.append(
                ("mask", "hidden: this query may not look at this key, so its weight is 0")
            )
        else:
            lines.append(
                (
                    "normalise",
                    f"e^({number(self.logit)} − {operand(self.row_max)}) = "
                    f"{number(self.exponential)}, with the row's largest logit "
                    f"taken off",
                )
            )
            lines.append(
                (
                    "",
                    f"{number(self.exponential)} / {number(self.row_sum)} = "
                    f"{number(self.weight)}, divided by the row's sum",
                )
            )
        return [*lines, *self._mix()]

    def _mix(self) -> list[tuple[str, str]]:
        if self.value is None or self.contribution is None:
            return []
        taken = f"{number(self.weight)} × {vector(self.value)} = {vector(self.contribution)}"
        return [("mix", taken)]

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr style='text-align:left;font-variant-numeric:tabular-nums'>"
            f"<th>{escape(name)}</th><td>{escape(text)}</td></tr>"
            for name, text in self.lines()
        )
        return f"<p><b>{escape(self.title)}</b></p><table>{rows}</table>"


def cell(
    call: Call,
    row: int,
    column: int,
    *,
    head: int = 0,
    batch: int = 0,
    max_logit: float | None = None,
    logsumexp: float | None = None,
    query_token: str = "",
    key_token: str = "",
) -> Cell:
    """One cell of a call of any length. With the row's max_logit and logsumexp it costs O(D)."""
    sizes = (call.queries, call.keys, call.query_heads, call.batch)
    row, column, head, batch = (
        index(i, size, name)
        for i, size, name in zip((row, column, head, batch), sizes,
                                 ("query", "key", "head", "batch entry"), strict=True)
    )  # fmt: skip
    call = call.numpy()
    at_hand = max_logit is not None and logsumexp is not None
    keys = np.array([column]) if at_hand else np.arange(call.keys)
    here = 0 if at_hand else column
    steps = reference.steps(_one_row(call, row, keys, head, batch))
    flat = {
        name: getattr(steps, name)[0, 0, 0]
        for name in ("raw", "scaled", "capped", "biased", "allowed", "logits", "weights")
    }
    if at_hand:
        row_max, total = float(max_logit), float(logsumexp)  # type: ignore[arg-type]
    else:
        row_max, total = float(steps.max_logit[0, 0, 0]), float(steps.logsumexp[0, 0, 0])
    logit, allowed = float(flat["logits"][here]), bool(flat["allowed"][here])
    query = np.asarray(call.query[batch, head, row], np.float64)
    key_head = head // call.group
    key = np.asarray(call.key[batch, key_head, column], np.float64)
    value = None
    if call.value_size:
        value = np.asarray(call.value[batch, key_head, column], np.float64)
    with np.errstate(all="ignore"):
        weight = float(np.exp(logit - total)) if allowed else 0.0
        contribution = (
            None if value is None else weight * value if allowed else np.zeros_like(value)
        )
        return Cell(
            row=row, column=column, head=head, batch=batch,
            query_token=query_token, key_token=key_token,
            query=query, key=key, products=query * key,
            raw=float(flat["raw"][here]), scale=call.scale, scaled=float(flat["scaled"][here]),
            softcap=call.softcap, capped=float(flat["capped"][here]),
            bias=None if call.bias is None else float(flat["biased"][here] - flat["capped"][here]),
            biased=float(flat["biased"][here]), allowed=allowed, logit=logit, row_max=row_max,
            exponential=float(np.exp(logit - row_max)) if allowed else 0.0,
            row_sum=0.0 if row_max == -np.inf else float(np.exp(total - row_max)),
            weight=weight, value=value, contribution=contribution,
            heads=call.query_heads, entries=call.batch,
        )  # fmt: skip


def _one_row(call: Call, row: int, keys: NDArray[np.intp], head: int, batch: int) -> Call:
    """The call cut down to one query of one head and some of its keys."""
    one = call.one_head(head, batch).some_rows(row, row + 1)
    tile = one.allowed.tile(np.array([0]), keys)
    return replace(
        one,
        key=one.key[:, :, keys],
        value=one.value[:, :, keys, :0],
        allowed=Allowed(1, len(keys), dense=tile),
        bias=one.bias if one.bias is None or one.bias.shape[3] == 1 else one.bias[..., keys],
    )


def _named(what: str, index: int, token: str) -> str:
    return f"{what} {index} {token!r}" if token else f"{what} {index}"
