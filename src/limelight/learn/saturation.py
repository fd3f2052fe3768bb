"""What d_k does to a softmax, and what dividing by √d_k does about it.

If the entries of a query and a key have mean 0 and variance 1, their dot product over d_k entries
has mean 0 and variance d_k: each of the d_k products adds a variance of 1. So raw scores grow with
√d_k, a softmax over them hands nearly everything to one key, and its derivative

    ∂pᵢ/∂sⱼ = pᵢ·(δᵢⱼ − pⱼ)

goes to zero: hardly any gradient gets through such a row. Scores divided by √d_k have variance 1 at
every size. What leaving that out does to a model that learns is another matter, which
`limelight.learn.experiments.scaling()` holds the answers to.

    draw(d_k)          one query and some keys, and the softmax over their scores
    mean(d_k)          the same figures averaged over many draws
    curve(d_ks)        those averages over a range of sizes, scaled and not
    compare(scores, d_k)   given raw scores, with and without the scaling
    jacobian(weights)  all the derivatives of a softmax

The figures are those of `limelight.health`, by the same code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from limelight import reference
from limelight.arrays import is_integer, jsonable
from limelight.call import as_float, prepare
from limelight.errors import ArgumentError, ShapeError
from limelight.health import Health
from limelight.reference import State, Steps
from limelight.writing.numbers import counted, percent, vector

Array = NDArray[np.float64]

SIZES = (4, 16, 64, 256, 1024)
MOST_NUMBERS = 1 << 22  # drawn at a time: 32 MiB
MOST_DRAWS = 1_000_000
LARGEST_DRAW = 1 << 26  # numbers in one draw: 512 MiB


@dataclass(frozen=True, eq=False)
class Row:
    """One softmax and its figures, each as `limelight.health` defines it."""

    scores: Array
    weights: Array
    max_prob: float
    gradient: float
    entropy: float
    spread: float
    effective_keys: float
    verdict: str

    @property
    def jacobian(self) -> Array:
        """∂weights/∂scores, [keys, keys]."""
        return jacobian(self.weights)

    def to_dict(self) -> dict[str, Any]:
        return {
            name: jsonable(item) if isinstance(item, np.ndarray) else item
            for name, item in vars(self).items()
        }


@dataclass(frozen=True, eq=False)
class Draw:
    """One query and its keys with standard normal entries, and the softmax over their scores.

    The same seed gives the same vectors, scaled or not.

    >>> draw(64, scaled=False).row.verdict, draw(64).row.verdict
    ('saturated', 'healthy')
    """

    d_k: int
    scaled: bool
    seed: int
    query: Array  # [d_k]
    key: Array  # [keys, d_k]
    raw: Array  # [keys]
    row: Row

    def to_dict(self) -> dict[str, Any]:
        return {
            "d_k": self.d_k,
            "keys": len(self.raw),
            "scaled": self.scaled,
            "seed": self.seed,
            "query": jsonable(self.query),
            "key": jsonable(self.key),
            "raw": jsonable(self.raw),
            **self.row.to_dict(),
        }

    def __repr__(self) -> str:
        how = f"divided by √{self.d_k}" if self.scaled else "not scaled"
        row = self.row
        return (
            f"Draw(d_k={self.d_k}, {counted(len(self.raw), 'key')}, {how}: "
            f"max prob {row.max_prob:.4f}, gradient {row.gradient:.4f}, "
            f"spread {row.spread:.3f}, {row.verdict})"
        )


@dataclass(frozen=True)
class Mean:
    """The figures averaged over draws; `saturated` is the share of draws with that verdict."""

    d_k: int
    scaled: bool
    keys: int
    draws: int
    seed: int
    max_prob: float
    gradient: float
    spread: float
    saturated: float
    score_deviation: float  # the standard deviation of what enters the softmax

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, repr=False)
class Curve:
    """Means over a range of d_k, from the same draws without scaling and with it."""

    unscaled: tuple[Mean, ...]
    scaled: tuple[Mean, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            name: [mean.to_dict() for mean in getattr(self, name)]
            for name in ("unscaled", "scaled")
        }

    def __repr__(self) -> str:
        first = self.unscaled[0]
        lines = [
            f"Means over {first.draws:,} draws of one query and {counted(first.keys, 'key')}",
            "      │ not scaled                            │ divided by √d_k",
            "  d_k │ max prob  gradient  spread  saturated │ max prob  gradient  spread  saturated",
        ]
        for plain, scaled in zip(self.unscaled, self.scaled, strict=True):
            figures = " │ ".join(
                f"{m.max_prob:8.3f}  {m.gradient:8.3f}  {m.spread:6.3f}  "
                f"{percent(m.saturated, 1):>9}"
                for m in (plain, scaled)
            )
            lines.append(f"{plain.d_k:5} │ {figures}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The same raw scores through a softmax, as they are and divided by √d_k.

    >>> compare([15, 12, 9], 64)
    Raw scores [15, 12, 9], d_k = 64
    not scaled:     weights [0.950330, 0.047314, 0.002356], gradient 0.0472, spread 0.188, saturated
    divided by √64: weights [0.463037, 0.318240, 0.218723], gradient 0.2486, spread 0.959, healthy
    """

    d_k: int
    unscaled: Row
    scaled: Row

    def to_dict(self) -> dict[str, Any]:
        return {
            "d_k": self.d_k,
            "unscaled": self.unscaled.to_dict(),
            "scaled": self.scaled.to_dict(),
        }

    def __repr__(self) -> str:
        scaled = f"divided by √{self.d_k}:"
        lines = [f"Raw scores {vector(self.unscaled.scores)}, d_k = {self.d_k}"]
        for how, row in (("not scaled:", self.unscaled), (scaled, self.scaled)):
            lines.append(
                f"{how:<{len(scaled)}} weights {vector(row.weights)}, gradient {row.gradient:.4f}, "
                f"spread {row.spread:.3f}" + (f", {row.verdict}" if row.verdict else "")
            )
        return "\n".join(lines)


