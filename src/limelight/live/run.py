"""Run: what a model made of a text, and what it would write next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import index, is_integer
from limelight.capture import Capture, Site
from limelight.errors import ArgumentError
from limelight.live.decoder import CAUSAL
from limelight.live.memory import Memory
from limelight.live.off import Off, shown
from limelight.writing.numbers import counted, percent

if TYPE_CHECKING:
    from limelight.live.contributions import Contributions
    from limelight.live.model import Model
    from limelight.live.vocabulary import Vocabulary

Array = NDArray[Any]


class Guess(NamedTuple):
    """A token that may come next."""

    token: str
    probability: float
    id: int


@dataclass(frozen=True, eq=False)
class Run:
    """One pass over a text.

    ids      its tokens' numbers; `tokens` their texts
    logits   what comes next, [vocabulary]; with keep="all" after every token, [tokens, vocabulary]
    off      what was switched off
    written  how many of the tokens the model wrote itself
    """

    model: Model
    ids: tuple[int, ...]
    logits: Array
    off: Off
    memory: Memory
    written: int = 0

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.model.vocabulary.tokens(self.ids)

    @property
    def text(self) -> str:
        return self.model.vocabulary.decode(self.ids)

    @property
    def last(self) -> Array:
        """The logits after the last token, [vocabulary]."""
        return self.logits if self.logits.ndim == 1 else self.logits[-1]

    def next(self, k: int = 5) -> list[Guess]:
        """The likeliest next tokens with their probabilities, best first."""
        if not is_integer(k) or k < 1:
            raise ArgumentError(f"next({k!r}): give how many tokens, at least 1")
        return best(self.last, k, self.model.vocabulary)

    def log_probability(self, token: int | str) -> float:
        """Of one token coming next, in nats."""
        return float(log_softmax(self.last)[self.model.token(token)])

    @cached_property
    def loss(self) -> float:
        """Nats a token, over all tokens but the first; needs keep="all"."""
        if self.logits.ndim == 1 or len(self.ids) < 2:
            raise ArgumentError(
                'the loss needs two tokens or more, and the logits of all: run(text, keep="all")'
            )
        return float(losses(self.logits[:-1], self.ids))

    @property
    def residuals(self) -> Array:
        """The residual stream, [layers + 1, tokens, width]: as it enters each layer, and at last
        as it leaves."""
        return self.memory.get("residual", len(self.ids))

    @cached_property
    def capture(self) -> Capture:
        """What every head attended to, as limelight.hf.capture gives it."""
        length, decoder = len(self.ids), self.model.decoder
        query, key, value = (self.memory.get(name, length) for name in ("query", "key", "value"))
        tokens = (self.tokens,)
        sites = []
        for layer in range(decoder.depth):
            seen = shown([self.off], layer, decoder.heads, 0, length)
            sites.append(Site(
                name=decoder.site.format(layer), layer=layer, query=query[layer, None],
                key=key[layer, None], value=value[layer, None], tokens=tokens,
                out=decoder.out(layer),
                mask=CAUSAL if seen is None else CAUSAL & seen,
            ))  # fmt: skip
        source = {**self.model.source, "text": self.text, "made": "limelight.live"}
        if self.off:
            source["off"] = repr(self.off)
        return Capture(tuple(sites), tokens, source=source)

    def then(self, token: int | str, *, wrote: bool = False) -> Run:
        """The run with one token more, at the cost of that token."""
        ids = (*self.ids, self.model.token(token))
        return self.model.proceed(ids, self.off, self.memory, len(self.ids), keep="last",
                                  written=self.written + wrote)  # fmt: skip

    def write(
        self,
        n: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        seed: int = 0,
        progress: Callable[[str], None] | None = None,
    ) -> Run:
        """Let the model write up to n tokens more; the run over all of them comes back.

        temperature   0 takes the likeliest; 1 draws by the model's own probabilities
        top_k         draw from so many of the likeliest alone
        progress      called with each token as it is written

        It stops early at a token that ends the text, and where the model can read no further.
        """
        if not is_integer(n) or n < 0:
            raise ArgumentError(f"write({n!r}): give how many tokens, 0 or more")
        if not isinstance(temperature, Real) or not temperature >= 0:
            raise ArgumentError(f"temperature={temperature!r}: 0 takes the likeliest, 1 draws")
        if top_k is not None and (not is_integer(top_k) or top_k < 1):
            raise ArgumentError(f"top_k={top_k!r}: give at least 1, or None for all")
        if not is_integer(seed) or seed < 0:
            raise ArgumentError(f"seed={seed!r}: give a whole number ≥ 0")
        chance, run = np.random.default_rng(seed), self
        for _ in range(min(n, self.model.decoder.length - len(self.ids))):
            token = _draw(run.last, temperature, top_k, chance)
            if token in self.model.vocabulary.ends:
                break
            run = run.then(token, wrote=True)
            if progress is not None:
                progress(self.model.vocabulary.piece(token))
        return run

    def contributions(
        self, token: int | str | None = None, *, against: int | str | None = None
    ) -> Contributions:
        """What each head, feed-forward and the embedding add to a token's logit, directly.

        Without a token: that of the likeliest next one; `against` takes another's off it.
        """
        from limelight.live.contributions import Contributions

        return Contributions.of(self, token, against)

    def reading(self, layer: int, head: int) -> Array:
        """How much of each token a head brings to each other: ‖w·v·W_O‖, [queries, keys].

        A large weight on a small value brings little; this is what arrives in the residual stream.
        """
        sizes = self.model.decoder
        head = index(head, sizes.heads, "head")
        one = self.capture.sites[index(layer, sizes.depth, "layer")].one(head)
        return np.asarray(one.weights(head=0) * one.brought[0, 0])

    def __repr__(self) -> str:
        best = ", ".join(f"{g.token!r} {percent(g.probability)}" for g in self.next(3))
        held = self.memory.bytes_a_token * len(self.ids) / 1e6
        off = f", {self.off!r}" if self.off else ""
        return f"Run({counted(len(self.ids), 'token')}{off}; next {best}; {held:.1f} MB)"


def best(logits: Array, k: int, vocabulary: Vocabulary) -> list[Guess]:
    """The k likeliest tokens by their logits, [vocabulary], best first."""
    shares = np.exp(log_softmax(logits))
    k = min(k, len(shares))
    found = np.argpartition(-shares, k - 1)[:k]
    found = found[np.argsort(-shares[found], kind="stable")]
    return [Guess(vocabulary.piece(int(i)), float(shares[i]), int(i)) for i in found]


def log_softmax(logits: Array) -> Array:
    """In float64, along the last axis."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    return np.asarray(wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True)))


def losses(logits: Array, ids: tuple[int, ...]) -> Array:
    """Nats a token where logits [.., N − 1, vocabulary] foretell ids[1:]: [..]."""
    rows = np.arange(len(ids) - 1)
    return np.asarray(-log_softmax(logits)[..., rows, list(ids[1:])].mean(axis=-1))


def _draw(logits: Array, temperature: float, top_k: int | None, chance: Any) -> int:
    if not np.isfinite(logits.max()):  # also where any of them is NaN
        raise ArgumentError(
            "the model says what is no number, and nothing can be written by that: its weights are "
            "damaged, or too large for float32"
        )
    if temperature == 0:
        return int(logits.argmax())
    held = np.arange(len(logits))
    if top_k is not None and top_k < len(logits):
        held = np.argpartition(-logits, top_k - 1)[:top_k]
        held.sort()
    apart = logits[held].astype(np.float64) - logits[held].max()  # 0 for the likeliest
    with np.errstate(over="ignore"):  # a small temperature leaves the likeliest alone
        shares = np.exp(log_softmax(apart / temperature))
    return int(chance.choice(held, p=shares / shares.sum()))
