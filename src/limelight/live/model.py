"""Model: a decoder with its vocabulary: run it, let it write, switch parts off and measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from limelight.arrays import a_type, is_integer
from limelight.errors import ArgumentError
from limelight.live.decoder import Decoder
from limelight.live.memory import Memory
from limelight.live.off import Means, Off, as_off
from limelight.live.run import Run
from limelight.live.vocabulary import Vocabulary

if TYPE_CHECKING:
    from limelight.live.effects import Effects

KEEPS = ("last", "all")
MEANS = 8  # texts whose means a model keeps


@dataclass(frozen=True, eq=False)
class Model:
    """A language model that answers while you look; NumPy and limelight's engines, no torch.

    >>> from limelight import live
    >>> run = live.load("gpt").run("It is the east, and Juliet is the su")
    >>> run.next(1)[0].token
    'n'
    """

    name: str
    decoder: Decoder
    vocabulary: Vocabulary
    source: dict[str, Any] = field(default_factory=dict)
    _known_means: dict[str, Means] = field(default_factory=dict, init=False, repr=False)

    def run(
        self,
        text: str,
        off: Off | Iterable[tuple[int, int]] = (),
        *,
        keep: str = "last",
        mean_over: str | None = None,
        like: Run | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Run:
        """One pass over a text.

        off        heads to go without, as [(layer, head), …], or an Off with layers' attention,
                   feed-forwards and single cells too
        keep       "last": the logits after the last token; "all": after every token
        mean_over  what is off gives its mean over this text, and not zero
        like       a run of this model with the same off: tokens that both begin with are not
                   computed again
        progress   called with the name of each layer; what it raises ends the run
        """
        if keep not in KEEPS:
            raise ArgumentError(f"keep={keep!r}: keep the logits of the last token, or all")
        ids = self.encode(text)
        switched = self.switched(off, mean_over, len(ids))
        memory, start = Memory(self.decoder), 0
        if like is not None and like.model is self and like.off == switched and keep == "last":
            pairs = zip(ids[:-1], like.ids, strict=False)  # the last one says what comes next
            memory, start = like.memory, sum(1 for _ in takewhile(lambda p: p[0] == p[1], pairs))
        return self.proceed(ids, switched, memory, start, keep=keep, progress=progress)

    def write(
        self, text: str, n: int, *, off: Off | Iterable[tuple[int, int]] = (),
        mean_over: str | None = None, **how: Any,
    ) -> Run:  # fmt: skip
        """Continue a text by up to n tokens; temperature, top_k, seed, progress as in Run.write."""
        return self.run(text, off, mean_over=mean_over).write(n, **how)

    def effects(self, text: str, **how: Any) -> Effects:
        """What each head's absence does, layers × heads: see limelight.live.effects.measure."""
        from limelight.live.effects import measure

        return measure(self, text, **how)

    def means(self, text: str) -> Means:
        """What heads and feed-forwards give on average over a text."""
        known = self._known_means
        found = known.get(text)
        if found is None:
            found = known[text] = _means(self, text)
            for oldest in list(known)[:-MEANS]:
                known.pop(oldest, None)
        return found

    def switched(
        self, off: Off | Iterable[tuple[int, int]], mean_over: str | None = None,
        tokens: int | None = None,
    ) -> Off:  # fmt: skip
        """What is off, checked against this model, with the means where a text is given."""
        found = as_off(off).within(self.decoder, tokens)
        return found if mean_over is None else replace(found, means=self.means(mean_over))

    def encode(self, text: str) -> tuple[int, ...]:
        """The text's tokens, as many as the model reads."""
        if not isinstance(text, str):
            raise ArgumentError(f"the text is {a_type(text)}: give one string")
        ids = tuple(self.vocabulary.encode(text))
        if not ids:
            raise ArgumentError("the text is empty: give it at least one word")
        self._fits(len(ids))
        return ids

    def token(self, given: int | str) -> int:
        """The number of a token, from itself or its text."""
        if is_integer(given):
            if not 0 <= int(given) < self.decoder.vocabulary:
                raise ArgumentError(
                    f"there is no token {given}: those of {self.name} are numbered 0 to "
                    f"{self.decoder.vocabulary - 1:,}"
                )
            return int(given)
        if not isinstance(given, str) or not given:
            raise ArgumentError(f"{given!r} names no token: give its text, or its number")
        ids = self.vocabulary.continued(given)
        if len(ids) != 1:
            parts = " ".join(repr(self.vocabulary.piece(i)) for i in ids)
            inside = " " + given.strip()
            hint = f", or {inside!r}" if len(self.vocabulary.continued(inside)) == 1 else ""
            raise ArgumentError(
                f"{given!r} is {len(ids)} tokens for {self.name} ({parts}): give one of them{hint}"
            )
        return ids[0]

    def proceed(
        self, ids: tuple[int, ...], off: Off, memory: Memory, start: int, *, keep: str,
        written: int = 0, progress: Callable[[str], None] | None = None,
    ) -> Run:  # fmt: skip
        """The tokens from `start` on, after what the memory holds of those before."""
        self._fits(len(ids))
        decoder, new = self.decoder, ids[start:]
        memory = memory.room(start, len(new))

        def extend(layer: int, key: Any, value: Any) -> tuple[Any, Any]:
            memory.put("key", layer, start, key[0])
            memory.put("value", layer, start, value[0])
            held = (memory.get(name, len(ids))[layer, None] for name in ("key", "value"))
            return tuple(held)  # type: ignore[return-value]

        x = decoder.embed(new, start)[None]
        memory.put("residual", 0, start, x[0])
        rotation, offs = decoder.rotation(start, len(new)), [off] if off else None
        for layer in range(decoder.depth):
            x, query, _, _ = decoder.step(layer, x, rotation, offs=offs, extend=extend)
            memory.put("query", layer, start, query[0])
            memory.put("residual", layer + 1, start, x[0])
            if progress is not None:
                progress(decoder.site.format(layer))
        logits = decoder.logits(x[0, -1] if keep == "last" else x[0])
        return Run(self, ids, logits, off, memory, written)

    def _fits(self, tokens: int) -> None:
        if tokens > self.decoder.length:
            raise ArgumentError(
                f"the text has {tokens:,} tokens, and {self.name} reads up to "
                f"{self.decoder.length:,}: give it less"
            )

    @property
    def parameters(self) -> int:
        return sum(array.size for array in self.decoder.arrays)

    @property
    def bytes(self) -> int:
        """What the weights take in memory."""
        return sum(array.nbytes for array in self.decoder.arrays)

    def __repr__(self) -> str:
        d = self.decoder
        return (f"Model({self.name}: {self.parameters / 1e6:,.1f}M parameters in "
                f"{self.bytes / 1e6:,.0f} MB, {d.depth} layers × {d.heads} heads, reads "
                f"{d.length:,} tokens)")  # fmt: skip


def _means(model: Model, text: str) -> Means:
    decoder, ids = model.decoder, model.encode(text)
    x, rotation = decoder.embed(ids)[None], decoder.rotation(0, len(ids))
    heads, fed = [], []
    for layer in range(decoder.depth):
        step = decoder.step(layer, x, rotation)
        x = step.x
        heads.append(step.heads[0].mean(axis=1))
        fed.append(step.fed[0].mean(axis=0))
    return Means(np.array(heads), np.array(fed), text)
