"""Health: what one pass tells about every row of an attention.

Three numbers are measured a row, in the pass that makes the output: the largest logit, the
logsumexp and the entropy. The number of keys the row may attend to comes from the mask. All else
follows:

    max_prob       = exp(max_logit − logsumexp)     the largest weight, p
    gradient       = p·(1 − p)                      the softmax's slope at that weight
    spread         = entropy / ln(keys)             1 = even over all keys, 0 = one key has it all;
                                                    a sink is one outcome more: ln(keys + 1)
    effective_keys = exp(entropy)                   how many evenly used keys would be as spread

A row is *saturated* where p ≥ 0.95, *peaked* where p ≥ 0.80, else *healthy*. Rows with fewer than
two keys have nothing to choose from, and rows that are not a number cannot be judged: both have no
verdict. The slope alone would mislead: it is small, too, where a row is spread over many keys.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, fields
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import as_numpy, is_torch, jsonable, namespace
from limelight.call import Call
from limelight.records import lean
from limelight.reference import State
from limelight.writing.frames import Frame, Tabular
from limelight.writing.numbers import counted, formatted
from limelight.writing.tables import columns

SATURATED, PEAKED = 0.95, 0.80
_FIGURES = ("max_logit", "logsumexp", "entropy", "keys")


@lean
@dataclass(frozen=True, eq=False)
class Health:
    """Each field is [..., Hq, Nq]; the derived figures have the same shape.

    >>> import limelight as ll
    >>> ll.inspect([[2, 1]], [[2, 1], [1, 0], [0, -1]], [[10, 0], [0, 8], [1, 1]]).health
    Health of 1 row, 1 head
    head  rows  max logit  max p  gradient  entropy  spread  keys used  peaked  saturated  verdict
       0     1       3.54  0.882     0.104    0.404   0.368       1.50   100 %        0 %  peaked
    """

    max_logit: Any
    logsumexp: Any
    entropy: Any
    keys: Any
    outcomes: Any = None  # what the entropy is over: the keys and, where there is one, the sink

    @classmethod
    def of(cls, call: Call, state: State) -> Health:
        """From an engine's state, in the caller's shapes."""
        if is_torch(call.query) and call.sinks is call.bias is call.allowed.dense is None:
            return cls.later(call, state)
        keys = call.row_keys()
        measured = [state.max_logit, state.logsumexp, state.entropy, keys]
        if call.sinks is not None:
            measured.append(count_outcomes(keys, call.sinks))
        return cls(*(call.restore(figure) for figure in measured))

    @classmethod
    def later(cls, call: Call, state: State) -> Health:
        """The same, of tensors and a mask that is a rule: each figure when it is asked for."""
        health = object.__new__(cls)
        health.__dict__["_of"] = call, state
        return health

    def __getattr__(self, name: str) -> Any:
        """A figure that is first asked for now: on a GPU each takes time, keys a launch."""
        own = self.__dict__
        if "_of" not in own or name not in _FIGURES:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        call, state = own["_of"]
        own[name] = found = call.restore(
            call.row_keys() if name == "keys" else getattr(state, name)
        )
        if all(each in own for each in _FIGURES):
            del own["_of"]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def max_prob(self) -> Any:
        """The row's largest weight; 0 where there is no key."""
        xp = namespace(self.entropy)
        with np.errstate(invalid="ignore") if xp is np else nullcontext():
            shift = self.max_logit - (self.logsumexp if xp is np else self.logsumexp.detach())
            return xp.where(self.keys > 0, xp.exp(shift), 0.0)

    @property
    def gradient(self) -> Any:
        """p·(1 − p): how much the top weight still moves with its own logit."""
        p = self.max_prob
        return p * (1.0 - p)

    @property
    def spread(self) -> Any:
        """entropy / ln(outcomes), from 0 to 1; 1 where there is one key alone, 0 where none."""
        xp = namespace(self.entropy)
        outcomes = self.keys if self.outcomes is None else self.outcomes
        several = outcomes > 1
        counts = xp.where(several, outcomes, 2) + xp.zeros_like(self.entropy)
        ratio = self.entropy / xp.log(counts)
        return xp.where(several, ratio.clip(max=1.0), (self.keys == 1) * 1.0)

    @property
    def effective_keys(self) -> Any:
        return namespace(self.entropy).exp(self.entropy)

    @property
    def saturated(self) -> Any:
        """Rows whose largest weight is at least 0.95, of those that can be judged."""
        return self.judged & (self.max_prob >= SATURATED)

    @property
    def peaked(self) -> Any:
        """Rows whose largest weight is from 0.80 up to 0.95, of those that can be judged."""
        p = self.max_prob
        return self.judged & (p >= PEAKED) & (p < SATURATED)

    @property
    def judged(self) -> Any:
        """Rows that have a verdict: at least two keys, and numbers to judge by."""
        return (self.keys >= 2) & ~namespace(self.entropy).isnan(self.max_prob)

    @property
    def verdict(self) -> NDArray[np.str_]:
        """'saturated', 'peaked' or 'healthy' for each row; '' where there is none."""
        seen = self.numpy()
        words = np.where(seen.peaked, "peaked", "healthy")
        return np.where(seen.judged, np.where(seen.saturated, "saturated", words), "")

    def numpy(self) -> Health:
        """The same as NumPy arrays."""
        return Health(*(as_numpy(getattr(self, field.name)) for field in fields(self)))

    def summary(self) -> Summary:
        """One line a head, over batch and rows."""
        return Summary.of(self)

    def to_dict(self) -> dict[str, Any]:
        """Every figure of every row as plain lists, JSON-safe: what is not finite becomes None."""
        seen = self.numpy()
        names = ("max_logit", "logsumexp", "entropy", "keys", "max_prob", "gradient", "spread",
                 "effective_keys", "verdict")  # fmt: skip
        return {name: jsonable(getattr(seen, name)) for name in names}

    def __repr__(self) -> str:
        if is_torch(self.entropy) and self.entropy.is_meta:
            return f"Health of rows {tuple(self.entropy.shape)} on meta: shapes, and no numbers"
        return repr(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


@dataclass(frozen=True, eq=False)
class Summary(Tabular):
    """The health of each head: means over its judged rows, the largest logit over all its rows.

    Every field is an array [Hq].
    """

    rows: NDArray[np.int64]  # rows that see a key: what is padding, or empty, is none
    judged: NDArray[np.int64]  # rows that have a verdict
    not_a_number: NDArray[np.int64]
    max_logit: NDArray[np.float64]  # the largest
    max_prob: NDArray[np.float64]  # means from here on
    gradient: NDArray[np.float64]
    entropy: NDArray[np.float64]
    spread: NDArray[np.float64]
    effective_keys: NDArray[np.float64]
    peaked: NDArray[np.float64]  # shares of the judged rows
    saturated: NDArray[np.float64]

    @classmethod
    def of(cls, health: Health) -> Summary:
        health = health.numpy()
        judged = _by_head(health.judged)

        def mean(figure: Any) -> NDArray[np.float64]:
            total = np.where(judged, _by_head(figure).astype(np.float64), 0.0).sum(axis=1)
            rows = judged.sum(axis=1)
            return np.where(rows > 0, total / np.maximum(rows, 1), np.nan)

        with np.errstate(invalid="ignore"):
            max_logit = _by_head(health.max_logit).astype(np.float64)
        return cls(
            rows=(_by_head(health.keys) > 0).sum(axis=1),
            judged=judged.sum(axis=1),
            not_a_number=np.isnan(_by_head(health.max_prob)).sum(axis=1),
            max_logit=max_logit.max(axis=1, initial=-np.inf),
            **{name: mean(getattr(health, name)) for name in MEANS},
        )

    @property
    def verdict(self) -> NDArray[np.str_]:
        """A head's verdict is that of its mean largest weight; '' where no row has one."""
        words = np.where(self.max_prob >= PEAKED, "peaked", "healthy")
        words = np.where(self.max_prob >= SATURATED, "saturated", words)
        return np.where(self.judged > 0, words, "")

    def frame(self) -> Frame:
        """Every figure and the verdict, by head."""
        figures = {field.name: getattr(self, field.name) for field in fields(self)}
        return Frame({"head": range(len(self.rows))}, {**figures, "verdict": self.verdict})

    def to_dict(self) -> list[dict[str, Any]]:
        """One record a head; a figure that no row gives is None."""
        return [
            {"head": head, "verdict": str(self.verdict[head]),
             **{field.name: _plain(getattr(self, field.name)[head]) for field in fields(self)}}
            for head in range(len(self.rows))
        ]  # fmt: skip

    def __repr__(self) -> str:
        rows, heads = int(self.rows.max(initial=0)), len(self.rows)
        each = " a head" if heads > 1 else ""
        title = f"Health of {counted(rows, 'row')}{each}, {counted(heads, 'head')}"
        verdict = len(HEADINGS) - 1
        return "\n".join([title, *columns([HEADINGS, *self._cells()], left=[verdict])])

    def _repr_html_(self) -> str:
        def cells(row: tuple[str, ...], tag: str) -> str:
            return "".join(
                f"<{tag} style='text-align:right'>{escape(cell)}</{tag}>" for cell in row
            )

        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in self._cells())
        return (
            f"<table><thead><tr>{cells(HEADINGS, 'th')}</tr></thead><tbody>{body}</tbody></table>"
        )

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (str(head), f"{self.rows[head]:,}", _number(self.max_logit[head], ".2f"),
             written(self.max_prob[head], 3),
             *(_number(getattr(self, name)[head], ".3f")
               for name in ("gradient", "entropy", "spread")),
             _number(self.effective_keys[head], ",.2f"),
             *(_number(getattr(self, name)[head], ".0%") for name in ("peaked", "saturated")),
             self._words(head))
            for head in range(len(self.rows))
        ]  # fmt: skip

    def _words(self, head: int) -> str:
        """The verdict, and how many rows it leaves out because they are not a number."""
        verdict, strange = str(self.verdict[head]), int(self.not_a_number[head])
        if verdict and strange:
            return f"{verdict}, {strange:,} not a number"
        return verdict or ("not a number" if strange else "–")


