"""A trace as people read it: the flow of the calculation as text, and its tables as HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import index
from limelight.writing.numbers import counted, fixed, number, scale_name, vector
from limelight.writing.tables import lit

if TYPE_CHECKING:
    from limelight.worked.trace import Trace

MOST_HTML = 16  # rows and columns that a notebook shows
MOST_MIXED = 4  # numbers of what a key gives


def text(
    trace: Trace, head: int, batch: int, rows: int, columns: int, width: int | None = None
) -> str:
    """Row by row: each key's score, logit, weight and what it gives, then the output."""
    call = trace.call
    if not call.batch or not call.query_heads or not call.queries:
        return f"Trace of an empty attention, output {tuple(trace.output.shape)}"
    head = index(head, call.query_heads, "head")
    batch = index(batch, call.batch, "batch entry")
    blocks = [_row(trace, (batch, head, i), columns, width) for i in range(call.queries)[:rows]]
    if call.query_heads > 1 or call.batch > 1:
        blocks.insert(0, f"batch {batch} of {call.batch}, head {head} of {call.query_heads}")
    if call.queries > rows:
        blocks.append(f"… and {counted(call.queries - rows, 'more query')}")
    return "\n\n".join(blocks)


def _row(trace: Trace, at: tuple[int, int, int], columns: int, width: int | None) -> str:
    call, i = trace.call, at[2]
    extras = [name for name, on in (("cap", call.softcap), ("bias", call.bias)) if on is not None]
    how = " + ".join([f"scale by {scale_name(call.scale, call.head_size)}", *extras])
    heads = [("", "compare", how, "softmax", "mix"),
             ("", "query·key", "→ logit", "→ weight", "weight × value")]  # fmt: skip
    keys = [(key, *map(_pointed, cells), gives) for key, *cells, gives in
            _key_lines(trace, at, columns)]  # fmt: skip
    widths = [max(len(line[n]) for line in [*heads, *keys]) for n in range(4)]
    first = f"{name(trace, 'query', i)} = {vector(np.asarray(call.query, np.float64)[at])}"
    lines = [*_set(heads, widths, str.ljust), *_set(keys, widths, str.rjust)]
    output = "no values were given"
    if call.value_size:
        output = f"output = {vector(trace.steps.output[at])}"
    last = f"╰─▶ {output}", _verdict(trace, at)
    if width is None or max(map(len, [first, *lines, "   ".join(last)])) <= width:
        return "\n".join([first, *lines, "   ".join(last).rstrip()])
    narrow = [f"{line}\n│  {gives}" if gives else line for line, (*_, gives)
              in zip(_set(keys, widths, str.rjust, 4), keys, strict=True)]  # fmt: skip
    return "\n".join([first, *_set(heads, widths, str.ljust, 4), "│  mix: weight × value", *narrow,
                      *filter(None, (last[0], f"    {last[1]}".rstrip()))])  # fmt: skip


def _set(
    table: Sequence[tuple[str, ...]], widths: list[int], side: Callable[[str, int], str],
    stop: int = 5,
) -> list[str]:  # fmt: skip
    """Lines of a table, the key to the left, the last column as it is, the others to a side."""
    return [
        "  ".join(
            [line[0].ljust(widths[0]), *map(side, line[1:4], widths[1:]), *line[4:stop]]
        ).rstrip()
        for line in table
    ]


