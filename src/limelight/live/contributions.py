"""Contributions: what each part of a model adds to a token's logit, directly.

The residual stream is a sum: the embedding, and what every head and every feed-forward added. The
last norm divides it by its size; with that size held at its value the logit is a sum too:

    logit(t) = Σ_parts (part / size · w) · u_t  +  b · u_t          u_t: t in the unembedding

This is what a part says by itself. What later layers make of it is what an effect measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limelight.writing.numbers import fixed, signed
from limelight.writing.tables import columns

if TYPE_CHECKING:
    from limelight.live.run import Run

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Contributions:
    """Shares of a logit (or of a difference of two) after the last token; they sum to `total`.

    heads         [layers, heads]
    feed_forward  [layers]
    embedding     what the token itself says
    rest          what the last norm's bias says, whatever the text
    norms         [layers, heads], the length of what each head adds to the residual stream
    """

    token: str
    against: str | None
    heads: Array
    feed_forward: Array
    embedding: float
    rest: float
    norms: Array

    @property
    def total(self) -> float:
        return float(self.heads.sum() + self.feed_forward.sum()) + self.embedding + self.rest

    @classmethod
    def of(cls, run: Run, token: int | str | None, against: int | str | None) -> Contributions:
        model = run.model
        decoder = model.decoder
        wanted = int(run.last.argmax()) if token is None else model.token(token)
        row = decoder.unembedding[:, wanted].astype(np.float64)
        if against is not None:
            row = row - decoder.unembedding[:, model.token(against)]
        stream = run.residuals[:, -1].astype(np.float64)  # [layers + 1, width]
        size = decoder.norm.size(stream[-1:])
        added = np.stack([head_outputs(run, layer) for layer in range(decoder.depth)])
        fed = np.diff(stream, axis=0) - added.sum(axis=1)
        bias = decoder.norm.bias

        def said(part: Array) -> Array:
            return np.asarray(decoder.norm.linear(part, size) @ row)

        return cls(
            token=model.vocabulary.piece(wanted),
            against=None if against is None else model.vocabulary.piece(model.token(against)),
            heads=said(added), feed_forward=said(fed), embedding=float(said(stream[:1])[0]),
            rest=0.0 if bias is None else float(bias @ row),
            norms=np.linalg.norm(added, axis=2),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: all of it."""
        return {
            "token": self.token, "against": self.against, "heads": self.heads.tolist(),
            "feed_forward": self.feed_forward.tolist(), "embedding": self.embedding,
            "rest": self.rest, "total": self.total, "norms": self.norms.tolist(),
        }  # fmt: skip

    def __repr__(self) -> str:
        of = repr(self.token) + ("" if self.against is None else f" less that of {self.against!r}")
        numbers = (str(head) for head in range(self.heads.shape[1]))
        lines = [("layer", *numbers, "feed-forward")]
        for n, row in enumerate(self.heads):
            cells = (signed(x, 2) for x in (*row, self.feed_forward[n]))
            lines.append((str(n), *cells))
        head = f"Contributions to the logit of {of}: {fixed(self.total, 3)} in all"
        return "\n".join([head, *columns(lines)])


def head_outputs(run: Run, layer: int) -> Array:
    """What each head of a layer added to the last token, [heads, width]."""
    decoder, length = run.model.decoder, len(run.ids)
    query, key, value = (run.memory.get(n, length)[layer, None] for n in ("query", "key", "value"))
    read = decoder.attend(layer, query[:, :, -1:], key, value, [run.off])[0, :, 0]  # [heads, D]
    return np.asarray(np.einsum("hd,hdw->hw", read.astype(np.float64), decoder.out(layer)))
