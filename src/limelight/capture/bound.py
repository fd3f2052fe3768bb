"""Bound: how much memory a capture may fill with weights, said before it is passed."""

from __future__ import annotations

from limelight.errors import ArgumentError
from limelight.writing.numbers import in_bytes

DEFAULT = 2 << 30  # bytes


class Bound:
    """Counts the bytes of weights that are kept as they are, heads × queries × keys each."""

    def __init__(self, most: int = DEFAULT) -> None:
        if isinstance(most, bool) or not isinstance(most, int) or most < 0:
            raise ArgumentError(f"most_weights={most!r}: give a number of bytes, such as {DEFAULT}")
        self.most, self.taken = most, 0

    def take(self, wanted: int, what: str, less: str = "fewer layers (layers=…)") -> None:
        """Room for so many bytes, or an error while nothing is kept of them."""
        if self.taken + wanted > self.most:
            held = f", and {in_bytes(self.taken)} are kept already" if self.taken else ""
            raise ArgumentError(
                f"the weights of {what} take {in_bytes(wanted)}, all n×n of them{held}: more than "
                f"the {in_bytes(self.most)} that a capture keeps of them. Capture a shorter text "
                f"or {less}, or allow more bytes with most_weights=…"
            )
        self.taken += wanted