def draw(d_k: int, *, keys: int = 8, scaled: bool = True, seed: int = 0) -> Draw:
    """One query and `keys` keys with standard normal entries, and the softmax over their scores."""
    _check(d_k=d_k, keys=keys, seed=seed)
    query, key = _vectors(np.random.default_rng(seed), 1, keys, d_k)
    done, health = _softmax(query, key, _scale(d_k, scaled))
    return Draw(d_k, scaled, seed, query[0, 0, 0], key[0, 0], done.raw[0, 0, 0], _row(done, health))


def mean(
    d_k: int, *, keys: int = 8, scaled: bool = True, draws: int = 2000, seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> Mean:  # fmt: skip
    """The figures of `draw`, averaged over many. `progress` hears how many more are done.

    >>> round(mean(64, scaled=False).max_prob, 2), round(mean(64).max_prob, 2)
    (0.88, 0.36)
    """
    _check(d_k=d_k, keys=keys, draws=draws, seed=seed)
    rng = np.random.default_rng(seed)
    at_once = max(1, MOST_NUMBERS // ((keys + 1) * d_k))
    sums, square = np.zeros(4), 0.0
    for start in range(0, draws, at_once):
        count = min(at_once, draws - start)
        done, seen = _softmax(*_vectors(rng, count, keys, d_k), _scale(d_k, scaled))
        figures = (seen.max_prob, seen.gradient, seen.spread, seen.saturated)
        sums += [float(figure.sum()) for figure in figures]
        square += float((done.scaled**2).sum())
        progress(count)
    max_prob, gradient, spread, saturated = (sums / draws).tolist()
    return Mean(
        d_k,
        scaled,
        keys,
        draws,
        seed,
        max_prob,
        gradient,
        spread,
        saturated,
        math.sqrt(square / (draws * keys)),
    )


def curve(
    sizes: Sequence[int] = SIZES, *, keys: int = 8, draws: int = 2000, seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Curve:  # fmt: skip
    """`mean` at each size, without scaling and with it. `progress` hears of work done and all.

    >>> found = curve((4, 64), draws=500)
    >>> [round(m.score_deviation) for m in found.unscaled]
    [2, 8]
    >>> [round(m.score_deviation) for m in found.scaled]
    [1, 1]
    """
    if len(sizes) == 0:
        raise ArgumentError("curve() got no sizes: give at least one d_k, such as (4, 64, 1024)")
    done = 0

    def one(d_k: int, scaled: bool) -> Mean:
        def told(count: int) -> None:
            nonlocal done
            done += count * d_k
            progress(done, 2 * draws * sum(sizes))

        return mean(d_k, keys=keys, scaled=scaled, draws=draws, seed=seed, progress=told)

    means = [[one(d_k, scaled) for d_k in sizes] for scaled in (False, True)]
    return Curve(tuple(means[0]), tuple(means[1]))


def compare(scores: Sequence[float], d_k: int) -> Comparison:
    """Raw scores of queries and keys of size d_k through a softmax, unscaled and scaled."""
    _check(d_k=d_k)
    raw = np.asarray(as_float(scores, "scores"), np.float64)
    if raw.ndim != 1 or raw.size == 0:
        raise ShapeError(f"scores has shape {raw.shape}: give one row of at least one number")
    # Scores are the dot products of a query [1] with keys of size 1 that hold them.
    rows = [_row(*_softmax(np.ones((1, 1)), raw[:, None], _scale(d_k, on))) for on in (False, True)]
    return Comparison(d_k, *rows)


def jacobian(weights: Any) -> Array:
    """The derivatives of a softmax that gave these weights: ∂pᵢ/∂sⱼ = pᵢ·(δᵢⱼ − pⱼ).

    weights [..., n] gives [..., n, n]. Rows and columns sum to 0: a weight grows only at the cost
    of the others, and raising every score alike changes nothing.

    >>> jacobian([0.5, 0.5])
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    """
    p = np.asarray(weights, np.float64)
    if p.ndim == 0:
        raise ShapeError("weights is a single number: give a row of them, [..., keys]")
    return p[..., :, None] * (np.eye(p.shape[-1]) - p[..., None, :])


def _scale(d_k: int, scaled: bool) -> float:
    return 1.0 / math.sqrt(d_k) if scaled else 1.0


def _vectors(rng: np.random.Generator, draws: int, keys: int, d_k: int) -> tuple[Array, Array]:
    """query [draws, 1, 1, d_k] and key [draws, 1, keys, d_k], standard normal."""
    if (keys + 1) * d_k > LARGEST_DRAW:
        raise ArgumentError(
            f"d_k={d_k:,} and {counted(keys, 'key')}: one draw has {(keys + 1) * d_k:,} numbers, "
            f"and {LARGEST_DRAW:,} are the most"
        )
    both = rng.standard_normal((draws, 1, keys + 1, d_k))
    return both[:, :, :1], both[:, :, 1:]


def _softmax(query: Array, key: Array, scale: float) -> tuple[Steps, Health]:
    call = prepare(query, key, scale=scale)
    done = reference.steps(call)
    return done, Health.of(call, State(done.output, done.logsumexp, done.max_logit, done.entropy))


def _row(done: Steps, health: Health) -> Row:
    figures = ("max_prob", "gradient", "entropy", "spread", "effective_keys")
    return Row(
        scores=done.scaled[0, 0, 0],
        weights=done.weights[0, 0, 0],
        **{name: float(getattr(health, name).reshape(-1)[0]) for name in figures},
        verdict=str(health.verdict.reshape(-1)[0]),
    )


def _check(**numbers: Any) -> None:
    for name, value in numbers.items():
        least = 0 if name == "seed" else 1
        if not is_integer(value) or value < least:
            raise ArgumentError(f"{name}={value!r}: give a whole number ≥ {least}")
        if name == "d_k" and value >= 1 << 63:
            raise ArgumentError(f"d_k={value:,} is too large: give a whole number below 2^63")
        if name == "draws" and value > MOST_DRAWS:
            raise ArgumentError(f"draws={value:,} are too many: {MOST_DRAWS:,} are the most")
