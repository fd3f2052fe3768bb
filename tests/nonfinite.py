"""The table of calls with numbers that are not finite, or nearly so: the same for every engine.

The rule (docs/health.md): what the mask hides gives 0; a logit that is not a number, or a row whose
sum cannot be formed in the type that an engine sums in, is not a number and is counted; an answer
that is finite is the right one. So an engine is held to two things, row by row:

    where it gives a finite number, the float64 reference gives the same
    where the formula computed plainly in its type gives a finite number, it gives one
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import limelight as ll
from limelight import reference
from limelight.call import Call, prepare
from limelight.health import Health
from limelight.reference import State
from tests.cases import eps
from tests.engines.plain import plainly

INF, NAN = np.inf, np.nan
HEADS, SIZE, KEYS = 2, 16, 37
SIZES = {"one row": 1, "few rows": 7, "a block": 45}


@dataclass(frozen=True)
class Odd:
    """One call: what is written into random arrays, and the options."""

    name: str
    write: Callable[[Any, Any, Any, dict[str, Any]], None]
    mask: Any = None
    softcap: float | None = None
    overflows: bool = False  # sums that a type may not hold, though it holds what they come to

    def call(self, rows: int, dtype: Any) -> Call:
        draw = np.random.default_rng(5)
        query, key, value = (
            draw.normal(size=(1, HEADS, n, SIZE)).astype(dtype) for n in (rows, KEYS, KEYS)
        )
        options: dict[str, Any] = {"mask": self.mask, "softcap": self.softcap}
        with np.errstate(over="ignore"):
            self.write(query, key, value, options)
        return prepare(query, key, value, **options)

    def __str__(self) -> str:
        return self.name


def _cell(part: int, number: float, row: Any = -1, column: Any = 3) -> Any:
    """A number in one row of the query (0), the key (1) or the value (2)."""

    def write(*arrays: Any) -> None:
        arrays[part][:, :, row, column] = number

    return write


def _all(part: int, number: float) -> Any:
    def write(*arrays: Any) -> None:
        arrays[part][..., :] = number

    return write


def _opposed(size: float) -> Any:
    """Finite numbers whose dot products are beyond float32, of either sign."""

    def write(query: Any, key: Any, *_: Any) -> None:
        query[..., 0], key[..., 0] = size, size
        key[:, :, 1::2, 0] = -size

    return write


def _one_sign(size: float) -> Any:
    def write(query: Any, key: Any, *_: Any) -> None:
        query[..., 0], key[..., 0] = abs(size), size

    return write


def _bias(number: float, rows: Any, columns: Any) -> Any:
    def write(query: Any, key: Any, value: Any, options: dict[str, Any]) -> None:
        options["bias"] = np.zeros((query.shape[2], KEYS), query.dtype)
        options["bias"][rows, columns] = number

    return write


def _beside_sinks(write: Callable[..., None], *numbers: float) -> Any:
    def both(query: Any, key: Any, value: Any, options: dict[str, Any]) -> None:
        write(query, key, value, options)
        options["sinks"] = np.array(numbers, query.dtype)

    return both


def _opposite(query: Any, key: Any, *_: Any) -> None:
    """Every logit is −inf, though no mask says so."""
    query[...], key[...] = np.abs(query) + 1, -INF


def _opposite_and(number: float) -> Any:
    def write(query: Any, key: Any, value: Any, options: dict[str, Any]) -> None:
        _opposite(query, key)
        value[..., -1, 3] = number

    return write


def _sinks(*numbers: float) -> Any:
    def write(query: Any, key: Any, value: Any, options: dict[str, Any]) -> None:
        options["sinks"] = np.array(numbers, query.dtype)

    return write


HIDES_LAST = ll.Lengths(KEYS - 1)
TABLE = [
    *(Odd(f"{number} in a {name}", _cell(part, number))
      for part, name in enumerate(("query", "key", "value")) for number in (INF, -INF, NAN)),
    *(Odd(f"{number} in a hidden {name}", _cell(part, number), mask=HIDES_LAST)
      for part, name in ((1, "key"), (2, "value")) for number in (INF, -INF, NAN)),
    *(Odd(f"{number} in every query", _cell(0, number, slice(None))) for number in (INF, -INF, NAN)),
    *(Odd(f"{number} in every key", _cell(1, number, slice(None))) for number in (INF, -INF, NAN)),
    *(Odd(f"{number} in one softcapped {name}", _cell(part, number), softcap=3.0)
      for part, name in enumerate(("query", "key")) for number in (INF, -INF, NAN)),
    *(Odd(f"products of {size:g}", _opposed(size)) for size in (1e15, 1e19, 2e19, 1e25, 1e30)),
    *(Odd(f"capped products of {size:g}", _opposed(size), softcap=5.0) for size in (1e15, 1e30)),
    *(Odd(f"causal products of {size:g}", _opposed(size), mask=ll.Causal()) for size in (1e15, 1e30)),
    *(Odd(f"products of {size:g}, all of one sign", _one_sign(size)) for size in (1e15, 1e30, -1e30)),
    Odd("one large key", _cell(1, 1e30)),
    Odd("one large query", _cell(0, -1e30)),
    Odd("all the same large product", _all(0, 1e18)),
    Odd("values of 1e+30", _all(2, 1e30)),
    Odd("values of 3e+38", _all(2, 3e38), overflows=True),
    *(Odd(f"{number} in a bias", _bias(number, -1, 5)) for number in (INF, NAN, -INF, 1e30, -1e30)),
    *(Odd(f"{number} in a row of the bias", _bias(number, -1, slice(None)))
      for number in (INF, NAN, -INF, 1e30, -1e30, -3e38)),
    *(Odd(f"{number} as a hidden bias", _bias(number, slice(None), -1), mask=HIDES_LAST)
      for number in (INF, NAN)),
    *(Odd(f"sinks {a:g} and {b:g}", _sinks(a, b))
      for a, b in ((INF, 0.0), (NAN, 0.0), (-INF, -INF), (1e4, -1e4), (1e30, -1e30), (3e38, -3e38))),
    *(Odd(f"{number} in a value beside sinks that take all", _beside_sinks(_cell(2, number), 1e4, 2e4))
      for number in (INF, NAN)),
    Odd("logits of −inf", _opposite),
    Odd("logits of −inf and sinks", _beside_sinks(_opposite, 1.0, -2.0)),
    Odd("logits of −inf and sinks that are no number", _beside_sinks(_opposite, INF, NAN)),
    *(Odd(f"logits of −inf, sinks and {number} in a value", _beside_sinks(_opposite_and(number), 1.0, -2.0))
      for number in (INF, NAN)),
    *(Odd(f"logits of −inf, sinks and {number} in a hidden value",
          _beside_sinks(_opposite_and(number), 1.0, -2.0), mask=HIDES_LAST) for number in (INF, NAN)),
    Odd("sinks and no key", _sinks(2.0, -3.0), mask=ll.Lengths(0)),
    Odd("an infinite sink and no key", _sinks(INF, 0.0), mask=ll.Lengths(0)),
    Odd("a sink that is not a number and no key", _sinks(NAN, 0.0), mask=ll.Lengths(0)),
]  # fmt: skip
FIGURES = ("output", "logsumexp", "max_logit", "entropy")


@np.errstate(invalid="ignore")
def judge(odd: Odd, call: Call, state: State, wide: Any) -> None:
    """An engine's answer against the two demands; `wide` is the type that it sums in."""
    narrow = call.query.dtype
    exact = reference.forward(call)
    plain, _ = plainly(call, np.zeros((*call.query.shape[:3], call.value_size), wide), wide)
    for name in FIGURES:
        got, want, rough = (np.asarray(getattr(x, name), np.float64) for x in (state, exact, plain))
        finite, likewise = np.isfinite(got), np.isfinite(want)
        # −inf is an answer too: the logsumexp and the largest logit of a row without keys.
        # And of logits beyond the type, −inf may be the largest, in a row that is not a number.
        empty = (got == -np.inf) & (name in ("logsumexp", "max_logit"))
        empty &= True if name == "output" else ~np.isnan(np.asarray(state.logsumexp, np.float64))
        assert (want[empty] == -np.inf).all(), f"{name}: −inf, and the truth is {want[empty]}"
        wrong = finite & ~likewise
        assert not wrong.any(), f"{name}: {got[wrong]} where the truth is {want[wrong]}"
        both = finite & likewise
        size = np.abs(want[both]) + 1.0
        allowed = np.where(np.isfinite(rough[both]), 4 * np.abs(rough[both] - want[both]), 0.0)
        error = np.abs(got[both] - want[both])
        rounding = max(eps(wide), eps(narrow) if name == "output" else 0.0)
        bound = allowed + 64 * rounding * size
        far = error > bound
        assert not far.any(), f"{name}: {got[both][far]} where the truth is {want[both][far]}"
        if name == "output":  # rounded to the call's type, which may not hold it
            with np.errstate(over="ignore"):
                likewise &= np.isfinite(want.astype(narrow).astype(np.float64))
        sound = np.abs(rough - want) <= 0.01 * (1 + np.abs(want))  # plainly, and rightly
        if name == "output":
            sound = sound.all(axis=-1, keepdims=True)
        lost = np.isfinite(rough) & likewise & ~finite & sound & (not odd.overflows)
        assert not lost.any(), f"{name}: {got[lost]} where plainly {rough[lost]} comes"
    counted = Health.of(call, state).summary().not_a_number
    rows = np.isnan(np.asarray(state.logsumexp, np.float64)).sum(axis=(0, 2))
    seen = np.asarray(Health.of(call, state).keys) > 0
    if seen.all():
        assert (counted >= rows).all(), f"{counted} rows counted, and {rows} are not a number"
