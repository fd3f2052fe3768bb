"""Off: what is switched off in a run, and what stands in its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from limelight.arrays import index, is_integer
from limelight.errors import ArgumentError

if TYPE_CHECKING:
    from limelight.live.decoder import Decoder

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Means:
    """What heads and feed-forwards give on average over a reference text."""

    heads: Array  # [layers, heads, D], before W_O
    feed_forward: Array  # [layers, width]
    text: str


@dataclass(frozen=True)
class Off:
    """What a run goes without.

    heads         (layer, head): what the head read adds nothing to its tokens
    attention     layers whose heads are all off
    feed_forward  layers whose feed-forward adds nothing
    cells         (layer, head, query, key): that query may not look at that key; the rest of its
                  row shares the weight
    means         stands in for what is off, in place of zero; cells are hidden either way

    >>> Off(heads=[(3, 1)], attention=[5])
    Off(head 1 of layer 3; attention of layer 5)
    """

    heads: tuple[tuple[int, int], ...] = ()
    attention: tuple[int, ...] = ()
    feed_forward: tuple[int, ...] = ()
    cells: tuple[tuple[int, int, int, int], ...] = ()
    means: Means | None = None

    def __post_init__(self) -> None:
        for name, size in (("heads", 2), ("attention", 0), ("feed_forward", 0), ("cells", 4)):
            object.__setattr__(self, name, _numbers(name, getattr(self, name), size))

    @property
    def layers(self) -> frozenset[int]:
        """The layers that are touched."""
        named = (entry[0] for entry in (*self.heads, *self.cells))
        return frozenset((*named, *self.attention, *self.feed_forward))

    def __bool__(self) -> bool:
        return bool(self.layers)

    def heads_at(self, layer: int, heads: int) -> list[int]:
        """The heads of a layer that are off."""
        if layer in self.attention:
            return list(range(heads))
        return [head for at, head in self.heads if at == layer]

    def cells_at(self, layer: int) -> list[tuple[int, int, int]]:
        return [(head, query, key) for at, head, query, key in self.cells if at == layer]

    def within(self, decoder: Decoder, tokens: int | None = None) -> Off:
        """The same for this model: negative layers count from the end, and all that is named must
        exist."""

        def layer(number: int) -> int:
            return index(number, decoder.depth, "layer")

        def head(number: int) -> int:
            return index(number, decoder.heads, "head")

        def token(number: int) -> int:
            return number if tokens is None else index(number, tokens, "token")

        return replace(
            self,
            heads=tuple((layer(n), head(h)) for n, h in self.heads),
            attention=tuple(layer(n) for n in self.attention),
            feed_forward=tuple(layer(n) for n in self.feed_forward),
            cells=tuple((layer(n), head(h), token(q), token(k)) for n, h, q, k in self.cells),
        )

    def __repr__(self) -> str:
        words = [f"head {h} of layer {n}" for n, h in self.heads]
        words += [f"attention of layer {n}" for n in self.attention]
        words += [f"feed-forward of layer {n}" for n in self.feed_forward]
        words += [f"head {h} of layer {n} from {q} to {k}" for n, h, q, k in self.cells]
        by = f", by the mean over {self.means.text!r:.40}" if self.means else ""
        return f"Off({'; '.join(words) or 'nothing'}{by})"


def as_off(given: Off | Iterable[Any]) -> Off:
    """Off as it is; pairs are heads."""
    return given if isinstance(given, Off) else Off(heads=given)  # type: ignore[arg-type]


def _numbers(name: str, given: Any, size: int) -> tuple[Any, ...]:
    """Whole numbers, or tuples of so many of them, each once."""
    form = {0: "3", 2: "(layer, head)", 4: "(layer, head, query, key)"}[size]
    try:
        entries: list[Any] = [entry if size == 0 else tuple(entry) for entry in given]
    except TypeError:
        entries = [None]
    for entry in entries:
        numbers = (entry,) if size == 0 else entry
        if numbers is None or len(numbers) != max(size, 1) or not all(map(is_integer, numbers)):
            raise ArgumentError(
                f"off: {name}={given!r} is not understood: give a list of whole numbers such as "
                f"{name}=[{form}]"
            )
    return tuple(dict.fromkeys(entries))


def apply(output: Array, offs: list[Off], layer: int) -> None:
    """Put zero or the mean where heads are off: output [B, H, N, D], in place."""
    for row, off in zip(output, offs, strict=True):
        heads = off.heads_at(layer, output.shape[1])
        if heads:
            row[heads] = 0 if off.means is None else off.means.heads[layer, heads, None]


def shown(offs: list[Off], layer: int, heads: int, start: int, length: int) -> Array | None:
    """Which cells stay in view, [B, H, N, start + N]; None where no single cell is off."""
    hidden = [off.cells_at(layer) for off in offs]
    if not any(hidden):
        return None
    seen = np.ones((len(offs), heads, length, start + length), np.bool_)
    for row, cells in zip(seen, hidden, strict=True):
        for head, query, key in cells:
            if start <= query < start + length and key < start + length:
                row[head, query - start, key] = False
    return seen