def _key_lines(
    trace: Trace, at: tuple[int, int, int], columns: int
) -> list[tuple[str, str, str, str, str]]:
    call, done = trace.call, trace.steps
    value = np.asarray(call.value, np.float64)[at[0], at[1] // call.group]
    lines = []
    for j in range(min(columns, call.keys)):
        raw = number(done.raw[at][j])
        if done.allowed[at][j]:
            weight = done.weights[at][j]
            given = vector(weight * value[j], MOST_MIXED) if call.value_size else "–"
            cells = number(done.logits[at][j]), number(weight), given
        else:
            cells = "hidden", "0", "–"
        lines.append((f"├─ {name(trace, 'key', j)}", raw, *cells))
    if call.keys > columns:
        lines.append((f"├─ … {counted(call.keys - columns, 'more key')}", "", "", "", ""))
    if call.sinks is not None:
        share = number(done.sink[at])
        lines.append(("├─ sink", "", number(float(call.sinks[at[1]])), share, "gives no value"))
    return lines or [("├─ no keys", "", "", "", "")]


def _verdict(trace: Trace, at: tuple[int, int, int]) -> str:
    """The row's verdict and its reason, in a few words."""
    weights = trace.steps.weights[at]
    if not trace.steps.allowed[at].any():
        return "no key to look at, so the output is 0"
    if np.isnan(weights).any():
        return f"not a number: {not_a_number(trace, at)}"
    best = leaders(weights)
    verdict = trace.health.verdict.reshape(trace.steps.max_logit.shape)[at]
    names = listed([name(trace, "key", j) for j in best])
    part = f"{100 * weights[best[0]]:.0f} % of the weight"
    share = f"{names} has {part}" if len(best) == 1 else f"{names} have {part} each"
    return f"{verdict}: {share}" if verdict else share


def leaders(weights: NDArray[np.float64]) -> list[int]:
    """The keys with the largest weight: several where they tie to rounding."""
    return [int(j) for j in np.flatnonzero(np.isclose(weights, weights.max(), 1e-12, 0.0))]


def listed(names: list[str]) -> str:
    """'a', 'a and b', 'a, b and c'; of more only how many, as keys.

    >>> listed(["key 0", "key 2", "key 5"]), listed(["key"] * 9)
    ('key 0, key 2 and key 5', '9 keys')
    """
    if len(names) > 3:
        return f"{len(names)} keys"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def not_a_number(trace: Trace, at: tuple[int, int, int]) -> str:
    """Why a row's weights are not numbers: what it reads, or what that grew to."""
    call, (batch, head, _) = trace.call, at
    seen = trace.steps.allowed[at]
    vectors = np.asarray(call.query)[at], np.asarray(call.key)[batch, head // call.group][seen]
    finite = all(np.isfinite(vector).all() for vector in vectors)
    if finite and not np.isfinite(trace.steps.scaled[at][seen]).all():
        return "finite inputs gave a score too large for 64 bits"
    return "an input that this row sees is not finite"


def name(trace: Trace, what: str, at: int) -> str:
    """'query 2', or with tokens "query 2 'cat'"."""
    if trace.tokens is None:
        return f"{what} {at}"
    return f"{what} {at} {trace.tokens[0 if what == 'query' else 1][at]!r}"


def _pointed(cell: str) -> str:
    """Whole numbers stand where the others have theirs: before the decimal point."""
    return f"{cell}       " if cell and "." not in cell else cell


def html(trace: Trace) -> str:
    """Scores, logits, weights, mix and output of the first head side by side, the weights lit."""
    call = trace.call
    if not call.batch or not call.query_heads:
        return f"<pre>{escape(repr(trace))}</pre>"
    tables = {title: _keys(trace, step)
              for title, step in (("scores", "raw"), ("logits", "logits"), ("weights", "weights"))
              }  # fmt: skip
    if call.value_size and call.keys * min(call.value_size, MOST_MIXED) <= MOST_HTML:
        tables["mix: weight × value"] = _keys(trace, "mix")
    if call.value_size:
        tables["output"] = _output(trace)
    figures = "".join(
        f"<figure style='margin:0'><figcaption>{title}</figcaption>{table}</figure>"
        for title, table in tables.items()
    )
    return f"<div style='display:flex;flex-wrap:wrap;gap:1.5em'>{figures}</div>"


def _keys(trace: Trace, step: str) -> str:
    """A step's number for each query and key, or what the key gives."""
    call, done = trace.call, trace.steps
    weights, allowed = done.weights[0, 0], done.allowed[0, 0]

    def cell(i: int, j: int) -> str:
        light = weights[i, j] if step == "weights" and weights[i, j] > 0 else 0.0
        if not allowed[i, j] and step != "raw":
            words = "·"
        elif step == "mix":
            given = weights[i, j] * np.asarray(call.value, np.float64)[0, 0, j]
            words = vector(given, MOST_MIXED)
        else:
            words = fixed(getattr(done, step)[0, 0, i, j], 4)
        return lit(words, light)

    columns = [_label(trace, "key", j) for j in range(min(call.keys, MOST_HTML))]
    cut = call.queries > MOST_HTML or call.keys > MOST_HTML
    note = f"<p>the first {MOST_HTML} of {call.queries} × {call.keys}</p>" if cut else ""
    return _table(trace, columns, cell) + note


def _output(trace: Trace) -> str:
    """What each query comes to, and its verdict."""
    call, size = trace.call, min(trace.call.value_size, MOST_HTML)

    def cell(i: int, n: int) -> str:
        if n < size:
            return lit(fixed(trace.steps.output[0, 0, i, n], 4), 0.0)
        return f"<td style='text-align:left'>{escape(_verdict(trace, (0, 0, i)))}</td>"

    cut = call.value_size > MOST_HTML
    note = f"<p>the first {MOST_HTML} of {call.value_size} numbers</p>" if cut else ""
    return _table(trace, [*map(str, range(size)), ""], cell) + note


def _table(trace: Trace, columns: list[str], cell: Callable[[int, int], str]) -> str:
    """A line a query."""
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(
        f"<tr><th style='text-align:left'>{_label(trace, 'query', i)}</th>"
        f"{''.join(cell(i, j) for j in range(len(columns)))}</tr>"
        for i in range(min(trace.call.queries, MOST_HTML))
    )
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>"


def _label(trace: Trace, what: str, n: int) -> str:
    tokens = trace.tokens
    return escape(tokens[0 if what == "query" else 1][n] if tokens else f"{what} {n}")