MEANS = ("max_prob", "gradient", "entropy", "spread", "effective_keys", "peaked", "saturated")
HEADINGS = ("head", "rows", "max logit", "max p", "gradient", "entropy", "spread", "keys used",
            "peaked", "saturated", "verdict")  # fmt: skip


def written(max_prob: float, digits: int = 2) -> str:
    """A largest weight as text, with as many more digits as keep it on its side of the bounds.

    >>> written(0.9521), written(0.9479), written(0.79996)
    ('0.95', '0.948', '0.79996')
    """
    text = _number(max_prob, f".{digits}f")
    crossed = any((max_prob >= bound) != (float(text) >= bound) for bound in (SATURATED, PEAKED)
                  if np.isfinite(max_prob))  # fmt: skip
    return written(max_prob, digits + 1) if crossed and digits < 6 else text


def count_outcomes(keys: Any, sinks: Any) -> Any:
    """How many outcomes each row has, [B, Hq, Nq]: a sink [Hq] is one more, unless it is −inf."""
    return keys + (sinks != -np.inf)[:, None]


def _by_head(array: NDArray[Any]) -> NDArray[Any]:
    """[..., Hq, Nq] to [Hq, rows]; a lone head may come as [Nq]."""
    array = array[None] if array.ndim == 1 else array
    heads = array.shape[-2]
    return np.moveaxis(array, -2, 0).reshape(heads, array.size // max(1, heads))


def _plain(value: Any) -> Any:
    number = value.item()
    return None if isinstance(number, float) and not np.isfinite(number) else number


def _number(value: Any, how: str) -> str:
    return "–" if np.isnan(value) else formatted(value, how)
