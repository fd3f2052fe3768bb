"""Effects: what the absence of each head does to what a model says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limelight.errors import ArgumentError
from limelight.live.measure import Measure
from limelight.live.off import Off
from limelight.writing.frames import Frame, Tabular
from limelight.writing.numbers import fixed, signed
from limelight.writing.tables import columns, lit

if TYPE_CHECKING:
    from limelight.live.model import Model
    from limelight.live.run import Run

Array = NDArray[Any]
PARTS = ("heads", "layers")
ROWS = 1024  # tokens that go through a layer together: enough for BLAS, and 12 MB inside SmolLM2
LOGITS = 128  # tokens whose logits are held at once: 75 MB with SmolLM2's vocabulary


@dataclass(frozen=True, eq=False)
class Effects(Tabular):
    """One number for each head: what a measure becomes without it.

    before   the measure with everything on
    after    [layers, heads], with that head off
    change   after − before
    cost     what the absence costs: how far the answer falls, or how far the loss rises
    names    of the columns: heads by their numbers, or attention and feed-forward
    """

    before: float
    after: Array
    measure: str
    tokens: tuple[str, ...]
    answer: str | None
    against: str | None = None
    names: tuple[str, ...] = ()
    source: str = ""

    @classmethod
    def of(
        cls, follow: Measure, before: float, after: Array, tokens: tuple[str, ...],
        piece: Callable[[int], str], **facts: Any,
    ) -> Effects:  # fmt: skip
        """From the measure with everything on, and without each head."""
        answer, against = (
            None if token is None else piece(token) for token in (follow.answer, follow.against)
        )
        return cls(before, after, follow.name, tokens, answer, against, **facts)

    @property
    def change(self) -> Array:
        return self.after - self.before

    @property
    def cost(self) -> Array:
        return self.change if self.measure == "loss" else -self.change

    def strongest(self, k: int = 10) -> list[tuple[int, int, float]]:
        """The (layer, head, change) of those whose absence changes most, most first."""
        change = self.change
        order = np.argsort(-np.abs(change), axis=None, kind="stable")[:k]
        return [(int(n) // change.shape[1], int(n) % change.shape[1], float(change.flat[n]))
                for n in order]  # fmt: skip

    @property
    def meaning(self) -> str:
        """What was measured, in words."""
        said = {
            "log-probability": f"log-probability of {self.answer!r} next",
            "difference": f"logit of {self.answer!r} less that of {self.against!r}",
            "loss": "loss on the text, nats a token",
        }
        return said[self.measure]

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: all of it."""
        return {
            "model": self.source, "tokens": list(self.tokens), "measure": self.measure,
            "answer": self.answer, "against": self.against, "before": self.before,
            "columns": list(self.names), "change": self.change.tolist(),
        }  # fmt: skip

    def frame(self) -> Frame:
        """The measure without each head, its change and its cost, by layer and head."""
        values = {"after": self.after, "change": self.change, "cost": self.cost}
        axes = {"layer": range(len(self.after)), "head": self.names}
        return Frame(axes, values, there=~np.isnan(self.after))

    def lines(self) -> list[tuple[str, ...]]:
        """Headings, then the change of each layer's heads."""
        rows = [tuple(signed(x, 2) for x in row) for row in self.change]
        return [("layer", *self.names), *((str(n), *row) for n, row in enumerate(rows))]

    def __repr__(self) -> str:
        head = f"Effects on the {self.meaning}: {fixed(self.before, 3)} with everything on"
        return "\n".join([head, *columns(self.lines())])

    def _repr_html_(self) -> str:
        shares = np.nan_to_num(np.abs(self.change))
        shares /= shares.max(initial=0.0) or 1.0
        head, *rows = self.lines()
        body = "".join(
            f"<tr><th>{row[0]}</th>"
            + "".join(lit(c, x) for c, x in zip(row[1:], lights, strict=True))
            + "</tr>"
            for row, lights in zip(rows, shares, strict=True)
        )
        titles = "".join(f"<th>{escape(name)}</th>" for name in head)
        before = f"{fixed(self.before, 3)} with everything on"
        said = f"{self.meaning}: {before}; the change without each"
        return (f"<table><caption>{escape(said)}</caption><thead><tr>{titles}</tr></thead>"
                f"<tbody>{body}</tbody></table>")  # fmt: skip


def measure(
    model: Model,
    text: str,
    *,
    answer: int | str | None = None,
    against: int | str | None = None,
    loss: bool = False,
    since: int = 1,
    parts: str = "heads",
    mean_over: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Effects:
    """What the absence of each head does to the next token, or to the loss on the text.

    answer     the token whose log-probability is followed; None: the likeliest next one
    against    another token: then the difference of the two logits is followed
    loss       follow the loss on the text, whatever comes next
    since      the loss counts from this token on, as where a repetition begins
    parts      "heads", or "layers" for each layer's attention and feed-forward as wholes
    mean_over  what is off gives its mean over this text, and not zero
    progress   called with "layer i of n" as batches go through; what it raises ends the work

    Every variant shares the intact pass up to the layer that it touches, and from there on they go
    through the layers in batches.
    """
    if parts not in PARTS:
        raise ArgumentError(f"parts={parts!r}: measure {' or '.join(PARTS)}")
    run = model.run(text, keep="all" if loss else "last")
    follow = Measure.of(run.ids, run.last, model.token, answer=answer, against=against, loss=loss,
                        since=since)  # fmt: skip
    decoder = model.decoder
    if parts == "heads":
        names = tuple(str(head) for head in range(decoder.heads))
        offs = [Off(heads=((n, h),)) for n in range(decoder.depth) for h in range(decoder.heads)]
    else:
        names = ("attention", "feed-forward")
        offs = [off for n in range(decoder.depth)
                for off in (Off(attention=(n,)), Off(feed_forward=(n,)))]  # fmt: skip
    if mean_over is not None:
        offs = [model.switched(off, mean_over) for off in offs]
    after = outcomes(run, offs, follow, progress=progress)
    logits = run.logits[None] if loss else run.logits[None, None]
    before = float(follow(follow.rows(logits))[0])
    return Effects.of(follow, before, after.reshape(decoder.depth, -1), run.tokens,
                      model.vocabulary.piece, names=names, source=model.name)  # fmt: skip


def outcomes(
    run: Run, offs: Sequence[Off], follow: Measure, *,
    progress: Callable[[str], None] | None = None,
) -> Array:  # fmt: skip
    """What `follow` says of the logits of each variant of a run, [variants].

    Variants enter the batch at the first layer that they touch, with the run's own residual stream.
    """
    decoder, tokens = run.model.decoder, len(run.ids)
    stream, rotation = run.residuals, decoder.rotation(0, tokens)
    order = sorted(range(len(offs)), key=lambda i: min(offs[i].layers))
    size = max(1, ROWS // tokens)
    found = np.empty(len(offs))
    for begin in range(0, len(order), size):
        part = order[begin : begin + size]
        entries = [min(offs[i].layers) for i in part]
        x = np.empty((0, tokens, decoder.width), np.float32)
        for layer in range(entries[0], decoder.depth):
            joining = entries.count(layer)
            if joining:
                x = np.concatenate([x, np.repeat(stream[layer, None], joining, axis=0)])
            x = decoder.step(layer, x, rotation, offs=[offs[i] for i in part[: len(x)]]).x
            if progress is not None:
                progress(f"layer {layer + 1} of {decoder.depth}")
        states = follow.rows(x)
        few = max(1, LOGITS // states.shape[1])
        for at in range(0, len(part), few):
            found[part[at : at + few]] = follow(decoder.logits(states[at : at + few]))
    return found
